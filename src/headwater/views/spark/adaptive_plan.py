"""Adaptive plans: a query run up to its last stage, so that its size is known before its rows are fetched.

What it is: ``rows_shuffled``, which lets Spark run all stages of a frame's query but the last one, and tells how many
rows it has shuffled for that one; ``from_there``, a frame that other queries can begin with.
Invariants: each stage runs once: to collect the frame itself, or to ask for what ``from_there`` gives, begins at the
shuffled rows. Of a query that ends with a GROUP BY the answer has at most as many rows as were shuffled.
Not here: what is done with few rows and with many (``views/stages/view_sessions.py``).
Read next: ``views/stages/groups/large_groups.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

ADAPTIVE, LAST, SHUFFLED = "AdaptiveSparkPlan", "ResultQueryStage", "ShuffleQueryStage"


def rows_shuffled(frame: DataFrame) -> int | None:
    """How many rows the last stage reads, when the others have run.

    None: that cannot be told, as of a query of one stage, or of one that ends with a join.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> frame = spark.sql("SELECT id % 3 AS part, count(*) AS n FROM range(0, 100, 1, 2) GROUP BY ALL")
    >>> rows_shuffled(frame), sorted(row["n"] for row in frame.collect())
    (6, [33, 33, 34])
    >>> rows_shuffled(spark.sql("SELECT id FROM range(10)")) is None
    True
    """
    plan = _plan(frame)
    if plan is None:
        return None
    plan.execute()
    stage = plan.executedPlan()
    leaves = (stage.plan() if stage.nodeName() == LAST else stage).collectLeaves()
    rows = 0
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        counted = leaf.getRuntimeStatistics().rowCount() if leaf.nodeName() == SHUFFLED else None
        if counted is None or counted.isEmpty():
            return None
        rows += int(counted.get())
    return rows


def from_there(frame: DataFrame) -> DataFrame:
    """A frame of the same rows for other queries, which begins where ``rows_shuffled`` has ended.

    To collect the frame itself needs none: Spark would plan it once more.
    """
    from pyspark.sql import DataFrame

    plan = _plan(frame)
    if plan is None:
        return frame
    spark = frame.sparkSession
    session: JavaObject = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(plan.execute(), frame._jdf.schema(), False), spark)


def _plan(frame: DataFrame) -> JavaObject | None:
    """The adaptive plan of a frame; None when it has no stages."""
    plan: JavaObject = frame._jdf.queryExecution().executedPlan()
    return plan if plan.nodeName() == ADAPTIVE else None
