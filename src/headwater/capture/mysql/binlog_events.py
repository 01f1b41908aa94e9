"""Binlog events: the event formats of MariaDB and MySQL.

What it is: the layout of the events that a capture needs: begin and end of transactions, statements, table maps, and
the position of rows in an event.
Invariants: nothing is guessed: an event that could hold rows and is not understood is an error.
Not here: the connection (``binlog_stream.py``), the bytes of values (``binlog_values.py``).
Read next: ``binlog_stream.py``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

QUERY: Final = 2
ROTATE: Final = 4
XID: Final = 16
TABLE_MAP: Final = 19
XA_PREPARE: Final = 38
PARTIAL_UPDATE: Final = 39
TRANSACTION_PAYLOAD: Final = 40
GTID: Final = 33  # MySQL's, and the one in its place when GTIDs are off
ANONYMOUS: Final = 34
MARIADB_GTID: Final = 162
QUERY_COMPRESSED: Final = 165
WRITES, UPDATES, DELETES = {23, 30, 166, 169}, {24, 31, 167, 170}, {25, 32, 168, 171}
ROWS = WRITES | UPDATES | DELETES
ROWS_SECOND = {30, 31, 32, 169, 170, 171}  # version 2: with extra data in front, which is skipped
ROWS_COMPRESSED = {166, 167, 168, 169, 170, 171}

HEADER_BYTES: Final = 19
_HEADER = struct.Struct("<IBIIIH")
STANDALONE: Final = 1
PREPARED_XA: Final = 64

# Kinds of a table's optional metadata.
SIGNEDNESS, DEFAULT_CHARSET, COLUMN_CHARSET, COLUMN_NAME, SET_VALUES, ENUM_VALUES = 1, 2, 3, 4, 5, 6
SIMPLE_KEY, PREFIX_KEY, LISTED_DEFAULT_CHARSET, LISTED_CHARSET = 8, 9, 10, 11

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DECIMAL = 1, 2, 3, 4, 5, 8, 9, 246
VARCHAR, BIT, JSON, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 15, 16, 245, 247, 248, 252, 253, 254, 255
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
YEAR: Final = 13
NUMERIC = {TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, DECIMAL, YEAR}  # those with a bit for their sign
ONE_BYTE = {FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2}
TWO_BYTES = {VARCHAR, BIT, DECIMAL, VAR_STRING, STRING, ENUM, SET}


@dataclass(frozen=True)
class Header:
    """The header of every event."""

    time_seconds: int
    kind: int
    server: int
    size: int
    end: int  # where the next event begins; 0 in events that are made for the connection


def header_of(data: memoryview, at: int) -> Header:
    seconds, kind, server, size, end, _ = _HEADER.unpack_from(data, at)
    return Header(seconds, kind, server, size, end)


@dataclass(frozen=True)
class MariadbGtid:
    """The number of a MariaDB transaction. The number of the server that wrote it is in the header."""

    domain: int
    sequence: int
    flags: int


def mariadb_gtid_of(data: memoryview, at: int) -> MariadbGtid:
    sequence, domain, flags = struct.unpack_from("<QIB", data, at)
    return MariadbGtid(domain, sequence, flags)


def rotate_of(data: memoryview, at: int, end: int) -> tuple[str, int]:
    """The file that follows, and where in it."""
    (place,) = struct.unpack_from("<Q", data, at)
    return bytes(data[at + 8 : end]).decode(), place


def query_of(data: memoryview, at: int, end: int, *, compressed: bool = False) -> tuple[str, str]:
    """The database that was in use, and the statement."""
    schema_bytes, status_bytes = data[at + 8], struct.unpack_from("<H", data, at + 11)[0]
    at += 13 + status_bytes
    schema = bytes(data[at : at + schema_bytes]).decode("utf-8", "replace")
    at += schema_bytes + 1
    text = unpacked(data, at, end) if compressed else bytes(data[at:end])
    return schema, text.decode("utf-8", "replace")


def unpacked(data: memoryview, at: int, end: int) -> bytes:
    """MariaDB's compressed content, unpacked: a byte for the method, the length, and zlib's bytes."""
    return zlib.decompress(data[at + 1 + (data[at] & 7) : end])


def length_of(data: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends.

    >>> length_of(memoryview(bytes([252, 1, 2])), 0)
    (513, 3)
    """
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


@dataclass(frozen=True)
class Field:
    """A column as the binlog describes it."""

    kind: int
    meta: int
    name: str | None = None
    unsigned: bool = False
    collation: int | None = None
    values: tuple[bytes, ...] = ()  # of an ENUM or SET


@dataclass(frozen=True)
class TableMap:
    """A table as it was when the rows that follow were written."""

    number: int
    schema: str
    table: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]

    @property
    def named(self) -> bool:
        """Whether the columns' names are there: binlog_row_metadata=FULL."""
        return all(field.name is not None for field in self.fields)


def table_map_name(data: memoryview, at: int) -> tuple[int, str, str, int]:
    """A table's number, database and name, and where the rest begins."""
    number = int.from_bytes(data[at : at + 6], "little")
    at += 8
    schema = bytes(data[at + 1 : at + 1 + data[at]]).decode()
    at += data[at] + 2
    table = bytes(data[at + 1 : at + 1 + data[at]]).decode()
    return number, schema, table, at + data[at] + 2


