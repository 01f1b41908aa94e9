"""File listing: the Parquet files of an offset range, for Spark.

What it is: for a range of offsets, the sealed files that hold it (with the exact part of each) and the ranges that are
still Arrow and must be read by the driver.
Invariants: the files and tails of a ``FileList`` cover each offset of the range once; ``_offset`` in each file lets the
reader cut it exactly. A file may be compacted away later: a reader must be ready to list again.
Not here: reading (``partition_reader.py``), the data source (``views/source/data_source.py``).
Read next: ``sealed_segment.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.storage.sealed_segment import SealedSegment

if TYPE_CHECKING:
    from headwater.log.topic_partitions import TopicPartitions


@dataclass(frozen=True)
class Range:
    """Offsets ``start`` up to ``stop`` (not included) of one partition."""

    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class SealedFile:
    """One Parquet file and the part of it in the range."""

    segment: SealedSegment
    start: int
    stop: int

    @property
    def path(self) -> Path:
        return self.segment.path

    @property
    def partition(self) -> int:
        return self.segment.partition

    @property
    def whole(self) -> bool:
        """Whether the whole file lies in the range, so that no filter on ``_offset`` is needed."""
        return self.start == self.segment.base_offset and self.stop == self.segment.next_offset


@dataclass(frozen=True)
class FileList:
    """The result of ``topic.files``."""

    files: tuple[SealedFile, ...]
    tails: tuple[Range, ...]


def list_files(topic: TopicPartitions, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
    """The files and tails that hold ``start`` up to ``stop``, partition by partition."""
    files: list[SealedFile] = []
    tails: list[Range] = []
    for number in sorted(stop):
        reader = topic.reader(number)
        first, last = start.get(number, 0), stop[number]
        end = reader.end_offset()
        reader.check_bounds(first, end)
        reader.check_bounds(last, end)
        position = first
        for segment in topic.log.registry.sealed(topic.id, number, reader.directory, start=first, stop=last):
            low, high = max(first, segment.base_offset), min(last, segment.next_offset)
            files.append(SealedFile(segment, low, high))
            position = high
        if position < last:
            tails.append(Range(number, position, last))
    return FileList(tuple(files), tuple(tails))
