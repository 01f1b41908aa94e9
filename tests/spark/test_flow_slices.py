"""Many rows grouped in slices, in the driver lane: the groups are those of one query over everything."""

from __future__ import annotations

import functools
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ViewFailed
from headwater.views import thresholds
from headwater.views.spark.plans.lane_check import wanted_lane
from headwater.views.spark.plans.plan_cache import PlanCache, Question
from tests.spark.test_large_groups import in_order

VIEWS = {
    "revenue": """SELECT u.country, sum(o.amount) AS amount, avg(o.amount) AS mean, sum(o.price) AS price,
        sum(o.pieces) AS pieces, avg(o.user_id) AS most, count(o.price) AS n FROM orders o
        JOIN users u ON o.user_id = u.id GROUP BY u.country HAVING count(*) > 2""",
    "one": "SELECT sum(o.amount) AS amount, count(*) AS n, count_if(o.user_id > 7) AS far FROM orders o",
    "pairs": """SELECT a.country, count(*) AS n FROM orders o JOIN users a ON o.user_id = a.id
        JOIN users b ON b.country = a.country GROUP BY a.country""",
    # A change of a user meets both branches of a union, of which the first is the largest leaf.
    "united": """SELECT u.country, count(*) AS n, sum(o.id) AS ids FROM users u JOIN
        (SELECT user_id, id FROM orders UNION ALL SELECT id, id FROM users) o ON o.user_id = u.id GROUP BY u.country""",
    "lists": "SELECT u.country, collect_set(o.user_id % 3) AS found FROM orders o JOIN users u ON o.user_id = u.id "
    "GROUP BY u.country",
}
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("user_id", pa.int64()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(20, 3)),
        ("pieces", pa.int64()),
    ]
)
DDL = "id BIGINT, user_id BIGINT, amount DOUBLE, price DECIMAL(20, 3), pieces BIGINT"
AS_TABLES = {"SLICED_ROWS_MIN": 0, "BUILT_ROWS_MIN": 0}
# All that is there is in files after each tick, of several row groups.
IN_FILES = {**AS_TABLES, "TASK_ROWS_MAX": 2, "LOCAL_ROWS_MAX": 0, "CONSOLIDATED_ROWS_MAX": 100}


def orders(first: int, last: int, shift: int, odd: dict[int, float]) -> pa.Table:
    """Orders; amounts are quarters, but for odd ones, so that sums are exact in any order."""
    rows = [
        {
            "id": n,
            "user_id": None if n % 13 == 0 else (n + shift) % 40,
            "amount": odd.get(n, None if n % 7 == 0 else (n + shift) * 0.25),
            "price": Decimal(n * 1001 + shift) / 1000,
            "pieces": (1 << 52) * (-1) ** n + n,
        }
        for n in range(first, last)
    ]
    return pa.Table.from_pylist(rows, ORDERS)


def users(first: int, last: int, shift: int) -> pa.Table:
    return pa.table(
        {"id": range(first, last), "country": [[None, "AT", "DE", "FR"][(n + shift) % 4] for n in range(first, last)]}
    )


def asked(ways: list[list[Question] | None]) -> Any:
    """``collect_all``, which notes what it answered in slices."""
    real = PlanCache.collect_all

    @functools.wraps(real)
    def noted(self: PlanCache, questions: list[Question], lanes: int) -> Any:
        answers = real(self, questions, lanes)
        ways.append(questions if answers is not None else None)
        return answers

    return patch.object(PlanCache, "collect_all", noted)


@pytest.mark.parametrize("way", [AS_TABLES, IN_FILES], ids=["tables", "files"])
def test_groups_in_slices_are_those_of_the_query(spark: SparkSession, tmp_path: Path, way: dict[str, int]) -> None:
    ways: list[list[Question] | None] = []
    held_orders, held_users = dict[int, Any](), dict[int, Any]()
    lots = [
        (orders(0, 300, 0, {}), users(0, 40, 0), []),
        (orders(100, 400, 1, {}), users(0, 25, 1), [3, 4, 120]),
        (orders(50, 450, 2, {61: 1e300, 62: float("nan")}), users(10, 41, 2), [5, 200]),
        (orders(50, 500, 3, {61: 1e-300}), users(0, 40, 3), [7]),
        (orders(50, 500, 4, {}), users(0, 40, 5), []),
        (orders(0, 0, 0, {}), users(0, 40, 6), []),  # no order changes: all slices are those of the users
    ]
    with patch.dict(vars(thresholds), way), asked(ways), hw.App("shop", home=tmp_path) as app:
        made = app.table("orders", DDL, key="id"), app.table("users", "id BIGINT, country STRING", key="id")
        for name, sql in VIEWS.items():
            app.view(name, sql)

        for number, (put, moved, gone) in enumerate(lots):
            made[0].upsert(put)
            made[0].delete([{"id": key} for key in gone])
            made[1].upsert(moved)
            app.tick()

            held_orders |= {row["id"]: row for row in put.to_pylist()}
            held_orders = {key: row for key, row in held_orders.items() if key not in gone}
            held_users |= {row["id"]: row for row in moved.to_pylist()}
            spark.createDataFrame(pa.Table.from_pylist(list(held_orders.values()), ORDERS)).createOrReplaceTempView(
                "orders"
            )
            spark.createDataFrame(
                pa.Table.from_pylist(list(held_users.values()), moved.schema)
            ).createOrReplaceTempView("users")
            for name, sql in VIEWS.items():
                found, right = app.get_view(name).to_arrow(), spark.sql(sql).toArrow()
                if name == "lists":
                    found, right = (
                        pa.Table.from_pylist([row | {"found": sorted(row["found"])} for row in rows.to_pylist()])
                        for rows in (found, right)
                    )
                assert repr(in_order(found)) == repr(in_order(right)), f"{name} after tick {number}"  # NaN is NaN

    sliced = [questions for questions in ways if questions is not None]
    if wanted_lane() == "off":
        assert not ways
        return
    assert len(sliced) > len(lots)
    assert any(len(questions) > 1 for questions in sliced)
    assert any(question.files for questions in sliced for question in questions) == (way is IN_FILES)


def test_an_error_in_a_slice_is_sparks_and_the_next_tick_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    ways: list[list[Question] | None] = []
    assert spark is not None
    with patch.dict(vars(thresholds), AS_TABLES), asked(ways), hw.App("shop", home=tmp_path) as app:
        numbers = app.topic("numbers", "part BIGINT, n BIGINT, by BIGINT")
        view = app.view("shares", "SELECT part, sum(n div by) AS total FROM numbers GROUP BY part")
        numbers.append([{"part": n % 3, "n": n, "by": 1} for n in range(100)])
        app.tick()
        before = in_order(view.to_arrow())
        numbers.append([{"part": n % 3, "n": n, "by": n % 50} for n in range(100)])

        with pytest.raises(ViewFailed, match="DIVIDE_BY_ZERO"):
            app.tick()

        assert in_order(view.to_arrow()) == before
        assert ways[-1:] == ([] if wanted_lane() == "off" else [None])
