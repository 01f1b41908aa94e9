"""Bags: weighted rows as the rows that are really there, by Spark.

What it is: ``consolidated``, which adds weights up, and ``expanded``, which repeats each row as often as it is there.
Invariants: the answer is the content, whatever the number of runs and the order of weights. Rows of large positive
runs that no negative row hits are never grouped or shuffled: they pass through as in a plain scan.
Not here: which runs there are (``trace.py``); netting on the driver (``consolidate.py``).
Read next: ``trace.py``, ``merge.py``.

How. Let P be rows of positive weight and T the *tail*, rows of any weight; the content is P + T. A row of P needs to be
added up with others only if T takes away rows like it. So the hashes of T's negative rows are broadcast:

- with a unique key, and P one run: net T by itself. A negative row that is left takes away the one row of P with its
  key, and a positive one has no row of its key left in P: P without these keys, and the positive rest of T. One scan.
- otherwise: rows of P that are not hit pass; those that are hit are grouped together with T. Two scans of P.
- when T is large, everything is grouped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds

from headwater.log.schema.ddl import spark_type
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.topic_scan import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

TAIL_ROWS_MAX = 1_000_000  # more hashes than that are not broadcast
REPEATED_MAX = 4096  # a row that is there often is repeated in two steps, for each makes an array of its length
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
    if key and sum(part.rows for part in others) <= TAIL_ROWS_MAX:
        return _replaced(big, netted(_union(others).frame, columns.names), key)
    matching = list(key) or _hashable(columns)
    if matching and sum(part.rows for part in tail) <= TAIL_ROWS_MAX:
        return _regrouped(_union(positive), _union(tail), columns, matching)
    return [_grouped(_union(parts), columns)]


def expanded(parts: Sequence[WeightedPart], columns: Sequence[str]) -> DataFrame:
    """These columns of positive parts, each row as often as its weight says."""
    frames = [_expanded(part, [quoted(name) for name in columns]) for part in parts]
    return functools.reduce(lambda one, other: one.union(other), frames)


def _expanded(part: WeightedPart, names: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions

    if part.plain:
        return part.frame.select(*names)
    chunk = functions.expr(f"explode(sequence(0L, ({WEIGHT} - 1) div {REPEATED_MAX}))")
    chunked = part.frame.select(*names, WEIGHT, chunk.alias("_chunk"))
    left = f"least({WEIGHT} - _chunk * {REPEATED_MAX}, {REPEATED_MAX}L)"
    return chunked.select(*names, functions.expr(f"explode(sequence(1L, {left}))").alias("_copy")).select(*names)


def netted(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Equal rows added up, with weights of either sign; those that come to nothing are left out."""
    from pyspark.sql import functions

    # Spark 4.3 groups by maps, but makes 0 of a null in a map of numbers. So they are grouped by as sorted entries.
    types = {name: frame.schema[name].dataType for name in columns if name != WEIGHT}
    maps = {name: spark_type for name, spark_type in types.items() if _holds_map(spark_type)}
    groups = [functions.col(quoted(name)) for name in types if name not in maps]
    groups += [functions.expr(_entries(quoted(name), maps[name])).alias(f"_entries_{name}") for name in maps]
    one_of_each = [functions.first(quoted(name)).alias(name) for name in maps]
    sums = frame.groupBy(*groups).agg(functions.sum(WEIGHT).alias(WEIGHT), *one_of_each)
    return sums.where(f"{WEIGHT} <> 0").select(*map(quoted, columns))


def same_value(one: str, other: str, arrow: pa.DataType) -> str:
    """SQL for the equality of two values of a type, as GROUP BY has it: Spark's <=> knows no maps.

    >>> same_value("a.x", "b.x", pa.int64())
    'a.x <=> b.x'
    """
    if not _has_map(arrow):
        return f"{one} <=> {other}"
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(f"x {spark_type(arrow)}")
    assert isinstance(schema, StructType)
    spark = schema["x"].dataType
    return f"{_entries(one, spark)} <=> {_entries(other, spark)}"


def groups_compared(sql: str, groups: pa.Schema) -> str:
    """A stage's SQL, with its comparisons of groups that hold maps made such that Spark can run them."""
    for field in groups:
        if _has_map(field.type):
            one, other = (f"`?{side}`?\\.`?{field.name}`?" for side in "pb")
            compared = same_value(f"p.{field.name}", f"b.{field.name}", field.type)
            sql = re.sub(f"{one} <=> {other}", compared.replace("\\", r"\\"), sql)
    return sql


def _holds_map(spark_type: DataType) -> bool:
    return "map<" in spark_type.simpleString()


def _entries(value: str, spark_type: DataType, depth: int = 0) -> str:
    """SQL for a value whose maps are replaced by their entries in the order of the keys, at every depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    item = f"_x{depth}"
    if not _holds_map(spark_type):
        return value
    if isinstance(spark_type, StructType):
        parts = [
            f"'{at}', {_entries(f'{value}.{quoted(field.name)}', field.dataType, depth + 1)}"
            for at, field in enumerate(spark_type.fields)
        ]
        return f"IF({value} IS NULL, NULL, named_struct({', '.join(parts)}))"
    if isinstance(spark_type, ArrayType):
        return f"transform({value}, {item} -> {_entries(item, spark_type.elementType, depth + 1)})"
    assert isinstance(spark_type, MapType)
    by_key = "(_a, _b) -> CASE WHEN _a.key < _b.key THEN -1 WHEN _a.key > _b.key THEN 1 ELSE 0 END"
    inner = _entries(f"{item}.value", spark_type.valueType, depth + 1)
    return f"transform(array_sort(map_entries({value}), {by_key}), {item} -> struct({item}.key, {inner}))"


def _union(parts: Sequence[WeightedPart]) -> WeightedPart:
    frame = functools.reduce(lambda one, other: one.union(other), [part.frame for part in parts])
    return WeightedPart(
        frame, sum(part.rows for part in parts), all(part.positive for part in parts), all(part.plain for part in parts)
    )


def _grouped(part: WeightedPart, columns: pa.Schema) -> WeightedPart:
    return WeightedPart(netted(part.frame, columns.names).where(f"{WEIGHT} > 0"), part.rows, positive=True, plain=False)


def _replaced(big: WeightedPart, tail: DataFrame, key: Sequence[str]) -> list[WeightedPart]:
    """One scan: the rows of ``big`` whose key the netted tail does not take away, and what the tail adds."""
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
    return [field.name for field in columns if field.name != WEIGHT and not _has_map(field.type)]


def _has_map(arrow: pa.DataType) -> bool:
    if kinds.is_map(arrow):
        return True
    return kinds.is_nested(arrow) and any(_has_map(arrow.field(at).type) for at in range(arrow.num_fields))
