"""pgoutput: the messages of PostgreSQL's logical decoding.

What it is: the messages of protocol version 1 (``TransactionBegin``, ``Commit``, ``RelationMessage``, ``Truncate``),
and ``Tuples``, which collects the rows of many messages and returns them as columns.
Invariants: pure, no connection, no clock. A row costs no Python object per value: all tuples of a batch are joined to
one buffer, and numpy walks the columns. Values are returned as the server's text.
Not here: conversion of texts (``postgres_types.py``), which rows count (``capture/change_writer.py``).
Read next: ``capture/change_writer.py``; PostgreSQL's manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

NULL, UNCHANGED, TEXT = ord("n"), ord("u"), ord("t")
# PostgreSQL counts microseconds from 2000-01-01.
EPOCH_US = 946_684_800_000_000
SHORT_BYTES = 48  # above this mean length, values are copied one by one, since numpy copies byte by byte

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_Places = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """Begin of a transaction. The position of its commit record is known beforehand."""

    place: int
    committed_us: int
    number: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit of a transaction."""

    place: int
    end: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream names it."""

    name: str
    type_number: int
    modifier: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table's columns from here on in the stream."""

    number: int
    schema: str
    name: str
    identity: str  # d, n, f, i
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncation of tables."""

    relations: tuple[int, ...]


def begin_of(data: memoryview, at: int = 0) -> TransactionBegin:
    """A message that starts with B.

    >>> begin_of(memoryview(b"B" + struct.pack(">QqI", 80, 0, 7))).number
    7
    """
    place, committed, number = _BEGIN.unpack_from(data, at + 1)
    return TransactionBegin(place, committed + EPOCH_US, number)


def commit_of(data: memoryview, at: int = 0) -> Commit:
    """A message that starts with C."""
    _, place, end, committed = _COMMIT.unpack_from(data, at + 1)
    return Commit(place, end, committed + EPOCH_US)


def relation_of(data: memoryview, at: int = 0) -> RelationMessage:
    """A message that starts with R."""
    number = int.from_bytes(data[at + 1 : at + 5], "big")
    schema, at = _string(data, at + 5)
    name, at = _string(data, at)
    identity = chr(data[at])
    count = int.from_bytes(data[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _string(data, at + 1)
        kind, modifier = struct.unpack_from(">Ii", data, at)
        at += 8
        columns.append(RelationColumn(column, kind, modifier, bool(flags & 1)))
    return RelationMessage(number, schema or "pg_catalog", name, identity, tuple(columns))


def truncate_of(data: memoryview, at: int = 0) -> Truncate:
    """A message that starts with T."""
    (count,) = struct.unpack_from(">I", data, at + 1)
    return Truncate(struct.unpack_from(f">{count}I", data, at + 6))


def _string(data: memoryview, at: int) -> tuple[str, int]:
    end = at
    while data[end]:
        end += 1
    return bytes(data[at:end]).decode(), end + 1


def after_tuple(data: memoryview, at: int) -> int:
    """The byte behind the tuple that begins at ``at`` with the count of its columns."""
    count = data[at] << 8 | data[at + 1]
    at += 2
    for _ in range(count):
        if data[at] == NULL or data[at] == UNCHANGED:
            at += 1
        else:
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    return at


def values_of(data: memoryview, at: int) -> list[bytes | None]:
    """One tuple's values; an unchanged one is None too. For the few rows that are read one by one."""
    count = data[at] << 8 | data[at + 1]
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        if data[at] == NULL or data[at] == UNCHANGED:
            values.append(None)
            at += 1
        else:
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            values.append(bytes(data[at + 5 : at + 5 + size]))
            at += 5 + size
    return values


@dataclass(frozen=True)
class TextColumn:
    """One column of many rows, as the server wrote them."""

    values: pa.Array  # of text; null where the row has none
    unchanged: np.ndarray[Any, np.dtype[np.bool_]] | None  # where a large value was unchanged, and so not sent


class Tuples:
    """Rows of one table, collected message by message."""

    def __init__(self) -> None:
        self.messages: list[memoryview | bytes] = []
        self.starts: list[int] = []  # of the tuple in its message
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, data: memoryview, at: int) -> None:
        """One more: the tuple that begins at ``at`` with the count of its columns."""
        self.messages.append(data)
        self.starts.append(at)
        self.bytes += len(data)

    def split(self, count: int) -> tuple[Tuples, Tuples]:
        """The first rows, and the others."""
        parts = Tuples(), Tuples()
        for part, rows in zip(parts, (slice(count), slice(count, None)), strict=True):
            part.messages, part.starts = self.messages[rows], self.starts[rows]
            part.bytes = sum(map(len, part.messages))
        return parts

    def columns(self, count: int) -> list[TextColumn]:
        """All rows' columns, each of which has ``count``.

        >>> rows = Tuples()
        >>> rows.add(memoryview(b"\\0\\2t\\0\\0\\0\\1" + b"7" + b"n"), 0)
        >>> [column.values.to_pylist() for column in rows.columns(2)]
        [['7'], [None]]
        """
        lengths = np.fromiter(map(len, self.messages), np.int64, len(self.messages))
        # Some bytes behind the end, so that a length may be looked for behind the last value too.
        joined = b"".join([*self.messages, bytes(8)])
        buffer = np.frombuffer(joined, np.uint8)
        places = np.cumsum(lengths) - lengths + np.array(self.starts, np.int64)
        places += 2
        return [_column(joined, buffer, places) for _ in range(count)]


def _column(joined: bytes, buffer: np.ndarray[Any, Any], places: _Places) -> TextColumn:
    """The column at ``places``, which are moved behind it."""
    kinds = buffer[places]
    texts = kinds == TEXT
    sizes = np.zeros(len(places), np.int64)
    for byte in range(1, 5):
        sizes = sizes << 8 | buffer[places + byte]
    sizes = np.where(texts, sizes, 0)
    values = _texts(joined, buffer, places + 5, sizes, texts)
    places += np.where(texts, 5 + sizes, 1)
    unchanged = kinds == UNCHANGED
    return TextColumn(values, unchanged if unchanged.any() else None)


def _texts(
    joined: bytes, buffer: np.ndarray[Any, Any], starts: _Places, sizes: _Places, valid: np.ndarray[Any, Any]
) -> pa.Array:
    total = int(sizes.sum())
    if total > SHORT_BYTES * len(sizes):
        parts: Sequence[bytes | None] = [
            joined[start : start + size] if there else None
            for start, size, there in zip(starts.tolist(), sizes.tolist(), valid.tolist(), strict=True)
        ]
        return pa.array(parts, pa.binary()).cast(pa.string())
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    take = np.repeat(starts - offsets[:-1], sizes) + np.arange(total)
    data = pa.py_buffer(buffer[take].tobytes())
    bits = None if valid.all() else pa.array(valid).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), len(sizes), [bits, pa.py_buffer(offsets.tobytes()), data])
    return array.cast(pa.string())  # checks that it is UTF-8
