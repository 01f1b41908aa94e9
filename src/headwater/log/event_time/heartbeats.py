"""Heartbeats: a producer's promise that it will send no row before an event time.

What it is: the system topic ``_heartbeats``, to which ``producer.heartbeat(at)`` and ``topic.heartbeat(at)`` append.
Invariants: a heartbeat is a record of the log, so ticks see it in order and a replay sees it again. It names the
offsets that its topic had reached and takes effect for readers at these offsets only: it never makes earlier rows late.
Not here: watermarks (``watermarks.py``). Read next: ``watermarks.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.clock import to_us
from headwater.errors import Misuse
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress
from headwater.log.token import Token
from headwater.log.topic_settings import TopicOptions

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic

HEARTBEATS = "_heartbeats"
SCHEMA = "topic STRING, producer BIGINT, nothing_before TIMESTAMP, reached STRING"
SETTINGS: TopicOptions = {"retention_bytes": 16 << 20, "segment_bytes_max": 1 << 20}


def send(topic: EventTopic, nothing_before: dt.datetime, producer: int = 0) -> Token:
    """Promise that this producer (0: anonymous ones) will send no row before a moment."""
    if topic.settings.event_time is None:
        raise Misuse(
            f'topic "{topic.name}" has no event time, so it takes no heartbeats',
            hint='Declare it with event_time="…", the column that holds the time of a row.',
            topic=topic.name,
        )
    reached = str(Token({topic.name: topic.end_offsets()}))
    heartbeats = topic.log.topic(HEARTBEATS, SCHEMA, **SETTINGS)
    return heartbeats.append(
        [{"topic": topic.name, "producer": producer, "nothing_before": nothing_before, "reached": reached}]
    )


def find(log: EventLog) -> EventTopic | None:
    """The topic of heartbeats, if any was ever sent."""
    return log.find_topic(HEARTBEATS)


def taken(
    heartbeats: EventTopic, start: int, stop: int, frontier: Mapping[str, Mapping[int, int]]
) -> tuple[int, dict[str, dict[int, ProducerProgress]]]:
    """The heartbeats in effect at ``frontier``: the offset up to which they were taken, and the progress by topic.

    A heartbeat that names rows beyond the frontier waits, and all later ones with it. Topics outside the frontier are
    ignored.
    """
    by_topic: dict[str, dict[int, ProducerProgress]] = {}
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
                return int(offsets[place]), by_topic
            progress = ProducerProgress(nothing_before_us=to_us(row["nothing_before"]), seen_us=moments[place])
            by_topic[topic] = merge_progress(by_topic.get(topic, {}), {row["producer"]: progress})
    return max(start, stop), by_topic


_NAMES = ["topic", "producer", "nothing_before", "reached"]
