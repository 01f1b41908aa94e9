"""Markers bound what a tick takes; appends of mixed rows and of parts are recognised."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.capture.position import Snapshot
from headwater.errors import InvalidDeclaration
from headwater.log.event_time import capture_markers
from headwater.log.event_time.capture_markers import Markers
from headwater.log.home import Log
from headwater.log.topic import Topic


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "home", maintenance_interval=None)


def table(log: Log, name: str, rows: int) -> Topic:
    topic = log.topic(name, "id BIGINT", key="id", captured_by="shop")
    topic.append([{"id": number} for number in range(rows)])
    return topic


def stops(topics: list[Topic], begin: dict[str, int], stop: dict[str, int]) -> dict[str, int]:
    ends = capture_markers.bound(topics, {topic.name: topic.end_offsets() for topic in topics})
    begins, wanted = ({name: {0: offset} for name, offset in of.items()} for of in (begin, stop))
    return {name: of[0] for name, of in capture_markers.cut(topics, begins, wanted, ends).items()}


def test_a_table_that_no_marker_names_is_not_shown(log: Log) -> None:
    topics = [table(log, "users", 3)]

    assert capture_markers.bound(topics, {"users": {0: 3}}) == {"users": {0: 0}}


def test_rows_behind_the_last_marker_are_not_shown(log: Log) -> None:
    topics = [table(log, "users", 3)]
    Markers.declared(log, "shop").append("0/1", 1, None, {"users": 2})

    assert capture_markers.bound(topics, {"users": {0: 3}}) == {"users": {0: 2}}


def test_a_limited_tick_ends_at_the_last_marker_within(log: Log) -> None:
    topics = [table(log, "users", 10), table(log, "orders", 10)]
    markers = Markers.declared(log, "shop")
    for number, ends in enumerate([(1, 0), (1, 3), (4, 5), (9, 10)]):
        markers.append(f"0/{number}", number, None, dict(zip(("users", "orders"), ends, strict=True)))

    assert stops(topics, {"users": 0, "orders": 0}, {"users": 6, "orders": 6}) == {"users": 4, "orders": 5}
    assert stops(topics, {"users": 4, "orders": 5}, {"users": 10, "orders": 10}) == {"users": 9, "orders": 10}


def test_a_batch_that_is_larger_than_the_limit_is_taken_whole(log: Log) -> None:
    topics = [table(log, "users", 10), table(log, "orders", 10)]
    markers = Markers.declared(log, "shop")
    markers.append("0/1", 1, None, {"users": 8, "orders": 8})
    markers.append("0/2", 2, None, {"users": 9, "orders": 9})

    assert stops(topics, {"users": 0, "orders": 0}, {"users": 1, "orders": 1}) == {"users": 8, "orders": 8}


def test_no_table_goes_back_and_none_gets_ahead(log: Log) -> None:
    topics = [table(log, "users", 10), table(log, "orders", 10)]
    markers = Markers.declared(log, "shop")
    markers.append("0/1", 1, None, {"users": 2, "orders": 2})
    markers.append("0/2", 2, None, {"users": 5, "orders": 6})

    # users is at the second marker already, orders is new to the app and has a backlog.
    assert stops(topics, {"users": 5, "orders": 0}, {"users": 5, "orders": 3}) == {"users": 5, "orders": 6}


def test_rows_and_tombstones_are_one_append(log: Log) -> None:
    users = log.topic("users", "id BIGINT, name STRING", key="id")
    rows = pa.record_batch({"id": [1, 2, 1], "name": ["a", "b", None]})

    users.append_batch(rows, deleted=pa.array([False, False, True]))

    assert [(row["id"], row["_deleted"]) for row in users.rows(columns=["id", "_deleted"])] == [
        (1, False),
        (2, False),
        (1, True),
    ]


def test_a_mark_for_each_row_needs_one_partition(log: Log) -> None:
    users = log.topic("users", "id BIGINT, name STRING", key="id", partitions=2)

    with pytest.raises(InvalidDeclaration, match="needs a topic of one partition"):
        users.append_batch(pa.record_batch({"id": [1], "name": ["a"]}), deleted=pa.array([True]))


def test_parts_of_one_sequence_are_told_apart_and_recognised(log: Log) -> None:
    users = log.topic("users", "id BIGINT", key="id")

    for _ in range(2):
        for part in range(3):
            rows = pa.record_batch({"id": pa.array([part], pa.int64())})
            users.append_batch(rows, producer="capture", sequence=7, first_chunk=part * 16)

    assert [row["id"] for row in users.rows()] == [0, 1, 2]


def test_a_snapshot_counts_across_the_wrap_of_transaction_numbers() -> None:
    epoch = 5 << 32
    snapshot = Snapshot.parse(f"{epoch - 2}:{epoch + 3}:{epoch - 2},{epoch + 1}")

    seen = [number for number in range(epoch - 4, epoch + 5) if snapshot.saw(number & 0xFFFFFFFF)]

    assert seen == [epoch - 4, epoch - 3, epoch - 1, epoch, epoch + 2]
    assert Snapshot.parse(str(snapshot)) == snapshot
