"""Mirror positions: how far a copy of a partition is, where it comes from, and whether it was promoted.

What it is: ``MirrorPosition``, the text that the target of a mirror stores with the rows of each partition; and
``promote``, which makes a copy a log of its own.
Invariants: a position is stored under the name of the target's topic and partition, so it is found without the source.
It moves only from what the writer has seen; so when ``promote`` returns, no mirror writes to these topics any more,
also one that stalled before and goes on later. A promotion raises the epoch, and there is no way back from it.
Not here: copying (``log_mirror.py``), how a log stores a position (``log/commits/stored_positions.py``).
Read next: ``log_mirror.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwater.errors import Fenced, Misuse, Unavailable, UnknownTopic
from headwater.hints import suggestion
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import EventLog

ATTEMPTS_MAX = 100  # a mirror that is at work moves the position between a look and a promotion


@dataclass(frozen=True)
class MirrorPosition:
    """A place in a partition of a mirror's source.

    >>> position = MirrorPosition("a1b2/orders/3", 42)
    >>> MirrorPosition.parse(str(position)) == position
    True
    """

    source: str  # of a home: its identity, the topic, and the topic's id there
    offset: int
    epoch: int = 1
    promoted: bool = False

    def __str__(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> MirrorPosition:
        """Read what was stored."""
        return MirrorPosition(**json.loads(text))

    @staticmethod
    def find(log: EventLog, topic: str, number: int) -> MirrorPosition | None:
        """The position of one partition of a target, or None where no mirror has written."""
        stored = log.stored_position(position_name(topic, number))
        return None if stored is None else MirrorPosition.parse(stored)


@dataclass(frozen=True)
class PromotedTopic:
    """A topic that is no copy any more: the epoch, and the source's offsets up to which it was copied."""

    topic: str
    epoch: int
    copied: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        return asdict(self)


def position_name(topic: str, number: int) -> str:
    """Under which name the position of a partition is stored."""
    return f"mirror/{topic}/{number}"


def promote(log: EventLog, topics: Sequence[str] = ()) -> list[PromotedTopic]:
    """Make copies logs of their own: no mirror writes to them any more. Without ``topics``, all that are copies.

    >>> import headwater as hw, tempfile
    >>> from headwater.upkeep.log_mirror import LogMirror
    >>> source, target = hw.Log(tempfile.mkdtemp()), hw.Log(tempfile.mkdtemp())
    >>> _ = source.topic("orders", "id INT").append([{"id": 1}])
    >>> mirror = LogMirror(source, target)
    >>> mirror.catch_up()
    1
    >>> promote(target)
    [PromotedTopic(topic='orders', epoch=2, copied={0: 1})]
    >>> _ = source.topic("orders", "id INT").append([{"id": 2}])
    >>> mirror.catch_up()
    Traceback (most recent call last):
        ...
    headwater.errors.Fenced: topic "orders" of the log at ... is no copy any more
      It was promoted, with epoch 2. ...
    """
    known = log.topic_names()
    for name in topics:
        if name not in known:
            hint = suggestion(name, known)
            raise UnknownTopic(f'no topic "{name}" in the log at {log.shown}', hint=hint, topic=name)
    copies = [name for name in topics or known if _positions(log, name)]
    others = sorted(set(topics) - set(copies))
    if others or not copies:
        raise Misuse(
            f'topic "{others[0]}" of the log at {log.shown} is no copy'
            if others
            else f"the log at {log.shown} has no topic that a mirror has written",
            hint="Name the log that was written by `headwater mirror SOURCE --to TARGET`: TARGET.",
        )
    return [_promoted(log, name) for name in sorted(copies)]


def refuse_promoted(log: EventLog, topic: str, position: MirrorPosition | None) -> None:
    """Refuse to copy into a topic that was promoted."""
    if position is not None and position.promoted:
        raise Fenced(
            f'topic "{topic}" of the log at {log.shown} is no copy any more',
            detail=f"It was promoted, with epoch {position.epoch}. Nothing was written to it.",
            hint="Mirror the other way, into a new log, to have a copy again.",
            topic=topic,
        )


def _positions(log: EventLog, topic: str) -> dict[int, MirrorPosition]:
    numbers = range(log.get_topic(topic).settings.partitions)
    found = {number: MirrorPosition.find(log, topic, number) for number in numbers}
    return {number: position for number, position in found.items() if position is not None}


def _promoted(log: EventLog, topic: str) -> PromotedTopic:
    """Raise the epoch of each partition; partitions that no mirror has written yet too."""
    positions = _positions(log, topic)
    of_source = next(iter(positions.values()))
    epoch = max(position.epoch for position in positions.values())
    if not all(position.promoted for position in positions.values()):  # not half of it, by one that was killed
        epoch += not any(position.promoted for position in positions.values())
    copied = {}
    for number in range(log.get_topic(topic).settings.partitions):
        for _ in range(ATTEMPTS_MAX):
            before = MirrorPosition.find(log, topic, number)
            after = replace(before or replace(of_source, offset=0), epoch=epoch, promoted=True)
            try:
                if before != after:
                    with log.transaction() as t:
                        said = None if before is None else str(before)
                        t.store_position(position_name(topic, number), before=said, after=str(after))
                copied[number] = after.offset
                break
            except PositionMoved:
                continue
        else:
            raise Unavailable(f'a mirror writes to topic "{topic}" all the time', hint="Try again, or stop the mirror.")
    return PromotedTopic(topic, epoch, copied)
