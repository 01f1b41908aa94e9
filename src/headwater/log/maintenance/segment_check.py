"""Segment check: verification of one segment's bytes.

What it is: ``inspect_arrow`` and ``inspect_sealed`` read one segment and list every deviation as a ``Problem``.
Invariants: they change nothing and never raise for bad bytes; a missing file raises ``FileNotFoundError``, because only
the caller knows whether it should exist. Every byte counts: entries, their copies in the index, payloads, the zeros
between frames, and the whole of a sealed file. Later appends are left out.
Not here: the order of segments, the catalog, groups (``home_check.py``); repair (``log/storage/recovery.py``).
Read next: ``home_check.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headwater.log.catalog.registry import TopicRow
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.storage.active_segment import segment_name
from headwater.log.storage.checksums import signed
from headwater.log.storage.file_descriptors import EXHAUSTED, open_file, too_many_files, with_room
from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, HEADER, ROLL, Entry, padded
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.sealed_segment import APPENDED_TYPE, SYSTEM_COLUMNS, SealedSegment, time_range

READ_BYTES = 8 << 20
RESTORE = "Restore the file from a backup or the archive."
MEND = "Stop the writers of this topic and open it again: the index is rebuilt from the data file."

Severity = Literal["error", "warning"]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Problem:
    """One finding. A warning costs only space; an error means damaged or missing data."""

    severity: Severity
    where: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        hint = f"\n  Hint: {self.hint}" if self.hint else ""
        return f"{self.severity}: {self.where}: {self.message}{hint}"


@dataclass
class SegmentFinding:
    """The findings about one segment."""

    where: str
    next_offset: int
    rows: int = 0
    bytes: int = 0
    next_base: int | None = None
    producers: set[int] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def error(self, message: str, hint: str = RESTORE) -> None:
        self.problems.append(Problem("error", self.where, message, hint))


# Arrow segments


def inspect_arrow(directory: Path, base_offset: int, *, progress: Progress) -> SegmentFinding:
    """Verify every frame that an Arrow segment's index lists, and the index itself."""
    path = directory / f"{segment_name(base_offset)}.arrow"
    finding = SegmentFinding(str(path), base_offset)
    data_fd = open_file(path, os.O_RDONLY)
    try:
        index_fd = open_file(path.with_suffix(".index"), os.O_RDONLY)
        try:
            _Arrow(finding, data_fd, index_fd, base_offset, progress).run()
        finally:
            os.close(index_fd)
    finally:
        os.close(data_fd)
    return finding


