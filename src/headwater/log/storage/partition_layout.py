"""Partition layout: the segments that hold a partition now.

What it is: ``layout_of`` reads the directory and the catalog once and returns the start, the sealed and the Arrow
segments; ``spans_of`` returns the size and age of each segment.
Invariants: a layout is one consistent moment, although appends, sealing, compaction and retention go on: the directory
is listed before the catalog is read, so a segment that is sealed in between is seen sealed, never missed.
``maintenance_lock`` is held by sealing, compaction and retention of a partition, one at a time over all processes.
Not here: reading rows (``partition_reader.py``), decisions about segments (``log/maintenance/retention.py``,
``log/maintenance/compaction.py``). Read next: ``log/maintenance/retention.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.storage.active_segment import arrow_bases, segment_name
from headwater.log.storage.file_descriptors import with_room
from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, ROLL, Entry
from headwater.log.storage.locks import FileLock
from headwater.log.storage.sealed_segment import SealedSegment

if TYPE_CHECKING:
    from headwater.log.topic import Topic

LOOKS_MAX = 20  # attempts to read a layout that keeps changing


@dataclass(frozen=True)
class PartitionLayout:
    """A partition's segments at one moment. The last Arrow one is active."""

    start_offset: int
    sealed: tuple[SealedSegment, ...]
    arrow: tuple[int, ...]  # base offsets

    @property
    def sealed_end(self) -> int:
        """The offset where the sealed part ends and the Arrow part begins."""
        return self.sealed[-1].next_offset if self.sealed else self.start_offset


@dataclass(frozen=True)
class SegmentSpan:
    """One segment's offsets, size, and the append times of its newest and oldest row."""

    base_offset: int
    next_offset: int
    bytes: int
    newest_us: int
    active: bool = False
    oldest_us: int = 0


def partition_directory(topic: Topic, number: int) -> Path:
    """The directory of a partition's files."""
    return topic.directory / str(number)


def layout_of(topic: Topic, number: int) -> PartitionLayout:
    """The partition's segments as they are now."""
    registry, directory = topic.log.registry, partition_directory(topic, number)
    for _ in range(LOOKS_MAX):
        bases = arrow_bases(directory)
        start, _ = registry.start(topic.id, number)
        sealed = tuple(registry.sealed(topic.id, number, directory))
        # Compaction changes the list in one step, but retention also moves the start: both must be of one moment.
        if registry.start(topic.id, number)[0] == start:
            break
    end = sealed[-1].next_offset if sealed else start
    # A segment below the end is the twin of a sealed one, about to be deleted.
    return PartitionLayout(start, sealed, tuple(base for base in bases if base >= end))


def spans_of(topic: Topic, number: int) -> list[SegmentSpan]:
    """Every segment that has rows, in order."""
    directory = partition_directory(topic, number)
    for _ in range(LOOKS_MAX):
        layout = layout_of(topic, number)
        spans = [
            SegmentSpan(s.base_offset, s.next_offset, s.bytes, s.appended_max, oldest_us=s.appended_min)
            for s in layout.sealed
        ]
        try:
            for base in layout.arrow:
                spans += _arrow_span(directory, base, active=base == layout.arrow[-1])
        except FileNotFoundError:
            continue  # sealed or dropped since
        return spans
    return [span for span in spans if not span.active]


def _arrow_span(directory: Path, base: int, *, active: bool) -> list[SegmentSpan]:
    """The span, from the first and the last entry of the index: an active index may be long and is read often.

    Empty when there are no rows, or when the index cannot be read, which sealing, reading and check report.
    """
    with with_room(lambda: (directory / f"{segment_name(base)}.index").open("rb", buffering=0)) as file:
        count = os.fstat(file.fileno()).st_size // ENTRY_BYTES
        first = Entry.unpack(os.pread(file.fileno(), ENTRY_BYTES, ENTRY_BYTES))
        rolled = False
        # The last entry may be the ROLL, or still be in the middle of being written.
        for number in range(count - 1, max(0, count - 4), -1):
            last = Entry.unpack(os.pread(file.fileno(), ENTRY_BYTES, number * ENTRY_BYTES))
            rolled = rolled or (last is not None and last.kind == ROLL)
            if first is not None and last is not None and first.kind == last.kind == DATA:
                growing = active and not rolled
                return [SegmentSpan(base, last.next_offset, last.end, last.appended_us, growing, first.appended_us)]
    return []


@contextmanager
def maintenance_lock(directory: Path, *, wait: bool = False) -> Iterator[bool]:
    """The lock of sealing, compaction and retention of a partition; False when another process holds it."""
    lock = FileLock(directory / "seal.lock")
    try:
        got = lock.acquire(blocking=wait)
        try:
            yield got
        finally:
            if got:
                lock.release()
    finally:
        lock.close()
