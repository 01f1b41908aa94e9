"""Partition writer: order, offsets, and the roll of segments.

What it is: ``PartitionWriter`` takes the partition's lock, appends frames to its active segment, rolls and syncs.
Invariants: appends happen under the partition's file lock, so offsets rise by one over all processes; before each
append the process checks whether another one has written or rolled; a producer's sequence is checked under the same
lock, so a retried append is recognised; so are conditions. Threads that append at the same time share one write and one
sync (group commit). As a part of a commit over several partitions, frames are staged first and shown when that is
decided (``log/commits/atomic_append.py``).
Not here: opening, and what other processes wrote (``partition_tail.py``); rows and schemas (``topic_appender.py``),
reading (``partition_reader.py``), Parquet (``log/maintenance/sealing.py``).
Read next: ``partition_tail.py``, ``active_segment.py``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headwater.clock import Clock
from headwater.errors import DiskFull, HeadwaterError
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.commits.append_request import AppendDeclined, AppendRequest, StaleSchema, taken_over
from headwater.log.commits.commit_records import CommitRecords
from headwater.log.commits.cut_numbers import CutCounter
from headwater.log.commits.handed_over import handed_over_file, refuse_handed_over
from headwater.log.commits.sequence_ranges import SequenceRanges
from headwater.log.storage.active_segment import Frame, Stamp, arrow_bases, rows_of, segment_name
from headwater.log.storage.file_descriptors import open_file
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import Entry
from headwater.log.storage.locks import FileLock
from headwater.log.storage.partition_tail import PartitionTail, deleted
from headwater.log.storage.recovery import Recovery


@dataclass(eq=False)
class PartitionWriter:
    """The writing side of one partition, for all threads of one process."""

    directory: Path
    number: int
    topic: Callable[[], TopicRow]  # the topic's current row; schemas may be added
    registry: Registry
    files: Files
    clock: Clock
    cut_counter: CutCounter
    records: CommitRecords
    on_dirty: Callable[[PartitionWriter], None]
    on_roll: Callable[[], None]
    on_recovery: Callable[[PartitionWriter, Recovery], None]
    lock: FileLock = field(init=False)
    tail: PartitionTail = field(init=False)

    def __post_init__(self) -> None:
        self.lock = FileLock(self.directory / "lock")
        self._handed_over = handed_over_file(self.directory.parent)
        self._turn = threading.Lock()  # held by the thread that writes for all that wait
        self._queue: list[AppendRequest] = []
        self._queue_lock = threading.Lock()
        self.tail = PartitionTail(
            self.directory,
            self.number,
            self.topic,
            self.registry,
            self.files,
            self.clock,
            self.cut_counter,
            self.records,
            self.on_roll,
            lambda recovery: self.on_recovery(self, recovery),
        )

    # Opening

    def open(self) -> None:
        """Recover once per process, before the first read or append."""
        if not self.tail.opened:
            # Readers need no active segment: on a full disk they read without one.
            with suppress(DiskFull), self._exclusive():
                self.tail.open()

    def take_up(self) -> None:
        """Let readers see what a process wrote whole and died before it had listed it, as the next append would."""
        with self._turn, self._exclusive():
            self.tail.open()
            self.tail.catch_up()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Take the file lock; a missing directory means that the topic was deleted."""
        try:
            self.lock.acquire()
        except FileNotFoundError as error:
            raise deleted(self.topic().name) from error
        try:
            yield
        finally:
            self.lock.release()

    # Appending

    def append(self, mine: AppendRequest) -> int:
        """Write the request's frames, unless they are repeated; returns the offset after them."""
        with self._queue_lock:
            self._queue.append(mine)
        with self._turn:
            if not mine.done:
                self._write_waiting()
        if mine.error is not None:
            raise mine.error
        return mine.next_offset

    def _write_waiting(self) -> None:
        with self._queue_lock:
            waiting, self._queue = self._queue, []
        try:
            with self.lock:
                self.tail.open()
                self.tail.catch_up()
                self._write(waiting)
        except BaseException as error:
            if isinstance(error, FileNotFoundError) and not self.directory.exists():
                error = deleted(self.topic().name)
            for one in waiting:
                if not one.done:
                    one.refuse(error)
            # After a failed or interrupted write the cached state may not match the files: it is read again.
            self.tail.forget()
            if not isinstance(error, Exception):
                raise

    def _write(self, waiting: list[AppendRequest]) -> None:
        settings = self.topic().settings
        self.tail.roll_if_due()  # before anything is compared with the active segment: it may raise the schema version
        ready: list[tuple[AppendRequest, list[Frame]]] = []
        for one in waiting:
            if one.version > self._version() or one.conditions:  # they look at all rows before it
                self._flush(ready, sync=settings.fsync == "always")
                ready = []
            if one.version > self._version():
                self.tail.roll()
            try:
                ready.append((one, self._unseen(one)))
            except (HeadwaterError, StaleSchema, AppendDeclined) as error:
                one.refuse(error)
        self._flush(ready, sync=settings.fsync == "always")
        if ready and settings.fsync == "interval":
            self.on_dirty(self)

    def _unseen(self, one: AppendRequest) -> list[Frame]:
        """The frames of an append that are not in the log yet; raises when it is refused."""
        refuse_handed_over(self._handed_over, self.topic().name)
        if one.version != self._version():
            raise StaleSchema
        for condition in one.conditions:
            condition.check(self.next_offset())
        if not one.producer:
            return list(one.frames)
        if one.producer_epoch and (newest := self.registry.producer_epoch(one.producer)) != one.producer_epoch:
            raise taken_over(one.producer_name, one.producer_epoch, newest)
        seen = self.tail.sequences.setdefault(one.producer, SequenceRanges())
        fresh = one.unseen(seen, self.number)
        for frame in fresh:  # at once: the next append in this turn may be a retry of this one by another thread
            seen.add(frame.sequence)
        return fresh

    def _version(self) -> int:
        return self.tail.current.version

    def _flush(self, ready: list[tuple[AppendRequest, list[Frame]]], *, sync: bool) -> None:
        if not ready:
            return
        active = self.tail.current
        frames = ready[0][1] if len(ready) == 1 else [frame for _, fresh in ready for frame in fresh]
        if frames:
            stamp = Stamp(max(self.clock.now_us(), active.last_us), self.cut_counter.now(), sync)
            entries = active.writer.append(
                frames, position=active.data_bytes, base_offset=active.next_offset, version=active.version, stamp=stamp
            )
            active.grow(entries)
        offset = active.next_offset - rows_of(frames)
        for one, fresh in ready:
            one.written_rows = rows_of(fresh)
            offset += one.written_rows
            one.next_offset = offset if fresh else active.next_offset
            one.done = True
            for condition in one.conditions:
                condition.took(one.next_offset, one.written_rows)

    # As a part of a commit over several partitions: see ``log/commits/atomic_append.py``

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other writers out; after an error the cached state is read again."""
        with self._turn, self._exclusive():
            try:
                self.tail.open()
                self.tail.catch_up()
                self.tail.roll_if_due()
                yield
            except BaseException:
                self.tail.forget()
                raise

    def unseen(self, one: AppendRequest) -> list[Frame]:
        """The frames that are not in the log yet. Refusals are raised; StaleSchema when they must be made again."""
        if one.version > self._version():
            self.tail.roll()
        fresh = self._unseen(one)
        one.written_rows = rows_of(fresh)
        return fresh

    def stage(self, frames: Sequence[Frame], stamp: Stamp) -> list[Entry]:
        """Write frames that no reader sees before ``show``."""
        active = self.tail.current
        return active.writer.stage(
            frames, position=active.data_bytes, base_offset=active.next_offset, version=active.version, stamp=stamp
        )

    def take_back(self, entries: Sequence[Entry]) -> None:
        """Remove staged frames: their commit is refused."""
        self.tail.current.writer.take_back(entries)

    def show(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """List staged frames: their commit is decided."""
        active = self.tail.current
        active.writer.list(entries)
        active.grow(entries)
        if sync:
            active.writer.sync_index()
        if self.topic().settings.fsync == "interval":
            self.on_dirty(self)

    def next_offset(self) -> int:
        """The offset of the next row, for the holder."""
        return self.tail.current.next_offset

    def last_us(self) -> int:
        """The append time of the last row, for the holder; the next one's is not before it."""
        return self.tail.current.last_us

    # Rolling and syncing

    def roll(self, *, older_than_us: int | None = None) -> bool:
        """Roll the active segment (if it has rows, and its first is older); True when it did."""
        with self._turn, self._exclusive():
            self.tail.open()
            self.tail.catch_up()
            active = self.tail.active
            assert active is not None
            if active.next_offset == active.writer.base_offset:
                return False
            if older_than_us is not None and active.opened_us > older_than_us:
                return False
            self.tail.roll()
            return True

    def sync(self) -> None:
        """Sync the appends so far, without blocking new ones."""
        with ExitStack() as using:
            with self._turn:
                active = self.tail.active
                if active is not None:
                    if active.writer.synced_bytes >= active.data_bytes:
                        return
                    data_bytes = active.data_bytes
                    try:
                        # Also where they were closed since: a sync covers the whole file, for every writer.
                        data_fd, _ = using.enter_context(active.writer.held)
                    except FileNotFoundError:
                        return  # rolled and sealed by another process, and so on disk; or the topic was deleted
            if active is None:  # a failed append dropped it; what came before may still need the sync
                self._sync_last()
                return
            self.files.sync(data_fd, label="interval.sync_data")
        # Under the file lock: another process that opens the partition reads the mark and may write it too.
        with self._turn, suppress(FileNotFoundError), self.lock:
            if self.tail.active is active:
                active.writer.note_synced(data_bytes)

    def _sync_last(self) -> None:
        """Sync the last segment without opening the partition, which fails on a full disk.

        Earlier segments were synced when they were rolled.
        """
        try:
            name = segment_name(arrow_bases(self.directory)[-1])
            descriptor = open_file(self.directory / f"{name}.arrow", os.O_RDONLY)
        except (IndexError, FileNotFoundError):
            return  # sealed meanwhile, and so on disk; or the topic was deleted
        try:
            self.files.sync(descriptor, label="interval.sync_data")
        finally:
            os.close(descriptor)

    def last_sequence(self, producer: int) -> int:
        """The highest stored sequence that this partition has of a producer, -1 for none."""
        with self._turn, self._exclusive():
            self.tail.open()
            self.tail.catch_up()
            seen = self.tail.sequences.get(producer)
            return -1 if seen is None else seen.last

    def forget(self) -> None:
        """Read the state from the files before the next use."""
        self.tail.forget()

    def abandon(self) -> None:
        """Close the descriptors without taking any lock: after a fork, or a simulated crash."""
        self.tail.abandon()
        self.lock.abandon()

    def close(self) -> None:
        """Close the descriptors; acknowledged rows stay as durable as the policy made them."""
        with self._turn:
            self.tail.forget()
            self.lock.close()
