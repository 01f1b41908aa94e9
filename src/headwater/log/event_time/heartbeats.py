"""Heartbeats: a producer's promise that nothing before some event time will come from it any more.

What it is: the system topic ``_heartbeats``, to which ``producer.heartbeat(at)`` and ``topic.heartbeat(at)`` append.
Invariants: a heartbeat is a record of the log like others, so that ticks see it in order and a replay sees it again; it
names the offsets that its topic had reached, and counts only for who has read so far: rows that were sent before it
are never taken for late because of it.
Not here: what a watermark is (``watermarks.py``).
Read next: ``watermarks.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.clock import to_us
from headwater.errors import Misuse
from headwater.log.event_time.producer_progress import ProducerProgress, together
from headwater.log.token import Token
from headwater.log.topic_settings import TopicOptions

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

HEARTBEATS = "_heartbeats"
SCHEMA = "topic STRING, producer BIGINT, nothing_before TIMESTAMP, reached STRING"
SETTINGS: TopicOptions = {"retention_bytes": 16 << 20, "segment_bytes_max": 1 << 20}


def send(topic: Topic, nothing_before: dt.datetime, producer: int = 0) -> Token:
    """Promise that this producer (0: those without a name) will send nothing before a moment."""
    if topic.settings.event_time is None:
        raise Misuse(
            f'topic "{topic.name}" has no event time, so there is nothing to promise',
            hint='Declare it with event_time="…", the column that says when a row happened.',
            topic=topic.name,
        )
    reached = str(Token({topic.name: topic.end_offsets()}))
    heartbeats = topic.log.topic(HEARTBEATS, SCHEMA, **SETTINGS)
    return heartbeats.append(
        [{"topic": topic.name, "producer": producer, "nothing_before": nothing_before, "reached": reached}]
    )


def find(log: Log) -> Topic | None:
    """The topic of heartbeats, if any was ever sent."""
    row = log.registry.find(HEARTBEATS)
    return None if row is None else log.opened(row)


def taken(
    heartbeats: Topic, start: int, stop: int, frontier: Mapping[str, Mapping[int, int]]
) -> tuple[int, dict[str, dict[int, ProducerProgress]]]:
    """The heartbeats that count for who has read up to ``frontier``: up to which offset, and their paces by topic.

    One that speaks of rows beyond the frontier has to wait, and those behind it with it. Topics that are not in the
    frontier are nobody's concern.
    """
    paces: dict[str, dict[int, ProducerProgress]] = {}
    start = max(start, heartbeats.start_offsets()[0])
    for batch in heartbeats.read_partition(0, start, stop=stop, columns=[*_NAMES, "_appended_at"]):
        offsets = batch.offsets
        moments = pc.cast(batch.data.column("_appended_at"), "int64").to_pylist()
        for place, row in enumerate(batch.data.select(_NAMES).to_pylist()):
            topic = row["topic"]
            if topic not in frontier:
                continue
            reached = Token.parse(row["reached"]).frontier.get(topic, {})
            if any(frontier[topic].get(number, 0) < offset for number, offset in reached.items()):
                return int(offsets[place]), paces
            pace = ProducerProgress(nothing_before_us=to_us(row["nothing_before"]), seen_us=moments[place])
            paces[topic] = together(paces.get(topic, {}), {row["producer"]: pace})
    return max(start, stop), paces


_NAMES = ["topic", "producer", "nothing_before", "reached"]
