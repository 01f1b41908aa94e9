"""Append request: one caller's frames for one partition, and which of them are new.

What it is: ``AppendRequest``, with the answer of the partition; ``unseen``, the check of a producer's numbers;
``RowsCondition``, the contract of conditions (``value_versions.py``, ``aggregates/events/event_condition.py``).
Invariants: a request is answered once: with the offset after its rows, or with an error. A number that a partition has
is recognised, one that was skipped may still come; nothing is dropped in silence.
Not here: writing (``log/storage/partition_writer.py``, ``atomic_append.py``). Read next: ``sequence_ranges.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.errors import Fenced, OutOfOrder
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE, SequenceRanges
from headwater.log.storage.active_segment import Frame


class RowsCondition(Protocol):
    """What must hold of a partition's rows for an append to be written. Both calls are made under its lock."""

    def check(self, end: int) -> None:
        """Raise a ``HeadwaterError`` unless it holds for the rows before ``end``, which is the partition's end."""
        ...

    def took(self, end: int, rows: int) -> None:
        """The append was written: its rows end at ``end``."""
        ...


class StaleSchema(Exception):
    """The frames have an older schema than the active segment: they must be made again."""


class AppendDeclined(Exception):
    """A condition wants nothing to be written, though nothing is wrong: the answer is known already."""


@dataclass
class AppendRequest:
    """One caller's frames on their way to disk."""

    frames: Sequence[Frame]
    version: int
    producer_name: str = ""
    producer_epoch: int = 0  # 0: not checked
    conditions: Sequence[RowsCondition] = ()
    next_offset: int = 0
    written_rows: int = 0
    error: BaseException | None = None
    done: bool = False

    @property
    def producer(self) -> int:
        """The producer's number, 0 for none."""
        return self.frames[0].producer if self.frames else 0

    def extend(self, more: AppendRequest) -> None:
        """Let further frames for the same partition be a part of this append."""
        if self.version != more.version:
            raise StaleSchema
        self.frames = [replace(frame, continues=True) for frame in self.frames] + list(more.frames)
        self.conditions = [*self.conditions, *more.conditions]

    def refuse(self, error: BaseException) -> None:
        """Answer with an error."""
        self.error, self.done = error, True

    def unseen(self, seen: SequenceRanges, partition: int) -> list[Frame]:
        """The frames that the partition does not have; ``OutOfOrder`` when that is not known any more."""
        number = self.frames[0].sequence // CHUNKS_PER_SEQUENCE
        if number == seen.last_number:  # a large batch may come in several appends of one number
            return [frame for frame in self.frames if frame.sequence > seen.last]
        if number in seen:
            return []
        if number < seen.known_from:
            raise too_late(self.producer_name, number, seen, f"Partition {partition}")
        return list(self.frames)


def too_late(producer: str, number: int, seen: SequenceRanges, where: str) -> OutOfOrder:
    """The error of a number of which it is not known any more whether it was written."""
    return OutOfOrder(
        f'sequence {number} of producer "{producer}" comes too late',
        detail=f"{where} has sequences up to {seen.last_number} and no longer knows which of those below "
        f"{seen.known_from} it has. Nothing was written.",
        hint="Send batches nearly in order; go on after producer.last_sequence. For identities without an order use "
        "append(…, request_id=…).",
        producer=producer,
        sequence=number,
        last_sequence=seen.last_number,
    )


def taken_over(name: str, mine: int, newest: int) -> Fenced:
    """The error of a producer whose name another one has taken."""
    return Fenced(
        f'producer "{name}" was taken over by a newer one of the same name',
        detail=f"This one has epoch {mine}, the newer one {newest}.",
        hint="Give each running producer its own name, or stop this one.",
        producer=name,
    )
