"""Spark's parser tells what a text mentions, and a view that only it can read is right after every tick.

What it is: ``spark_reading`` over texts that our parser cannot read, and such views in an app.
Invariants: what Spark's parser cannot read is refused when it is declared, as ever.
Not here: what is made of a reading (``tests/compiler/test_whole.py``).
Read next: ``src/headwater/views/spark/spark_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.errors import InvalidView
from headwater.views.spark.spark_parser import spark_reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("sql", "relations"),
    [
        ("FROM a |> JOIN b USING (id) |> UNION ALL (TABLE d)", ["a", "b", "d"]),
        ("SELECT (SELECT max(x) FROM b) AS m FROM a WHERE EXISTS (SELECT 1 FROM x.y.d)", ["a", "b", "x.y.d"]),
        ("WITH w AS (SELECT * FROM b) FROM w |> WHERE id IN (SELECT id FROM `odd name`)", ["b", "odd name", "w"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.id = a.id)", ["a", "b"]),
        ("SELECT IDENTIFIER('id') FROM IDENTIFIER('a') JOIN b USING (id)", ["a", "b"]),
    ],
)
def test_relations_are_found_wherever_they_are_mentioned(spark: SparkSession, sql: str, relations: list[str]) -> None:
    found = spark_reading(spark, sql)

    assert found is not None
    assert sorted(found.relations) == relations
    assert found.defined == (frozenset({"w"}) if sql.startswith("WITH") else frozenset())


def test_functions_are_found_with_their_arguments(spark: SparkSession) -> None:
    sql = "FROM range(3) |> EXTEND Rand() AS r, current_date AS d |> WHERE id > (SELECT unix_timestamp('x'))"

    found = spark_reading(spark, sql)

    assert found is not None
    assert {("range", 1), ("rand", 0), ("unix_timestamp", 1)} <= set(found.calls)
    assert "current_date" in found.words


def test_a_function_whose_name_is_given_as_a_text_is_found_and_one_that_is_computed_told(spark: SparkSession) -> None:
    given = spark_reading(spark, "SELECT IDENTIFIER('builtin.Rand')() AS r, IDENTIFIER('id') AS i FROM a")
    computed = spark_reading(spark, "SELECT IDENTIFIER('ra' || 'nd')() AS r FROM a")

    assert given is not None
    assert computed is not None
    assert (given.calls, given.other) == ((("rand", 0), ("id", 0)), "")
    assert computed.other.startswith("IDENTIFIER")


@pytest.mark.parametrize(
    ("sql", "unordered"),
    [
        ("FROM a |> LIMIT 1", True),
        ("FROM a |> LIMIT ALL", False),
        ("FROM a |> ORDER BY id |> LIMIT 1", False),
        ("FROM a |> ORDER BY id |> LIMIT 1 OFFSET 2", False),
        ("FROM a |> ORDER BY id |> WHERE id IN (SELECT id FROM b LIMIT 2)", True),
    ],
)
def test_a_limit_needs_an_order(spark: SparkSession, sql: str, unordered: bool) -> None:
    found = spark_reading(spark, sql)

    assert found is not None
    assert found.unordered is unordered


@pytest.mark.parametrize("sql", ["SELECT a FROM", "DROP TABLE a", "SHOW TABLES", "SELECT 1) UNION (SELECT 2", ""])
def test_what_is_no_query_is_not_read(spark: SparkSession, sql: str) -> None:
    assert spark_reading(spark, sql) is None


def test_a_sample_and_a_program_are_told(spark: SparkSession) -> None:
    sample = spark_reading(spark, "FROM a TABLESAMPLE (10 PERCENT) |> SELECT id")
    program = spark_reading(spark, "SELECT TRANSFORM (id) USING 'cat' AS (x) FROM a")

    assert sample is not None
    assert program is not None
    assert (sample.other, program.other[:9]) == ("TABLESAMPLE", "TRANSFORM")


@pytest.mark.usefixtures("spark")
def test_a_view_that_only_spark_reads_is_its_query_and_says_why_it_is_whole(tmp_path: Path) -> None:
    def rows(view: str) -> list[int]:
        return sorted(row["n"] for row in app._runtime.serving.query(f'SELECT * FROM "{view}"').to_pylist())

    with hw.App("shop", home=tmp_path) as app:
        users = app.table("users", "id BIGINT, age INT", key="id")
        ages = app.view("ages", "FROM users |> AGGREGATE count(*) AS n GROUP BY age |> SET n = n * 10 |> DROP age")
        app.view("most", "SELECT max(n) AS n FROM ages")
        users.upsert([{"id": 1, "age": 7}, {"id": 2, "age": 7}, {"id": 3, "age": 8}])
        app.tick()
        first = rows("ages")
        users.delete([{"id": 3, "age": 8}])
        app.tick()

        assert (first, rows("ages"), rows("most")) == ([10, 20], [20], [20])
        assert "whole" in ages.explain()
        assert "Spark's parser reads it and ours does not" in ages.explain()
        assert [found.equal for found in app.verify()] == [True, True]


@pytest.mark.usefixtures("spark")
def test_what_spark_cannot_read_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app.table("users", "id BIGINT, age INT", key="id")

        with pytest.raises(InvalidView, match="the SQL cannot be read"):
            app.view("ages", "FROM users |> FROBNICATE age")
        with pytest.raises(InvalidView, match="rand gives another value"):
            app.view("ages", "FROM users |> SET age = rand()")
