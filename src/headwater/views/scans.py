"""Scans: Parquet files and Arrow tables as DataFrames.

What it is: the two leaves of every query over state, and a small memory of the frames that were made.
Invariants: a frame has exactly the columns of the schema it was asked for, all nullable, in Spark's own types; Spark
verifies the checksum of each page it reads. Making a frame runs no query.
Not here: topics (``native.py``), what the rows mean (``piles.py``).
Read next: ``piles.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.ddl import to_ddl
from headwater.views.native import READ_OPTIONS, _literal_path, _quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAMES_MAX = 4

quoted = _quoted


def scan(spark: SparkSession, paths: Sequence[Path], schema: pa.Schema) -> DataFrame:
    """The rows of Parquet files, which are all of this schema."""
    reader = spark.read.options(**READ_OPTIONS).schema(to_ddl(nullable(schema)))
    return reader.parquet(*(_literal_path(path) for path in paths))


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table that travels inside the query's plan."""
    schema = nullable(table.schema)
    # PySpark 4.3 stops at the first empty record batch, and the rows behind it are lost. One chunk has none.
    frame: DataFrame = spark.createDataFrame(table.combine_chunks().cast(schema), to_ddl(schema))
    return frame


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark's Parquet reader makes it: each column may be null.

    >>> nullable(pa.schema([pa.field("id", pa.int64(), nullable=False)])).field("id").nullable
    True
    """
    return pa.schema([field.with_nullable(True) for field in schema])


class Frames:
    """The last few frames, each remembered by its session and by what it was made from.

    Making a frame over Parquet costs some 20 ms, mostly to list the files; a tick asks for the same ones many times.
    """

    def __init__(self) -> None:
        self._made: list[tuple[SparkSession, Hashable, DataFrame]] = []

    def get(self, spark: SparkSession, source: Hashable, make: Callable[[], DataFrame]) -> DataFrame:
        """The frame made from ``source`` in this session; ``make`` is called when there is none."""
        for session, made_from, frame in self._made:
            if made_from == source and _same_session(session, spark):
                return frame
        frame = make()
        # A new list, not a changed one: views may be computed in several threads.
        self._made = [*self._made[1 - FRAMES_MAX :], (spark, source, frame)]
        return frame


def _same_session(one: SparkSession, other: SparkSession) -> bool:
    """Structured Streaming wraps one session of the JVM in a new Python object for each batch."""
    return one is other or bool(one._jsparkSession.equals(other._jsparkSession))
