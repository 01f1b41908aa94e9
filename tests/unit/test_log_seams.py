"""What is asked of a log outside of ``log/``, pinned.

What it is: two rules over the source: which modules of the rooms of ``log/`` may be imported, and which attributes of a
log or a topic may be used. The rest goes through ``log/contract.py``, so that a second log can keep it.
Invariants: a rule that fails names each file and line. Not here: the other rules (``test_tidy.py``).
Read next: ``log/contract.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_tidy import ROOMS, imported_when_loaded, module_name, package_modules, part_of, where

# What lies in the rooms of ``log/`` and may be imported outside of it. Everything else that is asked of a log is in
# ``log/contract.py``. Tools know nothing of a log: files, SQLite, hashes, locks.
LOG_TOOLS = {
    "catalog.catalog",
    "catalog.sqlite_file",
    "maintenance.bounded_logs",
    "storage.checksums",
    "storage.file_descriptors",
    "storage.files",
    "catalog.encrypted_volume",
    "catalog.home_folder",
    "storage.locks",
    "storage.routing",
    "storage.wake",
}
LOG_SHAPES = {  # what the contract's answers are made of, and what is the same over every log
    "commits.request_ids",
    "commits.sequence_ranges",
    "commits.stored_positions",
    "commits.value_versions",
    "event_time.capture_markers",
    "event_time.heartbeats",
    "event_time.producer_progress",
    "event_time.watermarks",
    "groups.dead_letters",
    "groups.groups",
    "groups.readers",
    "groups.sink_lag",
    "maintenance.alerts",
    "maintenance.home_check",
    "maintenance.reader_alerts",
    "maintenance.segment_check",
    "storage.file_listing",
    "storage.framing",
}
EMBEDDED_ONLY = {  # these parts work with the embedded log alone, and ask for a capability that no other log has
    # A backup is of the files of a home, and a log on Kafka has none: upkeep/backup/.
    "catalog.registry": {"upkeep"},
    "commits.append_marks": {"upkeep"},
    "commits.cut_numbers": {"upkeep"},
    "maintenance.removal_pin": {"upkeep", "views"},
    "maintenance.sealing": {"upkeep"},  # a checkpoint is noted of what is sealed
    # The trail is a topic of the home, whichever log an app reads; proofs are of the home's segments: upkeep/audit/.
    "maintenance.audit_trail": {"cli", "server", "upkeep"},
    "proof.checkpoints": {"upkeep"},
    "proof.commitment_file": {"upkeep"},
    "proof.merkle_proof": {"upkeep"},
    "proof.merkle_tree": {"upkeep"},
    "proof.row_commitments": {"upkeep"},
    "storage.active_segment": {"upkeep"},
    "storage.frame_index": {"upkeep"},
    "storage.partition_layout": {"upkeep"},
    "commits.append_request": {"aggregates"},  # conditions, which Kafka does not check as it writes
    "commits.handed_over": {"upkeep"},  # Kafka cannot be closed to other programs
    # Erasing a person rewrites the files of a home: upkeep/erasure/. What was erased is told to those who follow.
    "erasure.erased_people": {"upkeep", "views"},
    "erasure.erasure_records": {"sinks", "upkeep", "views"},
    # Purposes end in the files of a home, too.
    "erasure.expired_rows": {"views"},
    "erasure.log_expiry": {"upkeep"},
    "erasure.purposes": {"app_privacy", "upkeep", "views"},
    "erasure.log_erasure": {"upkeep", "views"},
    "erasure.segment_erasure": {"upkeep"},
    "erasure.personal_rows": {"upkeep", "views"},
    "commits.undo": {"app", "cli"},  # what it takes back is compared with what is there, as it writes
    "groups.consumer": {"server"},
    "groups.leases": {"server"},
    "groups.messages": {"server"},
    "groups.worker": {"server"},
    "storage.sealed_segment": {"upkeep", "views"},  # files for backups, and for Spark: views/spark/topic_scan.py
}
# What belongs to one kind of log, by the name of what it would be asked of.
LOG_INSIDE = {
    "log": {
        "catalog",
        "commit_records",
        "cut_counter",
        "files",
        "opened",
        "positions",
        "registry",
        "request_ids",
        "waker",
    },
    "topic": {"directory", "new_reader", "open_partitions", "partition", "reader"},
}


def outside_the_log() -> Iterator[Path]:
    """What only uses a log; ``kafka/`` is one."""
    return (path for path in package_modules() if part_of(module_name(path)) not in ("log", "kafka", "__init__"))


def test_what_is_imported_from_the_rooms_of_the_log_is_pinned() -> None:
    wrong = []
    for path in outside_the_log():
        part = part_of(module_name(path))
        for line, module in imported_when_loaded(path):
            room, _, rest = module.removeprefix("headwater.log.").partition(".")
            if not module.startswith("headwater.log.") or room not in ROOMS["log"] or room == "schema":
                continue
            target = f"{room}.{rest.split('.')[0]}"
            if target not in LOG_TOOLS | LOG_SHAPES and part not in EMBEDDED_ONLY.get(target, set()):
                wrong.append(f"{where(path, line)}: {part} imports {module}")

    assert wrong == []


def test_nothing_outside_the_log_asks_for_what_only_one_kind_of_log_has() -> None:
    wrong = []
    for path in outside_the_log():
        if path.parent.name in ("audit", "backup", "erasure"):  # of the files of a home
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute | ast.Name):
                continue
            asked = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
            if node.attr in LOG_INSIDE.get(asked.removeprefix("_"), ()):
                wrong.append(f"{where(path, node.lineno)}: {ast.unparse(node)}")

    assert wrong == []
