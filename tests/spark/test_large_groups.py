"""GROUP BY over more rows than one task takes: Spark's own answer to the same query is the oracle."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.views import thresholds
from headwater.views.stages.view_sessions import ViewSessions

DDL = "id BIGINT, country STRING, at TIMESTAMP, amount DOUBLE"
VIEWS = {
    "minutes": """SELECT unix_micros(window.start) AS s, unix_micros(window.end) AS e, country, sum(amount) AS amount,
        count(*) AS n FROM events GROUP BY window(at, '1 minute'), country HAVING count(*) > 1""",
    "hops": """SELECT unix_micros(window.start) AS s, unix_micros(window.end) AS e, avg(amount) AS mean,
        count(amount) AS n FROM events GROUP BY window(at, '1 minute', '20 seconds', '5 seconds')""",
    "spans": """SELECT x.day AS day, x.part AS part, max(amount) AS most, sum(id) AS ids FROM (
        SELECT CASE WHEN id % 5 > 0 THEN named_struct('day', CAST(at AS DATE), 'part', id % 3) END AS x, * FROM events)
        GROUP BY x""",
    "kinds": """SELECT country, sum(CAST(id AS DECIMAL(20, 4))) AS ids, avg(id) AS mean, every(id > 30) AS late,
        count(at) AS n FROM events GROUP BY country""",
    "one": "SELECT sum(amount) AS amount, count(*) AS n, count(country) AS countries FROM events",
}
LARGE = {"TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 0}
WAYS = {"few groups": LARGE, "many groups": {**LARGE, "SETTLED_ROWS_MAX": 0, "LOOKUP_KEYS_MAX": 0}}
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def events(first: int, last: int, odd: dict[int, float]) -> pa.Table:
    """Events seven seconds apart, some without a country, a time or an amount; amounts are whole quarters but ``odd``
    ones: their sums are exact in any order."""
    rows = [
        {
            "id": n,
            "country": [None, "AT", "DE"][n % 3],
            "at": None if n % 11 == 0 else NOON + dt.timedelta(seconds=7 * n),
            "amount": odd.get(n, None if n % 7 == 0 else n * 0.25),
        }
        for n in range(first, last)
    ]
    types = [("id", pa.int64()), ("country", pa.string()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema(types))


def in_order(rows: pa.Table) -> list[list[Any]]:
    return sorted((list(row.values()) for row in rows.to_pylist()), key=repr)


@pytest.mark.parametrize("way", WAYS)
def test_groups_of_many_rows_are_sparks_groups(spark: SparkSession, tmp_path: Path, way: str) -> None:
    lots = [events(0, 60, {}), events(30, 90, {}), events(60, 120, {61: 1e300, 62: 1e-300})]
    with patch.dict(vars(thresholds), WAYS[way]), hw.App("events", home=tmp_path) as app:
        topic = app.topic("events", DDL, partitions=2)
        for name, sql in VIEWS.items():
            app.view(name, sql)

        for number, lot in enumerate(lots, start=1):
            topic.append(lot)
            app.tick()

            spark.createDataFrame(pa.concat_tables(lots[:number])).createOrReplaceTempView("events")
            for name, sql in VIEWS.items():
                found = app.get_view(name).to_arrow()
                assert in_order(found) == in_order(spark.sql(sql).toArrow()), f"{name} after tick {number}"


def test_few_groups_are_fetched_and_not_written(spark: SparkSession, tmp_path: Path) -> None:
    lot = events(0, 60, {})
    with patch.dict(vars(thresholds), LARGE), hw.App("events", home=tmp_path) as app:
        topic = app.topic("events", DDL, partitions=2)
        view = app.view("minutes", VIEWS["minutes"])
        topic.append(lot)

        with patch.object(ViewSessions, "_written", side_effect=AssertionError("few groups were written")):
            app.tick()

        spark.createDataFrame(lot).createOrReplaceTempView("events")
        assert in_order(view.to_arrow()) == in_order(spark.sql(VIEWS["minutes"]).toArrow())
