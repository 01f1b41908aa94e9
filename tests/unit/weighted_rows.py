"""Weighted tables for tests, and the plainest model of what they mean: a Counter of rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headwater.log.schema.row_conversion import to_batches
from headwater.views.state.algebra import WEIGHT_FIELD

Content = Counter[Any]
Weighted = Sequence[tuple[dict[str, Any], int]]


def thorough(count: int) -> int:
    """A number of repetitions, larger when HEADWATER_THOROUGH says so (a factor)."""
    return count * int(os.environ.get("HEADWATER_THOROUGH", "1"))


def weighted_table(schema: pa.Schema, rows: Weighted) -> pa.Table:
    """Rows and their weights as a table."""
    whole = pa.schema([*schema, WEIGHT_FIELD])
    return pa.Table.from_batches([to_batches([{**row, "_weight": weight} for row, weight in rows], whole)])


def content(table: pa.Table) -> Content:
    """What a weighted table means. Rows that come to nothing are not in it."""
    counted: Content = Counter()
    for row in table.to_pylist(maps_as_pydicts=None):
        weight = row.pop("_weight", 1)
        counted[plain(row)] += weight
    return Counter({row: weight for row, weight in counted.items() if weight})


def model(rows: Weighted, schema: pa.Schema) -> Content:
    """The same for rows that were never in a file."""
    return content(weighted_table(schema, rows))


def project(counted: Content, columns: Sequence[str]) -> Content:
    """The content with these columns only, in this order."""
    result: Content = Counter()
    for row, weight in counted.items():
        named = dict(row[1])
        result[("row", tuple((name, named[name]) for name in columns))] += weight
    return result


def plain(value: Any) -> Any:
    """A value that Python compares as SQL's GROUP BY does, and can count."""
    if isinstance(value, dict):
        return ("row", tuple((name, plain(part)) for name, part in value.items()))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return ("map", frozenset((plain(key), plain(part)) for key, part in value))
    if isinstance(value, list):
        return ("list", tuple(map(plain, value)))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, bool):
        return ("bool", value)
    return value


def total(counted: Content) -> int:
    return sum(counted.values())


def split(rows: Iterable[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Rows cut into pieces of these sizes, the rest last."""
    left, pieces = list(rows), []
    for size in sizes:
        pieces.append(left[:size])
        left = left[size:]
    return [piece for piece in [*pieces, left] if piece]
