"""Avro columns: many records of one schema, read column by column.

What it is: ``avro_columns`` reads records that all have one flat schema into Arrow arrays with numpy: a cursor for each
record, and each field for all records at once, since fields of a record follow each other. No record is ever a dict.
Invariants: the columns are those that fastavro reads, or None: records that end early or late, nested fields, unions of
other than one type and null, and values that do not fit their column are left to it.
Not here: messages, and what is read one by one (``avro_values.py``). Read next: ``avro_values.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

VARINT_BYTES_MAX = 10
PADDING = bytes(16)  # a cursor at the end may look at a number that is not there
FIXED = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
MILLIS_MAX = 2**63 // 1000

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class _NotHere(Exception):
    """The records are not for this reader."""


def avro_columns(records: Sequence[bytes], schema: Any, columns: pa.Schema, *, head: int = 0) -> list[pa.Array] | None:
    """The values of some columns, null where the records have no such field; None where fastavro is to read them.

    ``head``: so many bytes, which each has, come before a record.

    >>> schema = {"type": "record", "name": "r", "fields": [
    ...     {"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}
    >>> columns = pa.schema([("s", pa.string()), ("n", pa.int64()), ("more", pa.int32())])
    >>> [each.to_pylist() for each in avro_columns([b"\\x02\\x02\\x02a", b"\\x04\\x00"], schema, columns)]
    [['a', None], [1, 2], [None, None]]
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    reader = _Reader(records, head)
    found: dict[str, pa.Array] = {}
    try:
        for field in schema["fields"]:
            wanted = columns.field(field["name"]).type if field["name"] in columns.names else None
            array = reader.field(field["type"], reader.every, wanted)
            if array is not None:
                found[field["name"]] = array
        if (reader.at != reader.ends).any():
            return None
    except (_NotHere, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return [found.get(each.name, pa.nulls(len(records), each.type)) for each in columns]


class _Reader:
    """A cursor for each record."""

    def __init__(self, records: Sequence[bytes], head: int) -> None:
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        self.ends = np.cumsum(lengths)
        self.at = self.ends - lengths + head
        self.bytes = np.frombuffer(b"".join(records) + PADDING, np.uint8)
        self.every = np.arange(len(records))

    def field(self, kind: Any, rows: Numbers, wanted: pa.DataType | None) -> pa.Array | None:
        """The next field of some records, in the type that is wanted; None: it is only passed over."""
        if isinstance(kind, list):
            return self._union(kind, rows, wanted)
        logical = kind.get("logicalType") if isinstance(kind, dict) else None
        name = kind["type"] if isinstance(kind, dict) else kind
        if name in ("int", "long"):
            return self._numbers(self._varints(rows), logical, wanted)
        if name in ("string", "bytes") and logical in (None, "uuid"):
            return self._texts(rows, name, wanted)
        if name in FIXED:
            return self._fixed(rows, FIXED[name], wanted)
        if name == "boolean":
            return _fitting(pa.array(self._byte(rows) != 0), wanted, kinds.is_boolean)
        if name == "enum":
            numbers = self._varints(rows)
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(kind["symbols"])):
                raise _NotHere
            return _fitting(pa.array(kind["symbols"], pa.string()).take(pa.array(numbers)), wanted, kinds.is_string)
        raise _NotHere

    def _union(self, kind: list[Any], rows: Numbers, wanted: pa.DataType | None) -> pa.Array | None:
        if len(kind) != 2 or "null" not in kind:
            raise _NotHere
        branch, null = self._varints(rows), kind.index("null")
        if ((branch != 0) & (branch != 1)).any():
            raise _NotHere
        there = branch != null
        values = self.field(kind[1 - null], rows[there], wanted)
        if values is None or there.all():
            return values
        places = np.cumsum(there) - 1
        return values.take(pa.array(places, mask=~there))

    def _varints(self, rows: Numbers) -> Numbers:
        """Zigzag numbers of up to ten bytes, seven bits in each."""
        byte = self._byte(rows)
        value = (byte & 0x7F).astype(np.uint64)
        more = np.nonzero(byte & 0x80)[0]
        for place in range(1, VARINT_BYTES_MAX):
            if not len(more):
                break
            byte = self._byte(rows[more])
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            more = more[(byte & 0x80) != 0]
        if len(more):
            raise _NotHere
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def _byte(self, rows: Numbers) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The next byte of each record."""
        at = self.at[rows]
        if (at >= self.ends[rows]).any():
            raise _NotHere
        self.at[rows] = at + 1
        byte: np.ndarray[Any, np.dtype[np.uint8]] = self.bytes[at]
        return byte

    def _taken(self, rows: Numbers, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The next bytes of each record, by row."""
        at = self.at[rows]
        following = at + count
        if (following > self.ends[rows]).any():
            raise _NotHere
        self.at[rows] = following
        taken: np.ndarray[Any, np.dtype[np.uint8]] = self.bytes[at[:, None] + np.arange(count)]
        return taken

    def _numbers(self, values: Numbers, logical: str | None, wanted: pa.DataType | None) -> pa.Array | None:
        if wanted is None:
            return None
        if logical is None:
            return _fitting(pa.array(values), wanted, kinds.is_integer)
        if logical == "date" and kinds.is_date32(wanted):
            return pa.array(values).cast(pa.int32()).cast(wanted)
        zone, unit = logical.removeprefix("local-"), wanted.tz if kinds.is_timestamp(wanted) else ""
        if not kinds.is_timestamp(wanted) or (unit is None) != logical.startswith("local-"):
            raise _NotHere
        if zone == "timestamp-millis":
            if len(values) and np.abs(values).max() > MILLIS_MAX:
                raise _NotHere
            values = values * 1000
        elif zone != "timestamp-micros":
            raise _NotHere
        return pa.array(values).cast(pa.timestamp("us", wanted.tz)).cast(wanted)

    def _texts(self, rows: Numbers, name: str, wanted: pa.DataType | None) -> pa.Array | None:
        lengths = self._varints(rows)
        at = self.at[rows]
        following = at + lengths
        if (lengths < 0).any() or (following > self.ends[rows]).any():
            raise _NotHere
        self.at[rows] = following
        if wanted is None:
            return None
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # Byte n of the column is that of record r: r's first byte, and as far behind it as n is behind r's first.
        places = np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])
        content = pa.py_buffer(self.bytes[places].tobytes())
        kind = pa.string() if name == "string" else pa.binary()
        array = pa.Array.from_buffers(
            kind, len(rows), [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), content]
        )
        array.validate(full=True)
        return _fitting(array, wanted, kinds.is_string if name == "string" else kinds.is_binary)

    def _fixed(self, rows: Numbers, dtype: Any, wanted: pa.DataType | None) -> pa.Array | None:
        values = np.ascontiguousarray(self._taken(rows, dtype.itemsize)).view(dtype)[:, 0]
        return _fitting(pa.array(values), wanted, kinds.is_floating)


def _fitting(array: pa.Array, wanted: pa.DataType | None, is_kind: Any) -> pa.Array | None:
    """The array in the type that is wanted; nothing is rounded or parsed here."""
    if wanted is None or array.type == wanted:
        return None if wanted is None else array
    if not is_kind(wanted) or (kinds.is_floating(wanted) and wanted.bit_width < array.type.bit_width):
        raise _NotHere
    return array.cast(wanted)
