"""Compaction: the latest of each key stays, with its offset; tombstones stay for their grace."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest

from headwater.errors import Misuse
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.topic import Topic
from headwater.testing import ManualClock


def users(log: Log, **settings: Any) -> Topic:
    settings = {"tombstone_grace": "1 minute", "segment_bytes_max": 1 << 20, **settings}
    return log.topic("users", "id INT, name STRING", key="id", compact=True, **settings)


def put(topic: Topic, names: dict[int, str | None]) -> None:
    """One segment: None deletes."""
    for key, name in names.items():
        if name is None:
            topic.delete([{"id": key}])
        else:
            topic.append([{"id": key, "name": name}])
    topic.partition(0).roll()


def rows(topic: Topic) -> list[tuple[int, int, str | None]]:
    found = topic.rows(columns=["_offset", "id", "name"])
    return [(row["_offset"], row["id"], row["name"]) for row in found]


def test_the_latest_record_of_each_key_stays_at_its_offset(log: Log) -> None:
    topic = users(log)
    put(topic, {1: "a", 2: "b", 3: "c"})
    put(topic, {2: "B"})
    put(topic, {3: "C", 1: "A"})

    done = compact_partition(topic, 0, force=True)

    assert done is not None
    assert (done.rows_before, done.rows_after, done.segments_after) == (6, 3, 1)
    assert rows(topic) == [(3, 2, "B"), (4, 3, "C"), (5, 1, "A")]
    assert topic.end_offsets() == {0: 6}


def test_rows_at_the_front_of_a_compacted_segment_keep_their_offsets_when_its_end_is_gone(log: Log) -> None:
    topic = users(log)
    put(topic, {1: "a", 2: "b", 3: "c", 4: "d"})
    topic.delete([{"id": 3}, {"id": 4}])
    clock: Any = log.clock
    clock.advance(60)

    compact_partition(topic, 0, force=True)

    assert rows(topic) == [(0, 1, "a"), (1, 2, "b")]
    assert [batch.offsets.tolist() for batch in topic.read()] == [[0, 1]]
    assert log.check().problems == ()


def test_every_offset_from_the_start_on_is_found_although_rows_are_gone(log: Log) -> None:
    topic = users(log)
    for turn in range(4):
        put(topic, {1: f"{turn}", 2: f"{turn}"})
    compact_partition(topic, 0, force=True)

    found = {start: [row["_offset"] for row in topic.rows(start, columns=["_offset"])] for start in range(9)}

    assert found == {start: [offset for offset in (6, 7) if offset >= start] for start in range(9)}


def test_a_tombstone_stays_for_its_grace_and_hides_older_records_before_it_goes(log: Log, clock: ManualClock) -> None:
    topic = users(log)
    put(topic, {1: "a", 2: "b"})
    put(topic, {1: None})

    compact_partition(topic, 0, force=True)
    young = list(topic.rows(columns=["_offset", "id", "_deleted"]))
    clock.advance(60)
    report = log.maintain()

    assert young == [{"_offset": 1, "id": 2, "_deleted": False}, {"_offset": 2, "id": 1, "_deleted": True}]
    assert [step.action for step in report.steps] == ["compact"]
    assert rows(topic) == [(1, 2, "b")]


def test_a_key_that_came_back_after_its_tombstone_stays(log: Log, clock: ManualClock) -> None:
    topic = users(log)
    put(topic, {1: "a"})
    put(topic, {1: None})
    put(topic, {1: "again"})
    clock.advance(60)

    compact_partition(topic, 0, force=True)

    assert rows(topic) == [(2, 1, "again")]


def test_everything_may_be_gone_and_offsets_still_go_on(log: Log, clock: ManualClock) -> None:
    topic = users(log)
    put(topic, {1: "a", 2: "b"})
    put(topic, {1: None, 2: None})
    clock.advance(60)

    compact_partition(topic, 0, force=True)
    empty = rows(topic)
    topic.append([{"id": 3, "name": "c"}])

    assert empty == []
    assert rows(topic) == [(4, 3, "c")]
    assert log.check().problems == ()


def test_only_what_is_sealed_is_compacted(log: Log) -> None:
    topic = users(log)
    put(topic, {1: "a"})
    put(topic, {1: "b"})
    topic.append([{"id": 1, "name": "c"}])

    log.maintain()

    assert rows(topic) == [(1, 1, "b"), (2, 1, "c")]


def test_it_waits_until_it_is_worth_while(log: Log) -> None:
    topic = users(log)
    put(topic, dict.fromkeys(range(10), "first"))
    first = log.maintain()
    put(topic, {1: "second"})
    second = log.maintain()
    put(topic, dict.fromkeys(range(9), "third"))
    third = log.maintain()

    assert [[s.action for s in report.steps if s.action == "compact"] for report in (first, second, third)] == [
        ["compact"],
        [],
        ["compact"],
    ]
    assert len(rows(topic)) == 10
    assert log.maintain().steps == ()


def test_many_small_segments_become_one(log: Log) -> None:
    topic = users(log)
    put(topic, dict.fromkeys(range(100), "x"))
    log.maintain()
    for n in range(100, 109):
        put(topic, {n: "y"})

    log.maintain()

    assert len(log.registry.sealed(topic.id, 0, topic.directory / "0")) == 1
    assert len(rows(topic)) == 109


def test_large_segments_are_not_merged_beyond_the_maximum(log: Log) -> None:
    topic = users(log, segment_bytes_max=4000)
    for turn in range(4):
        topic.append([{"id": n, "name": f"{n * 7919:x}"} for n in range(turn * 200, turn * 200 + 200)])
        topic.partition(0).roll()

    compact_partition(topic, 0, force=True)

    sealed = log.registry.sealed(topic.id, 0, topic.directory / "0")
    assert 1 < len(sealed) <= 4
    assert all(segment.compacted for segment in sealed)
    assert len(rows(topic)) == 800


def test_older_schema_versions_become_the_latest(log: Log) -> None:
    topic = users(log)
    put(topic, {1: "a", 2: "b"})
    topic = log.topic("users", "id BIGINT, name STRING, country STRING", key="id")
    topic.append([{"id": 1, "name": "A", "country": "DE"}])

    compact_partition(topic, 0, force=True)

    assert list(topic.rows()) == [{"id": 2, "name": "b", "country": None}, {"id": 1, "name": "A", "country": "DE"}]
    assert [s.schema_version for s in log.registry.sealed(topic.id, 0, topic.directory / "0")] == [2]
    assert log.check().problems == ()


def test_a_key_widened_between_versions_is_still_the_same_key(log: Log) -> None:
    topic = log.topic("t", "id INT, x INT", key="id", compact=True)
    topic.append([{"id": 1, "x": 1}])
    topic = log.topic("t", "id BIGINT, x INT", key="id")
    topic.append([{"id": 1, "x": 2}])

    compact_partition(topic, 0, force=True)

    assert list(topic.rows()) == [{"id": 1, "x": 2}]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("BOOLEAN", True, False),
        ("TINYINT", -1, 1),
        ("BIGINT", -(2**62), 2**62),
        ("STRING", "", "ä"),
        ("BINARY", b"", b"\x00\xff"),
        ("DATE", dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
        ("TIMESTAMP", dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2060, 1, 1, tzinfo=dt.UTC)),
        ("DECIMAL(20, 3)", decimal.Decimal("-1.500"), decimal.Decimal("1.500")),
    ],
)
def test_every_kind_of_key_alone_and_with_another(log: Log, kind: str, first: Any, second: Any) -> None:
    single = log.topic("single", f"k {kind}, x INT", key="k", compact=True)
    double = log.topic("double", f"k {kind}, part INT, x INT", key=["k", "part"], compact=True)
    for x in range(3):
        for key in (first, second):
            single.append([{"k": key, "x": x}])
            double.append([{"k": key, "part": part, "x": x} for part in (1, 2)])
    single.delete([{"k": second}])

    for topic in (single, double):
        compact_partition(topic, 0, force=True)

    latest = {row["k"]: row["x"] for row in single.rows(columns=["k", "x", "_deleted"]) if not row["_deleted"]}
    assert latest == {first: 2}
    assert [(row["k"], row["part"], row["x"]) for row in double.rows()] == [
        (key, part, 2) for key in (first, second) for part in (1, 2)
    ]


def test_event_and_append_times_and_producers_survive(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "id INT, at TIMESTAMP", key="id", event_time="at", compact=True)
    moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    for turn in range(3):
        topic.append([{"id": turn % 2, "at": moment + dt.timedelta(days=turn)}], producer="p", sequence=turn)
        clock.advance(10)
    columns = ["_offset", "id", "at", "_appended_at", "_producer"]
    before = list(topic.rows(1, columns=columns))

    compact_partition(topic, 0, force=True)

    assert list(topic.rows(columns=columns)) == before
    assert topic.offsets_at(moment + dt.timedelta(days=2)) == {0: 2}
    assert log.check().problems == ()


def test_a_reader_in_the_middle_of_a_compacted_file_goes_on(log: Log) -> None:
    topic = users(log)
    for turn in range(4):
        topic.append([{"id": n, "name": f"{turn}"} for n in range(1000)])
        topic.partition(0).roll()
    batches = topic.read_partition(0, 0, columns=["_offset", "id", "name"], rows_max=300)
    seen = {row["id"]: row["name"] for row in next(batches).to_pylist()}

    compact_partition(topic, 0, force=True)
    topic.append([{"id": 0, "name": "last"}])
    offsets = []
    for batch in [*batches, *topic.read_partition(0, 4000)]:
        offsets += batch.offsets.tolist()
        seen |= {row["id"]: row["name"] for row in batch.to_pylist()}

    assert seen == {0: "last", **dict.fromkeys(range(1, 1000), "3")}
    assert offsets == sorted(set(offsets))


def test_a_topic_that_is_not_declared_so_is_refused(log: Log) -> None:
    topic = log.topic("t", "id INT", key="id")

    with pytest.raises(Misuse, match="not declared to be compacted"):
        compact_partition(topic, 0)
