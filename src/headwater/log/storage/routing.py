"""Routing: the partition of each row.

What it is: a stable hash of the key columns, computed for a whole batch, and the split of the batch.
Invariants: the same key always has the same partition, on every machine, in every version of Headwater and of its
libraries: the hash is written out here and pinned by a test. An integer hashes as 64 bits whatever its width, so
widening a key column moves nothing. Rows of a partition keep their order.
Not here: rows without a key (``topic_appender.py``: each batch goes to one partition, round-robin).
Read next: ``topic_appender.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headwater.errors import InvalidDeclaration

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Refuse a key column whose values have several equal forms."""
    allowed = (
        pa.types.is_integer(kind),
        pa.types.is_boolean(kind),
        pa.types.is_string(kind),
        pa.types.is_binary(kind),
        pa.types.is_date(kind),
        pa.types.is_timestamp(kind),
        pa.types.is_decimal(kind),
    )
    if not any(allowed):
        raise InvalidDeclaration(
            f'column "{name}" of type {kind} cannot be a key',
            hint="Use an integer, string, binary, boolean, date, timestamp or decimal column.",
        )


def mix(values: Hashes) -> Hashes:
    """splitmix64's finalizer: neighbouring numbers land far apart.

    >>> [f"{number:016x}" for number in mix(np.array([0, 1], np.uint64))]
    ['e220a8397b1dcdaf', '910a2dec89025cc1']
    """
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


def partition_of(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    hashes: Hashes | None = None
    for name in key:
        column = _hash(batch.column(name))
        hashes = column if hashes is None else mix(hashes * np.uint64(31) + column)
    assert hashes is not None
    return (hashes % np.uint64(partitions)).astype(np.int64)


def partition_of_text(key: str, partitions: int) -> int:
    """The partition of a row whose key is one text, without a batch.

    >>> batch = pa.record_batch({"id": ["7", "é", ""]})
    >>> partition_of(batch, ["id"], 8).tolist() == [partition_of_text(text, 8) for text in ("7", "é", "")]
    True
    """
    return int(xxhash.xxh3_64_intdigest(key.encode()) % partitions)


def split(batch: pa.RecordBatch, targets: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each partition, in their order."""
    counts = np.bincount(targets)
    if np.count_nonzero(counts) == 1:
        return [(int(targets[0]), batch)]
    ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
    parts, at = [], 0
    for partition, count in enumerate(counts.tolist()):
        if count:
            parts.append((partition, ordered.slice(at, count)))
            at += count
    return parts


def _hash(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        column = column.cast(pa.int64())
    if pa.types.is_int64(column.type):
        return mix(column.to_numpy(zero_copy_only=False).view(np.uint64))
    digest = xxhash.xxh3_64_intdigest
    values = column.cast(pa.binary()).to_pylist()
    return np.fromiter((digest(value) for value in values), dtype=np.uint64, count=len(values))
