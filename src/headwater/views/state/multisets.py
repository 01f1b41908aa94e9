"""Multisets by Spark: large parts of weighted rows, consolidated without grouping all of them.

What it is: ``consolidated``, which adds up the weights of several parts, and ``expanded``, which repeats rows.
Invariants: the answer is the content, whatever the number of runs and the order of weights. Rows of large positive
runs that no negative row hits are never grouped or shuffled: they pass through as in a plain scan.
Not here: which runs there are (``trace.py``); the operations on one table or frame (``algebra.py``).
Read next: ``trace.py``, ``merge.py``.

How. Let P be rows of positive weight and T the *tail*, rows of any weight; the content is P + T. A row of P needs to be
added up with others only if T takes away rows like it. So the hashes of T's negative rows are broadcast:

- with a unique key, and P one run: consolidate T by itself. A negative row that is left takes away the one row of P
  with its key, and a positive one has no row of its key left in P: P without these keys, and the positive rest of T.
  One scan.
- otherwise: rows of P that are not hit pass; those that are hit are grouped together with T. Two scans of P.
- when T is large, everything is grouped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.algebra import consolidate, expand
from headwater.views.state.sql_equality import has_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HIT = "_hit"


@dataclass(frozen=True)
class WeightedPart:
    """Weighted rows and what is known about them."""

    frame: DataFrame
    rows: int
    positive: bool
    plain: bool  # each weight is 1


def consolidated(parts: Sequence[WeightedPart], columns: pa.Schema, *, key: Sequence[str]) -> list[WeightedPart]:
    """The parts added up, as parts with positive weights only: ``columns`` (with the key, if any) and ``_weight``.

    With a ``key``, the content (not each part) has at most one row for each of its values, and each positive part was
    written at once. Equal rows may still stand in several rows of the answer.
    """
    positive = [part for part in parts if part.positive]
    tail = [part for part in parts if not part.positive]
    if not tail or not positive:
        return positive or [_grouped(_union(tail), columns)]
    big = max(positive, key=lambda part: part.rows)
    others = [part for part in parts if part is not big]
    if key and sum(part.rows for part in others) <= thresholds.BROADCAST_HASHES_MAX:
        return _replaced(big, consolidate(_union(others).frame, columns.names), key)
    matching = list(key) or _hashable(columns)
    if matching and sum(part.rows for part in tail) <= thresholds.BROADCAST_HASHES_MAX:
        return _regrouped(_union(positive), _union(tail), columns, matching)
    return [_grouped(_union(parts), columns)]


def expanded(parts: Sequence[WeightedPart], columns: Sequence[str]) -> DataFrame:
    """These columns of positive parts, each row as often as its weight says."""
    frames = [part.frame.select(*map(quoted, columns)) if part.plain else expand(part.frame, columns) for part in parts]
    return functools.reduce(lambda one, other: one.union(other), frames)


def _union(parts: Sequence[WeightedPart]) -> WeightedPart:
    frame = functools.reduce(lambda one, other: one.union(other), [part.frame for part in parts])
    return WeightedPart(
        frame, sum(part.rows for part in parts), all(part.positive for part in parts), all(part.plain for part in parts)
    )


def _grouped(part: WeightedPart, columns: pa.Schema) -> WeightedPart:
    return WeightedPart(
        consolidate(part.frame, columns.names).where(f"{WEIGHT} > 0"), part.rows, positive=True, plain=False
    )


def _replaced(big: WeightedPart, tail: DataFrame, key: Sequence[str]) -> list[WeightedPart]:
    """One scan: the rows of ``big`` whose key the consolidated tail does not take away, and what the tail adds."""
    from pyspark.sql import functions

    names = {name: quoted(f"_taken_{name}") for name in key}
    taken = tail.where(f"{WEIGHT} < 0").selectExpr(
        f"{_hash(key)} AS {HIT}",
        *(f"{quoted(name)} AS {other}" for name, other in names.items()),
        f"{WEIGHT} AS _taken",
    )
    equal = " AND ".join(f"{quoted(name)} <=> {other}" for name, other in names.items())
    # The second half is never true. It keeps Spark from joining by the key's columns instead of by one number, which
    # it finds faster; the first half makes sure that two keys with one hash are not taken for one.
    condition = functions.expr(f"{_hash(key)} = {HIT} AND (({equal}) OR _taken > 0)")
    passing = big.frame.join(functions.broadcast(taken), condition, "leftanti")
    # The key is unique, so each weight that is left is 1.
    return [
        WeightedPart(passing, big.rows, positive=True, plain=big.plain),
        WeightedPart(tail.where(f"{WEIGHT} > 0"), 0, positive=True, plain=True),
    ]


def _regrouped(
    positive: WeightedPart, tail: WeightedPart, columns: pa.Schema, matching: Sequence[str]
) -> list[WeightedPart]:
    """Two scans: rows that are not hit pass, rows that are hit are grouped with the tail."""
    from pyspark.sql import functions

    hits = functions.broadcast(tail.frame.where(f"{WEIGHT} < 0").selectExpr(f"{_hash(matching)} AS {HIT}"))
    condition = functions.expr(f"{_hash(matching)} = {HIT}")
    passing = positive.frame.join(hits, condition, "leftanti")
    hit = positive.frame.join(hits, condition, "leftsemi")
    together = WeightedPart(hit.union(tail.frame), tail.rows, positive=False, plain=False)
    return [WeightedPart(passing, positive.rows, positive=True, plain=positive.plain), _grouped(together, columns)]


def _hash(names: Sequence[str]) -> str:
    """One number for each row: equal where SQL's GROUP BY sees equal values."""
    return f"xxhash64({', '.join(quoted(name) for name in names)})"


def _hashable(columns: pa.Schema) -> list[str]:
    """The columns that Spark can hash. Leaving one out does no harm: more rows are grouped than need be."""
    return [field.name for field in columns if field.name != WEIGHT and not has_map(field.type)]
