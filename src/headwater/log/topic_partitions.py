"""The partitions of a topic: its declaration as this process sees it, and a writer and a reader for each.

What it is: ``TopicPartitions``, from which ``Topic`` comes: handles, offsets, waiting, and which files hold a range.
Invariants: a partition is recovered once per process, before its first use; a forked child has handles of its own.
Not here: appending and reading rows (``topic.py``). Read next: ``log/storage/partition_writer.py``,
``log/storage/partition_reader.py``.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import to_us
from headwater.durations import Duration, to_seconds
from headwater.log import topic_reader
from headwater.log.catalog.registry import TopicRow
from headwater.log.storage.file_listing import FileList, Range, list_files
from headwater.log.storage.partition_reader import PartitionReader
from headwater.log.storage.partition_tail import deleted
from headwater.log.storage.partition_writer import PartitionWriter
from headwater.log.storage.sealed_segment import SealedSegment
from headwater.log.storage.wake import Waker
from headwater.log.topic_declaration import DeclaredTopic

if TYPE_CHECKING:
    from headwater.log.home import Log


class TopicPartitions(DeclaredTopic):
    """The partitions of one topic."""

    def __init__(self, log: Log, row: TopicRow) -> None:
        self.log: Log = log
        self._row = row
        self._refresh_lock = threading.Lock()
        self._make_handles()
        if not log.read_only:
            for partition in self._partitions:
                log.files.make_dir(partition.directory, label="topic.make_directory")

    def _make_handles(self) -> None:
        numbers = range(self._row.settings.partitions)
        self._partitions = [self._partition(number) for number in numbers]
        self._readers = [self.new_reader(number) for number in numbers]
        self._idle_readers = topic_reader.IdleReaders()

    def after_fork(self) -> None:
        """Make new handles in a forked child, so that the file locks keep it apart from its parent."""
        self._refresh_lock = threading.Lock()
        for partition in self._partitions:
            partition.abandon()
        self._make_handles()

    def _partition(self, number: int) -> PartitionWriter:
        log = self.log
        return PartitionWriter(
            self.directory / str(number),
            number,
            self.row,
            log.registry,
            log.files,
            log.clock,
            log.cut_counter,
            log.commit_records,
            on_dirty=log.mark_dirty,
            on_roll=log.wake_maintenance,
            on_recovery=self._recovered,
        )

    def _recovered(self, partition: PartitionWriter, recovery: Any) -> None:
        self.log.note_recovery(self, partition.number, recovery)

    # Declaration

    @property
    def directory(self) -> Path:
        """The directory of the partitions' files."""
        return self.log.home / "topics" / self._row.directory_name

    def refresh(self) -> None:
        """Look up schema versions and settings that another process declared."""
        with self._refresh_lock:
            row = self.log.registry.find(self._row.name)
            if row is None or row.id != self._row.id:
                raise deleted(self._row.name)
            self._row = row

    # Offsets

    def start_offsets(self) -> dict[int, int]:
        """The first offset that is kept, by partition."""
        return {reader.number: reader.start_offset() for reader in self._readers}

    def end_offsets(self) -> dict[int, int]:
        """The offset that the next append will get, by partition."""
        self.open_partitions()
        return {reader.number: reader.end_offset() for reader in self._readers}

    def end_offset(self, partition: int) -> int:
        """The offset that the next append to one partition will get."""
        self._open_partition(partition)
        return self._readers[partition].end_offset()

    def offsets_at(self, moment: dt.datetime) -> dict[int, int]:
        """The first offset at or after an event time (or append time), by partition."""
        self.open_partitions()
        moment_us = to_us(moment)
        return {reader.number: reader.offset_at(moment_us) for reader in self._readers}

    def check_bounds(self, partition: int, offset: int, end: int) -> None:
        """Refuse an offset that is before the start, or after ``end``."""
        self._readers[partition].check_bounds(offset, end)

    def whole_after(self, partition: int, offset: int) -> int:
        """The end of the append that an offset is in."""
        return self._readers[partition].whole_after(offset)

    def start_moved_us(self, partition: int) -> int | None:
        """When retention last moved the start."""
        return self.log.registry.start(self.id, partition)[1]

    def rows_most(self, start: Mapping[int, int], stop: Mapping[int, int]) -> int:
        """How many rows were written into a range; compaction may have removed some."""
        return sum(stop[number] - start.get(number, 0) for number in stop)

    def wait(self, seen: Mapping[int, int], *, timeout: Duration) -> bool:
        """Sleep until a partition grows beyond ``seen``; False after ``timeout`` (seconds, or "1 minute")."""
        waker, deadline = self.log.waker, self.clock.monotonic() + to_seconds(timeout, what="timeout")
        for number in seen:
            waker.watch(self.directory / str(number))
        while True:
            count = waker.count()
            if any(self._readers[number].end_offset() > offset for number, offset in seen.items()):
                return True
            left = deadline - self.clock.monotonic()
            if left <= 0 or self.log.closed:
                return False
            waker.wait(count, left)

    def watched_by(self, waker: Waker) -> None:
        """Let appends to this topic wake a waker."""
        for number in range(self.settings.partitions):
            waker.watch(self.directory / str(number))

    # Files

    def files(self, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
        """The sealed Parquet files of an offset range, and the ranges that are still Arrow. For Spark.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}])
        >>> topic.files({0: 0}, {0: 1}).tails
        (Range(partition=0, start=0, stop=1),)
        """
        self.open_partitions()
        return list_files(self, start, stop)

    def sealed_at(self, segment: SealedSegment) -> SealedSegment | None:
        """The sealed segment that has a segment's first offset now: compaction may have replaced it."""
        place = (segment.partition, segment.path.parent, segment.base_offset)
        return self.log.registry.sealed_at(self.id, *place)

    def layout(self, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
        """What a frame over a range is made from: sealing and retention replace files."""
        return self.files(start, stop)

    def ranges(self, start: Mapping[int, int], stop: Mapping[int, int]) -> list[Range]:
        """The range of each sealed file and of each tail, partition by partition, in order."""
        listing = self.files(start, stop)
        files = [Range(file.partition, file.start, file.stop) for file in listing.files]
        return sorted([*files, *listing.tails], key=lambda r: (r.partition, r.start))

    def sync(self) -> None:
        """Make what was appended durable, whatever the topic's policy is."""
        for partition in self._partitions:
            partition.sync()

    # Handles

    def reader(self, partition: int) -> PartitionReader:
        """This handle's own reader of a partition (shared between its threads)."""
        return self._readers[partition]

    def new_reader(self, partition: int) -> PartitionReader:
        """A further reader, for one follower."""
        return PartitionReader(self.directory / str(partition), partition, self.row_for_reading, self.log.registry)

    def row_for_reading(self, version: int = 0) -> TopicRow:
        """The topic's row; looked up again when a reader meets a newer schema version."""
        if version > self._row.version:
            self.refresh()
        return self._row

    def partition(self, number: int) -> PartitionWriter:
        """The writer of one partition."""
        return self._partitions[number]

    def _open_partition(self, number: int) -> None:
        """Recover one partition once per process, before its first use."""
        self.log.check_open()
        if not self.log.read_only and 0 <= number < len(self._partitions):
            self._partitions[number].open()

    def open_partitions(self) -> None:
        """Recover every partition once per process, before its first use."""
        self.log.check_open()
        if not self.log.read_only:
            for partition in self._partitions:
                partition.open()

    def close(self) -> None:
        """Close the descriptors. ``Log.close`` does it for all topics."""
        for partition in self._partitions:
            partition.close()
        for reader in self._readers:
            reader.close()
        self._idle_readers.close()
