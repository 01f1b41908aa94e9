"""Compaction: the latest record of each key is kept, older ones are removed.

What it is: ``compact_partition`` rewrites the sealed segments of a keyed topic without replaced records, and merges
small segments into larger ones.
Invariants: records keep their offsets and order; the ranges of the segments stay without holes, so every offset from
the start on is found; a tombstone is removed only after its grace period, and never before the older records of its
key: segments are replaced from the oldest on, each group in one transaction. A new file has a new name; old files are
deleted after the catalog has dropped them, and readers of an open file continue in it. Keys, offsets, marks and append
times of one partition are in memory; rows are streamed.
Not here: Arrow segments (sealed first), the choice of partitions (``maintenance.py``). Read next: ``maintenance.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Misuse
from headwater.log.catalog.registry import TopicRow
from headwater.log.commits.append_marks import AppendMarks
from headwater.log.maintenance.removal_pin import is_held
from headwater.log.maintenance.sealing import never, seal_closed
from headwater.log.proof.checkpoints import checkpoint_sealed
from headwater.log.proof.proof_release import ProofRelease
from headwater.log.schema.evolution import conform
from headwater.log.storage.active_segment import FrameRange
from headwater.log.storage.checksums import FileFacts
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.partition_layout import layout_of, maintenance_lock, partition_directory
from headwater.log.storage.sealed_segment import SealedSegment, appended_of, producer_of, write_sealed

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Offsets = np.ndarray[Any, np.dtype[np.int64]]

DIRTY_RATIO = 0.5  # share of sealed rows added since the last compaction that triggers one
SAVED_FILES_MIN = 8  # this many fewer files trigger one too

_first_tombstones_us = FileFacts[int](most=4096)  # of sealed segments


@dataclass(frozen=True)
class Compacted:
    """The result of compacting one partition."""

    segments_before: int
    segments_after: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"compacted {self.segments_before} segments to {self.segments_after}, "
            f"{self.rows_before} rows to {self.rows_after}, {self.bytes_before} bytes to {self.bytes_after}"
        )


class _Stopped(Exception):
    """The log is being closed or the topic was deleted; partial files are removed later."""


def compact_partition(
    topic: Topic, number: int, *, force: bool = False, wait: bool = False, stopping: Callable[[], bool] = never
) -> Compacted | None:
    """Compact the sealed segments if that pays; None if not, or if another process is doing so.

    ``force``: roll and seal the active segment first, and compact always. ``wait``: for the other process.
    """
    topic.refresh()
    if not topic.settings.compact:
        raise Misuse(
            f'topic "{topic.name}" is not declared to be compacted',
            hint="Declare it with a key and compact=True.",
            topic=topic.name,
        )
    if force:
        topic.partition(number).roll()
        seal_closed(topic, number, wait=True, stopping=stopping)
    directory = partition_directory(topic, number)
    with maintenance_lock(directory, wait=wait or force) as got:
        segments = layout_of(topic, number).sealed if got else ()
        oldest_tombstone_us = topic.clock.now_us() - topic.settings.tombstone_grace_ms * 1000
        if not segments or not (force or worthwhile(segments, topic.settings.segment_bytes_max, oldest_tombstone_us)):
            return None
        checkpoint_sealed(topic, number)  # of all rows, before some go
        try:
            return _Compaction(topic, number, directory, oldest_tombstone_us, stopping).run(segments)
        except _Stopped:
            return None


def worthwhile(segments: Sequence[SealedSegment], segment_bytes_max: int, oldest_tombstone_us: int) -> bool:
    """Whether compaction would change enough to pay for itself."""
    dirty = sum(segment.rows for segment in segments if not segment.compacted)
    if dirty and dirty >= DIRTY_RATIO * sum(segment.rows for segment in segments):
        return True
    sizes = [segment.bytes for segment in segments]
    if len(sizes) - len(_grouped(sizes, segment_bytes_max)) >= SAVED_FILES_MIN:
        return True
    return any(
        segment.appended_min <= oldest_tombstone_us and _first_tombstone_us(segment) <= oldest_tombstone_us
        for segment in segments
    )


def _first_tombstone_us(segment: SealedSegment) -> int:
    """The append time of a segment's oldest tombstone, far in the future without one. Its file never changes."""
    known = _first_tombstones_us.find(segment.path)
    if known is not None:
        return known
    oldest = 2**62
    for chunk in segment.read(segment.base_offset, segment.next_offset, ["_deleted", "_appended_at"]):
        marked = appended_of(chunk).cast(pa.int64()).filter(chunk.batch.column("_deleted"))
        if len(marked):
            oldest = min(oldest, pc.min(marked).as_py())
    _first_tombstones_us.keep(segment.path, oldest)
    return oldest


def _grouped(sizes: Sequence[float], bytes_max: int) -> list[range]:
    """Neighbouring segments that become one file: their sizes add up to at most the maximum.

    >>> _grouped([10, 10, 90, 5, 200, 0], 100)
    [range(0, 2), range(2, 4), range(4, 6)]
    """
    groups: list[range] = []
    first, total = 0, 0.0
    for number, size in enumerate(sizes):
        if number > first and size and total + size > bytes_max:
            groups.append(range(first, number))
            first, total = number, 0.0
        total += size
    return [*groups, range(first, len(sizes))] if sizes else []


