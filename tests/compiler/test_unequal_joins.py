"""Joins and subqueries without an equality: which values have a match is kept."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.views.compiler.plan import StageKind
from tests.compiler.duck import compile_all
from tests.compiler.queries import Query, View
from tests.compiler.schemas import busy_ticks
from tests.compiler.shop import kinds
from tests.compiler.test_first_rows import SOURCES
from tests.compiler.test_incremental_equals_batch import check
from tests.compiler.test_time_windows import TABLES

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
CONDITIONS = (
    *("a.x < b.x", "a.x <> b.x", "a.x + b.x > 3 AND a.k = 1", "a.x BETWEEN b.k AND b.x", "a.at < b.at AND b.k IS NULL"),
    *("TRUE", "b.x > 2", "a.x > 2", "a.k < b.k OR a.x = b.x"),
)


@settings(max_examples=15 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_outer_joins_by_any_condition_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    side = data.draw(st.sampled_from(["LEFT", "RIGHT", "FULL"]))
    left, right = (data.draw(st.sampled_from(SOURCES)) for _ in range(2))
    on = data.draw(st.sampled_from(CONDITIONS))
    where = data.draw(st.sampled_from(["", " WHERE a.k > 0", " WHERE b.x IS NULL", " WHERE a.x IS NULL OR b.x > a.x"]))
    shown = data.draw(st.sampled_from(["a.k, a.x, b.k AS l, b.x AS y", "b.w", "count(*) AS n, sum(a.x) AS s"]))
    query = f"SELECT {shown} FROM {left} AS a {side} JOIN {right} AS b ON {on}{where}"
    happening = data.draw(busy_ticks(TABLES), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert all(stage.kind is not StageKind.WHOLE for stage in plan.stages)
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 9)))


@settings(max_examples=15 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_subqueries_by_any_condition_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    exists = data.draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
    left, right = (data.draw(st.sampled_from(SOURCES)) for _ in range(2))
    on = data.draw(st.sampled_from([condition for condition in CONDITIONS if "a." in condition]))
    where = data.draw(st.sampled_from(["", " AND a.k > 0", " AND EXISTS (SELECT 1 FROM s WHERE s.x < a.x)"]))
    shown = data.draw(st.sampled_from(["a.k, a.x, a.w", "a.at", "count(*) AS n, sum(a.x) AS s"]))
    query = f"SELECT {shown} FROM {left} AS a WHERE {exists} (SELECT 1 FROM {right} AS b WHERE {on}){where}"
    happening = data.draw(busy_ticks(TABLES), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert all(stage.kind is not StageKind.WHOLE for stage in plan.stages)
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 9)))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT o.order_id, u.id FROM orders o LEFT JOIN users u ON o.amount < u.age",
            ["accumulating", "keyed", "bilinear"],
        ),
        (
            "SELECT o.order_id, u.id FROM orders o FULL JOIN users u ON o.amount < u.age",
            ["accumulating", "keyed", "accumulating", "keyed", "bilinear"],
        ),
        ("SELECT o.order_id, u.id FROM orders o LEFT JOIN users u ON TRUE", ["accumulating", "bilinear", "bilinear"]),
        (
            "SELECT id FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.amount < u.age)",
            ["accumulating", "keyed"],
        ),
        ("SELECT id FROM users u LEFT SEMI JOIN orders o ON o.amount < u.age", ["accumulating", "keyed"]),
    ],
)
def test_what_has_no_equality_has_these_stages(sql: str, expected: list[str]) -> None:
    assert kinds(sql) == expected
