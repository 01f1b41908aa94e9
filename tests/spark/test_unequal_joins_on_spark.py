"""Outer joins without an equality on Spark: right after every tick, and nothing is compared that did not move.

What it is: orders and a small table of bands, joined by ranges, while rows of both come, change and leave.
Invariants: the oracle is Spark, which runs the user's own text over the rows that dictionaries hold.
Not here: thousands of cases, on DuckDB (``tests/compiler/test_unequal_joins.py``).
Read next: ``tests/compiler/test_unequal_joins.py``.
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

TICKS = 4 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
ORDERS, BANDS = "id BIGINT, amount DOUBLE", "band STRING, low DOUBLE, high DOUBLE"
VIEWS = {
    "banded": "SELECT o.id, b.band FROM orders o LEFT JOIN bands b ON o.amount >= b.low AND o.amount < b.high",
    "both": "SELECT o.id, o.amount, b.band FROM orders o FULL JOIN bands b ON o.amount BETWEEN b.low AND b.high",
    "counts": "SELECT b.band, count(o.id) AS n FROM orders o RIGHT JOIN bands b ON o.amount > b.low GROUP BY b.band",
    "unbanded": "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM bands b WHERE o.amount >= b.low)",
    "above": "SELECT b.band, b.high FROM bands b LEFT SEMI JOIN orders o ON o.amount > b.high",
    "always": "SELECT o.id, b.band FROM orders o LEFT JOIN bands b ON b.low > 5",
}
WAYS: tuple[dict[str, int], ...] = (
    {},
    {"TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 0, "LOOKUP_KEYS_MAX": 0, "SETTLED_ROWS_MAX": 0, "SMALL_RUN_BYTES_MAX": 0},
)
AMOUNTS = (None, math.nan, -0.0, 0.0, 1.0, 4.0, 5.0, 6.0, 10.0)


@dataclass(frozen=True)
class Moment:
    """What one tick takes, and what Spark then answers to each view's query."""

    orders: list[dict[str, Any]]
    bands_gone: list[str]
    bands: list[dict[str, Any]]
    answers: dict[str, Counter[str]]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> list[Moment]:
    """The same for every way of the engine."""
    random, batch, history = Random(4), spark.newSession(), list[Moment]()
    orders: dict[int, dict[str, Any]] = {}
    bands: dict[str, dict[str, Any]] = {}
    for tick in range(TICKS):
        came = [{"id": key, "amount": random.choice(AMOUNTS)} for key in random.sample(range(12), 5)]
        changed = [
            {"band": band, "low": random.choice(AMOUNTS), "high": random.choice(AMOUNTS)}
            for band in random.sample("abc", random.choice([0, 1, 2]))
        ]
        gone = random.sample(sorted(bands), len(bands) if tick == 2 else 0)
        orders |= {row["id"]: row for row in came}
        bands = {key: row for key, row in bands.items() if key not in gone} | {row["band"]: row for row in changed}
        batch.createDataFrame(list(orders.values()), ORDERS).createOrReplaceTempView("orders")
        batch.createDataFrame(list(bands.values()), BANDS).createOrReplaceTempView("bands")
        answers = {name: bag(batch.sql(sql).toArrow().to_pylist()) for name, sql in VIEWS.items()}
        history.append(Moment(came, gone, changed, answers))
    return history


@pytest.mark.parametrize("way", WAYS, ids=["few", "many"])
def test_joins_by_ranges_are_their_queries(tmp_path: Path, history: list[Moment], way: dict[str, int]) -> None:
    with hw.App("ranges", home=tmp_path) as app, patch.dict(vars(thresholds), way):
        orders, bands = app.table("orders", ORDERS, key="id"), app.table("bands", BANDS, key="band")
        for name, sql in VIEWS.items():
            app.view(name, sql)
        for tick, moment in enumerate(history):
            orders.upsert(moment.orders)
            bands.delete([{"band": band} for band in moment.bands_gone])
            bands.upsert(moment.bands)

            app.tick()

            for name, expected in moment.answers.items():
                assert bag(app.get_view(name).rows()) == expected, f"tick {tick}, view {name}"


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as texts, in which NaN is equal to itself; 0.0 and -0.0 are one value."""
    return Counter(repr([0.0 if value == 0.0 else value for value in row.values()]) for row in rows)


def test_a_changed_row_is_compared_with_the_other_side_only(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    with hw.App("ranges", home=tmp_path) as app:
        orders, bands = app.table("orders", ORDERS, key="id"), app.table("bands", BANDS, key="band")
        view = app.view("banded", VIEWS["banded"])
        orders.upsert([{"id": key, "amount": float(key)} for key in range(30_000)])
        bands.upsert([{"band": "a", "low": 0.0, "high": 10.0}, {"band": "b", "low": 10.0, "high": 29_000.0}])
        app.tick()

        orders.upsert([{"id": 7, "amount": 70.0}, {"id": 8, "amount": 80_000.0}])
        report = app.tick().views[0]

        assert report.rows_read < 100
        assert view.get(id=7) == [{"id": 7, "band": "b"}]
        assert view.get(id=8) == [{"id": 8, "band": None}]