class _Compaction:
    """One run over one partition. The caller holds the maintenance lock."""

    def __init__(
        self, topic: Topic, number: int, directory: Path, oldest_tombstone_us: int, stopping: Callable[[], bool]
    ) -> None:
        self.topic = topic
        self.number = number
        self.directory = directory
        self.row: TopicRow = topic.row()
        self.oldest_tombstone_us = oldest_tombstone_us
        self.stopping = stopping

    def run(self, segments: Sequence[SealedSegment]) -> Compacted:
        survivors = self._survivors(segments)
        kept = [_count_in(survivors, s.base_offset, s.next_offset) for s in segments]
        sizes = [s.bytes * rows / max(1, s.rows) for s, rows in zip(segments, kept, strict=True)]
        after: list[SealedSegment] = []
        for group in _grouped(sizes, self.topic.settings.segment_bytes_max):
            if self.stopping():
                after += segments[group.start :]
                break
            after += self._replace(segments[group.start : group.stop], sum(kept[group.start : group.stop]), survivors)
        return Compacted(
            len(segments),
            len(after),
            sum(s.rows for s in segments),
            sum(s.rows for s in after),
            sum(s.bytes for s in segments),
            sum(s.bytes for s in after),
        )

    def _survivors(self, segments: Sequence[SealedSegment]) -> Offsets:
        """The offsets that stay, in order: the last of each key, without tombstones after their grace period."""
        key = list(self.row.settings.key)
        key_schema = pa.schema([self.row.schema.field(name) for name in key])
        keys: list[pa.RecordBatch] = []
        offsets, deleted, appended = [], [], []
        for segment in segments:
            for chunk in segment.read(segment.base_offset, segment.next_offset, [*key, "_deleted", "_appended_at"]):
                if self.stopping():
                    raise _Stopped
                keys.append(conform(chunk.batch.select(key), key_schema))
                offsets.append(_offsets(chunk))
                deleted.append(chunk.batch.column("_deleted").to_numpy(zero_copy_only=False))
                appended.append(appended_of(chunk).cast(pa.int64()).to_numpy())
        every = np.concatenate(offsets)
        table = pa.Table.from_batches(keys, schema=key_schema).append_column("_offset", pa.array(every))
        last = np.sort(table.group_by(key).aggregate([("_offset", "max")]).column("_offset_max").to_numpy())
        at = np.searchsorted(every, last)
        over = np.concatenate(deleted)[at] & (np.concatenate(appended)[at] <= self.oldest_tombstone_us)
        return np.asarray(last[~over], dtype=np.int64)

    def _replace(self, old: Sequence[SealedSegment], kept: int, survivors: Offsets) -> Sequence[SealedSegment]:
        log = self.topic.log
        if len(old) == 1 and kept == old[0].rows:
            # Nothing to remove: the file stays, and the catalog marks it as compacted.
            same = replace(old[0], compacted=True)
            if not old[0].compacted:
                log.registry.replace_segments(self.topic.id, old, same, self._marks(old))
            return [same]
        marks = self._marks(old)
        new = write_sealed(
            self.directory,
            self._rows(old, survivors),
            stored_schema(self.row.schema, self.row),
            base_offset=old[0].base_offset,
            next_offset=old[-1].next_offset,
            partition=self.number,
            schema_version=self.row.version,
            event_time=self.row.settings.event_time,
            files=log.files,
            suffix=next_suffix(old),
            compacted=True,
            metadata=any(segment.has_metadata for segment in old),
        )
        low, high = np.searchsorted(survivors, [new.base_offset, new.next_offset])
        release = ProofRelease(self.topic, self.number, new.base_offset, new.next_offset, survivors[low:high])
        if not log.registry.replace_segments(self.topic.id, old, new, marks, also=release.note):
            # The topic was deleted meanwhile. Going on could drop a tombstone before the older records of its key.
            log.files.unlink(new.path, label="compact.remove_new")
            release.undo()
            raise _Stopped
        if not is_held(log.home):  # else the next sealing removes them after the backup
            for segment in old:
                log.files.unlink(segment.path, label="compact.remove_old")
            release.finish()
        return [new]

    def _marks(self, old: Sequence[SealedSegment]) -> AppendMarks:
        registry = self.topic.log.registry
        return AppendMarks.joined([registry.append_marks(self.topic.id, s) for s in old])

    def _rows(self, old: Sequence[SealedSegment], survivors: Offsets) -> Iterator[FrameRange]:
        target = stored_schema(self.row.schema, self.row)
        for segment in old:
            for chunk in segment.read(segment.base_offset, segment.next_offset, None):
                if self.stopping():
                    raise _Stopped
                offsets = _offsets(chunk)
                low, high = np.searchsorted(survivors, [chunk.first_offset, chunk.next_offset])
                keep = np.isin(offsets, survivors[low:high], assume_unique=True)
                if not keep.any():
                    continue
                mask = pa.array(keep)
                batch = chunk.batch.filter(mask)
                if chunk.schema_version != self.row.version:
                    batch = conform(batch, target)
                yield FrameRange(
                    chunk.first_offset,
                    chunk.next_offset,
                    batch,
                    self.row.version,
                    offsets[keep],
                    appended_of(chunk).filter(mask),
                    producer_of(chunk).filter(mask),
                    metadata=None if chunk.metadata is None else chunk.metadata.filter(mask),
                )


def _offsets(chunk: FrameRange) -> Offsets:
    if chunk.offsets is not None:
        return chunk.offsets
    return np.arange(chunk.first_offset, chunk.first_offset + chunk.batch.num_rows, dtype=np.int64)


def _count_in(survivors: Offsets, start: int, stop: int) -> int:
    low, high = np.searchsorted(survivors, [start, stop])
    return int(high - low)


def next_suffix(old: Sequence[SealedSegment]) -> str:
    """A new file name: segments are only ever merged, so a base's count only rises."""
    counts = [int(s.path.stem.partition("-c")[2] or 0) for s in old]
    return f"-c{max(counts) + 1}"
