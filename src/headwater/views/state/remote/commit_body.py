"""Commit body: a tick's record as a commit or a checkpoint holds it.

What it is: ``body_of`` makes JSON of what a tick's commit writes, with the rows of small runs in it; ``record_in``
reads it back.
Invariants: what is read back writes the same rows into the catalog as the record that was given. A body has what the
tick changed, and nothing of views that stood still.
Not here: the object around it (``commit_log.py``); writing into the catalog (``store_manifests.py``).
Read next: ``store_manifests.py``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from headwater.views.state.manifest import TickRecord
from headwater.views.state.manifest_entries import EntryChanges, Place

SmallRows = Mapping[Place, bytes]  # of small runs, by folder and name


def body_of(record: TickRecord, rows: SmallRows) -> dict[str, Any]:
    """A record and the rows of its small runs as JSON can hold them.

    >>> record = TickRecord(7, 2, 99, "{}", {"revenue": 3}, EntryChanges(ended=[("view", "old")]), {1: {0: 5}}, [], 4)
    >>> record_in(body_of(record, {("revenue-ab", "7-2"): b"rows"})) == (record, {("revenue-ab", "7-2"): b"rows"})
    True
    """
    changes = record.changes
    return {
        "committed_us": record.committed_us,
        "manifest": record.text,
        "changed": dict(record.changed),
        "ended": changes.ended,
        "begun": changes.begun,
        "runs_ended": changes.runs_ended,
        "runs_begun": changes.runs_begun,
        "apart": changes.apart,
        "runs_apart": changes.runs_apart,
        "positions": record.positions,
        "needed": list(record.needed),
        "first_kept": record.first_kept,
        "tick": record.tick,
        "epoch": record.epoch,
        "small": [[folder, name, base64.b85encode(data).decode()] for (folder, name), data in rows.items()],
    }


def record_in(body: Mapping[str, Any]) -> tuple[TickRecord, dict[Place, bytes]]:
    """The record and the rows that ``body_of`` was given."""
    changes = EntryChanges(
        ended=[(kind, name) for kind, name in body["ended"]],
        begun=[(kind, name, entry) for kind, name, entry in body["begun"]],
        runs_ended=[(folder, name) for folder, name in body["runs_ended"]],
        runs_begun=[(folder, run) for folder, run in body["runs_begun"]],
        apart=[(name, entry) for name, entry in body["apart"]],
        runs_apart=[(folder, run) for folder, run in body["runs_apart"]],
    )
    record = TickRecord(
        body["tick"],
        body["epoch"],
        body["committed_us"],
        body["manifest"],
        body["changed"],
        changes,
        _numbered(body["positions"]),
        [_numbered(each) for each in body["needed"]],
        body["first_kept"],
    )
    return record, {(folder, name): base64.b85decode(data) for folder, name, data in body["small"]}


def _numbered(positions: Mapping[Any, Mapping[Any, int]]) -> dict[int, dict[int, int]]:
    return {int(topic): {int(number): offset for number, offset in of.items()} for topic, of in positions.items()}
