"""Sketches in plans: which are kept, which are made again from their rows, and what is said about it.

What it is: plans of queries with sketches over rows that only come and over rows that can leave.
Invariants: a sketch accumulates where, and only where, no row can leave and Spark's SQL can unite two of them.
Not here: what the sketches say, on Spark (``tests/spark/test_sketch_views.py``): DuckDB has none of them.
Read next: ``src/headwater/views/compiler/algebra/sketches.py``.
"""

from __future__ import annotations

import pytest

from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import AccumulateStage, PlanColumn, Relation, ViewPlan
from headwater.views.compiler.sql.builtin_functions import AGGREGATES

COLUMNS = (
    *(PlanColumn("k", "STRING"), PlanColumn("x", "BIGINT"), PlanColumn("d", "DOUBLE"), PlanColumn("s", "BINARY")),
    PlanColumn("at", "TIMESTAMP"),
)
KEPT = {
    "hll_sketch_agg(x)": "hll_union",
    "hll_sketch_agg(x, 14)": "hll_union",
    "hll_union_agg(s, true)": "hll_union",
    "theta_sketch_agg(x)": "theta_union",
    "theta_union_agg(s, 10)": "theta_union",
    "tuple_sketch_agg_double(x, d)": "tuple_union_double",
    "tuple_sketch_agg_integer(k, CAST(x AS INT), 12, 'max')": "tuple_union_integer",
    "tuple_union_agg_double(s)": "tuple_union_double",
    "tuple_union_agg_integer(s, 12, 'min')": "tuple_union_integer",
    "kll_sketch_agg_bigint(x)": "kll_sketch_merge_bigint",
    "kll_sketch_agg_float(CAST(d AS FLOAT))": "kll_sketch_merge_float",
    "kll_sketch_agg_double(d, 400)": "kll_sketch_merge_double",
    "kll_merge_agg_bigint(s)": "kll_sketch_merge_bigint",
    "kll_merge_agg_float(s)": "kll_sketch_merge_float",
    "kll_merge_agg_double(s)": "kll_sketch_merge_double",
    "approx_top_k(k)": "approx_top_k_combine",
    "approx_top_k(k, 3, 100) FILTER (WHERE x > 0)": "approx_top_k_combine",
    "approx_top_k_accumulate(k, 100)": "approx_top_k_combine",
    "approx_top_k_combine(s, 100)": "approx_top_k_combine",
    "bitmap_construct_agg(bitmap_bit_position(x))": "bitmap_or_agg",
    "bitmap_or_agg(s)": "bitmap_or_agg",
    "bitmap_and_agg(s)": "bitmap_and_agg",
}
# Those that no SQL unites; and intersections, of which nothing is kept for rows that there are none of.
MADE_AGAIN = [
    *("approx_count_distinct(d)", "approx_count_distinct(x, 0.01)", "percentile_approx(x, 0.5)"),
    "count_min_sketch(x, 0.1D, 0.9D, 7)",
    *("approx_top_k_combine(s)", "theta_intersection_agg(s)", "hll_sketch_agg(DISTINCT x)"),
    "tuple_sketch_agg_double(key => x, summary => d)",
]


def plan_of(sql: str, *, append_only: bool = True) -> ViewPlan:
    return compile_view("v", sql, {"events": Relation("events", COLUMNS, append_only=append_only)})


def kinds(plan: ViewPlan) -> list[str]:
    return [stage.kind.value for stage in plan.stages]


@pytest.mark.parametrize("call", KEPT)
def test_a_sketch_of_rows_that_only_come_is_kept(call: str) -> None:
    grouped, whole = (
        plan_of(f"SELECT k, {call} AS c FROM events GROUP BY k"),
        plan_of(f"SELECT {call} AS c FROM events"),
    )

    assert kinds(grouped) == kinds(whole) == ["accumulating"]
    assert grouped.notes == ()
    stage = grouped.stages[0]
    assert isinstance(stage, AccumulateStage)
    assert f"{KEPT[call]}(" in stage.combine
    assert [leaf.content.value for leaf in stage.leaves] == ["changes"]  # no other rows are looked at


@pytest.mark.parametrize("call", KEPT)
def test_a_sketch_of_rows_that_can_leave_is_made_again(call: str) -> None:
    plan = plan_of(f"SELECT k, {call} AS c FROM events GROUP BY k", append_only=False)

    assert kinds(plan) == ["keyed"]
    name = call.partition("(")[0]
    reason = "rows can leave, and nothing can be taken out of a sketch"
    assert plan.notes == (f"{name} is made again from all rows of a touched group, since {reason}",)


@pytest.mark.parametrize("call", MADE_AGAIN)
def test_what_cannot_be_united_is_made_again(call: str) -> None:
    assert kinds(plan_of(f"SELECT k, {call} AS c FROM events GROUP BY k")) == ["keyed"]


