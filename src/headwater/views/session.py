"""The Spark session: what it needs to know before it can read a topic.

What it is: registering the data source, and what its workers and its messages need.
Invariants: pyspark is imported here only when it is called for; a missing pyspark is one sentence with the install
line; registering twice is harmless.
Not here: starting Spark, which is the user's; the source itself (``source.py``).
Read next: ``source.py``.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from headwater.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark logs every failed query as a page of JSON, before the exception that says the same.
NOISY_LOGGER = "SQLQueryContextLogger"


def missing_spark(error: ImportError) -> MissingExtra:
    """The error for a Python without pyspark."""
    return MissingExtra(
        "reading topics with Spark needs pyspark, which is not installed",
        detail=str(error),
        hint='pip install "headwater[spark]"',
    )


def register_source(spark: SparkSession) -> None:
    """See ``headwater.views.register``."""
    try:
        from headwater.views.source import TopicSource
    except ModuleNotFoundError as error:
        raise missing_spark(error) from error
    use_this_python(spark)
    logging.getLogger(NOISY_LOGGER).setLevel(logging.CRITICAL + 1)
    spark.dataSource.register(TopicSource)


def use_this_python(spark: SparkSession) -> None:
    """Local workers run the interpreter that runs the driver, unless the user chose one.

    Spark's own default is whatever ``python3`` is on the PATH, which often has neither pyspark nor this package.
    """
    context = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if chosen is None and str(context.master).startswith("local"):
        context.pythonExec = sys.executable
