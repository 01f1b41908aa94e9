"""Reader alerts: groups and apps that retention endangers or has overtaken, and groups that are no longer used.

What it is: ``watch_readers``, one look at all readers of a topic: conditions that hold begin, the others end; groups
that have expired are removed. ``note_lost``, for the transaction in which retention drops rows.
Invariants: a reader is told of before it loses rows, at ``RISK`` of the way to a retention limit. A loss is noted in
the transaction that loses. A removed group's alert ends, and the message says that it was removed.
Not here: storing and telling (``alerts.py``), the decisions (``log/groups/readers.py``). Read next: ``alerts.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.log.catalog.registry import TopicRow
from headwater.log.groups.readers import (
    Reader,
    ReaderLag,
    is_abandoned,
    reader_state,
    readers_of,
    removable,
    remove,
    seen_at,
)
from headwater.log.maintenance.alerts import GROUP_KINDS, Condition, begin, end, lasting_names
from headwater.log.storage.partition_layout import SegmentSpan, spans_of
from headwater.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from headwater.log.topic import Topic

RISK = 0.8  # of the retention limit

Name = tuple[str, int, str]


def risk(spans: Sequence[SegmentSpan], settings: TopicSettings, position: int, now_us: int) -> tuple[float, str]:
    """The fraction of a retention limit that the oldest unread segment has reached (1.0: due), and which limit.

    >>> spans = [SegmentSpan(0, 10, 400, newest_us=0), SegmentSpan(10, 20, 400, newest_us=5_000)]
    >>> risk(spans, TopicSettings(retention_ms=10), position=3, now_us=9_000)
    (0.9, 'age')
    >>> risk(spans, TopicSettings(retention_bytes=1_000), position=10, now_us=9_000)
    (0.4, 'bytes')
    """
    unread = [span for span in spans if span.next_offset > position]
    if not unread:
        return 0.0, "age"
    by_age = by_bytes = 0.0
    if settings.retention_ms is not None:
        by_age = (now_us - unread[0].newest_us) / (settings.retention_ms * 1000)
    if settings.retention_bytes is not None and not unread[0].active:
        by_bytes = sum(span.bytes for span in unread) / settings.retention_bytes
    return (by_age, "age") if by_age >= by_bytes else (by_bytes, "bytes")


def lag_of(topic: Topic) -> list[ReaderLag]:
    """The lag of every reader of a topic."""
    now_us, settings = topic.clock.now_us(), topic.settings
    readers = readers_of(topic.log.catalog.read, topic.id, now_us)
    ends, starts = topic.end_offsets(), topic.start_offsets()
    spans = _spans(topic) if readers else {}
    found = []
    for reader in readers:
        parts = [
            risk(spans[number], settings, at, now_us)[0] for number, at in reader.positions.items() if number in spans
        ]
        found.append(
            ReaderLag(
                topic=topic.name,
                reader=reader.name,
                kind=reader.kind,
                lag=reader.lag(ends),
                positions=dict(reader.positions),
                retention_part=round(max(parts), 3) if parts else None,
                state=reader_state(reader, topic, ends, starts, now_us),
                seen_at=seen_at(reader),
            )
        )
    return found


def watch_readers(topic: Topic) -> None:
    """Begin and end the alerts about the readers of a topic, and remove groups that have expired."""
    catalog, row = topic.log.catalog, topic.row()
    now_us = topic.clock.now_us()
    readers = readers_of(catalog.read, row.id, now_us)
    lasts = lasting_names(catalog.read, row.id, GROUP_KINDS)
    if not readers and not lasts:
        return
    spans, ends, starts = _spans(topic), topic.end_offsets(), topic.start_offsets()
    found = _conditions(row, readers, spans, ends, starts, now_us)
    if set(found) == lasts and not removable(readers, row.settings, ends, now_us):
        return
    with catalog.write() as db:
        # Checked again inside, because another process may have been faster.
        def read(sql: str, parameters: Sequence[Any]) -> list[sqlite3.Row]:
            return db.execute(sql, parameters).fetchall()

        gone = removable(readers_of(read, row.id, now_us), row.settings, ends, now_us)
        remove(db, row.id, gone)
        readers = readers_of(read, row.id, now_us)
        found = _conditions(row, readers, spans, ends, starts, now_us)
        for condition in found.values():
            begin(db, row.id, condition, now_us)
        there = {reader.subject: reader for reader in readers}
        for name in lasting_names(read, row.id, GROUP_KINDS) - set(found):
            end(db, row.id, name, now_us, _why_over(name, there, {each.subject for each in gone}, found))


def note_lost(db: sqlite3.Connection, row: TopicRow, partition: int, start: int, now_us: int) -> None:
    """Note the readers that were before a partition's new start; inside the transaction that moves it."""

    def read(sql: str, parameters: Sequence[Any]) -> list[sqlite3.Row]:
        return db.execute(sql, parameters).fetchall()

    for reader in readers_of(read, row.id, now_us):
        offset = reader.positions.get(partition, start)
        if offset < start:
            begin(db, row.id, _lost(row, reader, partition, offset, start), now_us)