class _Arrow:
    def __init__(
        self, finding: SegmentFinding, data_fd: int, index_fd: int, base_offset: int, progress: Progress
    ) -> None:
        self.finding = finding
        self.data_fd = data_fd
        self.index_fd = index_fd
        self.base_offset = base_offset
        self.progress = progress
        self._window, self._window_at = b"", 0

    def run(self) -> None:
        # The index first: a frame that it lists is complete in the data file.
        listed = os.pread(self.index_fd, os.fstat(self.index_fd).st_size, 0)
        if len(listed) <= ENTRY_BYTES and os.fstat(self.data_fd).st_size < 64 << 10 and not self._header_is_whole():
            return  # it is being created, or its process died doing so; it holds no rows
        header = self._header()
        if header is None:
            return
        first = Entry.unpack(listed[:ENTRY_BYTES])
        if first is None or first.kind != HEADER or first.base_offset != self.base_offset:
            self.finding.error("the header of its index is damaged", MEND)
        self._frames(header, listed)

    def _header_is_whole(self) -> bool:
        header = Entry.unpack(self._read(0, ENTRY_BYTES))
        return header is not None and self._payload_holds(header)

    def _header(self) -> Entry | None:
        header = Entry.unpack(self._read(0, ENTRY_BYTES))
        if header is None or header.kind != HEADER or header.base_offset != self.base_offset:
            self.finding.error("its header is damaged")
            return None
        if not self._payload_holds(header):
            self.finding.error("the schema in its header is damaged")
            return None
        return header

    def _frames(self, header: Entry, listed: bytes) -> None:
        finding = self.finding
        schema = pa.ipc.read_schema(pa.py_buffer(self._read(ENTRY_BYTES, header.length)))
        position, appended_us = header.end, 0
        self.progress(position)
        for at in range(ENTRY_BYTES, len(listed), ENTRY_BYTES):
            packed = listed[at : at + ENTRY_BYTES]
            entry = Entry.unpack(packed)
            number = at // ENTRY_BYTES
            if entry is None:
                finding.error(f"entry {number} of its index is damaged", MEND)
                return
            if entry.kind == ROLL:
                self._end(entry, position, after=len(listed) - at - ENTRY_BYTES)
                return
            if entry.kind != DATA or entry.position != position or entry.base_offset != finding.next_offset:
                finding.error(f"entry {number} of its index does not follow the one before it", MEND)
                return
            where = f"offsets {entry.base_offset} to {entry.next_offset - 1}"
            if self._read(position, ENTRY_BYTES) != packed:
                finding.error(f"the entry before {where} is not the one in the index")
            elif not self._payload_holds(entry):
                finding.error(f"the bytes of {where} do not match their checksum")
            else:
                self._rows(entry, schema, where)
            if entry.schema_version != header.schema_version or entry.appended_us < appended_us:
                finding.error(f"the entry of {where} contradicts its segment or the entry before it")
            if entry.producer > 0:
                finding.producers.add(entry.producer)
            finding.rows += entry.rows
            finding.next_offset = entry.next_offset
            position, appended_us = entry.end, entry.appended_us
            finding.bytes = position
            self.progress(entry.end - entry.position)

    def _end(self, roll: Entry, position: int, *, after: int) -> None:
        """Check the end of a closed segment: nothing may follow."""
        self.finding.next_base = roll.base_offset
        if roll.base_offset != self.finding.next_offset or after:
            self.finding.error("the end of its index does not fit the entries before it", MEND)
        if os.fstat(self.data_fd).st_size != position:
            self.finding.error("the data file is not as long as its index says")

    def _rows(self, entry: Entry, schema: pa.Schema, where: str) -> None:
        payload = pa.py_buffer(self._read(entry.position + ENTRY_BYTES, entry.length))
        try:
            rows = pa.ipc.read_record_batch(payload, schema).num_rows
        except pa.ArrowInvalid as error:
            self.finding.error(f"{where} cannot be decoded: {error}")
            return
        if rows != entry.rows:
            self.finding.error(f"{where} hold {rows} rows, not {entry.rows}")

    def _payload_holds(self, entry: Entry) -> bool:
        if not 0 <= entry.length <= os.fstat(self.data_fd).st_size:
            return False
        body = self._read(entry.position + ENTRY_BYTES, padded(entry.length))
        payload, rest = body[: entry.length], body[entry.length :]
        return (
            len(body) == padded(entry.length)
            and xxhash.xxh3_64_intdigest(payload) == entry.payload_checksum
            and not any(rest)
        )

    def _read(self, position: int, length: int) -> bytes:
        """Some bytes of the data file; many small frames share one read."""
        at = position - self._window_at
        if at < 0 or at + length > len(self._window):
            self._window = os.pread(self.data_fd, max(length, READ_BYTES), position)
            self._window_at, at = position, 0
        return self._window[at : at + length]


def has_frames(directory: Path, base_offset: int) -> bool:
    """Whether a data file holds more than its header."""
    with with_room(lambda: (directory / f"{segment_name(base_offset)}.arrow").open("rb")) as file:
        header = Entry.unpack(file.read(ENTRY_BYTES))
        return header is not None and os.fstat(file.fileno()).st_size > header.end


# Sealed segments


