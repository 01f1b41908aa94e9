"""Adaptive plans: a query run up to its last stage, so that its size is known before its rows are fetched.

What it is: ``shuffled``, which lets Spark run all stages of a frame's query but the last one, and tells how many rows
it has shuffled for that one.
Invariants: each stage runs once: what is done with the frame that comes back begins at the shuffled rows. Of a query
that ends with a GROUP BY the answer has at most as many rows as were shuffled.
Not here: what is done with few rows and with many (``views/stages/view_sessions.py``).
Read next: ``views/stages/large_groups.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

ADAPTIVE, LAST, SHUFFLED = "AdaptiveSparkPlan", "ResultQueryStage", "ShuffleQueryStage"


def shuffled(frame: DataFrame) -> tuple[int | None, DataFrame]:
    """How many rows the last stage reads, and a frame of the same rows that begins there.

    None: that cannot be told, as of a query of one stage, or of one that ends with a join.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> rows, frame = shuffled(spark.sql("SELECT id % 3 AS part, count(*) AS n FROM range(0, 100, 1, 2) GROUP BY ALL"))
    >>> rows, sorted(row["n"] for row in frame.collect())
    (6, [33, 33, 34])
    >>> shuffled(spark.sql("SELECT id FROM range(10)"))[0] is None
    True
    """
    from pyspark.sql import DataFrame

    java: JavaObject = frame._jdf
    plan = java.queryExecution().executedPlan()
    if plan.nodeName() != ADAPTIVE:
        return None, frame
    last = plan.execute()
    stage = plan.executedPlan()
    leaves = (stage.plan() if stage.nodeName() == LAST else stage).collectLeaves()
    rows: int | None = 0
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        counted = leaf.getRuntimeStatistics().rowCount() if leaf.nodeName() == SHUFFLED else None
        rows = None if rows is None or counted is None or counted.isEmpty() else rows + int(counted.get())
    spark = frame.sparkSession
    session: JavaObject = spark._jsparkSession
    return rows, DataFrame(session.internalCreateDataFrame(last, java.schema(), False), spark)
