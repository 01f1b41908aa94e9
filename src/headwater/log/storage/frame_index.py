"""Frame index: 128-byte entries that describe the frames of a segment.

What it is: an entry precedes each frame in the data file (so the file is self-describing) and is repeated in the
``.index`` file (so a reader finds an offset without scanning the data).
Invariants: an entry ends with a checksum over its first 120 bytes. An entry in the index means that the frame is
complete in the data file and, under ``fsync="always"``, on disk. Each entry begins at the offset and byte where the one
before ended. The index can be rebuilt from the data file. The first entry of both files is a HEADER; the last of a
closed segment's index is a ROLL.
Not here: files (``active_segment.py``), bad entries (``recovery.py``).
Read next: ``active_segment.py``; ``docs/internals/files.md``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xxhash

ENTRY_BYTES = 128
MAGIC = 0x31305748  # "HW01" in little-endian order
HEADER, DATA, ROLL = 1, 2, 3
DURABLE = 1  # flag: the frame was synced before its entry was listed
CONTINUES = 2  # flag: the next frame belongs to the same (large) append
NO_TIME_MIN, NO_TIME_MAX = 2**63 - 1, -(2**63)  # neutral for min and max: "no event time here"

_STRUCT = struct.Struct("<IHHqqqiiqqqqqQqqi12xQ")
assert _STRUCT.size == ENTRY_BYTES

# The same layout for numpy: an index is read as one array and searched without a Python loop.
ENTRY = np.dtype(
    {
        "names": [
            "magic",
            "kind",
            "flags",
            "base_offset",
            "position",
            "length",
            "rows",
            "schema_version",
            "producer",
            "sequence",
            "appended_us",
            "time_min",
            "time_max",
            "payload_checksum",
            "cut_number",
            "transaction",
            "metadata_bytes",
            "entry_checksum",
        ],
        "formats": [
            "<u4",
            "<u2",
            "<u2",
            "<i8",
            "<i8",
            "<i8",
            "<i4",
            "<i4",
            "<i8",
            "<i8",
            "<i8",
            "<i8",
            "<i8",
            "<u8",
            "<i8",
            "<i8",
            "<i4",
            "<u8",
        ],
        "offsets": [0, 4, 6, 8, 16, 24, 32, 36, 40, 48, 56, 64, 72, 80, 88, 96, 104, 120],
        "itemsize": ENTRY_BYTES,
    }
)


@dataclass(slots=True)
class Entry:
    """One frame's description. ``position`` is the entry's byte in the data file; the payload follows.

    >>> entry = Entry(kind=DATA, base_offset=0, position=128, length=10, rows=1)
    >>> Entry.unpack(entry.pack()) == entry
    True
    """

    kind: int
    base_offset: int
    position: int
    length: int
    rows: int = 0
    schema_version: int = 0
    producer: int = 0  # 0: none
    sequence: int = 0
    appended_us: int = 0
    time_min: int = NO_TIME_MIN
    time_max: int = NO_TIME_MAX
    payload_checksum: int = 0
    flags: int = 0
    cut_number: int = 0  # of the cut that will close it: see ``log/commits/cut_numbers.py``
    transaction: int = 0  # the commit over several partitions that it belongs to; 0: none
    metadata_bytes: int = 0  # the last bytes of the payload, which are the event metadata of its rows

    @property
    def next_offset(self) -> int:
        """The offset after this frame's last row."""
        return self.base_offset + self.rows

    @property
    def end(self) -> int:
        """The byte after this frame, padding included."""
        return self.position + ENTRY_BYTES + padded(self.length)

    def pack(self) -> bytes:
        body = _STRUCT.pack(
            MAGIC,
            self.kind,
            self.flags,
            self.base_offset,
            self.position,
            self.length,
            self.rows,
            self.schema_version,
            self.producer,
            self.sequence,
            self.appended_us,
            self.time_min,
            self.time_max,
            self.payload_checksum,
            self.cut_number,
            self.transaction,
            self.metadata_bytes,
            0,
        )
        return body[:120] + xxhash.xxh3_64_digest(body[:120])[::-1]

    @staticmethod
    def unpack(data: bytes) -> Entry | None:
        """The entry in these bytes, or None when they are not a whole, undamaged entry."""
        if len(data) < ENTRY_BYTES:
            return None
        fields = _STRUCT.unpack_from(data)
        if fields[0] != MAGIC or fields[-1] != xxhash.xxh3_64_intdigest(data[:120]):
            return None
        _, kind, flags, base_offset, position, length, rows, schema_version, *rest = fields
        producer, sequence, appended_us, time_min, time_max, payload_checksum, cut_number, transaction, metadata, _ = (
            rest
        )
        return Entry(
            kind=kind,
            base_offset=base_offset,
            position=position,
            length=length,
            rows=rows,
            schema_version=schema_version,
            producer=producer,
            sequence=sequence,
            appended_us=appended_us,
            time_min=time_min,
            time_max=time_max,
            payload_checksum=payload_checksum,
            flags=flags,
            cut_number=cut_number,
            transaction=transaction,
            metadata_bytes=metadata,
        )

    @staticmethod
    def of(values: np.void) -> Entry:
        """The entry that one element of an ``Entries`` array describes."""
        return Entry(**{name: int(values[name]) for name in _FIELDS})


_FIELDS = tuple(field.name for field in fields(Entry))
Entries = np.ndarray[Any, np.dtype[np.void]]


def padded(length: int) -> int:
    """Frames begin at multiples of 64 bytes, so that Arrow buffers stay aligned."""
    return (length + 63) & ~63


def padding(length: int) -> bytes:
    """The zero bytes after a payload of this length."""
    return bytes(padded(length) - length)


def read_entries(data: bytes) -> Entries:
    """The undamaged, consecutive entries at the start of ``data``, up to the first bad one."""
    whole = len(data) // ENTRY_BYTES
    entries = np.frombuffer(data, dtype=ENTRY, count=whole)
    good = 0
    view = memoryview(data)
    for checksum in entries["entry_checksum"].tolist():
        at = good * ENTRY_BYTES
        if checksum != xxhash.xxh3_64_intdigest(view[at : at + 120]):
            break
        good += 1
    return entries[:good]
