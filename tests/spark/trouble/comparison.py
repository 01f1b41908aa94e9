"""Comparison: two answers as bags of rows, with their columns.

What it is: ``difference`` says how what a view holds differs from what Spark answers: names, types, rows.
Invariants: null equals null, NaN equals NaN, -0.0 equals 0.0 (as SQL groups them), a map's entries have no order;
everything else is exact, but doubles of aggregates, which may be added up in any order. Uses nothing of the package.
Not here: where the two answers come from (``trial.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TOLERANCE_DIGITS, NEARLY_ZERO = 9, 1e-12
SHOWN_MAX = 2


def difference(got: pa.Table, want: pa.Table, *, exact: bool) -> str | None:
    """What differs, in words; None when nothing does."""
    if list(got.column_names) != list(want.column_names):
        return f"columns {got.column_names}, Spark's {want.column_names}"
    types = [
        f"{mine.name} {mine.type}, Spark's {theirs.type}"
        for mine, theirs in zip(got.schema, want.schema, strict=True)
        if kind(mine.type) != kind(theirs.type)
    ]
    if types:
        return f"types: {'; '.join(types)}"
    mine, theirs = _bag(got, exact), _bag(want, exact)
    if mine == theirs:
        return None
    extra, missing = mine - theirs, theirs - mine
    return f"{_told('too many', extra)}{_told('missing', missing)}".strip("; ")


def differing_columns(got: pa.Table, want: pa.Table, *, exact: bool) -> list[str]:
    """The columns whose values differ, when the first column tells the rows apart; of types, those that differ."""
    if list(got.column_names) != list(want.column_names):
        return list(want.column_names)
    first = want.column_names[0]
    return [
        name
        for name in want.column_names[1:]
        if difference(got.select([first, name]), want.select([first, name]), exact=exact) is not None
    ]


def kind(type: pa.DataType) -> Any:
    """A type without what Arrow adds to Spark's: the names and nullability of parts, the size of offsets."""
    if pa.types.is_large_string(type):
        return pa.string()
    if pa.types.is_large_binary(type):
        return pa.binary()
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return "list", kind(type.value_type)
    if pa.types.is_map(type):
        return "map", kind(type.key_type), kind(type.item_type)
    if pa.types.is_struct(type):
        return "struct", tuple((field.name, kind(field.type)) for field in type)
    return type


def _bag(table: pa.Table, exact: bool) -> Counter[Any]:
    columns = [[_value(value, exact) for value in column.to_pylist()] for column in _raw(table).columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def _raw(table: pa.Table) -> pa.Table:
    """Times as numbers: Python has no year 10 000, nor one before the first. Texts as their bytes, and what is no
    UTF-8 in them as U+FFFD, as Spark's own rows in Python have it (docs/serving.md)."""
    columns = [
        _as_shown(column) if pa.types.is_string(column.type) else column.cast(_plain(column.type))
        for column in table.columns
    ]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])


def _as_shown(column: pa.ChunkedArray) -> pa.Array:
    raw = column.cast(pa.binary()).to_pylist()
    return pa.array([None if text is None else text.decode(errors="replace").encode() for text in raw], pa.binary())


def _plain(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type) or pa.types.is_duration(type) or pa.types.is_time64(type):
        return pa.int64()
    if pa.types.is_date32(type):
        return pa.int32()
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return pa.binary()
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_plain(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_plain(type.value_type)))
    if pa.types.is_map(type):
        return pa.map_(
            type.key_field.with_type(_plain(type.key_type)), type.item_field.with_type(_plain(type.item_type))
        )
    return type


def _value(value: Any, exact: bool) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if exact or math.isinf(value):
            return value + 0.0
        return float(f"{value:.{TOLERANCE_DIGITS}g}") + 0.0 if abs(value) > NEARLY_ZERO else 0.0
    if isinstance(value, dict):
        return tuple((name, _value(part, exact)) for name, part in value.items())
    if isinstance(value, tuple):  # an entry of a map
        return tuple(_value(part, exact) for part in value)
    if isinstance(value, list):
        parts: Sequence[Any] = [_value(part, exact) for part in value]
        if value and isinstance(value[0], tuple):
            parts = sorted(parts, key=repr)
        return ("list", *parts)
    return value


def _told(words: str, rows: Counter[Any]) -> str:
    if not rows:
        return ""
    shown = ", ".join(f"{_readable(row)!r:.300}" for row in list(rows)[:SHOWN_MAX])
    return f"{words} {rows.total()}: {shown}; "


def _readable(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_readable, value))
    return value.decode(errors="replace") if isinstance(value, bytes) else value
