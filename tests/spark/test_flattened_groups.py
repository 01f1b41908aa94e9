"""Groups that are structs, taken apart: Spark's own GROUP BY of the struct is the oracle."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.views.state.sql_equality import groups_flattened

ROWS = """
    SELECT * FROM VALUES
      (named_struct('start', 1L, 'odd `name\\'', DATE '2026-01-01'), 'a', 1),
      (named_struct('start', 1L, 'odd `name\\'', DATE '2026-01-01'), 'a', 2),
      (named_struct('start', 1L, 'odd `name\\'', DATE '2026-01-02'), 'a', 4),
      (named_struct('start', 1L, 'odd `name\\'', DATE '2026-01-01'), 'b', 8),
      (named_struct('start', CAST(NULL AS BIGINT), 'odd `name\\'', CAST(NULL AS DATE)), 'a', 16),
      (NULL, 'a', 32),
      (NULL, 'a', 64)
    AS _flow(_g0, _g1, _x0)"""
SQL = "SELECT _g0, _g1, SUM(_x0) AS _a0 FROM _flow GROUP BY _g0, _g1"
STRUCT = pa.struct([("start", pa.int64()), ("odd `name'", pa.date32())])


def test_a_struct_taken_apart_groups_as_the_struct_does(spark: SparkSession) -> None:
    spark.sql(ROWS).createOrReplaceTempView("_flow")
    flattened = groups_flattened(SQL, pa.schema([("_g0", STRUCT), ("_g1", pa.string())]))

    expected, found = spark.sql(SQL), spark.sql(flattened)

    assert flattened != SQL
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
    assert found.count() == 5


def test_windows_are_grouped_by_their_start_and_end(spark: SparkSession) -> None:
    spark.sql(
        "SELECT window(at, '1 minute') AS _g0, 1 AS _x0 FROM (SELECT timestamp_micros(id) AS at FROM range(10))"
    ).createOrReplaceTempView("_flow")
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    sql = groups_flattened("SELECT _g0, SUM(_x0) AS _a0 FROM _flow GROUP BY _g0", pa.schema([("_g0", window)]))

    keys = spark.sql(sql)._jdf.queryExecution().optimizedPlan().groupingExpressions()

    assert [keys.apply(at).dataType().typeName() for at in range(keys.size())] == ["boolean", "timestamp", "timestamp"]
    assert [row["_a0"] for row in spark.sql(sql).collect()] == [10]


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.struct([("x", pa.float64())]), pa.struct([("x", pa.struct([("y", pa.int64())]))])]
)
def test_other_groups_stay_as_they_are(arrow: pa.DataType) -> None:
    sql = "SELECT _g0, SUM(_x0) AS _a0 FROM _flow GROUP BY _g0"

    assert groups_flattened(sql, pa.schema([("_g0", arrow)])) == sql
