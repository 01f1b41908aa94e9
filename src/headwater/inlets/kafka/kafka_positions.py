"""Kafka positions: how far an inlet has read each partition of a Kafka topic, stored in the log that it writes to.

What it is: ``KafkaPositions``, the stored position of one inlet: the offset of the next message of each partition, and
the topic's id.
Invariants: a position moves in the transaction that appends the messages before it, so both are there or neither is,
over crashes. It moves only from where this process left it: of two processes that read the same messages one is refused
(``PositionMoved``), and nothing is written twice.
Not here: how a log stores it (``log/commits/stored_positions.py``, ``kafka/kafka_known_writes.py``), Kafka's own
offsets of the group, which are for monitoring (``kafka_reader.py``). Read next: ``kafka_inlet.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.commits.stored_positions import PositionMoved

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTransaction


@dataclass(frozen=True)
class PartitionPosition:
    """The next offset of one partition, and the topic it belongs to."""

    topic_id: str
    offset: int


class KafkaPositions:
    """The positions of one inlet in one Kafka topic. Used by one thread.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> mine, other = (KafkaPositions(log, "shop", "clicks", "web-clicks") for _ in range(2))
    >>> mine.begin("id-1", {0: 5}), other.load()
    (None, {0: PartitionPosition(topic_id='id-1', offset=5)})
    >>> mine.move({0: (5, 9)})
    >>> mine.load()
    {0: PartitionPosition(topic_id='id-1', offset=9)}
    >>> other.move({0: (5, 7)})
    Traceback (most recent call last):
        ...
    headwater.log.commits.stored_positions.PositionMoved: inlet shop/clicks of web-clicks
    """

    def __init__(self, log: EventLog, app: str, inlet: str, source: str) -> None:
        self._log = log
        self._reader = f"inlet {app}/{inlet} of {source}"
        self._known: dict[int, PartitionPosition] = {}

    def load(self) -> dict[int, PartitionPosition]:
        """The position of each partition that has one."""
        self._known = _read(self._log.stored_position(self._reader))
        return dict(self._known)

    def begin(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Set the first position of some partitions; where another process was quicker, its positions stay."""
        first = {number: PartitionPosition(topic_id, offset) for number, offset in offsets.items()}
        try:
            self._replace({**first, **self.load()})
        except PositionMoved:
            self.load()

    def replace(self, after: Mapping[int, PartitionPosition]) -> None:
        """Continue somewhere else, after a loss that the user accepts."""
        self._replace({**self._known, **after})

    def move(self, moves: Mapping[int, tuple[int, int]]) -> None:
        """Move positions that no rows belong to: past offsets that hold no message."""
        with self._log.transaction() as t:
            self.move_in(t, moves)

    def move_in(self, transaction: EventTransaction, moves: Mapping[int, tuple[int, int]]) -> None:
        """Move positions, each from one offset to another, with the rows of a transaction."""
        moved = {number: PartitionPosition(self._known[number].topic_id, to) for number, (_, to) in moves.items()}
        self._store(transaction, {**self._known, **moved})

    def _replace(self, after: dict[int, PartitionPosition]) -> None:
        with self._log.transaction() as t:
            self._store(t, after)

    def _store(self, transaction: EventTransaction, after: dict[int, PartitionPosition]) -> None:
        before = _written(self._known) if self._known else None
        transaction.store_position(self._reader, before=before, after=_written(after))
        transaction.on_commit(lambda _: setattr(self, "_known", after))


def _written(positions: Mapping[int, PartitionPosition]) -> str:
    return json.dumps({str(number): [of.topic_id, of.offset] for number, of in sorted(positions.items())})


def _read(text: str | None) -> dict[int, PartitionPosition]:
    return {int(number): PartitionPosition(*of) for number, of in json.loads(text or "{}").items()}
