"""Arrow segment: the active segment of a partition, or a rolled one that is not sealed yet.

What it is: ``ArrowSegment`` reads the pair of files (``N.arrow`` data, ``N.index``); ``SegmentWriter`` creates and
appends.
Invariants: the data file is a HEADER frame whose payload is the Arrow schema, then frames of one record batch each; a
segment has one schema version. Readers take no lock and trust only the index; every payload is checked against its
checksum before it is decoded. Only the holder of the partition's lock writes. Files stay open while used, and otherwise
as long as descriptors are available (``file_descriptors.py``).
Not here: damage (``recovery.py``), Parquet (``sealed_segment.py``), the choice of the segment
(``partition_writer.py``). Read next: ``partition_writer.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headwater.errors import CorruptSegment
from headwater.log.commits.append_marks import AppendMarks
from headwater.log.schema.event_metadata import RowMetadata, joined_metadata
from headwater.log.storage import frame_index
from headwater.log.storage.file_descriptors import HeldFiles, with_room
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import CONTINUES, DATA, DURABLE, ENTRY_BYTES, HEADER, ROLL, Entries, Entry

READ_BYTES_MAX = 8 << 20  # consecutive frames are fetched in one read of at most about this size


def segment_name(base_offset: int) -> str:
    """The file name of a segment; names sort by offset."""
    return f"{base_offset:020d}"


def arrow_bases(directory: Path) -> list[int]:
    """The base offsets of the segments that are still Arrow, in order."""
    try:
        names = with_room(lambda: os.listdir(directory))
    except FileNotFoundError:
        return []
    return sorted(int(name[:20]) for name in names if name.endswith(".arrow"))


@dataclass(frozen=True, slots=True)
class FrameRange:
    """Consecutive rows of one segment as they are stored, with their system columns.

    ``offsets`` is None when they rise by one from ``first_offset``; compaction leaves gaps. ``appended_us`` and
    ``producer`` are one number for all rows, or an Arrow array with one for each.
    """

    first_offset: int
    next_offset: int
    batch: pa.RecordBatch
    schema_version: int
    offsets: np.ndarray[Any, np.dtype[np.int64]] | None
    appended_us: int | pa.Array
    producer: int | pa.Array
    marks: AppendMarks | None = None  # None: rows of one append, which goes on after them when ``continues``
    continues: bool = False
    metadata: RowMetadata | None = None

    def clip(self, start: int, stop: int) -> FrameRange:
        """The same rows without those before ``start`` or from ``stop`` on."""
        if start <= self.first_offset and stop >= self.next_offset:
            return self
        if self.offsets is None:
            skip = max(0, start - self.first_offset)
            keep = max(0, min(self.next_offset, stop) - self.first_offset - skip)
            offsets = None
        else:
            skip = int(np.searchsorted(self.offsets, start))
            keep = max(0, int(np.searchsorted(self.offsets, stop)) - skip)
            offsets = self.offsets[skip : skip + keep]
        cut = [v.slice(skip, keep) if isinstance(v, pa.Array) else v for v in (self.appended_us, self.producer)]
        return FrameRange(
            max(self.first_offset, start),
            min(self.next_offset, stop),
            self.batch.slice(skip, keep),
            self.schema_version,
            offsets,
            cut[0],
            cut[1],
            self.marks,
            self.continues or stop < self.next_offset,
            None if self.metadata is None else self.metadata.slice(skip, keep),
        )

    def whole_before(self, offset: int) -> int:
        """The largest offset up to this one at which no append is cut; the range's start when there is none."""
        if self.marks is not None:
            return max(self.first_offset, self.marks.whole_before(min(offset, self.next_offset)))
        return self.first_offset if self.continues or offset < self.next_offset else self.next_offset

    def whole_after(self, offset: int) -> int:
        """The smallest offset from this one on at which no append is cut; at most the range's end."""
        return self.next_offset if self.marks is None else min(self.next_offset, self.marks.whole_after(offset))

    def offset_of(self, row: int) -> int:
        """The offset of one of its rows."""
        return self.first_offset + row if self.offsets is None else int(self.offsets[row])


