"""Hashes of rows: how the driver finds a key among millions without Spark.

What it is: one 64-bit number for the key columns of each row of an Arrow table, computed column by column with numpy.
Invariants: values that SQL calls equal have equal hashes: 0.0 and -0.0, NaN and NaN, null and null, 7 as INT and as
BIGINT, 1.5 as DECIMAL(2,1) and as DECIMAL(9,4). Unequal values may collide, very rarely: a lookup by hash may
find too many rows and never too few. Hashes are for one installed version: they may change with the next.
Not here: the blocks that are searched (``arrangements.py``); what makes rows of one schema equal
(``log/schema/row_identity.py``); the hash that routes rows, which may never change (``log/storage/routing.py``).
Read next: ``arrangements.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
import xxhash

from headwater.errors import InvalidDeclaration
from headwater.log.schema.row_identity import canonical, plain_values
from headwater.log.storage.routing import Hashes, mix

NULL_HASH = np.uint64(0x5DEECE66D)
WORD_BYTES = 8
LONG_BYTES = 128  # a longer text is hashed by itself; shorter ones all together, eight bytes at a time


def comparison(one: pa.DataType, other: pa.DataType) -> str | None:
    """How Spark compares values of two types: "integer", "double", "text", …; None when a cast would decide.

    >>> comparison(pa.int32(), pa.int64()), comparison(pa.decimal128(9, 2), pa.int64())
    ('integer', 'decimal 2')
    >>> comparison(pa.string(), pa.int64()) is None
    True
    """
    if kinds.is_null(one) or kinds.is_null(other):  # a column of nothing but nulls fits any type
        one = other = other if kinds.is_null(one) else one
    families = {_family(one), _family(other)}
    if len(families) == 1:
        (family,) = families
        if family == "decimal":
            return f"decimal {max(one.scale, other.scale)}"
        return "nested" if isinstance(family, tuple) else "double" if family == "float" else str(family)
    if families == {"integer", "decimal"}:
        return f"decimal {one.scale if kinds.is_decimal(one) else other.scale}"
    if families == {"integer", "float"}:
        # Spark compares BIGINT with FLOAT as DOUBLE, or as FLOAT when ANSI mode is off. Rounding to FLOAT serves both:
        # what is equal as DOUBLE stays equal.
        return "float" if pa.float32() in (one, other) else "double"
    if families == {"decimal", "float"}:
        return "double"
    return None


def comparisons(columns: Sequence[str], one: pa.Schema, other: pa.Schema) -> tuple[str, ...]:
    """``comparison`` of each of some columns with the other schema's columns at the same places.

    >>> comparisons(["id"], pa.schema([("id", pa.int64())]), pa.schema([("user_id", pa.int32())]))
    ('integer',)
    """
    found = []
    for name, field in zip(columns, other, strict=True):
        how = comparison(one.field(name).type, field.type)
        if how is None:
            raise InvalidDeclaration(
                f'column "{name}" ({one.field(name).type}) cannot be looked up by "{field.name}" ({field.type})',
                hint="Compare values of one type: put a CAST around one of the two.",
                column=name,
            )
        found.append(how)
    return tuple(found)


def hash_rows(columns: Sequence[pa.Array | pa.ChunkedArray], how: Sequence[str]) -> Hashes:
    """The hash of each row of these columns, each compared as ``how`` says.

    >>> wide, narrow = pa.array([7, None], pa.int64()), pa.array([7, None], pa.int32())
    >>> bool((hash_rows([wide], ["integer"]) == hash_rows([narrow], ["integer"])).all())
    True
    """
    hashes: Hashes | None = None
    for column, comparing in zip(columns, how, strict=True):
        one = _hash_column(column, comparing)
        hashes = one if hashes is None else mix(hashes * np.uint64(31) + one)
    assert hashes is not None, "a key has at least one column"
    return hashes


def _family(arrow: pa.DataType) -> str | tuple[Any, ...]:
    """What can be compared with one another: types of one family."""
    if kinds.is_list(arrow) or kinds.is_large_list(arrow):
        return ("list", _family(arrow.value_type))
    if kinds.is_map(arrow):
        return ("map", _family(arrow.key_type), _family(arrow.item_type))
    if kinds.is_struct(arrow):
        return ("struct", *(_family(field.type) for field in arrow))
    if kinds.is_integer(arrow):
        return "integer"
    if kinds.is_floating(arrow):
        return "float"
    if kinds.is_decimal(arrow):
        return "decimal"
    if kinds.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "local timestamp"
    if kinds.is_string(arrow) or kinds.is_large_string(arrow):
        return "text"
    if kinds.is_binary(arrow) or kinds.is_large_binary(arrow):
        return "bytes"
    return str(arrow)  # boolean, date


def _hash_column(column: pa.Array | pa.ChunkedArray, how: str) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        parts = [_hash_column(chunk, how) for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.uint64)])
    if how == "nested":
        hashes = _each(plain_values(column))
    elif how in ("text", "bytes"):
        hashes = _hash_bytes(column)
    else:
        hashes = mix(_words(column, how))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def _words(column: pa.Array, how: str) -> Hashes:
    """A column of fixed width as one word for each row; anything where it is null."""
    if how in ("double", "float"):
        return _float_words(column, how)
    if how.startswith("decimal"):
        return _decimal_words(column, int(how.split()[1]))
    if column.type == pa.int64() and not column.null_count:  # nothing to cast, which takes 20 µs however few they are
        return np.asarray(column.to_numpy()).view(np.uint64)
    if kinds.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if kinds.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return np.asarray(numbers).view(np.uint64)


def _float_words(column: pa.Array, how: str) -> Hashes:
    if kinds.is_decimal(column.type):
        # Arrow's own cast is not always rounded as Java's is; Python's is.
        column = pa.array([None if value is None else float(value) for value in column.to_pylist()], pa.float64())
    numbers = np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))
    if how == "float":
        numbers = numbers.astype(np.float32)
    numbers = numbers.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan  # a NaN has many bit patterns; this is one of them
    return numbers.view(np.uint64)


def _decimal_words(column: pa.Array, scale: int) -> Hashes:
    """The digits at a common scale, modulo 2^64: equal values stay equal."""
    if not kinds.is_decimal(column.type):
        column, shift = column.cast(pa.int64()), scale
        low = np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False)).view(np.uint64)
    else:
        column, shift = column.cast(pa.decimal128(38, column.type.scale)), scale - column.type.scale
        both = np.frombuffer(column.buffers()[1], dtype=np.uint64)
        low = both[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    with np.errstate(over="ignore"):
        return low * np.uint64(10**shift % (1 << 64))


def _hash_bytes(column: pa.Array) -> Hashes:
    """Texts, eight bytes at a time: in each round all those that have bytes left."""
    large = kinds.is_large_string(column.type) or kinds.is_large_binary(column.type)
    _, offsets, data = column.cast(pa.large_binary() if large else pa.binary()).buffers()
    count = len(column)
    if not count:
        return np.empty(0, np.uint64)
    edges = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)[column.offset : column.offset + count + 1]
    first, last = int(edges[0]), int(edges[-1])
    starts, lengths = edges[:-1].astype(np.int64) - first, np.diff(edges).astype(np.int64)
    text = np.zeros(last - first + WORD_BYTES, np.uint8)  # the last text is read as whole words too
    if last > first:
        text[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    words: Hashes = np.ndarray(last - first + 1, dtype="<u8", buffer=text, strides=(1,))
    hashes = lengths.astype(np.uint64)
    rows = np.flatnonzero(lengths <= LONG_BYTES)
    for at in range(0, LONG_BYTES, WORD_BYTES):
        rows = rows[lengths[rows] > at]
        if not len(rows):
            break
        left = np.minimum(lengths[rows] - at, WORD_BYTES)
        unused = ((WORD_BYTES - left) * 8).astype(np.uint64)
        word = words[starts[rows] + at] << unused  # the bytes behind the text's end fall off
        hashes[rows] = mix(hashes[rows] * np.uint64(31) + word)
    whole = text.data
    for row in np.flatnonzero(lengths > LONG_BYTES).tolist():
        hashes[row] = xxhash.xxh3_64_intdigest(whole[int(starts[row]) : int(starts[row] + lengths[row])])
    return hashes


def _each(values: Sequence[Any]) -> Hashes:
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(canonical(value)) for value in values), dtype=np.uint64, count=len(values))
