"""Overtaken apps: topics whose retention has dropped rows that no tick has taken.

What it is: ``lost_rows`` finds them, ``overtaken`` is the error that a tick ends with, ``note_loss`` the alert when a
tick goes on without them (``headwater run --accept-loss``).
Invariants: rows are skipped only when somebody has said so, and then the manifest of the tick lists them.
Not here: warnings before it happens (``log/maintenance/reader_alerts.py``). Read next: ``engine.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headwater.clock import format_us
from headwater.errors import OffsetOutOfRange
from headwater.log.contract import Capability, EventLog, EventTopic
from headwater.log.maintenance.alerts import Condition, note_once
from headwater.views.state.manifest import Frontier

LostRows = Mapping[str, Mapping[int, tuple[int, int]]]  # {topic: {partition: (first lost offset, first kept one)}}


def lost_rows(frontier: Frontier, topics: Iterable[EventTopic]) -> LostRows:
    """The rows after a frontier that retention has dropped, or another program from a log that is not ours alone."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in topics:
        settings, at = topic.settings, frontier.get(topic.name)
        kept_for_ever = settings.retention_ms is None and settings.retention_bytes is None
        # Kafka's tools delete records whatever the topic was declared with.
        if at is None or (kept_for_ever and Capability.NATIVE_FILES in topic.log.capabilities):
            continue
        starts = topic.start_offsets()
        gone = {number: (offset, starts[number]) for number, offset in at.items() if offset < starts.get(number, 0)}
        if gone:
            found[topic.name] = gone
    return found


def check(app: str, frontier: Frontier, topics: Sequence[EventTopic], *, accept_loss: bool) -> LostRows:
    """The same; an error, unless the loss is accepted."""
    lost = lost_rows(frontier, topics)
    if lost and not accept_loss:
        raise overtaken(topics[0].log, app, lost)
    return lost


def count(lost: LostRows) -> int:
    """How many rows, compacted ones included.

    >>> count({"clicks": {0: (3, 10), 1: (0, 5)}})
    12
    """
    return sum(start - offset for gone in lost.values() for offset, start in gone.values())


def overtaken(log: EventLog, app: str, lost: LostRows) -> OffsetOutOfRange:
    """The error of an app whose next rows are gone."""
    topic = min(lost)
    partition, (offset, start) = min(lost[topic].items())
    moved_us = log.get_topic(topic).start_moved_us(partition)
    moved = f" at {format_us(moved_us)}" if moved_us else ""
    others = "" if len(lost) == 1 else f" Topics concerned: {', '.join(sorted(lost))}."
    return OffsetOutOfRange(
        f'retention of topic "{topic}" has overtaken app "{app}": {count(lost):,} rows were dropped before a tick took '
        "them",
        detail=f"The app has read partition {partition} up to offset {offset}; retention moved its start to "
        f"{start}{moved}.{others} The views are as they were at the last tick.",
        hint="Go on from the first kept rows, without the lost ones: headwater run APP.py --accept-loss. From now on: "
        'run the app more often, or keep rows until they are read: retention="until read, at most …".',
        topic=topic,
        partition=partition,
        offset=offset,
        start=start,
        app=app,
        rows_lost=count(lost),
    )


def note_loss(log: EventLog, app: str, tick: int, lost: LostRows) -> None:
    """Tell that a tick went on without rows."""
    for name, gone in lost.items():
        for partition, (offset, start) in gone.items():
            message = (
                f'app "{app}" went on in tick {tick} without {start - offset} rows of topic "{name}" partition '
                f"{partition} (offsets {offset} to {start - 1}), which retention had dropped: --accept-loss"
            )
            detail = {"app": app, "tick": tick, "position": offset, "start": start, "rows_lost": start - offset}
            note_once(log.local, Condition("loss_accepted", partition, f"app:{app}", message, detail), name)
