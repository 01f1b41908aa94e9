"""Equality in Spark SQL for types that Spark cannot compare: maps, at any depth.

What it is: ``entries``, SQL for a value with its maps as sorted lists of entries; ``same_value`` and
``groups_compared``, comparisons that use it; ``groups_flattened``, groups by the fields of a struct.
Invariants: two values have equal entries exactly when ``row_equality.py`` finds them equal.
Not here: equal rows of Arrow tables (``row_equality.py``).
Read next: ``algebra.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds

from headwater.log.schema.ddl import spark_type
from headwater.views.spark.topic_scan import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def same_value(one: str, other: str, arrow: pa.DataType) -> str:
    """SQL for the equality of two values of a type, as GROUP BY has it: Spark's <=> knows no maps.

    >>> same_value("a.x", "b.x", pa.int64())
    'a.x <=> b.x'
    """
    if not has_map(arrow):
        return f"{one} <=> {other}"
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(f"x {spark_type(arrow)}")
    assert isinstance(schema, StructType)
    spark = schema["x"].dataType
    return f"{entries(one, spark)} <=> {entries(other, spark)}"


def groups_compared(sql: str, groups: pa.Schema) -> str:
    """A stage's SQL with its comparisons of groups that hold maps replaced by comparisons of entries."""
    for field in groups:
        if has_map(field.type):
            one, other = (f"`?{side}`?\\.`?{field.name}`?" for side in "pb")
            compared = same_value(f"p.{field.name}", f"b.{field.name}", field.type)
            sql = re.sub(f"{one} <=> {other}", compared.replace("\\", r"\\"), sql)
    return sql


def groups_flattened(sql: str, groups: pa.Schema, windows: Mapping[str, str] | None = None) -> str:
    """A stage's ``partial`` SQL with its groups that are structs of numbers and times, as windows are, taken apart.

    Spark would make a struct for each row, and compare these: half of the time of sums by minute. Of ``windows`` the
    start tells the end, and none is null: they are grouped by one field. Their sizes are SQL texts; where one is empty,
    the end is carried through the groups, which costs the scan some 4 %.

    >>> window = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    >>> groups, sql = pa.schema([("_g0", window)]), "SELECT `_g0`, SUM(_x0) AS _a0 FROM _flow GROUP BY `_g0`"
    >>> print(groups_flattened(sql, groups))
    SELECT IF(_g0 IS NULL, NULL, named_struct('start', _g0.`start`, 'end', _g0.`end`)) AS _g0, SUM(_x0) AS _a0 FROM \
_flow GROUP BY _g0 IS NULL, _g0.`start`, _g0.`end`
    >>> print(groups_flattened(sql, groups, windows={"_g0": "'1 minute'"}))
    SELECT named_struct('start', _g0.`start`, 'end', _g0.`start` + CAST('1 minute' AS INTERVAL)) AS _g0, SUM(_x0) AS \
_a0 FROM _flow GROUP BY _g0.`start`
    """
    selected, found, grouped = sql.rpartition(" GROUP BY ")
    for field in groups if found else ():
        if not kinds.is_struct(field.type) or not field.type.num_fields or not all(map(_is_plain, field.type)):
            continue
        name = field.name
        parts = {each.name: f"{name}.{quoted(each.name)}" for each in field.type}
        size = (windows or {}).get(name)
        if size is not None:
            end = f"{parts['start']} + CAST({size} AS INTERVAL)" if size else f"max({parts['end']})"
            apart = f"named_struct('start', {parts['start']}, 'end', {end})"
            fields = parts["start"]
        else:
            pairs = ", ".join(f"'{_escaped(part)}', {value}" for part, value in parts.items())
            apart = f"IF({name} IS NULL, NULL, named_struct({pairs}))"
            fields = f"{name} IS NULL, {', '.join(parts.values())}"
        mention = re.compile(rf"(?<![\w.`])(`?){name}\1(?![\w.`])")
        selected = mention.sub(_literally(f"{apart} AS {name}"), selected, count=1)
        grouped = mention.sub(_literally(fields), grouped)
    return f"{selected}{found}{grouped}"


def _literally(text: str) -> str:
    """A text as the replacement of ``re.sub``."""
    return text.replace("\\", r"\\")


def _is_plain(field: pa.Field) -> bool:
    return bool(kinds.is_integer(field.type) or kinds.is_temporal(field.type))


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def has_map(arrow: pa.DataType) -> bool:
    """Whether an Arrow type holds a map, at any depth.

    >>> has_map(pa.list_(pa.map_(pa.string(), pa.int64()))), has_map(pa.string())
    (True, False)
    """
    if kinds.is_map(arrow):
        return True
    return kinds.is_nested(arrow) and any(has_map(arrow.field(at).type) for at in range(arrow.num_fields))


def holds_map(spark_type: DataType) -> bool:
    """Whether a Spark type holds a map, at any depth."""
    return "map<" in spark_type.simpleString()


def entries(value: str, spark_type: DataType, depth: int = 0) -> str:
    """SQL for a value whose maps are replaced by their entries in the order of the keys, at every depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    item = f"_x{depth}"
    if not holds_map(spark_type):
        return value
    if isinstance(spark_type, StructType):
        parts = [
            f"'{at}', {entries(f'{value}.{quoted(field.name)}', field.dataType, depth + 1)}"
            for at, field in enumerate(spark_type.fields)
        ]
        return f"IF({value} IS NULL, NULL, named_struct({', '.join(parts)}))"
    if isinstance(spark_type, ArrayType):
        return f"transform({value}, {item} -> {entries(item, spark_type.elementType, depth + 1)})"
    assert isinstance(spark_type, MapType)
    by_key = "(_a, _b) -> CASE WHEN _a.key < _b.key THEN -1 WHEN _a.key > _b.key THEN 1 ELSE 0 END"
    inner = entries(f"{item}.value", spark_type.valueType, depth + 1)
    return f"transform(array_sort(map_entries({value}), {by_key}), {item} -> struct({item}.key, {inner}))"
