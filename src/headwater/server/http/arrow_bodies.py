"""Arrow bodies: an untrusted IPC stream becomes a valid table or an error.

What it is: ``table_of``, which reads a body that may be damaged or crafted to be expensive.
Invariants: the result is a table that is valid to the last value, or ``RowRefused``. Decompressed sizes are checked
before decompression, so a body costs a small multiple of its own size.
Not here: whether the rows fit a topic (``log/schema/row_conversion.py``); the size limit (``guard.py``).
Read next: ``request_bodies.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.errors import RowRefused

UNPACKED_FACTOR = 16  # a stream may be compressed; so many times its size is believed,
UNPACKED_MIN = 1 << 20  # and this much in any case
ROWS_PER_BYTE = 8  # a row of one BOOLEAN is a bit
ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
DAYS = (-719_162, 2_932_897)  # from 1970 to the beginning of year 1, and to the end of 9999
DICTIONARY_BATCH, RECORD_BATCH = 2, 3


def table_of(body: bytes) -> pa.Table:
    """The table of an IPC stream.

    >>> table_of(b"no stream at all")
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: the body is not an Arrow IPC stream: Expected to read 1931505518 metadata bytes, but \
only read 12
      Hint: Write it with pyarrow.ipc.new_stream.
    """
    room = max(UNPACKED_MIN, UNPACKED_FACTOR * len(body))
    try:
        _check_announced(body, room)
        with pa.ipc.open_stream(body) as stream:
            for field in stream.schema:
                _read_names(field)
            batches = []
            for batch in stream:
                batch.validate(full=True)
                _check_moments(batch)
                room -= _unpacked_bytes(batch)
                if room < 0 or batch.num_rows > ROWS_PER_BYTE * max(UNPACKED_MIN // 16, len(body)):
                    raise _unbelievable()
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except ARROW_ERRORS as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RowRefused(
            f"the body is not an Arrow IPC stream: {first[:300]}", hint="Write it with pyarrow.ipc.new_stream."
        ) from error


def _unbelievable() -> RowRefused:
    return RowRefused(
        "the Arrow stream unpacks to far more than its size", hint="If it is not damaged, send it in parts."
    )


def _read_names(field: pa.Field) -> None:
    """Decode what Arrow decodes lazily: names and time zones that are not UTF-8 raise here."""
    _ = (field.name, str(field.type), getattr(field.type, "tz", None), field.metadata)
    for number in range(field.type.num_fields):
        inner = field.type.field(number)
        if isinstance(inner, pa.Field):
            _read_names(inner)


def _check_moments(batch: pa.RecordBatch) -> None:
    """Moments outside of the years 1 to 9999 have no form in JSON, nor in Python: who appended them could not read."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if kinds.is_timestamp(column.type) or kinds.is_date(column.type):
            unit = column.type.unit if kinds.is_timestamp(column.type) else "D" if column.type.bit_width == 32 else "ms"
            span = pc.min_max(column.view(pa.int32() if unit == "D" else pa.int64())).as_py()
            per_day = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[unit]
            low, high = DAYS[0] * per_day, DAYS[1] * per_day
            if span["min"] is not None and not (low <= span["min"] and span["max"] < high):
                raise RowRefused(
                    f'column "{name}" has a moment outside of the years 1 to 9999', hint="Is the stream damaged?"
                )


def _unpacked_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of the columns in plain form: a dictionary's value, or a view's, may occur many times."""
    return sum(max(column.nbytes, _plain_bytes(column)) for column in batch.columns)


def _plain_bytes(column: pa.Array) -> int:
    if kinds.is_dictionary(column.type):
        values = column.dictionary
        if _is_text(values.type):
            lengths = pc.take(pc.cast(pc.binary_length(values), pa.int64()), column.indices)
            return int(pc.sum(lengths).as_py() or 0)
        return int(len(column) * -(-values.nbytes // max(1, len(values))))
    if kinds.is_string_view(column.type) or kinds.is_binary_view(column.type):
        return int(pc.sum(pc.cast(pc.binary_length(column), pa.int64())).as_py() or 0)
    return 0


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_string(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_string_view(kind)
        or kinds.is_binary_view(kind)
    )


# What compressed buffers say that they unpack to. Arrow would allocate it before it looks at their bytes.


def _check_announced(body: bytes, room: int) -> None:
    reader = pa.ipc.MessageReader.open_stream(body)
    for message in reader:
        try:
            for announced in _announced(message):
                room -= announced
                if announced < -1 or room < 0:
                    raise _unbelievable()
        except struct.error as error:
            raise ValueError("a message's header is damaged") from error


def _announced(message: pa.ipc.Message) -> Iterator[int]:
    """The unpacked size of each compressed buffer of a message; -1: it is not compressed after all."""
    header = message.metadata.to_pybytes()
    table = _u32(header, 0)
    kind = header[_field(header, table, 1)] if _field(header, table, 1) else 0
    batch = _table(header, table, 2)
    if kind == DICTIONARY_BATCH:
        batch = _table(header, batch, 1)
    elif kind != RECORD_BATCH:
        return
    if not batch or not _field(header, batch, 3) or message.body is None:
        return  # not compressed: what it announces must be in the body
    data = memoryview(message.body)
    buffers = _table(header, batch, 2)
    for number in range(_u32(header, buffers)):
        at, length = struct.unpack_from("<qq", header, buffers + 4 + 16 * number)
        if length >= 8 and 0 <= at <= len(data) - 8:
            yield struct.unpack_from("<q", data, at)[0]


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a flatbuffer's table has one of its fields; 0 when it has not."""
    shape = table - int(struct.unpack_from("<i", data, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", data, shape)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, shape + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    """Where the table or vector is that a field refers to; 0 when there is none."""
    at = _field(data, table, number) if table else 0
    return at + _u32(data, at) if at else 0
