"""Round trip: Spark says whether what the compiler read is what the user wrote.

What it is: a view's SQL is read by a library, its names are settled, and what is compiled is the result. ``compared``
has Spark analyse and optimise both texts, the user's and ours, and compares the two plans.
Invariants: nothing runs. Two texts are the same when Spark's own canonical plans are: equal operators, expressions,
types and implicit casts; names of sources, aliases and parentheses do not count. The tables are neither known to be
empty nor known at all to the optimiser, which would otherwise fold the whole plan away.
Not here: what follows from a difference (``compiler/compile.py``: the user's text is computed whole).
Read next: ``views/stages/stage_schemas.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SHOWN_MAX = 160


def opaque_table(spark: SparkSession, name: str, schema: pa.Schema) -> None:
    """A temporary view of which the optimiser knows the columns and nothing else."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found = from_arrow_schema(schema)
    rows = spark.sparkContext._jsc.sc().emptyRDD(_row_class(spark))
    frame = spark._jsparkSession.applySchemaToPythonRDD(rows, found.json())
    frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")


def _row_class(spark: SparkSession) -> JavaObject:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[Ljava.lang.Object;"))


def compared(spark: SparkSession, sql: str, ours: str) -> tuple[StructType, str]:
    """The columns of the user's text, and the first place where ours differs; "" when both are one plan."""
    user = spark.sql(sql)
    try:
        one, other = (_plan(frame) for frame in (user, spark.sql(ours)))
    except Exception as error:  # what Spark does not take from us it takes from the user
        return user.schema, _first_line(str(error))
    return user.schema, "" if one.equals(other) else _difference(one, other)


def _plan(frame: DataFrame) -> JavaObject:
    return frame._jdf.queryExecution().optimizedPlan().canonicalized()


def _difference(one: JavaObject, other: JavaObject) -> str:
    """The first line of the user's plan that ours does not have."""
    lines, others = (plan.treeString().splitlines() for plan in (one, other))
    for line, another in zip(lines, others, strict=False):
        if line != another:
            return _first_line(line.strip(" +-:"))
    return "it has another number of steps"


def _first_line(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= SHOWN_MAX else line[: SHOWN_MAX - 1] + "…"
