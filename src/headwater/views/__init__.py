"""Views: what is derived from the log, with Spark.

What it is: the only folder that imports pyspark. It holds the data source, the compiler of
views, their state and the tick.
Invariants: importing this package imports no pyspark; the first call that needs it does, and says what to install.
Not here: the log (``headwater.log``), which works without Spark.
Read next: ``views/source/data_source.py`` for ``spark.read.format("headwater")``, ``views/tick/engine.py`` for how
views follow the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("headwater")`` and ``spark.readStream.format("headwater")`` work in this session.

    >>> import headwater as hw, headwater.views, tempfile
    >>> home = tempfile.mkdtemp()
    >>> orders = hw.Log(home).topic("orders", "order_id BIGINT, amount DOUBLE")
    >>> _ = orders.append([{"order_id": 1, "amount": 9.5}, {"order_id": 2, "amount": 3.0}])
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> headwater.views.register(spark)
    >>> frame = spark.read.format("headwater").option("home", home).option("topic", "orders").load()
    >>> frame.selectExpr("sum(amount) AS revenue").collect()
    [Row(revenue=12.5)]
    """
    from headwater.views.spark.spark_session import register_source

    register_source(spark)
