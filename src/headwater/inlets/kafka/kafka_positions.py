"""Kafka positions: how far an inlet has read each partition of a Kafka topic, in the home's catalog.

What it is: ``KafkaPositions``, the rows of ``inlet_positions`` of one inlet: the offset of the next message, the
topic's id, and the end of the partition as far as it is known, for the lag.
Invariants: a position moves in the transaction of the catalog that decides the append of the messages before it, so
both are there or neither is, over crashes. It moves only from where this process left it: of two processes that read
the same messages one is refused (``PositionMoved``), and nothing is written twice.
Not here: the commit (``log/commits/transaction.py``), Kafka's own offsets of the group, which are for monitoring
(``kafka_reader.py``). Read next: ``kafka_inlet.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.log.home import Log


class PositionMoved(Exception):
    """Another process has moved the position of a partition meanwhile."""


@dataclass(frozen=True)
class PartitionPosition:
    """The next offset of one partition, and the topic it belongs to."""

    topic_id: str
    offset: int


class KafkaPositions:
    """The positions of one inlet in one Kafka topic.

    >>> import headwater as hw, tempfile
    >>> positions = KafkaPositions(hw.Log(tempfile.mkdtemp()), "shop", "clicks", "web-clicks")
    >>> positions.begin("id-1", {0: 5})
    >>> positions.move({0: (5, 9)}, {0: 12})
    >>> positions.load()
    {0: PartitionPosition(topic_id='id-1', offset=9)}
    >>> positions.move({0: (5, 7)}, {})
    Traceback (most recent call last):
        ...
    headwater.inlets.kafka.kafka_positions.PositionMoved: another process runs inlet "clicks": ...
    """

    def __init__(self, log: Log, app: str, inlet: str, source: str) -> None:
        self._log = log
        self._key = (app, inlet, source)

    def load(self) -> dict[int, PartitionPosition]:
        """The position of each partition that has one."""
        rows = self._log.local.catalog.read(
            "SELECT partition, topic_id, next_offset FROM inlet_positions WHERE app = ? AND inlet = ? AND source = ?",
            self._key,
        )
        return {row["partition"]: PartitionPosition(row["topic_id"], row["next_offset"]) for row in rows}

    def begin(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Set the first position of some partitions; where another process was quicker, its positions stay."""
        rows = [(*self._key, number, topic_id, offset, offset) for number, offset in offsets.items()]
        with self._log.local.catalog.write() as db:
            # What an inlet read under another declaration is kept, but is no lag of this one.
            db.execute(
                "UPDATE inlet_positions SET end_offset = next_offset WHERE app = ? AND inlet = ? AND source <> ?",
                self._key,
            )
            db.executemany("INSERT OR IGNORE INTO inlet_positions VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def replace(self, before: Mapping[int, PartitionPosition], after: Mapping[int, PartitionPosition]) -> None:
        """Continue somewhere else, after a loss that the user accepts."""
        with self._log.local.catalog.write() as db:
            for number, position in after.items():
                if number not in before:
                    continue
                changed = db.execute(
                    "UPDATE inlet_positions SET topic_id = ?, next_offset = ?, end_offset = max(end_offset, ?)"
                    " WHERE app = ? AND inlet = ? AND source = ? AND partition = ? AND next_offset = ?",
                    (position.topic_id, position.offset, position.offset, *self._key, number, before[number].offset),
                ).rowcount
                if not changed:
                    raise self._moved(number, before[number].offset)

    def move(self, moves: Mapping[int, tuple[int, int]], ends: Mapping[int, int]) -> None:
        """Move positions that no rows belong to: past offsets that hold no message."""
        with self._log.local.catalog.write() as db:
            self.move_in(db, moves, ends)

    def move_in(self, db: sqlite3.Connection, moves: Mapping[int, tuple[int, int]], ends: Mapping[int, int]) -> None:
        """Move positions, each from one offset to another; inside the transaction that decides the append."""
        for number, (before, after) in moves.items():
            changed = db.execute(
                "UPDATE inlet_positions SET next_offset = ?, end_offset = ?"
                " WHERE app = ? AND inlet = ? AND source = ? AND partition = ? AND next_offset = ?",
                (after, max(after, ends.get(number, 0)), *self._key, number, before),
            ).rowcount
            if not changed:
                raise self._moved(number, before)

    def note_ends(self, ends: Mapping[int, int]) -> None:
        """Store the ends of partitions, for the lag."""
        rows = [(end, *self._key, number) for number, end in ends.items()]
        with self._log.local.catalog.write() as db:
            db.executemany(
                "UPDATE inlet_positions SET end_offset = max(next_offset, ?)"
                " WHERE app = ? AND inlet = ? AND source = ? AND partition = ?",
                rows,
            )

    def _moved(self, partition: int, offset: int) -> PositionMoved:
        _, inlet, source = self._key
        return PositionMoved(
            f'another process runs inlet "{inlet}": partition {partition} of Kafka topic "{source}" is no longer at '
            f"offset {offset}; this one stands by"
        )