def joined(chunks: Sequence[FrameRange]) -> FrameRange:
    """Consecutive ranges of one schema version as one: many small appends should not be many small batches."""
    if len(chunks) == 1:
        return chunks[0]
    first, last = chunks[0], chunks[-1]
    counts = [chunk.batch.num_rows for chunk in chunks]
    offsets = None
    if any(chunk.offsets is not None for chunk in chunks) or last.next_offset - first.first_offset != sum(counts):
        offsets = np.concatenate(
            [
                np.arange(chunk.first_offset, chunk.first_offset + count) if chunk.offsets is None else chunk.offsets
                for chunk, count in zip(chunks, counts, strict=True)
            ]
        )
    return FrameRange(
        first.first_offset,
        last.next_offset,
        pa.concat_batches([chunk.batch for chunk in chunks]),
        first.schema_version,
        offsets,
        _spread([chunk.appended_us for chunk in chunks], counts),
        _spread([chunk.producer for chunk in chunks], counts),
        metadata=joined_metadata([chunk.metadata for chunk in chunks], counts),
    )


def _spread(values: Sequence[int | pa.Array], counts: Sequence[int]) -> int | pa.Array:
    """One number for each row, from one number (or array) for each chunk."""
    if all(isinstance(value, int) for value in values):
        if all(value == values[0] for value in values):
            return values[0]
        return pa.array(np.repeat(np.array(values, dtype=np.int64), counts))
    return pa.concat_arrays(
        [
            pa.array(np.full(count, value, dtype=np.int64)) if isinstance(value, int) else value.cast(pa.int64())
            for value, count in zip(values, counts, strict=True)
        ]
    )


