"""Touched rows: what a keyed stage reads of an input.

What it is: ``rows_of``, the rows of an input whose keys a tick has touched.
Invariants: exactly these rows, each as often as it is there after the tick; looked up on the driver where the keys are
few and plain columns, else found by Spark.
Not here: which keys were touched (``stage_run.py``); looking up (``relation.py``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views.compiler.plan import KeyedInput
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.relation import BoundRows, TickRelation
from headwater.views.state.sql_equality import same_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of(given: KeyedInput, sources: Mapping[str, TickRelation], touched: BoundRows) -> BoundRows:
    """The bag of an input's rows whose keys are touched."""
    source = sources[given.leaf.relation]
    columns = given.leaf.columns
    if given.plain is not None and touched.local is not None:
        found = source.bag_of(columns, given.plain, touched.local)
        if found is not None:
            return found
    names = touched.schema.names
    every = source.bag(source.schema.names)

    def build(spark: SparkSession) -> DataFrame:
        name = f"_every{given.leaf.name}"
        every.frame(spark).createOrReplaceTempView(name)
        touched.frame(spark).createOrReplaceTempView("_touched")
        keys = ", ".join(f"({key}) AS _key{place}" for place, key in enumerate(given.keys))
        on = " AND ".join(
            same_value(f"e._key{place}", f"t.{column}", touched.schema.field(column).type)
            for place, column in enumerate(names)
        )
        wanted = ", ".join(f"e.{quoted(column)}" for column in columns)
        hint = "/*+ BROADCAST(t) */ " if touched.local is not None else ""
        frame: DataFrame = spark.sql(
            f"SELECT {hint}{wanted} FROM (SELECT *, {keys} FROM {name}) e LEFT SEMI JOIN _touched t ON {on}"
        )
        return frame

    return BoundRows(pa.schema([source.schema.field(name) for name in columns]), every.count, None, build)
