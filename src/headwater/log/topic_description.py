"""Topic description: the content of ``topic.describe()`` and ``headwater topic describe``.

What it is: the declaration, offsets and sizes of one topic, as plain values for a table or JSON.
Invariants: it takes no lock and changes nothing; a file that is sealed or dropped meanwhile is not counted.
Not here: groups (``log/groups/groups.py``), verification (``log/maintenance/home_check.py``). Read next: ``topic.py``.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import Misuse
from headwater.log.event_time import heartbeats
from headwater.log.event_time.producer_progress import merge_progress
from headwater.log.event_time.watermarks import Watermark
from headwater.log.schema.ddl import spark_type, to_ddl
from headwater.log.schema.normalization import WEIGHT
from headwater.notebook import NotebookCard

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.topic import Topic


def describe_topic(topic: Topic, *, times: bool = True) -> dict[str, Any]:
    """The description of a topic; without ``times`` no segment is read."""
    row = topic.log.registry.find(topic.name) or topic.row()
    starts, ends = topic.start_offsets(), topic.end_offsets()
    sealed = topic.log.catalog.read(
        "SELECT partition, count(*) AS n, sum(bytes) AS bytes FROM segments WHERE topic_id = ? GROUP BY partition",
        (topic.id,),
    )
    by_partition = {r["partition"]: r for r in sealed}
    partitions = []
    for number in range(row.settings.partitions):
        arrow = _sizes(topic.directory / str(number), ".arrow")
        known = by_partition.get(number)
        partitions.append(
            {
                "partition": number,
                "start_offset": starts[number],
                "end_offset": ends[number],
                "rows": ends[number] - starts[number],
                "sealed_segments": known["n"] if known else 0,
                "sealed_bytes": known["bytes"] if known else 0,
                "arrow_segments": len(arrow),
                "arrow_bytes": sum(arrow),
            }
        )
    return {
        "name": topic.name,
        "schema": to_ddl(row.schema),
        "schema_version": row.version,
        "settings": asdict(row.settings),
        "created_at": format_us(row.created_us),
        "dropped_rows": row.dropped_rows,
        "partitions": partitions,
        **({"event_time": describe_watermark(topic)} if times and row.settings.event_time else {}),
    }


def describe_watermark(topic: EventTopic) -> dict[str, Any]:
    """The watermark of a topic, computed from the whole log."""
    if topic.settings.event_time is None:
        raise Misuse(
            f'topic "{topic.name}" has no event time, so it has no watermark',
            hint='Declare it with event_time="…", the column that holds the time of a row.',
            topic=topic.name,
        )
    stop = topic.end_offsets()
    came = topic.progress(topic.start_offsets(), stop)
    sent = heartbeats.find(topic.log)
    if sent is not None:
        _, by_topic = heartbeats.taken(sent, 0, sent.end_offsets()[0], {topic.name: stop})
        came = merge_progress(came, by_topic.get(topic.name, {}))
    now_us = max((progress.seen_us for progress in came.values()), default=0)
    found = Watermark().moved(came, now_us=now_us, settings=topic.settings)
    return found.describe(topic.producer_names(), topic.settings, now_us)


def topic_card(topic: EventTopic, what: str) -> NotebookCard:
    """What a notebook shows of a topic, or of a table."""
    topic.log.check_open()
    settings, starts, ends = topic.settings, topic.start_offsets(), topic.end_offsets()
    facts: list[tuple[str, object]] = [
        ("records", sum(ends.values()) - sum(starts.values())),
        ("partitions", settings.partitions),
    ]
    if what == "Table" and not settings.key:
        facts.append(("key", "none: a multiset"))
    named = [("key", ", ".join(settings.key)), ("event time", settings.event_time), ("capture", settings.captured_by)]
    facts += [(name, value) for name, value in named if value]
    columns = [
        [field.name, spark_type(field.type), "" if field.nullable else "NOT NULL"]
        for field in topic.schema
        if field.name != WEIGHT
    ]
    return NotebookCard(f"{what} {topic.name}", facts, ["column", "type", ""], columns)


def _sizes(directory: Path, suffix: str) -> list[int]:
    sizes = []
    for path in directory.glob(f"*{suffix}"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes
