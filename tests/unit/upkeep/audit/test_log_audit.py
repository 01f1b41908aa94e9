"""An audit finds what was changed in a segment's file, and where; and nothing where only we were at work."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.errors import CorruptSegment, Misuse
from headwater.log.erasure.log_erasure import erase_person
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.proof.proof_release import ProofRelease
from headwater.log.storage.checksums import checksum_of
from headwater.log.topic import Topic
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from tests.crash.ledger import QuietLog

OF_ORDERS = {"user_id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="user_id")}


@pytest.fixture
def quiet(tmp_path: Path) -> Any:
    with QuietLog(tmp_path / "home", maintenance_interval=None) as log:
        yield log


def sealed(log: Log, rows: int = 40, **settings: Any) -> Topic:
    topic = log.topic("orders", "id INT, user_id INT, name STRING", proof=True, privacy=OF_ORDERS, **settings)
    for half in range(2):
        first = half * rows // 2
        topic.append([{"id": n, "user_id": n % 7, "name": f"n{n}"} for n in range(first, first + rows // 2)])
        topic.partition(0).roll()
    log.maintain()
    return topic


def files(topic: Topic, ending: str = "parquet") -> list[Path]:
    return sorted((topic.directory / "0").glob(f"*.{ending}"))


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table], *, also_checksum: bool = True) -> None:
    """Change a segment as an intruder would who knows the format, and mends the catalog's checksum."""
    pq.write_table(change(pq.read_table(path)), path, compression="zstd")
    if also_checksum:
        with closing(sqlite3.connect(path.parents[3] / "catalog.sqlite")) as db, db:
            found = checksum_of(path), path.stat().st_size, path.name
            db.execute("UPDATE segments SET checksum = ?, bytes = ? WHERE file = ?", found)


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.names.index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def told(log: Log) -> list[tuple[str, int | None, int, str]]:
    found = audit_log(log).differences
    return [(each.kind, each.offset, each.rows, Path(each.file).name) for each in found]


def test_what_nobody_touched_is_as_it_was(quiet: QuietLog) -> None:
    topic = sealed(quiet)

    audit = audit_log(quiet)

    assert audit.ok, audit.differences
    (found,) = audit.partitions
    assert (found.checkpoints, found.rows, found.size, found.pending) == (2, 40, 40, 0)
    assert quiet.check().problems == ()
    assert [path.name for path in files(topic, "proof")] == [f"{0:020d}.proof", f"{20:020d}.proof"]


