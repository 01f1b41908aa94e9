"""Bags of rows: whether two Arrow tables hold the same rows, whatever their order.

What it is: ``difference``, which says in words how two answers differ, or None.
Invariants: columns are matched by position, for engines name unnamed columns differently. Integers, texts, dates and
decimals of one scale are compared exactly. Where one side is floating, or decimals differ in scale (Spark's average
of a DECIMAL is a DECIMAL rounded to 6 places, DuckDB's is a DOUBLE), numbers are compared to that rounding.
Not here: getting the answers (``oracle.py``).
Read next: ``tests/spark/test_tpch.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

RELATIVE = 1e-9
SHOWN = 5


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers of a column may be apart; ``exact`` columns may not at all."""

    exact: bool
    absolute: float = 0.0

    def equal(self, one: Any, other: Any) -> bool:
        if one is None or other is None:
            return one is other
        if self.exact:
            return bool(one == other)
        one, other = float(one), float(other)
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=self.absolute)


def difference(expected: pa.Table, found: pa.Table) -> str | None:
    """How ``found`` differs from ``expected``, in words; None when it does not.

    >>> difference(pa.table({"a": [1, 1, 2]}), pa.table({"b": [2, 1, 1]}))
    >>> print(difference(pa.table({"a": [1, 1, 2]}), pa.table({"a": [2, 1, 3]})))
    1 of 3 rows are missing, 1 of 3 are too many
      missing: (1,)
      too many: (3,)
    >>> difference(pa.table({"a": [0.1 + 0.2]}), pa.table({"a": [0.3]}))
    """
    if expected.num_columns != found.num_columns:
        return f"columns {found.column_names} in place of {expected.column_names}"
    tolerances = [_tolerance(one.type, other.type) for one, other in zip(expected.schema, found.schema, strict=True)]
    wanted, given = _rows(expected), _rows(found)
    if all(tolerance.exact for tolerance in tolerances):
        missing, extra = Counter(wanted) - Counter(given), Counter(given) - Counter(wanted)
        return _words(list(missing.elements()), list(extra.elements()), len(wanted), len(given))
    return _nearly(wanted, given, tolerances)


def _nearly(wanted: list[tuple[Any, ...]], given: list[tuple[Any, ...]], tolerances: list[Tolerance]) -> str | None:
    """Pair the rows that are equal in the exact columns, then find each its nearest in the others."""
    exact = [place for place, tolerance in enumerate(tolerances) if tolerance.exact]
    waiting: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in given:
        waiting.setdefault(tuple(row[place] for place in exact), []).append(row)
    missing = []
    for row in wanted:
        candidates = waiting.get(tuple(row[place] for place in exact), [])
        same = next((other for other in candidates if _same(row, other, tolerances)), None)
        if same is None:
            missing.append(row)
        else:
            candidates.remove(same)
    extra = [row for rows in waiting.values() for row in rows]
    return _words(missing, extra, len(wanted), len(given))


def _same(one: tuple[Any, ...], other: tuple[Any, ...], tolerances: list[Tolerance]) -> bool:
    return all(tolerance.equal(a, b) for tolerance, a, b in zip(tolerances, one, other, strict=True))


def _tolerance(one: pa.DataType, other: pa.DataType) -> Tolerance:
    scales = [_scale(kind) for kind in (one, other)]
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        known = [scale for scale in scales if scale is not None]
        return Tolerance(exact=False, absolute=10.0 ** -min(known) if known else RELATIVE)
    if None not in scales and scales[0] != scales[1]:
        return Tolerance(exact=False, absolute=10.0 ** -min(scale for scale in scales if scale is not None))
    return Tolerance(exact=True)


def _scale(kind: pa.DataType) -> int | None:
    return kind.scale if pa.types.is_decimal(kind) else None


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(value: Any) -> Any:
    """A value that hashes, and is equal to the other engine's form of it."""
    if isinstance(value, Decimal):
        return value.normalize() if value else Decimal(0)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, list):
        return tuple(_plain(part) for part in value)
    if isinstance(value, dict):
        return tuple(_plain(part) for part in value.values())
    return value


def _words(missing: list[tuple[Any, ...]], extra: list[tuple[Any, ...]], wanted: int, given: int) -> str | None:
    if not missing and not extra:
        return None
    lines = [f"{len(missing)} of {wanted} rows are missing, {len(extra)} of {given} are too many"]
    for title, rows in (("missing", missing), ("too many", extra)):
        lines += [f"  {title}: {row!r}" for row in rows[:SHOWN]]
    return "\n".join(lines)
