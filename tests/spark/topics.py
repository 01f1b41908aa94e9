"""Topics for the tests of this folder: with sealed files and a tail, and a way to compare frames with the log."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

from headwater.log.maintenance.retention import retain_partition
from headwater.log.maintenance.sealing import seal_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.log.home import Log
    from headwater.log.topic import Topic

SECONDS_MAX = 60
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NESTED = "id BIGINT, tags ARRAY<STRING>, sizes MAP<STRING, INT>, place STRUCT<lat: DOUBLE, seen: TIMESTAMP>"


def order(number: int) -> dict[str, Any]:
    return {"id": number, "amount": number / 2, "at": NOON + dt.timedelta(seconds=number)}


def append_orders(topic: Topic, count: int, *, first: int = 0, each: int = 10) -> None:
    for start in range(first, first + count, each):
        topic.append([order(number) for number in range(start, min(start + each, first + count))])


def orders(log: Log, **settings: Any) -> Topic:
    return log.topic("orders", "id BIGINT, amount DOUBLE, at TIMESTAMP", event_time="at", **settings)


def seal(topic: Topic) -> None:
    """Turn everything appended so far into Parquet, here or in the log's own thread, whoever comes first."""
    for number in range(topic.settings.partitions):
        topic.partition(number).roll()
        end, deadline = topic.end_offsets()[number], time.monotonic() + SECONDS_MAX
        while topic.log.registry.sealed_end(topic.id, number) < end:
            assert time.monotonic() < deadline, f"{topic} was not sealed"
            if seal_partition(topic, number) == 0:
                time.sleep(0.01)


def forget(topic: Topic) -> None:
    """Let retention drop every sealed segment."""
    topic.log.topic(topic.name, topic.schema, retention_bytes=1)
    for number in range(topic.settings.partitions):
        retain_partition(topic, number, wait=True)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The frame's rows as the log gives them: times with their zone. The tests' session zone is UTC."""
    return [_plain(row.asDict(recursive=True)) for row in frame.collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    return value


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))
