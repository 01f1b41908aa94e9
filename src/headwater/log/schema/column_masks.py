"""Column masks: values in place of those that a reader has no right to.

What it is: ``ColumnMasks``, which masks columns of Arrow tables and values of rows; ``strictest`` of several masks.
Invariants: null stays null. A hash is the same for equal values of one home, over all its topics and views, and needs
the home's secret: without it a value cannot be guessed and tried. A mask that the type of a column cannot take becomes
null; so a masked column may always be null. Nothing but values changes: rows, their number and order stay.
Not here: who has the right (``views/privacy/personal_data.py``), the secret (``log/catalog/catalog.py``).
Read next: ``personal_columns.py``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.log.schema.personal_columns import MASKS, Mask, takes_mask

REDACTED = "***"
HASH_BYTES = 16


def strictest(masks: Iterable[Mask]) -> Mask | None:
    """The mask that shows least; None of none.

    >>> strictest(["redact", "hash"]), strictest([])
    ('redact', None)
    """
    return max(masks, key=MASKS.index, default=None)


class ColumnMasks:
    """The masks of one home.

    >>> masks = ColumnMasks(b"secret")
    >>> table = pa.table({"email": ["a@example.com", None, "a@example.com"], "name": ["Ada", "Bob", None]})
    >>> masked = masks.table(table, {"email": "hash", "name": "redact"}).to_pydict()
    >>> masked["name"], masked["email"][0] == masked["email"][2], len(masked["email"][0]), masked["email"][1]
    (['***', '***', None], True, 32, None)
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def table(self, table: pa.Table, masks: Mapping[str, Mask]) -> pa.Table:
        """A table with some columns masked; those that it does not have are passed over."""
        if not masks.keys() & set(table.schema.names):
            return table
        names = table.schema.names
        arrays = [self._column(table.column(name), masks.get(name)) for name in names]
        fields = [field.with_nullable(True) if field.name in masks else field for field in table.schema]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields, table.schema.metadata))

    def batch(self, batch: pa.RecordBatch, masks: Mapping[str, Mask]) -> pa.RecordBatch:
        """The same of a batch."""
        if not masks.keys() & set(batch.schema.names):
            return batch
        table = self.table(pa.Table.from_batches([batch]), masks).combine_chunks()
        found = table.to_batches()
        return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)

    def row(self, row: Mapping[str, Any], masks: Mapping[str, Mask]) -> dict[str, Any]:
        """The same of one row, by the Python type of its values."""
        return {name: self._value(value, masks[name]) if name in masks else value for name, value in row.items()}

    def _column(self, column: pa.ChunkedArray, mask: Mask | None) -> pa.ChunkedArray | pa.Array:
        if mask is None:
            return column
        kind = column.type
        if mask == "null" or not takes_mask(mask, kind, nullable=True):
            return pa.nulls(len(column), kind)
        encoded = column.combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # of no chunks, or of too many bytes for one
            encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], kind)
        encoded = encoded.dictionary_encode()
        values = [self._value(value, mask) for value in encoded.dictionary.to_pylist()]
        return pa.array(values, kind).take(encoded.indices)

    def _value(self, value: Any, mask: Mask) -> Any:
        if value is None or mask == "null":
            return None
        if mask == "redact":
            return REDACTED if isinstance(value, str) else None
        if isinstance(value, str):
            return self._digest(b"s", value.encode("utf-8", "surrogatepass")).hex()
        if isinstance(value, bytes):
            return self._digest(b"b", value)
        if isinstance(value, int) and not isinstance(value, bool):
            return int.from_bytes(self._digest(b"i", str(value).encode())[:8], "big") >> 1
        return None

    def _digest(self, kind: bytes, value: bytes) -> bytes:
        return hmac.digest(self._secret, kind + value, hashlib.sha256)[:HASH_BYTES]


def masked_type(kind: pa.DataType, mask: Mask) -> str:
    """What becomes of values of a type: the mask, or null where the type cannot take it.

    >>> masked_type(pa.float64(), "hash"), masked_type(pa.string(), "hash")
    ('null', 'hash')
    """
    return mask if not kinds.is_nested(kind) and takes_mask(mask, kind, nullable=True) else "null"
