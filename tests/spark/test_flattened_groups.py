"""Groups that are structs, taken apart: Spark's own GROUP BY of the struct is the oracle."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import AccumulateStage, PlanColumn, Relation
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
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
STRUCT = pa.struct([("start", pa.int64()), ("odd `name'", pa.date32())])


def test_a_struct_taken_apart_groups_as_the_struct_does(spark: SparkSession) -> None:
    spark.sql(ROWS).createOrReplaceTempView("_flow")
    flattened = groups_flattened(SQL, pa.schema([("_g0", STRUCT), ("_g1", pa.string())]))

    expected, found = spark.sql(SQL), spark.sql(flattened)

    assert flattened != SQL
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
    assert found.count() == 5


@pytest.mark.parametrize(
    ("window", "size"),
    [
        ("window(at, '1 minute')", "'1 minute'"),
        ("window(at, '1 minute', '20 seconds', '5 seconds')", "'1 minute'"),
        ("window(at, 'INTERVAL 1 day 90 minutes')", "'INTERVAL 1 day 90 minutes'"),
        ("window(CAST(at AS TIMESTAMP_NTZ), '2 weeks')", "'2 weeks'"),
        ("window(at, 60000000)", ""),
    ],
)
def test_windows_are_grouped_by_their_start_alone(spark: SparkSession, window: str, size: str) -> None:
    times = "SELECT timestamp_micros(7000000 * id * id) AS at FROM range(50) UNION ALL SELECT NULL"
    spark.sql(f"SELECT {window} AS _g0, 1 AS _x0 FROM ({times})").createOrReplaceTempView("_flow")
    sql = "SELECT `_g0`, SUM(_x0) AS _a0 FROM _flow GROUP BY `_g0`"
    flattened = groups_flattened(sql, pa.schema([("_g0", WINDOW)]), windows={"_g0": size})

    expected, found = spark.sql(sql), spark.sql(flattened)
    keys = found._jdf.queryExecution().optimizedPlan().groupingExpressions()

    assert [keys.apply(at).dataType().typeName() for at in range(keys.size())] in (["timestamp"], ["timestamp_ntz"])
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


def test_what_the_compiler_writes_is_taken_apart() -> None:
    events = Relation("events", (PlanColumn("at", "TIMESTAMP"), PlanColumn("country", "STRING")))
    by = "window(at, '1 minute'), country"
    (stage,) = compile_view(
        "minutes", f"SELECT {by}, count(*) AS n FROM events GROUP BY {by}", {"events": events}
    ).stages
    assert isinstance(stage, AccumulateStage)

    flattened = groups_flattened(stage.partial, pa.schema([("_g0", WINDOW), ("_g1", pa.string())]), dict(stage.windows))

    end = "_g0.`start` + CAST('1 minute' AS INTERVAL)"
    assert flattened.startswith(f"SELECT named_struct('start', _g0.`start`, 'end', {end}) AS _g0, `_g1`, ")
    assert flattened.endswith(" FROM _flow GROUP BY _g0.`start`, `_g1`")


def test_only_a_call_of_window_by_itself_is_told_by_its_start() -> None:
    columns = (PlanColumn("at", "TIMESTAMP"), PlanColumn("span", "STRUCT<start: TIMESTAMP, end: TIMESTAMP>"))
    for by in ("span", "CASE WHEN at > span.start THEN span END"):
        sql = f"SELECT {by} AS x, count(*) AS n FROM events GROUP BY {by}"
        (stage,) = compile_view("spans", sql, {"events": Relation("events", columns)}).stages

        assert isinstance(stage, AccumulateStage)
        assert stage.windows == ()


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.struct([("x", pa.float64())]), pa.struct([("x", pa.struct([("y", pa.int64())]))])]
)
def test_other_groups_stay_as_they_are(arrow: pa.DataType) -> None:
    sql = "SELECT _g0, SUM(_x0) AS _a0 FROM _flow GROUP BY _g0"

    assert groups_flattened(sql, pa.schema([("_g0", arrow)])) == sql
