"""ORDER BY … LIMIT over a whole relation: which stages keep leading rows, and that these rows are enough."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.views.compiler.plan import LeadingStage, WholeStage
from tests.compiler.duck import compile_all
from tests.compiler.queries import Query, View
from tests.compiler.schemas import busy_ticks
from tests.compiler.shop import only_stage, plan_of
from tests.compiler.test_incremental_equals_batch import check
from tests.compiler.test_time_windows import TABLES

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
SOURCES = (
    "r",
    "s",
    "t",
    "(SELECT a.k, a.at, a.x, b.w FROM r a JOIN s b ON a.k = b.k)",
    "(SELECT k, at, x, w FROM r UNION ALL SELECT k, at, x, w FROM s)",
    "(SELECT k, max(at) AS at, sum(x) AS x, min(w) AS w FROM r GROUP BY k)",
)


@settings(max_examples=15 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_first_rows_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(["at DESC, k, x, w", "x NULLS LAST, w DESC, k, at", "k + x DESC, k, x, w, at"]))
    limit = data.draw(st.sampled_from(["LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 2", "LIMIT 4", "LIMIT 50", "LIMIT 0"]))
    shown = data.draw(st.sampled_from(["k, at, x, w", "at, w"]))
    where = data.draw(st.sampled_from(["", "WHERE x > 1 ", "WHERE k IS NULL "]))
    source = data.draw(st.sampled_from(SOURCES))
    query = f"SELECT {shown} FROM {source} AS q {where}ORDER BY {order} {limit}"
    happening = data.draw(busy_ticks(TABLES), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert isinstance(plan.stages[-1], LeadingStage)
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 9)))


@settings(max_examples=15 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_numbered_rows_up_to_a_bound_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(["row_number", "rank", "dense_rank"]))
    bound = data.draw(st.sampled_from(["<= 1", "<= 2", "< 4", "= 1", "= 3", "BETWEEN 2 AND 3", "<= 2 AND place > 1"]))
    source = data.draw(st.sampled_from(SOURCES))
    order = "at DESC, x, w, k" if number == "row_number" else data.draw(st.sampled_from(["at DESC", "x, w", "k + x"]))
    shown = data.draw(st.sampled_from(["k, at, x, w", "k, at, x, w, place", "at, w", "k + x AS y, at, place + 1 AS p"]))
    query = (
        f"SELECT {shown} FROM (SELECT k, at, x, w, {number}() OVER (ORDER BY {order}) AS place FROM {source} AS q) "
        f"AS p WHERE place {bound}"
    )
    happening = data.draw(busy_ticks(TABLES), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert any(isinstance(stage, LeadingStage) for stage in plan.stages)
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 9)))


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT id FROM users QUALIFY row_number() OVER (ORDER BY age, id) <= 3", ["leading"]),
        ("SELECT id, age + 1 AS a FROM users QUALIFY rank() OVER (ORDER BY age) = 2", ["leading", "linear"]),
        (
            "SELECT id, a FROM (SELECT id, age + 1 AS a, rank() OVER (ORDER BY age) AS r FROM users) "
            "WHERE r < 4 AND a > 7",
            ["leading", "linear"],
        ),
        ("SELECT id FROM users QUALIFY rank() OVER (ORDER BY age) > 2", ["whole"]),
        ("SELECT id FROM users QUALIFY rank() OVER (ORDER BY age) <= id", ["whole"]),
        ("SELECT id FROM users QUALIFY rank() OVER (ORDER BY age) <= 50001", ["whole"]),
        ("SELECT id FROM users QUALIFY count(*) OVER (ORDER BY age) <= 3", ["whole"]),
        (
            "SELECT id, row_number() OVER (ORDER BY age, id) AS a, rank() OVER (ORDER BY id) AS b FROM users "
            "QUALIFY row_number() OVER (ORDER BY age, id) <= 3",
            ["whole"],
        ),
        ("SELECT id, age + 1 AS a, rank() OVER (ORDER BY age) AS r FROM users", ["whole"]),
    ],
)
def test_numbered_rows_need_a_bound(sql: str, kinds: list[str]) -> None:
    assert [stage.kind.value for stage in plan_of(sql).stages] == kinds


def test_ties_in_an_order_are_broken_by_the_other_columns() -> None:
    stage = only_stage("SELECT id, age FROM users ORDER BY age DESC LIMIT 3 OFFSET 2")

    assert isinstance(stage, LeadingStage)
    assert "ORDER BY `_c1` DESC, `_c0` ASC LIMIT 110" in stage.fill
    assert "rank() OVER (ORDER BY `_c1` DESC, `_c0` ASC)" in stage.merge
    assert (stage.first, stage.last, stage.what) == (3, 5, "first 3 by age DESC")


def test_what_is_made_of_the_first_rows_is_a_stage_of_its_own() -> None:
    plan = plan_of("SELECT id + 1 AS i FROM (SELECT id FROM users ORDER BY age LIMIT 3) WHERE id > 7")

    assert [stage.kind.value for stage in plan.stages] == ["leading", "linear"]


@pytest.mark.parametrize("limit", ["LIMIT 50001", "OFFSET 3", "LIMIT 1 + 1", "LIMIT ALL OFFSET 1"])
def test_without_a_bound_everything_is_read(limit: str) -> None:
    assert isinstance(plan_of(f"SELECT id FROM users ORDER BY age {limit}").stages[-1], WholeStage)
