"""Spark says whether what was read is what was written; where it is not, the user's own text is computed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headwater as hw
from headwater.views.spark.round_trip import compared, opaque_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: SparkSession) -> SparkSession:
    opaque_table(spark, "confirmed", pa.schema([("k", pa.int32()), ("s", pa.string()), ("d", pa.float64())]))
    return spark


@pytest.mark.parametrize(
    ("sql", "ours"),
    [
        ("SELECT k FROM confirmed", "SELECT c.k AS `k` FROM confirmed AS c"),
        ("SELECT * FROM confirmed WHERE NOT k = 1", "SELECT k, s, d FROM confirmed WHERE (NOT (k = 1))"),
        ("WITH q AS (SELECT k + 1 AS j FROM confirmed) SELECT j FROM q", "SELECT k + 1 AS j FROM confirmed"),
        ("SELECT k, count(*) FROM confirmed GROUP BY 1", "SELECT k, count(*) AS n FROM confirmed GROUP BY k"),
    ],
)
def test_other_names_and_brackets_are_the_same(table: SparkSession, sql: str, ours: str) -> None:
    assert compared(table, sql, ours)[1] == ""


@pytest.mark.parametrize(
    ("sql", "ours"),
    [
        ("SELECT log10(d) FROM confirmed", "SELECT log(10, d) FROM confirmed"),
        ("SELECT k FROM confirmed WHERE s = 'O''Brien'", "SELECT k FROM confirmed WHERE s = 'OBrien'"),
        ("SELECT k = s FROM confirmed", "SELECT CAST(k AS STRING) = s FROM confirmed"),
        ("SELECT to_json(struct(k AS userId)) FROM confirmed", "SELECT to_json(struct(k AS userid)) FROM confirmed"),
        ("SELECT k FROM confirmed WHERE NOT k = 1 OR d > 2", "SELECT k FROM confirmed WHERE NOT (k = 1 OR d > 2)"),
        ("SELECT k FROM confirmed", "SELECT nothing FROM confirmed"),
    ],
)
def test_another_meaning_is_told(table: SparkSession, sql: str, ours: str) -> None:
    assert compared(table, sql, ours)[1] != ""


@pytest.mark.usefixtures("spark")
def test_a_view_that_spark_reads_otherwise_is_computed_from_its_own_text(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        a = app.table("a", "k INT, x INT", key="k")
        b = app.table("b", "k BIGINT, y INT", key="k")
        app.view("grouped", "SELECT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS e, count(*) FROM a GROUP BY 1")
        a.upsert([{"k": 1, "x": 1}, {"k": 2, "x": 2}])
        b.upsert([{"k": 1, "y": 1}])

        app.tick()
        plan = app._runtime.prepared.views["grouped"].plan

        assert "one piece" in plan.opaque
        rows = app.sql("SELECT * FROM grouped").to_pylist()
        assert sorted(map(str, rows)) == ["{'e': False, 'count(1)': 1}", "{'e': True, 'count(1)': 1}"]
        assert all(found.equal for found in app.verify())


@pytest.mark.usefixtures("spark")
def test_a_union_all_that_leaves_columns_out_is_not_computed_from_its_text(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        for name in ("users", "old_users"):
            app.table(name, "id INT, country STRING", key="id")
        app.view("ids", "SELECT id FROM users UNION ALL SELECT ID FROM old_users")
        app.view("named", "SELECT id AS id FROM users UNION ALL SELECT id FROM old_users")

        app.tick()

        assert [app._runtime.prepared.views[name].plan.opaque for name in ("ids", "named")] == ["", ""]
