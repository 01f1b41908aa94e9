"""The first rows of each key: which stages keep them, and that their own rows and the new ones are enough."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.views.compiler.plan import KeyedStage
from tests.compiler.duck import compile_all
from tests.compiler.queries import Query, View
from tests.compiler.schemas import ticks
from tests.compiler.test_incremental_equals_batch import check
from tests.compiler.test_time_windows import TABLES, plan_of

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
SOURCES = ("r", "s", "t", "(SELECT a.k, a.at, a.x, b.w FROM r a JOIN s b ON a.k = b.k)")


@settings(max_examples=40 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_first_rows_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(["row_number", "rank", "dense_rank"]))
    limit = data.draw(st.sampled_from(["<= 1", "<= 2", "< 4", "= 1"]))
    source = data.draw(st.sampled_from(SOURCES))
    order = "at DESC, x, w" if number == "row_number" else data.draw(st.sampled_from(["at DESC", "x, w"]))
    shown = data.draw(st.sampled_from(["", ", place"]))
    query = (
        f"SELECT k, at, x, w{shown} FROM (SELECT k, at, x, w, "
        f"{number}() OVER (PARTITION BY k ORDER BY {order}) AS place FROM {source} AS q) AS p WHERE place {limit}"
    )
    happening = data.draw(ticks(TABLES, most=6), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert isinstance(plan.stages[-1], KeyedStage)
    assert plan.stages[-1].leading
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 3)))


@pytest.mark.parametrize(
    ("sql", "leading"),
    [
        ("SELECT k, at, id FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY at, id) <= 3", ("k", "at", "id")),
        ("SELECT id, k, at, x + 1 AS y FROM r QUALIFY rank() OVER (PARTITION BY k ORDER BY at) = 1", ()),
        ("SELECT id, k FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY at, id) <= 3", ()),
        ("SELECT id, k, at FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY at, id) = 2", ()),
        ("SELECT id, k, at FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY at, id) > 2", ()),
        ("SELECT id, k, at FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY at) <= 3 AND id > 7", ()),
        ("SELECT id, k, at FROM r QUALIFY count(*) OVER (PARTITION BY k) <= 3", ()),
        ("SELECT id, k, at FROM r QUALIFY lag(id) OVER (PARTITION BY k ORDER BY at) <= 3", ()),
    ],
)
def test_a_stage_of_leading_rows_is_known_by_its_filter_and_by_what_it_holds(
    sql: str, leading: tuple[str, ...]
) -> None:
    stage = plan_of(sql).stages[-1]

    assert isinstance(stage, KeyedStage)
    assert stage.leading == leading
