"""Row identity: which values and rows are equal.

What it is: ``canonical`` gives the bytes of one value, ``comparable`` a column that Arrow can group by,
``row_identities`` the bytes of each row. Tables without a key, consolidation, lookups and the change feed find equal
rows by these, without Spark.
Invariants: equality of GROUP BY: null equals null, NaN equals NaN, -0.0 equals 0.0, the order of a MAP's entries does
not matter. Identities are comparable within one schema and one version of Headwater. A long row is its 256-bit BLAKE2
digest; collisions are not handled.
Not here: the rows of a table (``log/table.py``); equality between two types, which a CAST decides
(``views/state/row_hash.py``); equal values that stay readable (``views/serving/serving_columns.py``).
Read next: ``log/table.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

DIGEST_BYTES = 32


def row_identities(rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """One identity for each row.

    >>> one, other, third = row_identities(pa.record_batch({"x": [0.0, -0.0, None]}))
    >>> one == other, one == third
    (True, False)
    """
    columns = [_quick_values(comparable(column)) for column in rows.columns]
    texts = (repr(values).encode() for values in zip(*columns, strict=True))
    # A text of 32 bytes could be taken for a digest, one below cannot.
    return [text if len(text) < DIGEST_BYTES else blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts]


def _quick_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as Python objects whose ``repr`` is equal exactly when the values are; numbers where possible."""
    arrow = column.type
    if kinds.is_decimal(arrow):
        column = column.cast(pa.string())
    elif kinds.is_timestamp(arrow) or kinds.is_duration(arrow) or kinds.is_time64(arrow):
        column = column.cast(pa.int64())
    elif kinds.is_date32(arrow):
        column = column.cast(pa.int32())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:  # Spark's CAST(bytes AS STRING) may give anything
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="surrogateescape") for value in raw]


def hashable_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects that are equal exactly where SQL has equal values.

    >>> hashable_values(pa.array([-0.0, float("nan"), None])) == hashable_values(pa.array([0.0, -float("nan"), None]))
    True
    """
    values = _quick_values(comparable(column) if kinds.is_nested(column.type) else column)
    if kinds.is_floating(column.type):
        return [value if value == value else "NaN" for value in values]
    return values


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column that Arrow can group by and encode, with equal values exactly where SQL has equal values.

    >>> comparable(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    arrow = column.type
    if kinds.is_floating(arrow):
        number = pc.add(column, pa.scalar(0.0, arrow))  # -0.0 + 0.0 is 0.0
        return pc.if_else(pc.is_nan(number), pa.scalar(float("nan"), arrow), number)  # a NaN has many bit patterns
    if kinds.is_nested(arrow):
        values = (None if value is None else canonical(value) for value in plain_values(column))
        return pa.array(values, pa.binary(), size=len(column))
    if kinds.is_dictionary(arrow):
        return column.cast(arrow.value_type)
    if kinds.is_null(arrow):
        return column.cast(pa.int8())  # Arrow cannot group by a NULL column
    return column


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a nested column as Python objects, with a whole number in place of each date and time.

    ``to_pylist`` would fail for dates outside the years 1 to 9999, which Spark has.

    >>> plain_values(pa.array([[0, None]], pa.list_(pa.timestamp("us"))))
    [[0, None]]
    """
    try:
        return list(column.cast(_plain(column.type)).to_pylist())
    except UnicodeDecodeError:  # then all texts are their bytes, which compare alike
        return list(column.cast(_plain(column.type, text=pa.binary())).to_pylist())


def _plain(arrow: pa.DataType, text: pa.DataType | None = None) -> pa.DataType:
    if kinds.is_list(arrow):
        return pa.list_(_plain(arrow.value_type, text))
    if kinds.is_map(arrow):
        return pa.map_(_plain(arrow.key_type, text), _plain(arrow.item_type, text))
    if kinds.is_struct(arrow):
        return pa.struct([pa.field(field.name, _plain(field.type, text)) for field in arrow])
    if kinds.is_date32(arrow):
        return pa.int32()
    if kinds.is_string(arrow) and text is not None:
        return text
    return pa.int64() if kinds.is_temporal(arrow) else arrow


def canonical(value: Any) -> bytes:
    """Bytes of a Python value (also a nested one) that are equal when SQL calls the values equal.

    >>> canonical({"a": [0.0, None]}) == canonical({"a": [-0.0, None]})
    True
    """
    return b"".join(_parts(value))


def _parts(value: Any) -> Iterator[bytes]:
    """A letter for the type, the length where it varies, then the value: unequal values have unequal bytes."""
    if value is None:
        yield b"n"
    elif isinstance(value, dict):
        # Fields of structs may be named differently on the two sides; they are compared by their places.
        yield b"d%d:" % len(value)
        for part in value.values():
            yield from _parts(part)
    elif isinstance(value, list):
        parts = [canonical(part) for part in value]
        if value and isinstance(value[0], tuple):  # a map's entries, whose order means nothing
            parts.sort()
        yield b"l%d:" % len(value)
        yield from parts
    elif isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, Decimal):
        yield from _sized(b"m", _plain_digits(value))
    elif isinstance(value, float):
        yield from _sized(b"f", repr(value + 0.0).encode())
    elif isinstance(value, bytes):
        yield from _sized(b"s", value)  # as a text: no column has both, and not every text can be decoded
    elif isinstance(value, str):
        yield from _sized(b"s", value.encode())
    else:  # whole numbers, booleans
        yield from _sized(b"o", repr(value).encode())


def _plain_digits(value: Decimal) -> bytes:
    # Decimal.normalize() would round to the context's 28 digits.
    digits = format(value, "f") if value else "0"
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits).encode()


def _sized(letter: bytes, text: bytes) -> Iterator[bytes]:
    yield b"%b%d:" % (letter, len(text))
    yield text
