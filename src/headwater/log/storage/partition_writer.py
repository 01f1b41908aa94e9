"""Partition writer: order, offsets, and the roll of segments.

What it is: ``PartitionWriter`` opens a partition (recovering it first), appends frames to its active segment, rolls and
syncs.
Invariants: appends happen under the partition's file lock, so offsets rise by one over all processes; before each
append the process checks whether another one has written or rolled; a producer's sequence is checked under the same
lock, so a retried append is recognised; so are conditions. Threads that append at the same time share one write and one
sync (group commit). As a part of a commit over several partitions, frames are staged first and shown when that is
decided (``log/commits/atomic_append.py``). The state here is a cache of the files.
Not here: rows and schemas (``topic_appender.py``), reading (``partition_reader.py``), Parquet
(``log/maintenance/sealing.py``). Read next: ``recovery.py``, ``active_segment.py``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headwater.clock import Clock
from headwater.errors import CorruptSegment, DiskFull, HeadwaterError, Misuse
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.commits.append_request import AppendRequest, StaleSchema, taken_over
from headwater.log.commits.commit_records import CommitRecords
from headwater.log.commits.epochs import EpochClock
from headwater.log.commits.sequence_ranges import SequenceRanges
from headwater.log.storage import frame_index
from headwater.log.storage.active_segment import ArrowSegment, Frame, SegmentWriter, Stamp, arrow_bases, segment_name
from headwater.log.storage.file_descriptors import open_file
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, Entries, Entry
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.locks import FileLock
from headwater.log.storage.recovery import Recovery, recover_tail

logger = logging.getLogger("headwater.log")

OPEN_ATTEMPTS_MAX = 100  # attempts to open a partition whose segments keep being sealed


@dataclass
class _Active:
    """The cached state of the active segment."""

    writer: SegmentWriter
    version: int
    next_offset: int
    data_bytes: int
    index_bytes: int
    opened_us: int  # append time of its first frame, 0 while empty
    last_us: int = 0

    def grow(self, entries: Sequence[Entry]) -> None:
        """Take over the frames that were listed."""
        self.data_bytes = entries[-1].end
        self.index_bytes += ENTRY_BYTES * len(entries)
        self.next_offset = entries[-1].next_offset
        self.last_us = entries[-1].appended_us
        self.opened_us = self.opened_us or self.last_us


@dataclass(eq=False)
class PartitionWriter:
    """The writing side of one partition, for all threads of one process."""

    directory: Path
    number: int
    topic: Callable[[], TopicRow]  # the topic's current row; schemas may be added
    registry: Registry
    files: Files
    clock: Clock
    epochs: EpochClock
    records: CommitRecords
    on_dirty: Callable[[PartitionWriter], None]
    on_roll: Callable[[], None]
    on_recovery: Callable[[PartitionWriter, Recovery], None]
    lock: FileLock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = FileLock(self.directory / "lock")
        self._turn = threading.Lock()  # held by the thread that writes for all that wait
        self._queue: list[AppendRequest] = []
        self._queue_lock = threading.Lock()
        self._active: _Active | None = None
        self._sequences: dict[int, SequenceRanges] = {}
        self._opened = False

    # Opening

    def open(self) -> None:
        """Recover once per process, before the first read or append."""
        if not self._opened:
            # Readers need no active segment: on a full disk they read without one.
            with suppress(DiskFull), self._exclusive():
                self._open_locked()

    def take_up(self) -> None:
        """Let readers see what a process wrote whole and died before it had listed it, as the next append would."""
        with self._turn, self._exclusive():
            self._open_locked()
            self._catch_up()

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

    def _open_locked(self) -> None:
        for attempt in range(OPEN_ATTEMPTS_MAX):
            if self._opened:
                return
            # Sealing does not take this lock and may remove a segment before it is opened: look again.
            try:
                self._recover_and_load()
                self._opened = True
            except FileNotFoundError as error:
                if not self.directory.exists():
                    raise deleted(self.topic().name) from error
                if attempt == OPEN_ATTEMPTS_MAX - 1:
                    raise CorruptSegment(
                        f"the file {error.filename} is missing",
                        hint="Restore it from a backup; `headwater check` lists all damage.",
                        file=str(error.filename),
                    ) from error

    def _recover_and_load(self) -> None:
        bases = arrow_bases(self.directory)
        while bases:
            recovery = recover_tail(self.directory, bases[-1], self.files, self.records.is_committed)
            if recovery.changed:
                logger.warning("%s", recovery)
                self.on_recovery(self, recovery)
            if not recovery.empty:
                break
            bases.pop()
        self._load(bases)

    def _load(self, bases: list[int]) -> None:
        """Load the last segment as the active one, or create one where the last ended."""
        topic = self.topic()
        self._sequences = {}
        segment: ArrowSegment | None = None
        for base in bases:
            segment = ArrowSegment(self.directory, base)
            self._note_sequences(segment.entries)
            if base != bases[-1]:
                segment.close()
        # After the segments: one that was sealed meanwhile is in the catalog now, with its sequences.
        for producer, ranges in self.registry.sequences(topic.id, self.number).items():
            self._sequences.setdefault(producer, SequenceRanges()).merge(ranges)
        self._drop_active()
        if segment is None:
            sealed_end, start = (
                self.registry.sealed_end(topic.id, self.number),
                self.registry.start(topic.id, self.number),
            )
            self._begin(max(sealed_end, start[0]))
            return
        if segment.next_base is not None:
            self._begin(segment.next_base)
        else:
            self._adopt(segment)
        segment.close()

    def _adopt(self, segment: ArrowSegment) -> None:
        writer = SegmentWriter(self.directory, segment.base_offset, self.files)
        entries = segment.entries
        if len(entries):
            self.epochs.at_least(int(entries["epoch"][-1]))
        data_bytes, index_bytes = (writer.held.stat(number).st_size for number in (0, 1))
        self._active = _Active(
            writer,
            segment.schema_version,
            segment.next_offset,
            data_bytes,
            index_bytes,
            int(entries["appended_us"][0]) if len(entries) else 0,
            int(entries["appended_us"][-1]) if len(entries) else 0,
        )

    def _begin(self, base_offset: int, last_us: int = 0) -> None:
        topic = self.topic()
        writer = SegmentWriter.create(
            self.directory,
            base_offset,
            stored_schema(topic.schema, topic),
            topic.version,
            self.files,
            durable=topic.settings.fsync != "never",
        )
        self._active = _Active(writer, topic.version, base_offset, writer.held.stat(0).st_size, ENTRY_BYTES, 0, last_us)

    def _note_sequences(self, entries: Entries) -> None:
        named = entries[entries["producer"] > 0]
        for producer, sequence in zip(named["producer"].tolist(), named["sequence"].tolist(), strict=True):
            self._sequences.setdefault(producer, SequenceRanges()).add(sequence)

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
                self._open_locked()
                self._catch_up()
                self._write(waiting)
        except BaseException as error:
            if isinstance(error, FileNotFoundError) and not self.directory.exists():
                error = deleted(self.topic().name)
            for one in waiting:
                if not one.done:
                    one.refuse(error)
            # After a failed or interrupted write the cached state may not match the files: it is read again.
            self.forget()
            if not isinstance(error, Exception):
                raise

    def forget(self) -> None:
        self._drop_active()
        self._opened = False

    def _catch_up(self) -> None:
        """Update the cached state with the writes of other processes since the lock was last held."""
        active = self._current()
        try:
            with active.writer.held as (data_fd, index_fd):
                index_stat, data_bytes = os.fstat(index_fd), os.fstat(data_fd).st_size
                index_bytes = index_stat.st_size
                more = index_bytes - active.index_bytes
                added = os.pread(index_fd, more, active.index_bytes) if more > 0 else b""
        except FileNotFoundError:  # the descriptors had been closed, and the pair was sealed since
            self.forget()
            self._open_locked()
            return
        if index_stat.st_nlink == 0 and not self.directory.exists():
            raise deleted(self.topic().name)
        if index_bytes == active.index_bytes and data_bytes == active.data_bytes:
            # An empty segment may have been replaced in place, for a newer schema.
            if active.next_offset > active.writer.base_offset or active.writer.header_version() == active.version:
                return
            self.forget()
            self._open_locked()
            return
        fresh = frame_index.read_entries(added)
        if len(fresh) and index_bytes == active.index_bytes + len(fresh) * ENTRY_BYTES:
            last = Entry.of(fresh[-1])
            # Another version means that the segment was still empty and was replaced for a newer schema.
            if last.kind == DATA and last.end == data_bytes and last.schema_version == active.version:
                self._note_sequences(fresh)
                active.index_bytes, active.data_bytes, active.next_offset = index_bytes, data_bytes, last.next_offset
                active.opened_us = active.opened_us or int(fresh["appended_us"][0])
                active.last_us = last.appended_us
                return
        # Rolled by another process, or another process died in the middle of a write: open again.
        self.forget()
        self._open_locked()

    def _write(self, waiting: list[AppendRequest]) -> None:
        settings = self.topic().settings
        self._roll_if_due()  # before anything is compared with the active segment: it may raise the schema version
        ready: list[tuple[AppendRequest, list[Frame]]] = []
        for one in waiting:
            if one.version > self._version() or one.conditions:  # they look at all rows before it
                self._flush(ready, sync=settings.fsync == "always")
                ready = []
            if one.version > self._version():
                self._roll_locked()
            try:
                ready.append((one, self._unseen(one)))
            except (HeadwaterError, StaleSchema) as error:
                one.refuse(error)
        self._flush(ready, sync=settings.fsync == "always")
        if ready and settings.fsync == "interval":
            self.on_dirty(self)

    def _unseen(self, one: AppendRequest) -> list[Frame]:
        """The frames of an append that are not in the log yet; raises when it is refused."""
        if one.version != self._version():
            raise StaleSchema
        for condition in one.conditions:
            condition.check(self.next_offset())
        if not one.producer:
            return list(one.frames)
        if one.producer_epoch and (newest := self.registry.producer_epoch(one.producer)) != one.producer_epoch:
            raise taken_over(one.producer_name, one.producer_epoch, newest)
        seen = self._sequences.setdefault(one.producer, SequenceRanges())
        fresh = one.unseen(seen, self.number)
        for frame in fresh:  # at once: the next append in this turn may be a retry of this one by another thread
            seen.add(frame.sequence)
        return fresh

    def _version(self) -> int:
        return self._current().version

    def _flush(self, ready: list[tuple[AppendRequest, list[Frame]]], *, sync: bool) -> None:
        if not ready:
            return
        active = self._current()
        frames = [frame for _, fresh in ready for frame in fresh]
        if frames:
            stamp = Stamp(max(self.clock.now_us(), active.last_us), self.epochs.now(), sync)
            entries = active.writer.append(
                frames, position=active.data_bytes, base_offset=active.next_offset, version=active.version, stamp=stamp
            )
            active.grow(entries)
        offset = active.next_offset - sum(frame.rows for frame in frames)
        for one, fresh in ready:
            one.written_rows = sum(frame.rows for frame in fresh)
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
                self._open_locked()
                self._catch_up()
                self._roll_if_due()
                yield
            except BaseException:
                self.forget()
                raise

    def unseen(self, one: AppendRequest) -> list[Frame]:
        """The frames that are not in the log yet. Refusals are raised; StaleSchema when they must be made again."""
        if one.version > self._version():
            self._roll_locked()
        fresh = self._unseen(one)
        one.written_rows = sum(frame.rows for frame in fresh)
        return fresh

    def stage(self, frames: Sequence[Frame], stamp: Stamp) -> list[Entry]:
        """Write frames that no reader sees before ``show``."""
        active = self._current()
        return active.writer.stage(
            frames, position=active.data_bytes, base_offset=active.next_offset, version=active.version, stamp=stamp
        )

    def take_back(self, entries: Sequence[Entry]) -> None:
        """Remove staged frames: their commit is refused."""
        self._current().writer.take_back(entries)

    def show(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """List staged frames: their commit is decided."""
        active = self._current()
        active.writer.list(entries)
        active.grow(entries)
        if sync:
            active.writer.sync_index()
        if self.topic().settings.fsync == "interval":
            self.on_dirty(self)

    def next_offset(self) -> int:
        """The offset of the next row, for the holder."""
        return self._current().next_offset

    def last_us(self) -> int:
        """The append time of the last row, for the holder; the next one's is not before it."""
        return self._current().last_us

    def _current(self) -> _Active:
        assert self._active is not None
        return self._active

    # Rolling and syncing

    def _roll_if_due(self) -> None:
        active, settings = self._active, self.topic().settings
        assert active is not None
        age_us = self.clock.now_us() - active.opened_us if active.opened_us else 0
        due = active.data_bytes >= settings.segment_bytes_max or age_us >= settings.segment_ms_max * 1000
        if due and active.next_offset > active.writer.base_offset:
            self._roll_locked()

    def _roll_locked(self) -> None:
        active = self._current()
        if active.next_offset == active.writer.base_offset:
            # Empty: replace it in place (its schema version is outdated).
            self._drop_active()
            self._begin(active.writer.base_offset)
            return
        active.writer.roll(active.next_offset)
        self._drop_active()
        self._begin(active.next_offset, active.last_us)
        self.on_roll()

    def roll(self, *, older_than_us: int | None = None) -> bool:
        """Roll the active segment (if it has rows, and its first is older); True when it did."""
        with self._turn, self._exclusive():
            self._open_locked()
            self._catch_up()
            active = self._active
            assert active is not None
            if active.next_offset == active.writer.base_offset:
                return False
            if older_than_us is not None and active.opened_us > older_than_us:
                return False
            self._roll_locked()
            return True

    def sync(self) -> None:
        """Sync the appends so far, without blocking new ones."""
        with ExitStack() as using:
            with self._turn:
                active = self._active
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
            if self._active is active:
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
            self._open_locked()
            self._catch_up()
            seen = self._sequences.get(producer)
            return -1 if seen is None else seen.last

    def _drop_active(self) -> None:
        if self._active is not None:
            self._active.writer.close()
            self._active = None

    def abandon(self) -> None:
        """Close the descriptors without taking any lock: after a fork, or a simulated crash."""
        if self._active is not None:
            self._active.writer.held.abandon()
            self._active = None
        self._opened = False
        self.lock.abandon()

    def close(self) -> None:
        """Close the descriptors; acknowledged rows stay as durable as the policy made them."""
        with self._turn:
            self.forget()
            self.lock.close()


def deleted(name: str) -> Misuse:
    """The error for a topic that was deleted while this process had it open."""
    return Misuse(
        f'topic "{name}" was deleted', hint="If it was created again, open it with log.topic(name, schema).", topic=name
    )
