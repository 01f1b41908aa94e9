"""Keys of messages: the values of a row's key as bytes, and the partition that they belong to.

What it is: ``key_bytes`` and ``key_values``, the key of a row as other clients write it: one column as its text (a
BINARY as it is), several as a JSON object in the order of the declaration; ``murmur2``, Kafka's own partitioner.
Invariants: different keys have different bytes, and a key has the same bytes each time, so Kafka compacts rows by their
key; what Kafka's Java clients send under the same key lands in the same partition.
Not here: values (``kafka_values.py``). Read next: ``kafka_values.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import RowRefused
from headwater.log.schema.json_lines import json_decoder, json_line
from headwater.log.schema.row_conversion import to_rows

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def key_bytes(rows: pa.RecordBatch) -> list[bytes]:
    """The keys of rows, of which only the key columns are given.

    >>> key_bytes(pa.record_batch({"id": [7, 8]})), key_bytes(pa.record_batch({"a": [1], "b": ["x"]}))
    ([b'7', b'8'], [b'{"a":1,"b":"x"}'])
    """
    if rows.num_columns > 1:
        return [json_line(row).encode() for row in to_rows(rows)]
    kind, name = rows.schema.types[0], rows.schema.names[0]
    if kinds.is_binary(kind):
        return [bytes(value) for value in rows.column(0).to_pylist()]
    if kinds.is_string(kind):
        return [value.encode() for value in rows.column(0).to_pylist()]
    if kinds.is_integer(kind):
        return [str(value).encode() for value in rows.column(0).to_pylist()]
    # A number, a truth value, or a time as text in quotes: {"":"2026-01-31"} without what is around it.
    return [json_line({"": row[name]})[4:-1].strip('"').encode() for row in to_rows(rows)]


def key_values(key: bytes, columns: pa.Schema) -> dict[str, Any]:
    """The values of a key, as JSON has them.

    >>> key_values(b"7", pa.schema([("id", pa.int64())]))
    {'id': 7}
    """
    if len(columns) > 1:
        found = json_decoder(columns).decode(_text(key))
        if type(found) is not dict:
            raise RowRefused(f"the key {key[:100]!r} is no JSON object", expected="an object of the key's columns")
        return found
    (field,) = columns
    if kinds.is_binary(field.type):
        return {field.name: key}
    text = _text(key)
    try:
        if kinds.is_integer(field.type):
            return {field.name: int(text)}
        if kinds.is_boolean(field.type):
            return {field.name: {"true": True, "false": False}[text]}
    except (ValueError, KeyError):
        raise RowRefused(
            f'the key {text[:100]!r} does not fit column "{field.name}"', expected=str(field.type)
        ) from None
    return {field.name: text}


def _text(key: bytes) -> str:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowRefused("the key is not UTF-8", detail=str(error), expected="text") from None


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as its Java clients compute it.

    >>> murmur2(b"21"), murmur2(b"foobar")
    (-973932308, -790332482)
    """
    length = len(data)
    hashed = (0x9747B28C ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ (word >> 24)) * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    rest = data[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ (hashed >> 13)) * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partitions_of(keys: list[bytes], partitions: int) -> Numbers:
    """The partition of each key.

    >>> partitions_of([b"21", b"foobar"], 4).tolist()
    [0, 2]
    """
    return np.fromiter(((murmur2(key) & 0x7FFFFFFF) % partitions for key in keys), dtype=np.int64, count=len(keys))
