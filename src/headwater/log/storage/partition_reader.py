"""Partition reader: rows of one partition from any offset.

What it is: ``PartitionReader`` finds the segment that holds an offset, Arrow or sealed, and yields its rows; it knows
the partition's first and next offset.
Invariants: it takes no lock and blocks no writer; a segment that was sealed, compacted or dropped meanwhile is looked
up again; an offset outside the partition is an error that names the bounds; older rows are returned in the requested
schema; a batch never ends inside an append.
Not here: several partitions, following, waking (``log/topic_reader.py``).
Read next: ``active_segment.py``, ``sealed_segment.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import format_us
from headwater.errors import CorruptSegment, OffsetOutOfRange
from headwater.log.batch import Batch
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.commits.append_marks import NO_MARKS, AppendMarks
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.schema.evolution import conform
from headwater.log.storage.active_segment import ArrowSegment, FrameRange, arrow_bases, joined
from headwater.log.storage.frame_index import NO_TIME_MAX
from headwater.log.storage.sealed_segment import SealedSegment, appended_of, metadata_of, offsets_of, producer_of

BATCH_ROWS = 65_536
LOOKS_MAX = 3  # a missing segment may have been sealed or compacted meanwhile
SMALL_ROWS = 4_096  # frames with fewer rows are joined into larger batches


class PartitionReader:
    """Reads one partition. Cheap to make; each follower has its own."""

    def __init__(self, directory: Path, number: int, topic: Callable[..., TopicRow], registry: Registry) -> None:
        self.directory = directory
        self.number = number
        self.topic = topic
        self.registry = registry
        self._lock = threading.RLock()
        self._tail: ArrowSegment | None = None
        self._current: ArrowSegment | None = None

    # Bounds

    def start_offset(self) -> int:
        """The first offset that is kept."""
        return self.registry.start(self.topic().id, self.number)[0]

    def end_offset(self) -> int:
        """The offset that the next append will get."""
        with self._lock:
            tail = self._advance()
            if tail is not None and self._is_last(tail):
                return tail.next_offset
        return max(self.registry.sealed_end(self.topic().id, self.number), self.start_offset())

    def _is_last(self, tail: ArrowSegment) -> bool:
        """Whether nothing is listed behind a tail. Where it was rolled, and the newest segment is just being created,
        those in between may be sealed already."""
        return tail.next_base is None or self.registry.sealed_end(self.topic().id, self.number) <= tail.next_offset

    def end_of_cut(self, number: int) -> int:
        """The offset after the last row that is listed now and belongs to this cut or an earlier one."""
        with self._lock:
            tail = self._advance()
            closed = tail is not None and len(tail.entries) and int(tail.entries[-1]["cut_number"]) <= number
            if tail is not None and closed and self._is_last(tail):
                return tail.next_offset  # the ordinary case: nothing was written since
        end = self.end_offset()
        position = end
        while position > self.start_offset():
            marks, base, _ = self.segment_marks(position - 1)
            found = marks.end_of_cut(number)
            if found is not None:
                return min(found, end)
            position = base
        return position

    def append_marks(self, start: int, stop: int) -> AppendMarks:
        """Where the appends and the cuts of a range end."""
        parts, position = [NO_MARKS], start
        while position < stop:
            marks, _, position = self.segment_marks(position)
            parts.append(marks)
        return AppendMarks.joined(parts)

    def whole_after(self, offset: int) -> int:
        """The smallest offset from this one on at which no append is cut."""
        if not self.start_offset() < offset < self.end_offset():
            return offset
        marks, _, following = self.segment_marks(offset - 1)
        return min(following, marks.whole_after(offset))

    def segment_marks(self, offset: int) -> tuple[AppendMarks, int, int]:
        """The marks of the segment that holds an offset, and the segment's range."""
        for _ in range(LOOKS_MAX):
            arrow, sealed = self.locate(offset)
            if arrow is not None:
                return arrow.marks, arrow.base_offset, arrow.next_offset
            if sealed is not None:
                marks = self.registry.append_marks(self.topic().id, sealed)
                return marks, sealed.base_offset, sealed.next_offset
        self.check_bounds(offset, self.end_offset())
        raise self._missing(offset)

    def _advance(self) -> ArrowSegment | None:
        """The active segment, with its newest entries read."""
        tail = self._refreshed()
        if tail is None:
            return None
        if tail.next_base is None and tail.removed:
            # A process died while it created this segment, and another one has replaced it: this one will never grow.
            # A segment that was just opened has its newest entries.
            tail = self._tail = self._open(max(arrow_bases(self.directory), default=tail.base_offset))
            if tail is None:
                return None
        while tail.next_base is not None:
            following = self._open(tail.next_base) or self._newest_after(tail.base_offset)
            if following is None:  # not created yet; or rolled and sealed, and the one behind it is not created yet
                break
            tail = self._tail = following
        return tail

    def _newest_after(self, base: int) -> ArrowSegment | None:
        """The newest segment in Arrow form behind another one, which may be rolled too."""
        behind = (each for each in reversed(arrow_bases(self.directory)) if each > base)
        return next((found for each in behind if (found := self._open(each)) is not None), None)

    def _refreshed(self) -> ArrowSegment | None:
        """The known tail segment, or the newest one, with its newest entries."""
        for _ in range(LOOKS_MAX):
            if self._tail is None:
                for base in reversed(arrow_bases(self.directory)):
                    self._tail = self._open(base)
                    if self._tail is not None:
                        break
            try:
                if self._tail is not None:
                    self._tail.refresh()
                return self._tail
            except FileNotFoundError:  # its descriptors had been closed, and it was sealed since
                self._tail = None
        return None

    def _open(self, base: int) -> ArrowSegment | None:
        """A segment's Arrow form; None when it is missing (sealed) or being created."""
        try:
            return ArrowSegment(self.directory, base)
        except FileNotFoundError:
            return None
        except CorruptSegment:
            if (self.directory / f"{base:020d}.arrow").stat().st_size < 64 << 10:
                return None  # its creation is under way
            raise

    def check_bounds(self, offset: int, end: int) -> None:
        """Refuse an offset that is before the start or after the end."""
        topic = self.topic()
        start, moved_us = self.registry.start(topic.id, self.number)
        where = f'of topic "{topic.name}" partition {self.number}'
        data = {"topic": topic.name, "partition": self.number, "offset": offset, "start": start, "end": end}
        if offset < start:
            moved = f" at {format_us(moved_us)}" if moved_us else ""
            raise OffsetOutOfRange(
                f"offset {offset} is before the start {where}",
                detail=f"Retention moved the start to {start}{moved}.",
                hint='Read from "earliest", or reset the group: headwater group reset GROUP --topic '
                f"{topic.name} --to earliest",
                **data,
            )
        if offset > end:
            raise OffsetOutOfRange(
                f"offset {offset} is after the end {where}",
                detail=f"The next offset to be written is {end}.",
                hint='Read from "latest", or check that the offset belongs to this topic and partition.',
                **data,
            )

    # Rows

    def read(self, start: int, stop: int, columns: Sequence[str] | None, rows_max: int = BATCH_ROWS) -> Iterator[Batch]:
        """The rows from ``start`` up to ``stop`` (not included), joined or cut into batches of a useful size.

        No batch ends inside an append, except at ``stop``: one that has more than ``rows_max`` rows is one batch.
        """
        waiting: list[FrameRange] = []
        rows, settled = 0, 0  # how many rows wait, and how many of the waiting ranges come before an open append
        for chunk in self.chunks(start, stop, columns):
            rest: FrameRange | None = chunk
            while rest is not None:
                size = rest.batch.num_rows
                # A sealed segment gives only the columns that were asked for, an Arrow one all: these do not join. A
                # large chunk is not copied into a larger one.
                apart = size >= SMALL_ROWS or (waiting and not rest.batch.schema.equals(waiting[0].batch.schema))
                whole = settled == len(waiting)
                if settled and (rows + size > min(rows_max, BATCH_ROWS) or (whole and apart)):
                    yield self._batch(joined(waiting[:settled]), columns)
                    waiting = waiting[settled:]
                    rows, settled = sum(each.batch.num_rows for each in waiting), 0
                taken = rest
                if rows + size > rows_max:
                    cut = rest.whole_before(rest.offset_of(max(0, rows_max - rows)))
                    if cut == rest.first_offset:  # one append has more rows than that, or begins before
                        cut = rest.whole_after(rest.first_offset + 1)
                    taken = rest.clip(rest.first_offset, cut)
                waiting.append(taken)
                rows += taken.batch.num_rows
                rest = rest.clip(taken.next_offset, rest.next_offset) if taken is not rest else None
                if taken.whole_before(taken.next_offset) == taken.next_offset:
                    settled = len(waiting)
                    if rest is not None or rows >= SMALL_ROWS:
                        yield self._batch(joined(waiting), columns)
                        waiting, rows, settled = [], 0, 0
        if settled and rows > rows_max:
            yield self._batch(joined(waiting[:settled]), columns)
            waiting = waiting[settled:]
        if waiting:
            yield self._batch(joined(waiting), columns)

    def chunks(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[FrameRange]:
        """The same rows as they are stored, chunk by chunk."""
        position = start
        missing = 0
        while position < stop:
            arrow, sealed = self.locate(position)
            try:
                if arrow is not None:
                    for chunk in arrow.read(position, stop):
                        yield chunk
                        position = chunk.next_offset
                    missing = 0
                    continue
                if sealed is not None:
                    marks = self.registry.append_marks(self.topic().id, sealed)
                    for chunk in sealed.read(position, stop, columns):
                        yield replace(chunk, marks=marks)
                        position = chunk.next_offset
                    position = max(position, min(sealed.next_offset, stop))
                    missing = 0
                    continue
            except FileNotFoundError:
                pass  # compacted or dropped in between: look again
            missing += 1
            if missing > LOOKS_MAX:
                self.check_bounds(position, self.end_offset())
                raise self._missing(position)

    def _missing(self, offset: int) -> CorruptSegment:
        return CorruptSegment(
            f'no segment holds offset {offset} of topic "{self.topic().name}" partition {self.number}',
            hint="A file is missing from the home: restore it from a backup; `headwater check` lists all.",
            offset=offset,
        )

    def locate(self, offset: int) -> tuple[ArrowSegment | None, SealedSegment | None]:
        """The segment that holds an offset, sealed or Arrow; neither when it has just changed."""
        with self._lock:
            for segment in (self._current, self._tail):
                if segment is not None and segment.base_offset <= offset and not segment.removed:
                    with suppress(FileNotFoundError):  # sealed away since
                        segment.refresh()
                        if offset < segment.next_offset:
                            return segment, None
            topic = self.topic()
            sealed = self.registry.sealed_at(topic.id, self.number, self.directory, offset)
            if sealed is not None:
                return None, sealed
            for base in reversed(arrow_bases(self.directory)):
                if base <= offset:
                    self._current = self._open(base)
                    if self._current is not None and offset < self._current.next_offset:
                        return self._current, None
            return None, None

    def _batch(self, chunk: FrameRange, columns: Sequence[str] | None) -> Batch:
        topic = self.topic(chunk.schema_version)
        data = chunk.batch
        fields = [f for f in topic.schema if columns is None or f.name in columns]
        if chunk.schema_version != topic.version:
            keep = [f for f in fields if f.name in data.schema.names]
            if columns is None or "_deleted" in columns:
                keep += [f for f in data.schema if f.name == "_deleted"]
            data = data.select([f.name for f in keep])
            target = [*fields, *(f for f in data.schema if f.name == "_deleted")]
            data = conform(data, pa.schema(target))
        if columns is None:
            data = data.select(topic.schema.names) if topic.settings.key else data
        else:
            data = self._project(chunk, data, columns)
        return Batch(topic.name, self.number, chunk.first_offset, chunk.next_offset, data, chunk.offsets)

    def _project(self, chunk: FrameRange, data: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        arrays, fields = [], []
        for name in columns:
            if name == "_offset":
                array = offsets_of(chunk)
            elif name == "_partition":
                array = pa.array(np.full(data.num_rows, self.number, dtype=np.int32))
            elif name == "_appended_at":
                array = appended_of(chunk)
            elif name == "_producer":
                array = producer_of(chunk)
            elif name in METADATA_COLUMNS:
                array = metadata_of(chunk, name)
            else:
                array = data.column(name)
                fields.append(data.schema.field(name))
                arrays.append(array)
                continue
            fields.append(pa.field(name, array.type))
            arrays.append(array)
        if not arrays:  # nothing but a count is wanted
            return data.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    # Time

    def offset_at(self, moment_us: int) -> int:
        """The first offset whose event time (or append time) is at or after the moment; the end if none."""
        column = self.topic().settings.event_time
        position = self.start_offset()
        end = self.end_offset()
        missing = 0
        while position < end:
            arrow, sealed = self.locate(position)
            if sealed is not None:
                newest = sealed.time_max if column else sealed.appended_max
                ranges = [(position, sealed.next_offset)] if newest is not None and newest >= moment_us else []
                following = sealed.next_offset
            elif arrow is not None:
                newest_each = arrow.entries["time_max" if column else "appended_us"]
                fitting = arrow.entries[(newest_each >= moment_us) & (newest_each != NO_TIME_MAX)]
                pairs = zip(fitting["base_offset"].tolist(), fitting["rows"].tolist(), strict=True)
                ranges = [(max(first, position), first + rows) for first, rows in pairs if first + rows > position]
                following = arrow.next_offset
            else:  # sealed, or dropped, between two looks
                missing += 1
                if missing > LOOKS_MAX:
                    self.check_bounds(position, end)
                    raise self._missing(position)
                continue
            for first, last in ranges:
                found = self._first_in(first, last, column, moment_us)
                if found is not None:
                    return found
            position = following
        return end

    def _first_in(self, start: int, stop: int, column: str | None, moment_us: int) -> int | None:
        for chunk in self.chunks(start, stop, [column or "_appended_at"]):
            times = chunk.batch.column(column) if column else appended_of(chunk)
            if pa.types.is_date(times.type):
                times = times.cast(pa.timestamp("us"))
            hits = pc.indices_nonzero(pc.fill_null(pc.greater_equal(times.cast(pa.int64()), moment_us), False))
            if len(hits):
                return int(offsets_of(chunk)[hits[0].as_py()].as_py())
        return None

    def close(self) -> None:
        with self._lock:
            self._tail = self._current = None