def table_map_of(data: memoryview, at: int, end: int) -> TableMap:
    """The whole description of a table."""
    number, schema, table, at = table_map_name(data, at)
    count, at = length_of(data, at)
    kinds = bytes(data[at : at + count])
    _, at = length_of(data, at + count)
    fields: list[tuple[int, int]] = []
    for kind in kinds:
        kind, meta, at = _meta_of(kind, data, at)
        fields.append((kind, meta))
    at += (count + 7) // 8
    return _described(number, schema, table, fields, dict(_optional(data, at, end)))


def _meta_of(kind: int, data: memoryview, at: int) -> tuple[int, int, int]:
    if kind in ONE_BYTE:
        return kind, data[at], at + 1
    if kind not in TWO_BYTES:
        return kind, 0, at
    first, second = data[at], data[at + 1]
    if kind == STRING:  # the real type is in the first byte, with two bits of the length when it is large
        if first & 0x30 != 0x30:
            return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4, at + 2
        return first, second, at + 2
    if kind == DECIMAL:
        return kind, first << 8 | second, at + 2
    return kind, first | second << 8, at + 2


def _optional(data: memoryview, at: int, end: int) -> Iterator[tuple[int, memoryview]]:
    while at < end:
        kind = data[at]
        size, at = length_of(data, at + 1)
        yield kind, data[at : at + size]
        at += size


def _described(
    number: int, schema: str, table: str, plain: list[tuple[int, int]], more: dict[int, memoryview]
) -> TableMap:
    names = [text.decode() for text in _texts(more[COLUMN_NAME])] if COLUMN_NAME in more else [None] * len(plain)
    numeric = [place for place, (kind, _) in enumerate(plain) if kind in NUMERIC]
    signs = more.get(SIGNEDNESS, memoryview(b""))
    unsigned = {
        place for bit, place in enumerate(numeric) if bit // 8 < len(signs) and signs[bit // 8] & (0x80 >> bit % 8)
    }
    texts = [place for place, (kind, _) in enumerate(plain) if kind in (STRING, VAR_STRING, VARCHAR, BLOB)]
    listed = [place for place, (kind, _) in enumerate(plain) if kind in (ENUM, SET)]
    collations = {
        **_collations(texts, more.get(DEFAULT_CHARSET), more.get(COLUMN_CHARSET)),
        **_collations(listed, more.get(LISTED_DEFAULT_CHARSET), more.get(LISTED_CHARSET)),
    }
    values = {
        **_lists([place for place, (kind, _) in enumerate(plain) if kind == ENUM], more.get(ENUM_VALUES)),
        **_lists([place for place, (kind, _) in enumerate(plain) if kind == SET], more.get(SET_VALUES)),
    }
    fields = tuple(
        Field(kind, meta, names[place], place in unsigned, collations.get(place), values.get(place, ()))
        for place, (kind, meta) in enumerate(plain)
    )
    key = tuple(_numbers(more[SIMPLE_KEY])) if SIMPLE_KEY in more else ()
    if PREFIX_KEY in more:
        key = tuple(_numbers(more[PREFIX_KEY])[::2])
    return TableMap(number, schema, table, fields, key)


def _numbers(data: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = length_of(data, at)
        found.append(number)
    return found


def _texts(data: memoryview) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = length_of(data, at)
        found.append(bytes(data[at : at + size]))
        at += size
    return found


def _collations(places: list[int], default: memoryview | None, each: memoryview | None) -> dict[int, int]:
    if each is not None:
        return dict(zip(places, _numbers(each), strict=False))
    if default is None:
        return {}
    first, *pairs = _numbers(default)
    found = dict.fromkeys(places, first)
    for place, collation in zip(pairs[::2], pairs[1::2], strict=True):
        found[places[place]] = collation
    return found


def _lists(places: list[int], data: memoryview | None) -> dict[int, tuple[bytes, ...]]:
    found: dict[int, tuple[bytes, ...]] = {}
    at = 0
    for place in places if data is not None else ():
        assert data is not None
        count, at = length_of(data, at)
        values = []
        for _ in range(count):
            size, at = length_of(data, at)
            values.append(bytes(data[at : at + size]))
            at += size
        found[place] = tuple(values)
    return found


@dataclass(frozen=True)
class RowsEvent:
    """The position of the rows in an event."""

    table: int
    width: int
    present: tuple[bytes, ...]  # bitmaps of the columns that are there: one, or two in an update
    data: memoryview
    at: int
    end: int


def rows_table(data: memoryview, at: int) -> int:
    """The number of the table whose rows these are."""
    return int.from_bytes(data[at : at + 6], "little")


def rows_of(kind: int, data: memoryview, at: int, end: int) -> RowsEvent:
    table = rows_table(data, at)
    at += 8
    if kind in ROWS_SECOND:
        at += int.from_bytes(data[at : at + 2], "little")
    width, at = length_of(data, at)
    size = (width + 7) // 8
    present = []
    for _ in range(2 if kind in UPDATES else 1):
        present.append(bytes(data[at : at + size]))
        at += size
    if kind in ROWS_COMPRESSED:
        data = memoryview(unpacked(data, at, end))
        at, end = 0, len(data)
    return RowsEvent(table, width, tuple(present), data, at, end)
