"""Small tables that travel inside a query's plan: none of their rows may get lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views.spark.scans import local_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_behind_an_empty_chunk_are_there(spark: SparkSession) -> None:
    empty = pa.chunked_array([pa.array([1]), pa.array([], pa.int64()), pa.array([2, 3])])
    table = pa.table({"a": empty, "b": pa.chunked_array([pa.array(["x", "y", "z"])])})

    rows = local_frame(spark, table).collect()

    assert [tuple(row) for row in rows] == [(1, "x"), (2, "y"), (3, "z")]