def test_a_changed_value_is_found_though_the_checksum_was_mended(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[1]

    rewritten(path, lambda t: with_column(t, "name", [*t["name"].to_pylist()[:5], "zz", *t["name"].to_pylist()[6:]]))

    assert told(quiet) == [("changed", 25, 1, path.name)]


def test_an_append_time_or_a_producer_cannot_be_changed_either(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[0]

    rewritten(path, lambda t: with_column(t, "_producer", [*[None] * 3, 9, *[None] * 16]))

    assert told(quiet) == [("changed", 3, 1, path.name)]


def test_removed_rows_are_found(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[0]

    rewritten(path, lambda t: pa.concat_tables([t.slice(0, 7), t.slice(9)]))

    assert told(quiet) == [("removed", 7, 2, path.name)]


def test_rows_that_changed_places_are_found_and_told_apart_from_changed_ones(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[0]

    def swapped(table: pa.Table) -> pa.Table:
        order = list(range(20))
        order[4], order[11] = order[11], order[4]
        moved = table.take(pa.array(order))
        return with_column(moved, "_offset", list(range(20)))

    rewritten(path, swapped)

    found = audit_log(quiet).differences
    assert [(each.kind, each.offset, each.message) for each in found] == [
        ("reordered", 4, "the row of offset 11 is here"),
        ("reordered", 11, "the row of offset 4 is here"),
    ]


def test_rows_out_of_order_in_the_file_are_found(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[0]

    rewritten(path, lambda t: t.take(pa.array([0, 2, 1, *range(3, 20)])))

    assert ("reordered", 1, 1, path.name) in told(quiet)


def test_a_flipped_byte_is_found_in_its_file_and_the_rows_that_it_touches(quiet: QuietLog) -> None:
    path = files(sealed(quiet, 20_000))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    found = told(quiet)

    assert found[0] == ("file", 10_000, 10_000, path.name)
    with pytest.raises(CorruptSegment):
        list(quiet.get_topic("orders").rows())
    assert all(offset is not None and offset >= 10_000 and name == path.name for _, offset, _, name in found)


def test_a_missing_segment_is_found(quiet: QuietLog) -> None:
    path = files(sealed(quiet))[1]

    path.unlink()

    assert told(quiet) == [("file", 20, 20, path.name)]


def test_values_where_they_were_erased_are_found(quiet: QuietLog) -> None:
    topic = sealed(quiet)
    erase_person(quiet, "user_id", "3")
    erased = audit_log(quiet)
    assert erased.ok, erased.differences
    assert erased.partitions[0].erased == 6
    path = files(topic)[0]

    rewritten(path, lambda t: with_column(t, "user_id", [3 if v is None else v for v in t["user_id"].to_pylist()]))
    assert told(quiet) == []  # one of its two columns is blank still
    rewritten(path, lambda t: with_column(t, "name", [v or "Ada" for v in t["name"].to_pylist()]))

    assert told(quiet) == [("changed", offset, 1, path.name) for offset in (3, 10, 17)]


def test_the_open_values_of_a_row_stay_provable_after_its_person_was_erased(quiet: QuietLog) -> None:
    topic = sealed(quiet)
    erase_person(quiet, "user_id", "3")

    path = files(topic)[0]
    rewritten(path, lambda t: with_column(t, "id", [*range(10), 99, *range(11, 20)]))

    assert told(quiet) == [("changed", 10, 1, path.name)]


def test_rows_that_pass_for_erased_where_nobody_was_are_told(quiet: QuietLog) -> None:
    topic = sealed(quiet)
    release = ProofRelease(topic, 0, 0, 20, np.delete(np.arange(20), 8))
    with quiet.catalog.write() as db:
        release.note(db)
    rewritten(files(topic)[0], lambda t: pa.concat_tables([t.slice(0, 8), t.slice(9)]))

    assert [(each.kind, each.rows) for each in audit_log(quiet).differences] == [("removed", 1)]


def test_other_commitments_are_not_those_of_the_checkpoint(quiet: QuietLog) -> None:
    topic = sealed(quiet)
    mine, other = files(topic, "proof")[0], files(topic, "proof")[1]
    mine.write_bytes(other.read_bytes())

    assert told(quiet)[0] == ("file", 0, 20, mine.name)
    with closing(sqlite3.connect(quiet.home / "catalog.sqlite")) as db, db:
        db.execute("UPDATE checkpoints SET file_checksum = ? WHERE file = ?", (checksum_of(mine), mine.name))
    found = told(quiet)
    assert found[0][:2] == ("changed", 0)
    assert all(kind == "changed" for kind, *_ in found)


def test_a_history_that_was_made_anew_differs_from_what_was_noted(tmp_path: Path) -> None:
    homes = []
    for name in ("true", "false"):
        with QuietLog(tmp_path / name, maintenance_interval=None) as log:
            topic = log.topic("orders", "id INT", proof=True)
            topic.append([{"id": 1 if name == "true" else 2}])
            homes.append(checkpoints_of(log, seal=True))
            topic.append([{"id": 3}])
            later = checkpoints_of(log, seal=True)
    with QuietLog(tmp_path / "false") as log:
        assert audit_log(log, noted=[*homes[1], *later]).ok
        found = audit_log(log, noted=[*homes[0], {**later[0], "size": 9}]).differences
        assert [each.kind for each in found] == ["noted", "noted"]
        assert "the root of the first 1 rows was" in found[0].message
        assert found[1].message == "9 rows were noted, and the checkpoints have 2"
        with pytest.raises(Misuse, match="not as `headwater audit checkpoint --json` writes them"):
            audit_log(log, noted=[{"topic": "orders"}])


def test_a_topic_without_proofs_says_how_to_have_them(quiet: QuietLog) -> None:
    quiet.topic("plain", "id INT")

    with pytest.raises(Misuse, match='topic "plain" keeps no proofs'):
        audit_log(quiet, ["plain"])
    assert audit_log(quiet).partitions == ()


def test_rows_from_before_it_was_turned_on_are_hashed_as_they_are(quiet: QuietLog) -> None:
    topic = quiet.topic("t", "id INT, v INT", key="id", compact=True)
    for turn in range(3):
        topic.append([{"id": n, "v": turn} for n in range(4)])
        topic.partition(0).roll()
    quiet.maintain()
    compact_partition(topic, 0, force=True)

    quiet.topic("t", "id INT, v INT", key="id", compact=True, proof=True)
    quiet.maintain()

    audit = audit_log(quiet)
    assert audit.ok, audit.differences
    assert audit.partitions[0].size == 12


def test_a_wider_schema_and_metadata_are_no_change(quiet: QuietLog) -> None:
    nested = "id INT, price FLOAT, at TIMESTAMP, raw BINARY, deep STRUCT<a: INT, b: ARRAY<INT>>"
    topic = quiet.topic("t", nested, key="id", compact=True, proof=True)
    row = {"price": 0.1, "raw": b"\x00", "deep": {"a": 1, "b": [1, None]}}
    topic.append([{"id": n, **row} for n in range(4)])
    topic.append([{"id": n, **row} for n in range(2)], metadata=hw.Metadata(actor="anna"))
    topic.partition(0).roll()
    quiet.maintain()
    wider = "id BIGINT, price DOUBLE, at TIMESTAMP, raw BINARY, deep STRUCT<a: BIGINT, b: ARRAY<BIGINT>, c: STRING>"
    topic = quiet.topic("t", f"{wider}, note STRING", key="id", compact=True, proof=True)
    topic.append([{"id": 3, **row, "deep": {"a": 1, "b": [], "c": "x"}, "note": "new"}])
    topic.partition(0).roll()
    compact_partition(topic, 0, force=True)

    audit = audit_log(quiet)
    assert audit.ok, audit.differences
    assert (audit.partitions[0].size, audit.partitions[0].rows, audit.partitions[0].removed) == (7, 4, 3)
    path = files(topic)[0]
    rewritten(path, lambda t: with_column(t, "note", ["old", *t["note"].to_pylist()[1:]]))
    assert [(each[0], each[1]) for each in told(quiet)] == [("changed", 2)]
