"""Partition tail: the active segment of a partition, as this process last saw it.

What it is: ``PartitionTail`` opens a partition (recovering it first), finds what other processes have written or rolled
since, and begins the next segment.
Invariants: every method needs the partition's lock. The state is a cache of the files: before each use ``catch_up``
compares it with them, and after a failure ``forget`` makes the next use read them again.
Not here: the lock, appends and syncs (``partition_writer.py``); what recovery does (``recovery.py``).
Read next: ``partition_writer.py``, ``recovery.py``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.clock import Clock
from headwater.errors import CorruptSegment, Misuse
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.commits.commit_records import CommitRecords
from headwater.log.commits.cut_numbers import CutCounter
from headwater.log.commits.sequence_ranges import SequenceRanges
from headwater.log.storage import frame_index
from headwater.log.storage.active_segment import ArrowSegment, SegmentWriter, arrow_bases
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, Entries, Entry
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.recovery import Recovery, recover_tail

logger = logging.getLogger("headwater.log")

OPEN_ATTEMPTS_MAX = 100  # attempts to open a partition whose segments keep being sealed


@dataclass
class ActiveState:
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
class PartitionTail:
    """The end of one partition, for the holder of its lock."""

    directory: Path
    number: int
    topic: Callable[[], TopicRow]  # the topic's current row; schemas may be added
    registry: Registry
    files: Files
    clock: Clock
    cut_counter: CutCounter
    records: CommitRecords
    on_roll: Callable[[], None]
    on_recovery: Callable[[Recovery], None]

    def __post_init__(self) -> None:
        self.active: ActiveState | None = None
        self.sequences: dict[int, SequenceRanges] = {}
        self.opened = False

    @property
    def current(self) -> ActiveState:
        """The active segment of an opened partition."""
        assert self.active is not None
        return self.active

    # Opening

    def open(self) -> None:
        """Recover the partition and load its active segment, once per process."""
        for attempt in range(OPEN_ATTEMPTS_MAX):
            if self.opened:
                return
            # Sealing does not take this lock and may remove a segment before it is opened: look again.
            try:
                self._recover_and_load()
                self.opened = True
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
                self.on_recovery(recovery)
            if not recovery.empty:
                break
            bases.pop()
        self._load(bases)

    def _load(self, bases: list[int]) -> None:
        """Load the last segment as the active one, or create one where the last ended."""
        topic = self.topic()
        self.sequences = {}
        segment: ArrowSegment | None = None
        for base in bases:
            segment = ArrowSegment(self.directory, base)
            self._note_sequences(segment.entries)
            if base != bases[-1]:
                segment.close()
        # After the segments: one that was sealed meanwhile is in the catalog now, with its sequences.
        for producer, ranges in self.registry.sequences(topic.id, self.number).items():
            self.sequences.setdefault(producer, SequenceRanges()).merge(ranges)
        self.drop()
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
            self.cut_counter.at_least(int(entries["cut_number"][-1]))
        data_bytes, index_bytes = (writer.held.stat(number).st_size for number in (0, 1))
        self.active = ActiveState(
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
        self.active = ActiveState(
            writer, topic.version, base_offset, writer.held.stat(0).st_size, ENTRY_BYTES, 0, last_us
        )

    def _note_sequences(self, entries: Entries) -> None:
        named = entries[entries["producer"] > 0]
        for producer, sequence in zip(named["producer"].tolist(), named["sequence"].tolist(), strict=True):
            self.sequences.setdefault(producer, SequenceRanges()).add(sequence)

    # Other processes

    def catch_up(self) -> None:
        """Update the cached state with the writes of other processes since the lock was last held."""
        active = self.current
        try:
            with active.writer.held as (data_fd, index_fd):
                index_stat, data_bytes = os.fstat(index_fd), os.lseek(data_fd, 0, os.SEEK_END)
                index_bytes = index_stat.st_size
                more = index_bytes - active.index_bytes
                added = os.pread(index_fd, more, active.index_bytes) if more > 0 else b""
        except FileNotFoundError:  # the descriptors had been closed, and the pair was sealed since
            self.forget()
            self.open()
            return
        if index_stat.st_nlink == 0 and not self.directory.exists():
            raise deleted(self.topic().name)
        if index_bytes == active.index_bytes and data_bytes == active.data_bytes:
            # An empty segment may have been replaced in place, for a newer schema.
            if active.next_offset > active.writer.base_offset or active.writer.header_version() == active.version:
                return
            self.forget()
            self.open()
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
        self.open()

    def forget(self) -> None:
        """Read the files again before the next use."""
        self.drop()
        self.opened = False

    def drop(self) -> None:
        """Close the active segment."""
        if self.active is not None:
            self.active.writer.close()
            self.active = None

    def abandon(self) -> None:
        """Close the descriptors without taking any lock: after a fork, or a simulated crash."""
        if self.active is not None:
            self.active.writer.held.abandon()
            self.active = None
        self.opened = False

    # Rolling

    def roll_if_due(self) -> None:
        """Begin the next segment when the active one is large or old enough."""
        active, settings = self.active, self.topic().settings
        assert active is not None
        age_us = self.clock.now_us() - active.opened_us if active.opened_us else 0
        due = active.data_bytes >= settings.segment_bytes_max or age_us >= settings.segment_ms_max * 1000
        if due and active.next_offset > active.writer.base_offset:
            self.roll()

    def roll(self) -> None:
        """Begin the next segment."""
        active = self.current
        if active.next_offset == active.writer.base_offset:
            # Empty: replace it in place (its schema version is outdated).
            self.drop()
            self._begin(active.writer.base_offset)
            return
        active.writer.roll(active.next_offset)
        self.drop()
        self._begin(active.next_offset, active.last_us)
        self.on_roll()


def deleted(name: str) -> Misuse:
    """The error for a topic that was deleted while this process had it open."""
    return Misuse(
        f'topic "{name}" was deleted', hint="If it was created again, open it with log.topic(name, schema).", topic=name
    )
