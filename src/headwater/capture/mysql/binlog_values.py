"""Binlog values: decoding of a row's values.

What it is: ``reader_of`` makes, for a column, the decoder of its values; ``RowLayout`` reads whole rows.
Invariants: a date or time becomes the text that the server itself would write, numbers become numbers, texts become
text whatever their charset. So streamed and backfilled values share the last step (``mysql_types.py``).
Not here: events (``binlog_events.py``). Read next: ``mysql_types.py``.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headwater.capture.mysql import binlog_events
from headwater.capture.mysql.binlog_events import Field

Reader = Callable[[memoryview, int], tuple[Any, int]]

OLD_TIMESTAMP, DATE, OLD_TIME, OLD_DATETIME, NEWDATE = 7, 10, 11, 12, 14
BINARY_COLLATION = 63
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
WHOLE_BYTES = {
    binlog_events.TINY: 1,
    binlog_events.SHORT: 2,
    binlog_events.INT24: 3,
    binlog_events.LONG: 4,
    binlog_events.LONGLONG: 8,
}
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of so many decimal digits


def _as_control(error: UnicodeError) -> tuple[str, int]:
    """Map bytes that Windows left undefined to control characters, as the server does."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(map(chr, error.object[error.start : error.end])), error.end


codecs.register_error("headwater_control", _as_control)


def reader_of(field: Field, encoding: str | None) -> tuple[Reader, pa.DataType] | None:
    """The reader of a column's values, and their type; None: unknown type."""
    kind, meta = field.kind, field.meta
    if kind in WHOLE_BYTES:
        return _whole(WHOLE_BYTES[kind], field.unsigned), pa.uint64() if field.unsigned else pa.int64()
    if kind == binlog_events.YEAR:
        return (lambda data, at: (data[at] and 1900 + data[at], at + 1)), pa.int64()
    if kind == binlog_events.FLOAT:
        return (lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4)), pa.float32()
    if kind == binlog_events.DOUBLE:
        return (lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8)), pa.float64()
    if kind == binlog_events.DECIMAL:
        return _decimal(meta >> 8, meta & 0xFF), pa.string()
    if kind == binlog_events.BIT:
        size = (meta >> 8) + (1 if meta & 0xFF else 0)
        return (lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size)), pa.uint64()
    if kind in (binlog_events.ENUM, binlog_events.SET):
        return _listed(field, encoding or "utf-8"), pa.string()
    temporal = _temporal(kind, meta)
    if temporal is not None:
        return temporal, pa.string()
    return _bytes(field, encoding)


def _whole(size: int, unsigned: bool) -> Reader:
    signed = not unsigned

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return int.from_bytes(data[at : at + size], "little", signed=signed), at + size

    return read


