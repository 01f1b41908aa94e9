"""min, max, min_by and max_by without GROUP BY: one row always, from the leading values."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.views.compiler.plan import LeadingStage, StageKind
from tests.compiler.duck import compile_all
from tests.compiler.queries import Query, View
from tests.compiler.schemas import busy_ticks
from tests.compiler.shop import only_stage
from tests.compiler.test_first_rows import SOURCES
from tests.compiler.test_incremental_equals_batch import check
from tests.compiler.test_time_windows import TABLES

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
CALLS = (
    *("max(x)", "min(x)", "max(at)", "min(w) FILTER (WHERE k > 1)", "max(DISTINCT k)", "max(x + k)", "max(7)"),
    # Of rows that tie any may be taken: by themselves values tie with equal ones only.
    *("max_by(x, x)", "min_by(at, at) FILTER (WHERE x IS NOT NULL)", "min_by(x + 1, x)"),
    *("count(*)", "sum(x)", "count(DISTINCT k)", "count(w) FILTER (WHERE x > 0)"),
)


@settings(max_examples=15 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_extremes_are_right_whatever_comes_and_leaves(data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique=True))
    calls.insert(0, data.draw(st.sampled_from(CALLS[:10])))
    where = data.draw(st.sampled_from(["", " WHERE x > 1", " WHERE k IS NULL"]))
    having = data.draw(st.sampled_from(["", "", " HAVING max(x) > 2"]))
    source = data.draw(st.sampled_from(SOURCES))
    shown = ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))
    query = f"SELECT {shown} FROM {source} AS q{where}{having}"
    happening = data.draw(busy_ticks(TABLES), label="ticks")

    (plan,) = compile_all(TABLES, [("v0", query)])
    assert all(stage.kind is not StageKind.WHOLE for stage in plan.stages)
    check(TABLES, (View("v0", Query(query, ())),), happening, seed=data.draw(st.integers(0, 9)))


def test_a_null_stands_behind_all_values_so_that_there_is_one_row_always() -> None:
    stage = only_stage("SELECT min(age) AS youngest FROM users")

    assert isinstance(stage, LeadingStage)
    assert "UNION ALL SELECT CAST(NULL AS INT) AS `_c0`) ORDER BY `_c0` ASC NULLS LAST" in stage.fill
    assert (stage.first, stage.last, stage.what) == (1, 1, "min(users.age)")
