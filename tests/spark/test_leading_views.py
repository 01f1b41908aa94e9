"""Views of leading rows on Spark: right after every tick, and without reading the relation.

What it is: ORDER BY … LIMIT, min and max without GROUP BY, and numbered rows up to a bound, over a table whose leading
rows come, change and leave.
Invariants: the oracle is Spark, which runs the user's own text over the rows that a dictionary holds. The orders are
total, so that there is one answer. The buffers have hardly a row to spare, so that they are filled again and again.
Not here: thousands of cases, on DuckDB (``tests/compiler/test_first_rows.py``).
Read next: ``tests/compiler/test_first_rows.py``.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.views import thresholds
from headwater.views.compiler import render
from headwater.views.compiler.plan import StageKind

TICKS = 5 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
SCHEMA = "id BIGINT, name STRING, score DOUBLE, tags ARRAY<INT>"
VIEWS = {
    "top": "SELECT id, score FROM scores ORDER BY score DESC, id LIMIT 3",
    "page": "SELECT name, id FROM scores ORDER BY score NULLS LAST, name DESC, id LIMIT 2 OFFSET 3",
    "fewer": "SELECT id, score * 2 AS twice FROM scores WHERE name = 'a' ORDER BY tags, id DESC LIMIT 4",
    "many": "SELECT * FROM scores ORDER BY id LIMIT 1000",
    "names": "SELECT name, count(*) AS n, count(score) AS m FROM scores GROUP BY name ORDER BY n DESC, name LIMIT 2",
    "pairs": "SELECT a.id, b.id AS other FROM scores a JOIN scores b ON a.name = b.name WHERE a.id < b.id "
    "ORDER BY a.id DESC, b.id LIMIT 3",
    "above": "SELECT id + 1 AS next, upper(name) AS loud FROM (SELECT id, name FROM scores ORDER BY id LIMIT 5) "
    "WHERE name IS NOT NULL",
    "extremes": "SELECT max(score) AS high, min(score) AS low, max(tags) AS tags, max_by(name, id) AS last, "
    "min_by(id, id) FILTER (WHERE name = 'b') AS b, count(*) AS n, count(DISTINCT name) AS names FROM scores",
    "largest": "SELECT name, n FROM (SELECT name, count(*) AS n FROM scores GROUP BY name) AS counts "
    "WHERE n = (SELECT max(m) FROM (SELECT count(*) AS m FROM scores GROUP BY name))",
    "ranked": "SELECT * FROM (SELECT id, score, rank() OVER (ORDER BY score DESC) AS place FROM scores) "
    "WHERE place <= 2",
    "dense": "SELECT name, tags, place FROM (SELECT name, tags, dense_rank() OVER (ORDER BY tags, name DESC) AS place "
    "FROM scores) WHERE place BETWEEN 2 AND 3",
    "numbered": "SELECT upper(name) AS loud, id FROM scores QUALIFY row_number() OVER (ORDER BY score, id DESC) < 4",
    "beyond": "SELECT min(name) AS least FROM scores HAVING max(id) > 20",
}
WAYS: tuple[dict[str, int], ...] = (
    {},
    {"TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 0, "LOOKUP_KEYS_MAX": 0, "SETTLED_ROWS_MAX": 0, "SMALL_RUN_BYTES_MAX": 0},
)
SCORES = (None, math.nan, -0.0, 0.0, 1.5, math.inf, -math.inf, 1.5, 2.5)


def changed(random: Random, rows: dict[int, dict[str, Any]], tick: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows to upsert and the keys to delete: at times the leading ones, at times all."""
    if tick == 3:
        return [], list(rows)
    upserts = [
        {
            "id": key,
            "name": random.choice(["a", "b", "c", None]),
            "score": random.choice(SCORES),
            "tags": random.choice([None, [], [1], [1, 2], [None]]),
        }
        for key in random.sample(range(30), random.choice([1, 3, 10]))
    ]
    leading = sorted(rows)[: random.randrange(6)] if random.random() < 0.6 else []
    taken = {row["id"] for row in upserts}
    return upserts, [key for key in leading if key not in taken]


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as texts, which NaN is equal to itself in; 0.0 and -0.0 are one value."""
    return Counter(
        repr([0.0 if value == 0 and isinstance(value, float) else value for value in row.values()]) for row in rows
    )


@dataclass(frozen=True)
class Moment:
    """What one tick takes, and what Spark then answers to each view's query."""

    upserts: list[dict[str, Any]]
    deletes: list[int]
    answers: dict[str, Counter[str]]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> list[Moment]:
    """The same for every way of the engine."""
    random, rows, history = Random(17), dict[int, dict[str, Any]](), list[Moment]()
    batch = spark.newSession()
    for tick in range(TICKS):
        upserts, deletes = changed(random, rows, tick)
        rows |= {row["id"]: row for row in upserts}
        rows = {key: row for key, row in rows.items() if key not in deletes}
        batch.createDataFrame(list(rows.values()), SCHEMA).createOrReplaceTempView("scores")
        answers = {name: bag(batch.sql(sql).toArrow().to_pylist()) for name, sql in VIEWS.items()}
        history.append(Moment(upserts, deletes, answers))
    return history


@pytest.mark.parametrize("way", WAYS, ids=["few", "many"])
def test_views_of_leading_rows_are_their_queries(tmp_path: Path, history: list[Moment], way: dict[str, int]) -> None:
    with (
        hw.App("leading", home=tmp_path) as app,
        patch.dict(vars(thresholds), way),
        patch.object(render, "SPARE_ROWS_MIN", 1),
    ):
        scores = app.table("scores", SCHEMA, key="id")
        for name, sql in VIEWS.items():
            app.view(name, sql)
        for tick, moment in enumerate(history):
            scores.upsert(moment.upserts)
            scores.delete([{"id": key} for key in moment.deletes])

            app.tick()

            for name, expected in moment.answers.items():
                assert bag(app.get_view(name).rows()) == expected, f"tick {tick}, view {name}"
        assert all(view.equal for view in app.verify())


def test_a_change_far_from_the_leading_rows_does_not_read_the_relation(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    with hw.App("far", home=tmp_path) as app:
        scores = app.table("scores", SCHEMA, key="id")
        top = app.view("top", VIEWS["top"])
        scores.upsert([{"id": key, "name": "a", "score": float(key), "tags": None} for key in range(3000)])
        app.tick()

        scores.upsert([{"id": 7, "name": "b", "score": 7.5, "tags": None}])
        scores.delete([{"id": 8}])
        far = app.tick().views[0]
        scores.upsert([{"id": 7, "name": "b", "score": 9999.0, "tags": None}])
        near = app.tick().views[0]
        scores.delete([{"id": key} for key in range(2800, 3000)])
        short = app.tick().views[0]

        assert top.plan.kind is StageKind.LEADING
        assert far.changes == 0
        assert far.rows_read <= 3 + 106  # the changes, and the buffer: three rows, as many again and a hundred
        assert near.rows_read <= 2 + 106
        assert short.rows_read > 2800  # the buffer had run short
        assert {row["id"] for row in top.rows()} == {7, 2799, 2798}
