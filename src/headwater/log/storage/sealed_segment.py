"""Sealed segment: one immutable Parquet file.

What it is: writing the file, and reading it whole or by columns.
Invariants: the file holds the user's columns and ``_offset``, ``_appended_at``, ``_producer`` (and ``_deleted`` for a
keyed topic, and event metadata where some row has it), ordered by ``_offset``. The catalog has its range and the
checksum of all bytes, and each process verifies the checksum before it returns the first row: a damaged file is an
error, never data.
Not here: when to seal (``log/maintenance/sealing.py``), what to keep (``log/maintenance/retention.py``,
``log/maintenance/compaction.py``). Read next: ``log/maintenance/sealing.py``.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import CorruptSegment
from headwater.log.schema.event_metadata import METADATA_COLUMNS, METADATA_SCHEMA, RowMetadata
from headwater.log.storage.active_segment import FrameRange, segment_name
from headwater.log.storage.checksums import checksum_of, has_checksum
from headwater.log.storage.file_descriptors import open_file, with_room
from headwater.log.storage.files import Files, translated
from headwater.log.storage.frame_index import NO_TIME_MAX, NO_TIME_MIN

ROW_GROUP_ROWS = 131_072
COMPACTED, GAPS = 1, 2  # flags in the catalog
APPENDED_TYPE = pa.timestamp("us", tz="UTC")
SYSTEM_COLUMNS = ("_offset", "_appended_at", "_producer")
NOT_STORED = frozenset({*SYSTEM_COLUMNS, *METADATA_COLUMNS})  # read by themselves, beside the stored columns


@dataclass(frozen=True)
class SealedSegment:
    """One row of the catalog's ``segments`` table."""

    path: Path
    partition: int
    base_offset: int
    next_offset: int
    rows: int
    bytes: int
    checksum: int
    schema_version: int
    time_min: int | None
    time_max: int | None
    appended_min: int
    appended_max: int
    compacted: bool  # of keys that changed later older rows may be gone
    gaps: bool = False  # rows of erased people may be gone

    @staticmethod
    def of(row: sqlite3.Row, directory: Path) -> SealedSegment:
        """The segment that a catalog row describes."""
        fields = {name: row[name] for name in row.keys() if name not in ("topic_id", "file", "compacted")}  # noqa: SIM118
        compacted = bool(row["compacted"] & COMPACTED)
        gaps = bool(row["compacted"] & GAPS)
        return SealedSegment(path=directory / row["file"], compacted=compacted, gaps=gaps, **fields)

    @property
    def stored_flags(self) -> int:
        """What the catalog's column ``compacted`` says."""
        return COMPACTED * self.compacted | GAPS * self.gaps

    def read(
        self, start: int, stop: int, columns: Sequence[str] | None, *, verified: bool = True
    ) -> Iterator[FrameRange]:
        """The rows from ``start`` up to ``stop``, of these stored columns (all when None).

        ``verified``: only if the file has its checksum; else, for an audit, whatever can be read of it.
        """
        file = _open_verified(self) if verified else pq.ParquetFile(self.path)
        wanted = None
        if columns is not None:
            have = set(file.schema_arrow.names)
            wanted = ["_offset", *(name for name in columns if name in have and name != "_offset")]
        groups = _groups_in_range(file, start, stop)
        held: FrameRange | None = None
        for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS, row_groups=groups, columns=wanted):
            offsets = batch.column("_offset").to_numpy()
            if len(offsets) and offsets[-1] >= start and offsets[0] < stop:
                if held is not None:
                    yield held
                held = self._chunk(batch, offsets).clip(start, stop)
        # The last chunk reaches to the end of the range even where compaction left a gap there, and a range
        # without any row is one empty chunk, so that a reader's position always advances.
        until = min(self.next_offset, stop)
        if held is not None:
            yield replace(held, next_offset=until)
        else:
            empty = pa.RecordBatch.from_pylist([], schema=self._stored(file, wanted))
            none: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, dtype=np.int64)
            yield FrameRange(start, until, empty, self.schema_version, none, pa.array([], APPENDED_TYPE), 0)

    @staticmethod
    def _stored(file: pq.ParquetFile, wanted: list[str] | None) -> pa.Schema:
        fields = file.schema_arrow
        return pa.schema([f for f in fields if f.name not in NOT_STORED and (wanted is None or f.name in wanted)])

    def _chunk(self, batch: pa.RecordBatch, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> FrameRange:
        first, following = int(offsets[0]), int(offsets[-1]) + 1
        names = batch.schema.names
        appended: int | pa.Array = batch.column("_appended_at") if "_appended_at" in names else 0
        producer: int | pa.Array = batch.column("_producer") if "_producer" in names else 0
        stored = batch.select([name for name in names if name not in NOT_STORED])
        dense = following - first == len(offsets)
        return FrameRange(
            first,
            following,
            stored,
            self.schema_version,
            None if dense else offsets,
            appended,
            producer,
            metadata=RowMetadata.of_columns(batch),
        )

    @property
    def has_metadata(self) -> bool:
        """Whether some row has event metadata."""
        return METADATA_COLUMNS[0] in _open_verified(self).schema_arrow.names


def write_sealed(
    directory: Path,
    chunks: Iterable[FrameRange],
    schema: pa.Schema,
    *,
    base_offset: int,
    next_offset: int,
    partition: int,
    schema_version: int,
    event_time: str | None,
    files: Files,
    suffix: str = "",
    compacted: bool = False,
    gaps: bool = False,
    metadata: bool = False,
) -> SealedSegment:
    """Write the chunks as one Parquet file, synced and under its final name, but not yet in the catalog.

    ``metadata``: some chunk has event metadata.
    """
    path = directory / f"{segment_name(base_offset)}{suffix}.parquet"
    temporary = path.with_suffix(".parquet.tmp")
    with_system = pa.schema(
        [
            pa.field("_offset", pa.int64(), nullable=False),
            pa.field("_appended_at", APPENDED_TYPE, nullable=False),
            pa.field("_producer", pa.int64()),
            *schema,
            *(METADATA_SCHEMA if metadata else ()),
        ],
        metadata={
            "headwater": json.dumps(
                {
                    "base_offset": base_offset,
                    "next_offset": next_offset,
                    "partition": partition,
                    "schema_version": schema_version,
                }
            )
        },
    )
    sums = _Summary(event_time)
    groups = _grouped(chunks, with_system, sums)
    first = next(groups, None)
    with translated(f"seal {path.name}"):
        # Pages carry checksums too, so that Spark can be told to verify what it reads natively.
        writer = with_room(
            lambda: pq.ParquetWriter(
                temporary,
                with_system,
                compression="zstd",
                compression_level=1,
                write_page_checksum=True,
                use_dictionary=_repeating(first),
                column_encoding={"_offset": "DELTA_BINARY_PACKED"},
            )
        )
        try:
            while first is not None:
                writer.write_table(first, row_group_size=first.num_rows)
                first = next(groups, None)
        finally:
            writer.close()
    fd = open_file(temporary, os.O_RDONLY)
    try:
        files.sync(fd, label="seal.sync_parquet")
        checksum = checksum_of(temporary)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    files.rename(temporary, path, label="seal.rename_parquet")
    files.sync_dir(directory, label="seal.sync_directory")
    return SealedSegment(
        path,
        partition,
        base_offset,
        next_offset,
        sums.rows,
        size,
        checksum,
        schema_version,
        sums.time_min,
        sums.time_max,
        sums.appended_min,
        sums.appended_max,
        compacted,
        gaps,
    )


def _repeating(group: pa.Table | None) -> list[str]:
    """The columns with repeating values: a dictionary makes these small, and all others slow (measured: by half)."""
    names = ["_appended_at", "_producer"]
    if group is None:
        return names
    for field in group.schema:
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            sample = group.column(field.name).slice(0, 8192)
            if pc.count_distinct(sample).as_py() <= len(sample) // 2:
                names.append(field.name)
    return names


class _Summary:
    """The statistics that the catalog stores about the written rows."""

    def __init__(self, event_time: str | None) -> None:
        self.event_time = event_time
        self.rows = 0
        self.time_min: int | None = None
        self.time_max: int | None = None
        self.appended_min = NO_TIME_MIN
        self.appended_max = NO_TIME_MAX

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        low, high = time_range(table.column("_appended_at"))
        self.appended_min, self.appended_max = min(self.appended_min, low), max(self.appended_max, high)
        if self.event_time is not None:
            low, high = time_range(table.column(self.event_time))
            if low <= high:
                self.time_min = low if self.time_min is None else min(self.time_min, low)
                self.time_max = high if self.time_max is None else max(self.time_max, high)


def time_range(column: pa.Array | pa.ChunkedArray) -> tuple[int, int]:
    """Smallest and largest moment of a time column, in microseconds; neutral values when it has none."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    if isinstance(column, pa.Array) and len(column) and not column.null_count:
        # On the path of every append: numpy reads the values in place, at a tenth of the cost of Arrow's kernels.
        if len(column) == 1:
            return column[0].value, column[0].value
        moments = column.view(pa.int64()).to_numpy()
        return int(moments.min()), int(moments.max())
    both = pc.min_max(column.cast(pa.int64()))
    low, high = both["min"].as_py(), both["max"].as_py()
    return (NO_TIME_MIN, NO_TIME_MAX) if low is None else (low, high)


def _grouped(chunks: Iterable[FrameRange], schema: pa.Schema, sums: _Summary) -> Iterator[pa.Table]:
    """Tables of about one row group each, so that sealing needs little memory."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for chunk in chunks:
        waiting.append(_with_system(chunk, schema))
        rows += chunk.batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(waiting, schema=schema)
            sums.add(table)
            yield table
            waiting, rows = [], 0
    if waiting:
        table = pa.Table.from_batches(waiting, schema=schema)
        sums.add(table)
        yield table


def _with_system(chunk: FrameRange, schema: pa.Schema) -> pa.RecordBatch:
    said = [metadata_of(chunk, name) for name in METADATA_COLUMNS if name in schema.names]
    return pa.RecordBatch.from_arrays(
        [offsets_of(chunk), appended_of(chunk), producer_of(chunk), *chunk.batch.columns, *said], schema=schema
    )


def offsets_of(chunk: FrameRange) -> pa.Array:
    """The offset of each row. A chunk may reach beyond its last row, where compaction left a gap."""
    if chunk.offsets is not None:
        return pa.array(chunk.offsets, pa.int64())
    return pa.array(np.arange(chunk.first_offset, chunk.first_offset + chunk.batch.num_rows, dtype=np.int64))


def appended_of(chunk: FrameRange) -> pa.Array:
    """The append time of each row."""
    if isinstance(chunk.appended_us, int):
        return pa.array(np.full(chunk.batch.num_rows, chunk.appended_us, dtype=np.int64)).cast(APPENDED_TYPE)
    return chunk.appended_us.cast(APPENDED_TYPE)


def producer_of(chunk: FrameRange) -> pa.Array:
    """The producer's number for each row; null where it had none."""
    if not isinstance(chunk.producer, int):
        # 0 stands for "none" while rows are Arrow; sealed rows have null there already.
        return pc.if_else(pc.equal(chunk.producer, 0), pa.scalar(None, pa.int64()), chunk.producer)
    if chunk.producer == 0:
        return pa.nulls(chunk.batch.num_rows, pa.int64())
    return pa.array(np.full(chunk.batch.num_rows, chunk.producer, dtype=np.int64))


def metadata_of(chunk: FrameRange, name: str) -> pa.Array:
    """One column of the rows' event metadata."""
    rows = chunk.batch.num_rows
    return pa.nulls(rows, pa.string()) if chunk.metadata is None else chunk.metadata.column(name, rows)


def verify(segment: SealedSegment) -> None:
    """Compare a file's bytes with the catalog's checksum, once per process; FileNotFoundError when it is gone."""
    if not has_checksum(segment.path, segment.checksum):
        raise damaged(segment, "Its bytes do not match the checksum in the catalog.")


def _open_verified(segment: SealedSegment) -> pq.ParquetFile:
    """Open the file after verifying its bytes."""
    try:
        verify(segment)
        return pq.ParquetFile(with_room(lambda: pa.memory_map(str(segment.path))), pre_buffer=False)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(segment, str(error)) from error


def damaged(segment: SealedSegment, reason: str) -> CorruptSegment:
    """The error for a damaged sealed segment."""
    return CorruptSegment(
        f"the sealed segment {segment.path} is damaged",
        detail=f"{reason} It holds offsets {segment.base_offset} to {segment.next_offset - 1} "
        f"of partition {segment.partition}.",
        hint="Restore the file from a backup or the archive; `headwater check` lists all damage.",
        file=str(segment.path),
        offset=segment.base_offset,
    )


def _groups_in_range(file: pq.ParquetFile, start: int, stop: int) -> list[int]:
    """The row groups that overlap the range."""
    metadata = file.metadata
    column = file.schema_arrow.names.index("_offset")
    groups = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max or (statistics.max >= start and statistics.min < stop):
            groups.append(number)
    return groups