def _spans(topic: Topic) -> dict[int, list[SegmentSpan]]:
    settings = topic.settings
    limited = settings.retention_ms is not None or settings.retention_bytes is not None
    return {number: spans_of(topic, number) for number in range(settings.partitions)} if limited else {}


def _conditions(
    row: TopicRow,
    readers: Iterable[Reader],
    spans: Mapping[int, Sequence[SegmentSpan]],
    ends: Mapping[int, int],
    starts: Mapping[int, int],
    now_us: int,
) -> dict[Name, Condition]:
    found = []
    for reader in readers:
        for partition, position in reader.positions.items():
            start = starts.get(partition, 0)
            if position < start:
                found.append(_lost(row, reader, partition, position, start))
            offset, parts = max(position, start), spans.get(partition, ())
            part, by = risk(parts, row.settings, offset, now_us)
            if part >= RISK:
                found.append(_at_risk(row, reader, partition, offset, parts[-1].next_offset, part, by))
        if is_abandoned(reader, row.settings, ends, now_us):
            found.append(_abandoned(row, reader, ends))
    return {condition.name: condition for condition in found}


def _about(reader: Reader) -> dict[str, Any]:
    return {"app": reader.name} if reader.kind == "app" else {}


def _lost(row: TopicRow, reader: Reader, partition: int, position: int, start: int) -> Condition:
    lost = start - position
    return Condition(
        "lag_lost",
        partition,
        reader.subject,
        f'retention of topic "{row.name}" has overtaken {reader.title} in partition {partition}: '
        f"{lost} rows were dropped before it read them",
        {**_about(reader), "position": position, "start": start, "rows_lost": lost},
    )


def _at_risk(row: TopicRow, reader: Reader, partition: int, offset: int, stop: int, part: float, by: str) -> Condition:
    limit = row.settings.retention_ms if by == "age" else row.settings.retention_bytes
    setting = f"retention={limit} ms" if by == "age" else f"retention_bytes={limit}"
    lag = stop - offset
    return Condition(
        "lag_at_risk",
        partition,
        reader.subject,
        f'{reader.title} is {lag} rows behind in topic "{row.name}" partition {partition}, and the oldest '
        f"of them have reached {min(part, 1.0):.0%} of {setting}",
        {**_about(reader), "position": offset, "end": stop, "lag": lag, "part": round(part, 3), "by": by},
    )


def _abandoned(row: TopicRow, reader: Reader, ends: Mapping[int, int]) -> Condition:
    lag = reader.lag(ends)
    who = "no tick" if reader.kind == "app" else "no member and no commit"
    return Condition(
        "group_abandoned",
        0,
        reader.subject,
        f'{reader.title} of topic "{row.name}" has {lag} unread rows and {who} since {seen_at(reader)}. '
        f"{reader.way_on(row.name)}",
        {**_about(reader), "lag": lag, "seen_at": seen_at(reader)},
    )


def _why_over(name: Name, there: Mapping[str, Reader], removed: set[str], found: Mapping[Name, Condition]) -> str:
    kind, partition, subject = name
    reader = there.get(subject)
    if subject in removed:
        return "It expired and was removed: rows are no longer kept for it, and producers do not wait for it."
    if reader is None:
        return "It was deleted."
    if kind == "lag_lost":
        return f"It goes on at offset {reader.positions.get(partition, 0)}."
    if kind == "lag_at_risk" and ("lag_lost", partition, subject) in found:
        return "The rows were dropped."
    if kind == "group_abandoned" and reader.members:
        return "It has a member again."
    return "It has read on."