def _bytes(field: Field, encoding: str | None) -> tuple[Reader, pa.DataType] | None:
    kind, meta = field.kind, field.meta
    if kind in (binlog_events.BLOB, binlog_events.GEOMETRY):
        size = meta
    elif kind in (binlog_events.VARCHAR, binlog_events.VAR_STRING, binlog_events.STRING):
        size = 1 if meta < 256 else 2
    else:
        return None
    width = meta if kind == binlog_events.STRING else 0
    is_text = kind != binlog_events.GEOMETRY and field.collation not in (None, BINARY_COLLATION)

    def plain(data: memoryview, at: int) -> tuple[Any, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return bytes(data[start:end]), end

    def padded(data: memoryview, at: int) -> tuple[Any, int]:  # BINARY(n): the zeros at its end are not sent
        value, end = plain(data, at)
        return value.ljust(width, b"\0"), end

    def decoded(data: memoryview, at: int) -> tuple[Any, int]:
        value, end = plain(data, at)
        return value.decode(encoding or "utf-8", "headwater_control"), end

    if is_text:
        return (plain, pa.binary()) if encoding == "utf-8" else (decoded, pa.string())
    return (padded if width else plain), pa.binary()


def _listed(field: Field, encoding: str) -> Reader:
    names = [value.decode(encoding, "headwater_control") for value in field.values]
    size = field.meta
    if field.kind == binlog_events.ENUM:

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            place = int.from_bytes(data[at : at + size], "little")
            return names[place - 1] if place else "", at + size

        return read

    def read_set(data: memoryview, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(data[at : at + size], "little")
        return ",".join(name for place, name in enumerate(names) if bits >> place & 1), at + size

    return read_set


def _decimal(precision: int, scale: int) -> Reader:
    whole_full, whole_rest = divmod(precision - scale, 9)
    part_full, part_rest = divmod(scale, 9)
    size = 4 * (whole_full + part_full) + DIGIT_BYTES[whole_rest] + DIGIT_BYTES[part_rest]
    groups = ([whole_rest] if whole_rest else []) + [9] * (whole_full + part_full) + ([part_rest] if part_rest else [])

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        raw = bytearray(data[at : at + size])
        negative = not raw[0] & 0x80
        raw[0] ^= 0x80
        if negative:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        digits, place = [], 0
        for group in groups:
            step = DIGIT_BYTES[group]
            digits.append(str(int.from_bytes(raw[place : place + step], "big")).zfill(group))
            place += step
        text = "".join(digits)
        whole = text[: len(text) - scale].lstrip("0") or "0"
        value = f"{whole}.{text[len(text) - scale :]}" if scale else whole
        return f"-{value}" if negative else value, at + size

    return read


# Dates and times


def _temporal(kind: int, meta: int) -> Reader | None:
    if kind in (DATE, NEWDATE):
        return _date
    if kind == OLD_TIMESTAMP:
        return lambda data, at: (_moment(int.from_bytes(data[at : at + 4], "little"), 0, 0), at + 4)
    if kind == OLD_DATETIME:
        return _old_datetime
    if kind == OLD_TIME:
        return _old_time
    extra = (meta + 1) // 2
    if kind == binlog_events.TIMESTAMP2:
        return lambda data, at: (
            _moment(int.from_bytes(data[at : at + 4], "big"), _fraction(data, at + 4, extra), meta),
            at + 4 + extra,
        )
    if kind == binlog_events.DATETIME2:
        return lambda data, at: (_datetime(data, at, _fraction(data, at + 5, extra), meta), at + 5 + extra)
    if kind == binlog_events.TIME2:
        return lambda data, at: (_time(data, at, extra, meta), at + 3 + extra)
    return None


def _fraction(data: memoryview, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big") * (0, 10_000, 100, 1)[size]


def _digits(microseconds: int, count: int) -> str:
    return f".{microseconds:06d}"[: count + 1] if count else ""


def _date(data: memoryview, at: int) -> tuple[Any, int]:
    value = data[at] | data[at + 1] << 8 | data[at + 2] << 16
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", at + 3


def _moment(seconds: int, microseconds: int, count: int) -> str:
    if not seconds and not microseconds:
        return "0000-00-00 00:00:00"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" + _digits(microseconds, count)


def _datetime(data: memoryview, at: int, microseconds: int, count: int) -> str:
    value = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
    year, month = divmod(value >> 22, 13)
    day, hour, minute, second = value >> 17 & 31, value >> 12 & 31, value >> 6 & 63, value & 63
    return f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}" + _digits(microseconds, count)


def _old_datetime(data: memoryview, at: int) -> tuple[Any, int]:
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    return f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:]}", at + 8


def _time(data: memoryview, at: int, extra: int, count: int) -> str:
    """Hours to seconds in bits, then the fraction; a negative time is the whole value negated."""
    size = 3 + extra
    value = int.from_bytes(data[at : at + size], "big") - (0x80 << 8 * (size - 1))
    sign, value = ("-", -value) if value < 0 else ("", value)
    whole, part = value >> 8 * extra, value & ((1 << 8 * extra) - 1)
    microseconds = part * (0, 10_000, 100, 1)[extra]
    return f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}" + _digits(microseconds, count)


def _old_time(data: memoryview, at: int) -> tuple[Any, int]:
    value = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, value = ("-", -value) if value < 0 else ("", value)
    return f"{sign}{value // 10_000:02d}:{value // 100 % 100:02d}:{value % 100:02d}", at + 3


class RowLayout:
    """The row layout of one table map. ``kept`` are the captured columns."""

    def __init__(self, readers: list[Reader], kept: list[bool]) -> None:
        self.readers = readers
        self.kept = kept
        self._counts: dict[bytes, int] = {}

    def count(self, present: bytes) -> int:
        if present not in self._counts:
            mask = (1 << len(self.readers)) - 1
            self._counts[present] = (int.from_bytes(present, "little") & mask).bit_count()
        return self._counts[present]

    def whole(self, present: bytes) -> bool:
        """Whether all captured columns are there: binlog_row_image=FULL."""
        return all(present[place >> 3] >> (place & 7) & 1 for place, kept in enumerate(self.kept) if kept)

    def row(self, data: memoryview, at: int, present: bytes) -> tuple[list[Any], int]:
        """The values of the row at ``at``, and its end."""
        nulls = at
        at += (self.count(present) + 7) // 8
        values: list[Any] = []
        kept, readers = self.kept, self.readers
        bit = 0
        for place in range(len(readers)):
            if not present[place >> 3] >> (place & 7) & 1:
                if kept[place]:
                    values.append(None)
                continue
            if data[nulls + (bit >> 3)] >> (bit & 7) & 1:
                value = None
            else:
                value, at = readers[place](data, at)
            bit += 1
            if kept[place]:
                values.append(value)
        return values, at