def test_every_sketch_of_spark_is_one_or_the_other() -> None:
    named = {call.partition("(")[0] for call in (*KEPT, *MADE_AGAIN)}
    prefixes = ("hll_", "kll_", "theta_", "tuple_", "bitmap_", "approx_", "count_min")

    assert {name for name in AGGREGATES if name.startswith(prefixes)} - named == {
        "approx_percentile",  # percentile_approx
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
    }


@pytest.mark.parametrize(
    ("beside", "note"),
    [
        (
            "sum(d) + median(d)",
            "hll_sketch_agg is made again from all rows of a touched group, since it stands beside median(events.d)",
        ),
        (
            "count(DISTINCT d)",
            "hll_sketch_agg is made again from all rows of a touched group, since it stands beside "
            "count(DISTINCT events.d)",
        ),
    ],
)
def test_an_aggregate_that_takes_every_row_takes_the_sketches_along(beside: str, note: str) -> None:
    plan = plan_of(f"SELECT k, hll_sketch_agg(x) AS h, {beside} AS b FROM events GROUP BY k")

    assert kinds(plan) == ["keyed"]
    assert plan.notes == (note,)


def test_a_plan_says_that_spark_cannot_unite_two() -> None:
    plan = plan_of("SELECT k, percentile_approx(x, 0.5) AS n FROM events GROUP BY k")

    assert plan.notes == (
        "percentile_approx is made again from all rows of a touched group, "
        "since Spark has no SQL that unites two of them",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, approx_count_distinct(x) AS n FROM events GROUP BY k",
        "SELECT k, approx_count_distinct(k, 0.1) FILTER (WHERE d > 0) AS n, count(*) AS c, sum(d) AS s FROM events "
        "GROUP BY k HAVING approx_count_distinct(x) > 2",
    ],
)
def test_approx_count_distinct_reads_a_value_for_each_register(sql: str) -> None:
    plan, before = plan_of(sql), plan_of(sql, append_only=False)

    assert kinds(plan) == ["accumulating", "keyed"]
    assert plan.stages[1].reads == {"v$1"}  # and not the events
    assert plan.notes == ()
    assert kinds(before) == ["keyed"]
    assert plan.fingerprint != before.fingerprint


def test_approx_count_distinct_of_other_values_takes_every_row() -> None:
    plan = plan_of("SELECT k, approx_count_distinct(d) AS n FROM events GROUP BY k")

    assert kinds(plan) == ["keyed"]
    assert plan.notes == (
        "approx_count_distinct is made again from all rows of a touched group, since its values are FLOAT or DOUBLE, "
        "its error is below 0.0173, or a min, max or sketch is beside it",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT window.start AS hour, hll_sketch_agg(x) AS h FROM events GROUP BY window(at, '1 hour')",
        "SELECT k, hll_sketch_agg(x) AS h FROM (SELECT * FROM events UNION ALL SELECT * FROM events) GROUP BY k",
        "SELECT a.k, kll_sketch_agg_bigint(b.x) AS q FROM events a JOIN events b ON a.k = b.k GROUP BY a.k",
        "SELECT k, x, hll_sketch_agg(d) AS h FROM events GROUP BY ROLLUP (k, x)",
        "SELECT k, hll_sketch_estimate(hll_sketch_agg(x)) AS n, sum(d) AS d, max(x) AS x, count(*) AS rows FROM events "
        "WHERE x > 0 GROUP BY k HAVING hll_sketch_estimate(hll_sketch_agg(x)) > 10",
    ],
)
def test_windows_unions_joins_sets_and_having_keep_sketches(sql: str) -> None:
    assert set(kinds(plan_of(sql))) == {"accumulating"}


def test_a_sketch_that_is_shown_is_stored_once() -> None:
    shown = plan_of("SELECT k, hll_sketch_agg(x) AS h FROM events GROUP BY k").stages[0]
    asked = plan_of("SELECT k, hll_sketch_estimate(hll_sketch_agg(x)) AS h FROM events GROUP BY k").stages[0]

    assert [column.name for column in shown.hidden] == ["_g0", "_n", "_shown"]
    assert [column.name for column in asked.hidden] == ["_g0", "_n", "_a0", "_shown"]


def test_only_views_that_keep_sketches_are_another_view_than_in_older_versions() -> None:
    sql = "SELECT k, hll_sketch_agg(x) AS h FROM events GROUP BY k"
    kept, made_again = plan_of(sql), plan_of(sql, append_only=False)
    sums = [plan_of("SELECT k, sum(x) AS x FROM events GROUP BY k", append_only=each) for each in (True, False)]

    assert kept.fingerprint != made_again.fingerprint
    assert sums[0].fingerprint == sums[1].fingerprint
