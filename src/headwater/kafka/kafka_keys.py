"""Keys of messages: the values of a row's key as bytes, and the partition that they belong to.

What it is: ``key_bytes`` and ``key_values``, the key of a row as other clients write it: one column as its text (a
BINARY as it is), several as a JSON object in the order of the declaration; ``partitions_of``, where Kafka's clients
send a key: those of Java by murmur2, those of librdkafka by crc32.
Invariants: different keys have different bytes, and a key has the same bytes each time, so Kafka compacts rows by their
key; what other clients send under the same key, by the same partitioner, lands in the same partition.
Not here: values (``kafka_values.py``). Read next: ``kafka_values.py``.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import RowRefused
from headwater.log.schema.json_lines import json_decoder, json_line
from headwater.log.schema.row_conversion import to_rows
from headwater.log.topic_settings import Partitioner

SEED, MIX = 0x9747B28C, np.uint32(0x5BD1E995)

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
    if kinds.is_string(kind) or kinds.is_integer(kind):
        found: list[bytes] = rows.column(0).cast(pa.string()).cast(pa.binary()).to_pylist()
        return found
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


def murmur2(keys: list[bytes]) -> Numbers:
    """Kafka's hash of each key, as its Java clients compute it, without a sign: those of one length at once.

    >>> murmur2([b"21", b"foobar"]).astype(np.int32).tolist()
    [-973932308, -790332482]
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    ends = np.cumsum(lengths)
    every = np.frombuffer(b"".join(keys), np.uint8)
    found = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        padded = np.zeros((len(places), -(-length // 4) * 4), np.uint8)
        padded[:, :length] = every[(ends[places] - length)[:, None] + np.arange(length)]
        words = padded.view("<u4")
        hashed: np.ndarray[Any, Any] = np.full(len(places), SEED ^ length, np.uint32)
        for at in range(length // 4):
            word = words[:, at] * MIX
            hashed = hashed * MIX ^ (word ^ word >> 24) * MIX
        if length % 4:
            hashed = (hashed ^ words[:, -1]) * MIX
        hashed = (hashed ^ hashed >> 13) * MIX
        found[places] = hashed ^ hashed >> 15
    return found.astype(np.int64)


def partitions_of(keys: list[bytes], partitions: int, partitioner: Partitioner = "murmur2") -> Numbers:
    """The partition of each key: as Java's clients choose it, or as librdkafka's do that were told nothing (crc32).

    >>> partitions_of([b"21", b"foobar"], 4).tolist(), partitions_of([b"21", b"foobar"], 4, "crc32").tolist()
    ([0, 2], [0, 1])
    """
    if partitions == 1:
        return np.zeros(len(keys), np.int64)
    if partitioner == "crc32":
        return np.fromiter(map(zlib.crc32, keys), np.int64, len(keys)) % partitions
    return (murmur2(keys) & 0x7FFFFFFF) % partitions
