"""Bloom filters in texts: what is written out, what is refused, and where.

What it is: ``write_out_blooms`` over texts with calls in many places, and plans of such texts.
Invariants: what is no call stays as it is; an error is told about the text that its author wrote.
Not here: what the filters contain, on Spark (``tests/spark/test_bloom_views.py``).
Read next: ``src/headwater/views/compiler/frontend/bloom_filters.py``.
"""

from __future__ import annotations

import math

import pytest

from headwater.errors import InvalidView
from headwater.views.compiler.frontend.bloom_filters import BloomShape, write_out_blooms
from headwater.views.compiler.plan import PlanColumn, Relation, ViewPlan
from headwater.views.event_time.timing import Timing, timed_plan

EVENTS = Relation("events", (PlanColumn("k", "STRING"), PlanColumn("x", "BIGINT")), append_only=True)
SEEN = Relation("seen", (PlanColumn("k", "STRING"), PlanColumn("ids", "BINARY")), is_view=True)


def plan_of(sql: str) -> ViewPlan:
    return timed_plan("v", sql, {"events": EVENTS, "seen": SEEN}, Timing(), {})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT bloom_agg FROM events",
        "SELECT 'bloom_agg(x)' AS s, x FROM events -- bloom_contains(a, b)",
        "SELECT `bloom_agg(x)` FROM events",
        "SELECT x AS bloom_contains FROM events",
    ],
)
def test_what_is_no_call_stays(sql: str) -> None:
    assert write_out_blooms(sql).sql == sql


def test_calls_are_written_out_wherever_they_stand() -> None:
    sql = """SELECT k, Bloom_Agg ( coalesce(x, 0), 100 ) FILTER (WHERE x IN (1, 2)) AS ids FROM events GROUP BY k
        HAVING bloom_contains(bloom_agg(x, 100), 7) AND max(k) > ')'"""

    written = write_out_blooms(sql).sql

    assert "bloom" not in written.lower()
    assert written.count("bitmap_construct_agg(") > 2
    assert "coalesce(x, 0)" in written
    assert ") FILTER (WHERE x IN (1, 2))) AS ids FROM events GROUP BY k" in written
    assert written.endswith("AND max(k) > ')'")


def test_a_filter_over_rows_that_only_come_accumulates() -> None:
    plan = plan_of("SELECT k, bloom_agg(x) AS ids FROM events GROUP BY k")

    assert [stage.kind.value for stage in plan.stages] == ["accumulating"]
    assert plan.sql == "SELECT k, bloom_agg(x) AS ids FROM events GROUP BY k"
    assert "bitmap_construct_agg" in plan.written_out


def test_a_view_may_ask_the_filter_of_another() -> None:
    plan = plan_of("SELECT e.x FROM events e JOIN seen s ON e.k = s.k WHERE NOT bloom_contains(s.ids, e.x)")

    assert [stage.kind.value for stage in plan.stages] == ["bilinear"]


@pytest.mark.parametrize(
    ("sql", "message", "underlined"),
    [
        ("SELECT bloom_agg() AS b FROM events", "bloom_agg takes a value", "bloom_agg()"),
        ("SELECT bloom_agg(x, 0) AS b FROM events", "0 is no whole number", "bloom_agg(x, 0)"),
        ("SELECT bloom_agg(x, k) AS b FROM events", "k is no whole number", "bloom_agg(x, k)"),
        ("SELECT bloom_agg(x, 1000000) AS b FROM events", "at most 2,064,384 bits", "bloom_agg(x, 1000000)"),
        ("SELECT bloom_agg(x) OVER (PARTITION BY k) AS b FROM events", "cannot be a window function", "OVER"),
        (
            "SELECT k FROM seen WHERE bloom_contains(ids)",
            "bloom_contains takes a filter and a value",
            "bloom_contains(ids)",
        ),
        ("SELECT bloom_agg(x AS b FROM events", ") is missing", "(x AS b FROM events"),
        ("SELECT k, bloom_agg(x) AS b, lenght(k) AS n FROM events GROUP BY k", "no function lenght", "lenght(k)"),
    ],
)
def test_a_mistake_is_told_about_the_text_as_it_was_written(sql: str, message: str, underlined: str) -> None:
    with pytest.raises(InvalidView) as caught:
        plan_of(sql)

    told = str(caught.value)
    assert message in told
    assert "bitmap" not in told
    start, stop = caught.value.data["start"], caught.value.data["stop"]
    assert sql[start:stop] == underlined


@pytest.mark.parametrize("expected", [1, 50, 329, 330, 5_000, 23_000, 24_000, 100_000, 200_000])
def test_a_filter_is_large_enough_for_what_is_expected(expected: int) -> None:
    shape = BloomShape.for_values(expected)

    assert shape.error(expected) <= 0.01
    assert shape.count <= 63
    # A third of a slice is filled by as many values as it has bits, less those that meet: the formula's own check.
    assert math.isclose(BloomShape(1, 1).error(32_768), 1 - 1 / math.e)