def inspect_sealed(segment: SealedSegment, row: TopicRow, *, progress: Progress) -> SegmentFinding:
    """Verify a sealed segment's whole file against its checksum, and its rows against its catalog row."""
    finding = SegmentFinding(str(segment.path), segment.next_offset, segment.rows, segment.bytes)
    with with_room(lambda: segment.path.open("rb")) as file:
        _whole_file(finding, segment, file, progress)
        if not finding.problems:
            # The bytes are as written, so a difference from here on is the catalog's.
            with _recording_errors(finding, "it cannot be read"):
                _rows_of(finding, segment, row, file)
    return finding


def _whole_file(finding: SegmentFinding, segment: SealedSegment, file: BinaryIO, progress: Progress) -> None:
    hasher, size = xxhash.xxh3_64(), 0
    with _recording_errors(finding, "it cannot be read"):
        while block := file.read(READ_BYTES):
            hasher.update(block)
            size += len(block)
            progress(len(block))
    if size != segment.bytes:
        finding.error(f"it has {size} bytes, the catalog says {segment.bytes}")
    if signed(hasher.intdigest()) != segment.checksum:
        finding.error("its bytes do not match the checksum in the catalog")


def _rows_of(finding: SegmentFinding, segment: SealedSegment, row: TopicRow, file: BinaryIO) -> None:
    parquet = pq.ParquetFile(file)
    expected = row.schemas.get(segment.schema_version)
    if expected is None:
        finding.error(f"the catalog says schema version {segment.schema_version}, which the topic does not have")
        return
    wanted = [*SYSTEM_COLUMNS, *stored_schema(expected, row).names]
    if parquet.schema_arrow.names not in (wanted, [*wanted, *METADATA_COLUMNS]):
        finding.error(f"its columns are {parquet.schema_arrow.names}, not those of schema {segment.schema_version}")
        return
    event_time = row.settings.event_time
    columns = ["_offset", "_appended_at", *([event_time] if event_time else [])]
    rows, last = 0, segment.base_offset - 1
    appended, event = _Range(), _Range()
    for batch in parquet.iter_batches(batch_size=131_072, columns=columns):
        offsets = batch.column("_offset").to_numpy()
        if len(offsets) and (offsets[0] <= last or np.any(np.diff(offsets) <= 0)):
            finding.error(f"its offsets do not rise, near offset {last}")
        last = int(offsets[-1]) if len(offsets) else last
        rows += len(offsets)
        appended.add(batch.column("_appended_at").cast(APPENDED_TYPE))
        if event_time:
            event.add(batch.column(event_time))
    if last >= segment.next_offset:
        finding.error(f"it holds offset {last}, the catalog says that it ends before {segment.next_offset}")
    if rows != segment.rows:
        finding.error(f"it has {rows} rows, the catalog says {segment.rows}")
    if not (segment.compacted or segment.gaps) and segment.rows != segment.next_offset - segment.base_offset:
        finding.error(f"it has {segment.rows} rows for {segment.next_offset - segment.base_offset} offsets")
    if rows and appended.values != (segment.appended_min, segment.appended_max):
        finding.error("its append times are not those in the catalog")
    if event.values != (segment.time_min, segment.time_max):
        finding.error("its event times are not those in the catalog")


class _Range:
    def __init__(self) -> None:
        self.values: tuple[int | None, int | None] = (None, None)

    def add(self, column: pa.Array) -> None:
        low, high = time_range(column)
        if low <= high:
            known = [value for value in self.values if value is not None]
            self.values = (min([low, *known]), max([high, *known]))


@contextmanager
def _recording_errors(finding: SegmentFinding, what: str) -> Iterator[None]:
    """Record any exception of a library as a problem of the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise too_many_files(error) from error
        finding.error(f"{what}: {error}")


def inspect_bare_parquet(path: Path) -> SegmentFinding:
    """Verify a sealed file without the catalog: its pages against their own checksums."""
    finding = SegmentFinding(str(path), 0, bytes=path.stat().st_size)
    with _recording_errors(finding, "it cannot be read"):
        parquet: Any = with_room(lambda: pq.ParquetFile(path, page_checksum_verification=True))
        for batch in parquet.iter_batches(batch_size=131_072):
            finding.rows += batch.num_rows
    return finding
