"""The identity of a row: bytes that are the same exactly when two rows are the same to SQL.

What it is: ``row_identities``, for whoever must find equal rows without Spark: tables without a key, the change feed.
Invariants: equal as GROUP BY has it: null equals null, NaN equals NaN, -0.0 equals 0.0, the order of a MAP's entries
does not matter. Identities of one schema can be compared, over processes and restarts; those of two schemas cannot.
A long row is its BLAKE2 digest of 256 bits: two rows with one digest have never been seen, by anyone.
Not here: which rows there are (``bag.py``).
Read next: ``bag.py``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.rows import to_values

DIGEST_BYTES = 32


def row_identities(rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """One identity for each row.

    >>> one, other, third = row_identities(pa.record_batch({"x": [0.0, -0.0, None]}))
    >>> one == other, one == third
    (True, False)
    """
    columns = [_comparable(column) for column in rows.columns]
    texts = (repr(values).encode() for values in zip(*columns, strict=True))
    # A text of 32 bytes could be taken for a digest, one below cannot.
    return [text if len(text) < DIGEST_BYTES else blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts]


def _comparable(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as Python objects whose ``repr`` is the same exactly when they are equal."""
    arrow = column.type
    if kinds.is_floating(arrow):
        column = pc.add(column, pa.scalar(0.0, arrow))  # -0.0 + 0.0 is 0.0; the repr of every NaN is "nan"
    elif kinds.is_decimal(arrow):
        column = column.cast(pa.string())
    elif kinds.is_timestamp(arrow) or kinds.is_duration(arrow) or kinds.is_time64(arrow):
        column = column.cast(pa.int64())
    elif kinds.is_date32(arrow):
        column = column.cast(pa.int32())
    elif kinds.is_nested(arrow):
        values = to_values(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        return [_nested(value, arrow) for value in values]
    return list(column.to_pylist())


def _nested(value: Any, arrow: pa.DataType) -> Any:
    if value is None:
        return None
    if kinds.is_floating(arrow):
        return value + 0.0
    if kinds.is_list(arrow):
        return [_nested(each, arrow.value_type) for each in value]
    if kinds.is_struct(arrow):
        return [_nested(value[field.name], field.type) for field in arrow]
    if kinds.is_map(arrow):
        pairs = value.items() if isinstance(value, dict) else value
        return sorted(
            ([_nested(name, arrow.key_type), _nested(item, arrow.item_type)] for name, item in pairs), key=repr
        )
    return value
