"""Cached plans: planned once, right over whatever the tables hold when they are asked again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headwater as hw
from headwater.views import thresholds
from headwater.views.spark.plans.arrow_leaves import LeafRows
from headwater.views.spark.plans.plan_cache import CachedQuery, KeptPlan, is_forgetful, plan_of
from headwater.views.stages.view_sessions import ViewSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REVENUE = CachedQuery(
    "SELECT country, sum(amount) AS revenue FROM joined GROUP BY country",
    (("joined", "SELECT u.country, o.amount FROM _orders o JOIN _users u ON o.user_id = u.id"),),
)
USERS = pa.table({"id": [1, 2, None], "country": ["DE", "FR", "XX"]})


def orders(*rows: tuple[int | None, int]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(("user_id", "amount"))}
    )


@pytest.fixture(scope="module")
def bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ViewSessions:
    return ViewSessions(spark, tmp_path_factory.mktemp("bench") / "revenue")


def answer(bench: ViewSessions, question: CachedQuery, **tables: pa.Table) -> list[dict[str, object]]:
    leaves = {name: LeafRows(table) for name, table in tables.items()}
    rows: list[dict[str, object]] = bench.plan_cache.collect(question, leaves).to_pylist()
    return sorted(rows, key=repr)


def kept(bench: ViewSessions, question: CachedQuery) -> list[KeptPlan]:
    return [plan for (key, _), plan in bench.plan_cache._kept.items() if key.question == question]


def test_a_query_is_planned_once_and_answers_for_the_rows_of_each_time(bench: ViewSessions) -> None:
    first = answer(bench, REVENUE, _orders=orders((1, 5), (2, 7), (None, 9)), _users=USERS)
    assert first == [{"country": "DE", "revenue": 5}, {"country": "FR", "revenue": 7}]

    again = answer(bench, REVENUE, _orders=orders((1, 1), (1, 2)), _users=USERS)

    assert again == [{"country": "DE", "revenue": 3}]
    assert bench.plan_cache.reused == 1
    assert answer(bench, REVENUE, _orders=orders(), _users=USERS) == []
    assert answer(bench, REVENUE, _orders=orders((2, 4)), _users=USERS) == [{"country": "FR", "revenue": 4}]


def test_a_large_table_and_then_a_small_one_are_both_right(
    bench: ViewSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "FEW_BYTES_MAX", 4096)
    many = 1000
    large = orders(*((1, number) for number in range(many)))

    assert answer(bench, REVENUE, _orders=large, _users=USERS) == [{"country": "DE", "revenue": sum(range(many))}]
    assert answer(bench, REVENUE, _orders=orders((1, 3)), _users=USERS) == [{"country": "DE", "revenue": 3}]


def test_a_column_of_another_type_is_another_query(bench: ViewSessions) -> None:
    cents = pa.table({"user_id": [1], "amount": [0.5]})

    assert answer(bench, REVENUE, _orders=cents, _users=USERS) == [{"country": "DE", "revenue": 0.5}]
    assert answer(bench, REVENUE, _orders=orders((1, 3)), _users=USERS) == [{"country": "DE", "revenue": 3}]


REMEMBERING = {
    "cube": "SELECT a.x, count(*) AS n FROM _a a JOIN _b b ON a.x < b.x GROUP BY CUBE (a.x)",
    "scalar subquery": "SELECT a.x FROM _a a WHERE a.x > (SELECT avg(b.x) FROM _b b)",
    "outer join without equality": "SELECT a.x, b.x AS y FROM _a a LEFT JOIN _b b ON a.x < b.x",
}


@pytest.mark.parametrize("sql", REMEMBERING.values(), ids=list(REMEMBERING))
def test_what_would_remember_rows_is_planned_each_time(bench: ViewSessions, sql: str) -> None:
    tables = {"_a": pa.table({"x": [1, 5]}), "_b": pa.table({"x": [2, 4]})}
    before = answer(bench, CachedQuery(sql), **tables)

    after = answer(bench, CachedQuery(sql), **{**tables, "_b": pa.table({"x": [7, 8]})})

    assert after != before
    assert kept(bench, CachedQuery(sql)) == []


FORGETTING = {
    "six tables": "SELECT a.x FROM _a a JOIN _b b ON a.x = b.x JOIN _a c ON b.x = c.x LEFT JOIN _b d ON c.x = d.x "
    "JOIN _a e ON e.x = a.x JOIN _b f ON f.x = e.x + 0",
    "cross join": "SELECT a.x, b.x AS y FROM _a a CROSS JOIN _b b JOIN _a c ON c.x = a.x",
    "semi and anti": "SELECT a.x FROM _a a LEFT SEMI JOIN _b b ON a.x = b.x LEFT ANTI JOIN _a c ON c.x = a.x + 1",
    "full join, then another": "SELECT a.x, b.x AS y, c.x AS z FROM _a a FULL JOIN _b b ON a.x = b.x JOIN _a c "
    "ON c.x = a.x",
    "top": "SELECT a.x FROM _a a JOIN _b b ON a.x = b.x ORDER BY a.x DESC LIMIT 1",
    "window": "SELECT a.x, sum(b.x) OVER (PARTITION BY a.x ORDER BY b.x) AS y FROM _a a JOIN _b b ON a.x = b.x",
    "union of joins, joined": "SELECT t.x FROM (SELECT a.x FROM _a a JOIN _b b ON a.x = b.x UNION ALL SELECT x "
    "FROM _a) t JOIN _b c ON c.x = t.x",
    "distinct count": "SELECT count(DISTINCT a.x) AS n, count(*) AS m FROM _a a JOIN _b b ON a.x = b.x",
}


@pytest.mark.parametrize("sql", FORGETTING.values(), ids=list(FORGETTING))
def test_joins_of_many_kinds_are_planned_once_and_right_each_time(
    bench: ViewSessions, sql: str, spark: SparkSession
) -> None:
    plain = spark.newSession()
    for ours, theirs in (([1, 2, 2, None], [2, 3]), ([4, 5, 6], [4, 5, 5, None]), ([], [1])):
        tables = {name: pa.table({"x": pa.array(rows, pa.int64())}) for name, rows in (("_a", ours), ("_b", theirs))}
        for name, table in tables.items():
            plain.createDataFrame(table.to_pylist() or [], "x BIGINT").createOrReplaceTempView(name)

        found = answer(bench, CachedQuery(sql), **tables)

        assert found == sorted(plain.sql(sql).toArrow().to_pylist(), key=repr)
    (plan,) = kept(bench, CachedQuery(sql))
    assert is_forgetful(plan_of(plan.frame)), plan_of(plan.frame)


@pytest.mark.usefixtures("spark")
def test_a_report_counts_the_plans_that_were_reused_and_made(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path / "home") as app:
        sales = app.topic("sales", "country STRING, amount BIGINT")
        app.view("revenue", "SELECT country, sum(amount) AS total FROM sales GROUP BY country")
        app.view("ranks", "SELECT country, amount, rank() OVER (ORDER BY amount) AS place FROM sales")
        reports = []
        for number in range(5):
            sales.append([{"country": "DE", "amount": number}])
            reports.append(app.tick())

    first, last = reports[0], reports[-1]
    (revenue, ranks) = sorted(last.views, key=lambda view: view.view, reverse=True)
    assert first.plans_reused == 0
    assert first.plans_made == sum(view.actions for view in first.views) > 0
    assert (revenue.plans_made, revenue.plans_reused) == (0, revenue.actions)
    assert revenue.actions > 0
    assert (last.plans_reused, last.plans_made) == (
        revenue.plans_reused + ranks.plans_reused,
        revenue.plans_made + ranks.plans_made,
    )