class ArrowSegment:
    """The reading side of one Arrow segment."""

    def __init__(self, directory: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.data_path = directory / f"{segment_name(base_offset)}.arrow"
        self.index_path = directory / f"{segment_name(base_offset)}.index"
        self._held = HeldFiles((self.data_path, self.index_path), os.O_RDONLY)
        self.schema, self.schema_version = self._read_header()
        self._index_bytes = ENTRY_BYTES
        self._room: Entries = np.empty(64, dtype=frame_index.ENTRY)
        self.entries: Entries = self._room[:0]
        self.next_base: int | None = None  # set once a ROLL entry was read
        self.refresh()

    def _read_header(self) -> tuple[pa.Schema, int]:
        with self._held as (data_fd, _):
            header = Entry.unpack(os.pread(data_fd, ENTRY_BYTES, 0))
            payload = os.pread(data_fd, header.length, ENTRY_BYTES) if header else b""
        if header is None or header.kind != HEADER or xxhash.xxh3_64_intdigest(payload) != header.payload_checksum:
            raise CorruptSegment(
                f"the header of {self.data_path} is damaged",
                hint="Restore the file from a backup; `headwater check` lists all damage.",
                file=str(self.data_path),
            )
        return pa.ipc.read_schema(pa.py_buffer(payload)), header.schema_version

    def refresh(self) -> bool:
        """Read the entries that were added since the last call; True when there were some.

        FileNotFoundError when it was sealed meanwhile and its descriptors had been closed.
        """
        size = self._held.stat(1).st_size
        if size < self._index_bytes + ENTRY_BYTES or self.next_base is not None:
            return False
        with self._held as (_, index_fd):
            data = os.pread(index_fd, os.fstat(index_fd).st_size - self._index_bytes, self._index_bytes)
        fresh = frame_index.read_entries(data)
        if not len(fresh):
            return False
        self._index_bytes += len(fresh) * ENTRY_BYTES
        if fresh["kind"][-1] == ROLL:
            self.next_base = int(fresh["base_offset"][-1])
            fresh = fresh[:-1]
        if len(fresh):
            if not len(self.entries) and fresh["schema_version"][0] != self.schema_version:
                # An empty segment is replaced in place when its topic gets a newer schema.
                self.schema, self.schema_version = self._read_header()
            self._keep(fresh)
        return True

    def _keep(self, fresh: Entries) -> None:
        have = len(self.entries)
        if have + len(fresh) > len(self._room):
            # Doubling, so that a follower of many small appends does not copy the list for each.
            room: Entries = np.empty(max(2 * len(self._room), have + len(fresh)), dtype=frame_index.ENTRY)
            room[:have] = self.entries
            self._room = room
        self._room[have : have + len(fresh)] = fresh
        self.entries = self._room[: have + len(fresh)]

    @property
    def marks(self) -> AppendMarks:
        """Where its appends end."""
        return AppendMarks.of_entries(self.entries)

    @property
    def removed(self) -> bool:
        """Whether it was sealed. Its open file may hold rows that were compacted since: look them up again."""
        try:
            return self._held.stat(0).st_nlink == 0
        except FileNotFoundError:
            return True

    @property
    def next_offset(self) -> int:
        """The offset after the last row that this segment lists."""
        if not len(self.entries):
            return self.base_offset
        last = self.entries[-1]
        return int(last["base_offset"]) + int(last["rows"])

    def read(self, start: int, stop: int) -> Iterator[FrameRange]:
        """The rows from ``start`` up to ``stop`` (not included), frame by frame, checksums verified."""
        if not len(self.entries):
            return
        entries = self.entries
        number = int(np.searchsorted(entries["base_offset"], start, side="right")) - 1
        number = max(number, 0)
        last = int(np.searchsorted(entries["base_offset"], stop, side="left"))
        positions, lengths = entries["position"], entries["length"]
        while number < last:
            # Take as many frames as fit one read: many small frames should not cost a system call each.
            first_byte = int(positions[number])
            until = int(np.searchsorted(positions, first_byte + READ_BYTES_MAX, side="right"))
            until = max(number + 1, min(until - 1, last))
            end_byte = int(positions[until - 1]) + ENTRY_BYTES + int(lengths[until - 1])
            with self._held as (data_fd, _):
                buffer = pa.py_buffer(os.pread(data_fd, end_byte - first_byte, first_byte))
            for at in range(number, until):
                chunk = self._decode(at, buffer, int(positions[at]) - first_byte + ENTRY_BYTES)
                yield chunk.clip(start, stop)
            number = until

    def _decode(self, number: int, buffer: pa.Buffer, at: int) -> FrameRange:
        entry = self.entries[number]
        payload = buffer.slice(at, int(entry["length"])) if at + int(entry["length"]) <= buffer.size else None
        if payload is None or xxhash.xxh3_64_intdigest(payload) != int(entry["payload_checksum"]):
            first = int(entry["base_offset"])
            raise CorruptSegment(
                f"offsets {first} to {first + int(entry['rows']) - 1} of {self.data_path} are damaged",
                detail="Their bytes do not match the checksum that was stored when they were written.",
                hint="Restore the file from a backup; `headwater check` lists all damage.",
                file=str(self.data_path),
                offset=first,
            )
        batch = pa.ipc.read_record_batch(payload, self.schema)
        said = int(entry["metadata_bytes"])
        first = int(entry["base_offset"])
        return FrameRange(
            first,
            first + batch.num_rows,
            batch,
            self.schema_version,
            None,
            int(entry["appended_us"]),
            int(entry["producer"]),
            continues=bool(int(entry["flags"]) & CONTINUES),
            metadata=RowMetadata.unpack(payload[payload.size - said :].to_pybytes()) if said else None,
        )

    def close(self) -> None:
        self._held.close()

    def __del__(self) -> None:
        self.close()


# Frames, stamps and entries are made by every append: frozen ones would take three times as long to make.
@dataclass(slots=True)
class Frame:
    """A record batch ready to be written: its bytes and its entry, except for the position."""

    payload: pa.Buffer
    rows: int
    producer: int
    sequence: int
    time_min: int
    time_max: int
    continues: bool = False  # more frames of the same append follow
    metadata_bytes: int = 0  # of the payload, at its end


@dataclass(slots=True)
class Stamp:
    """What all frames of one write have in common."""

    now_us: int
    cut_number: int = 0
    sync: bool = False
    transaction: int = 0


def rows_of(frames: Sequence[Frame]) -> int:
    """How many rows some frames have."""
    return frames[0].rows if len(frames) == 1 else sum(frame.rows for frame in frames)


class SegmentWriter:
    """The writing side of the active segment. Every method needs the partition's lock."""

    def __init__(self, directory: Path, base_offset: int, files: Files) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.files = files
        name = segment_name(base_offset)
        paths = (directory / f"{name}.arrow", directory / f"{name}.index")
        data_fd = files.create(paths[0], label="segment.open_data")
        try:
            index_fd = files.create(paths[1], label="segment.open_index")
        except BaseException:
            os.close(data_fd)
            raise
        # Opened without creating: a missing pair was sealed, and the partition has moved on.
        self.held = HeldFiles(paths, os.O_RDWR, opened=(data_fd, index_fd))
        self.synced_bytes = 0

    @staticmethod
    def create(
        directory: Path, base_offset: int, schema: pa.Schema, schema_version: int, files: Files, *, durable: bool
    ) -> SegmentWriter:
        """A new, empty segment. A crash inside leaves an empty pair that recovery replaces."""
        writer = SegmentWriter(directory, base_offset, files)
        try:
            with writer.held as (data_fd, index_fd):
                writer._write_headers(data_fd, index_fd, schema.serialize(), schema_version, durable=durable)
        except BaseException:
            writer.close()
            raise
        return writer

    def _write_headers(
        self, data_fd: int, index_fd: int, payload: pa.Buffer, schema_version: int, *, durable: bool
    ) -> None:
        files = self.files
        # The leftover of an interrupted creation, or an empty segment of an older schema. The index is removed first,
        # durably: an index without the header it lists means damage.
        if os.fstat(index_fd).st_size:
            files.truncate(index_fd, 0, label="segment.empty_index")
            files.sync(index_fd, label="segment.sync_empty_index")
        if os.fstat(data_fd).st_size:
            files.truncate(data_fd, 0, label="segment.empty_data")
        header = Entry(
            kind=HEADER,
            base_offset=self.base_offset,
            position=0,
            length=payload.size,
            schema_version=schema_version,
            payload_checksum=xxhash.xxh3_64_intdigest(payload),
        )
        parts = [header.pack(), payload, frame_index.padding(payload.size)]
        written = files.write(data_fd, parts, label="segment.write_header")
        if durable:
            files.sync(data_fd, label="segment.sync_header")
            self.synced_bytes = written
        files.write(index_fd, [self._index_header(self.synced_bytes)], label="segment.write_index_header")
        if durable:
            files.sync(index_fd, label="segment.sync_index_header")
            files.sync_dir(self.directory, label="segment.sync_directory")

    def _index_header(self, synced_bytes: int) -> bytes:
        # The header of the index stores the synced length of the data file: damage below it is corruption, damage above
        # it is the effect of a power cut.
        return Entry(kind=HEADER, base_offset=self.base_offset, position=synced_bytes, length=0).pack()

    def append(
        self, frames: Sequence[Frame], *, position: int, base_offset: int, version: int, stamp: Stamp
    ) -> list[Entry]:
        """Write the frames: data, then (``stamp.sync``) to disk, then the index entries."""
        entries, packed = _entries_of(frames, position, base_offset, version, stamp)
        with self.held as (data_fd, index_fd):
            self._write_data(data_fd, frames, entries, packed, sync=stamp.sync)
            try:
                self.files.write(index_fd, packed, label="append.write_index")
            except Exception:
                self.take_back(entries)
                raise
        return entries

    def stage(
        self, frames: Sequence[Frame], *, position: int, base_offset: int, version: int, stamp: Stamp
    ) -> list[Entry]:
        """Write the frames' data, without listing it: no reader sees it yet."""
        entries, packed = _entries_of(frames, position, base_offset, version, stamp)
        with self.held as (data_fd, _):
            self._write_data(data_fd, frames, entries, packed, sync=stamp.sync)
        return entries

    def _write_data(
        self, data_fd: int, frames: Sequence[Frame], entries: Sequence[Entry], packed: Sequence[bytes], *, sync: bool
    ) -> None:
        parts: list[Any] = []
        for frame, head in zip(frames, packed, strict=True):
            parts += [head, frame.payload, frame_index.padding(frame.payload.size)]
        self.files.write(data_fd, parts, label="append.write_data")
        if sync:
            try:
                self.files.sync(data_fd, label="append.sync_data")
            except Exception:
                self.take_back(entries)
                raise
            self.synced_bytes = entries[-1].end

    def list(self, entries: Sequence[Entry]) -> None:
        """Show staged frames to readers. A listed frame is whole (and, if it says so, on disk) in the data file."""
        with self.held as (_, index_fd):
            self.files.write(index_fd, [entry.pack() for entry in entries], label="append.write_index")

    def take_back(self, entries: Sequence[Entry]) -> None:
        """Cut off staged frames, for example on a full disk: the next recovery must not adopt refused rows."""
        with self.held as (data_fd, _):
            self.files.truncate(data_fd, entries[0].position, label="append.take_back")
        self.synced_bytes = min(self.synced_bytes, entries[0].position)

    def sync_index(self) -> None:
        """Sync the listed entries."""
        with self.held as (_, index_fd):
            self.files.sync(index_fd, label="append.sync_index")

    def header_version(self) -> int:
        """The schema version in the data file's header, 0 when there is none yet."""
        with self.held as (data_fd, _):
            header = Entry.unpack(os.pread(data_fd, ENTRY_BYTES, 0))
        return header.schema_version if header else 0

    def note_synced(self, data_bytes: int) -> None:
        """Store that everything up to ``data_bytes`` is on disk."""
        self.synced_bytes = max(self.synced_bytes, data_bytes)
        with self.held as (_, index_fd):
            self.files.write_at(index_fd, self._index_header(self.synced_bytes), 0, label="segment.note_synced")

    def roll(self, next_base: int) -> None:
        """Close the segment: the entry tells readers and other writers where the next one begins.

        Synced whatever the topic's policy: damage by a power cut is confined to the active segment, and the
        next segment never exists without this entry.
        """
        with self.held as (data_fd, index_fd):
            self.files.sync(data_fd, label="roll.sync_data")
            entry = Entry(kind=ROLL, base_offset=next_base, position=0, length=0)
            self.files.write(index_fd, [entry.pack()], label="roll.write_index")
            self.files.sync(index_fd, label="roll.sync_index")
        self.files.sync_dir(self.directory, label="roll.sync_directory")

    def close(self) -> None:
        self.held.close()


def _entries_of(
    frames: Sequence[Frame], position: int, base_offset: int, version: int, stamp: Stamp
) -> tuple[list[Entry], list[bytes]]:
    """The entries of frames that are written one after the other, and their bytes, which go into both files."""
    entries: list[Entry] = []
    for frame in frames:
        entry = Entry(
            kind=DATA,
            base_offset=base_offset,
            position=position,
            length=frame.payload.size,
            rows=frame.rows,
            schema_version=version,
            producer=frame.producer,
            sequence=frame.sequence,
            appended_us=stamp.now_us,
            time_min=frame.time_min,
            time_max=frame.time_max,
            flags=DURABLE * stamp.sync | CONTINUES * frame.continues,
            payload_checksum=xxhash.xxh3_64_intdigest(frame.payload),
            cut_number=stamp.cut_number,
            transaction=stamp.transaction,
            metadata_bytes=frame.metadata_bytes,
        )
        entries.append(entry)
        position, base_offset = entry.end, entry.next_offset
    return entries, [entry.pack() for entry in entries]
