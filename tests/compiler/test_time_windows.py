"""Time windows: which stages they become, and that they are right whatever comes, leaves or comes late.

What it is: the kinds of stages of each sort of window, Spark's spellings of them, and random queries by time over
tables with and without a key, tick by tick on DuckDB.
Invariants: as in ``test_incremental_equals_batch.py``. DuckDB knows no windows of time; what they mean is written in
``dialect_windows.py`` by hand, so that here the compiler is tested, and Spark in ``tests/spark``.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidView
from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import AccumulateStage, KeyedStage, PlanColumn, Relation, StageKind, ViewPlan
from tests.compiler.queries import Grammar, View
from tests.compiler.schemas import ticks
from tests.compiler.test_incremental_equals_batch import check

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
COLUMNS = (PlanColumn("k", "INT"), PlanColumn("at", "TIMESTAMP"), PlanColumn("x", "INT"), PlanColumn("w", "STRING"))
KEYED = Relation("r", (PlanColumn("id", "INT"), *COLUMNS), key=("id",))
BAG = Relation("s", COLUMNS)
APPENDED = Relation("t", COLUMNS, append_only=True)
WINDOWS = Relation(
    "hourly", (PlanColumn("hour", "STRUCT<start: TIMESTAMP, end: TIMESTAMP>"), PlanColumn("n", "BIGINT"))
)
TABLES = (KEYED, BAG, APPENDED)


def plan_of(sql: str) -> ViewPlan:
    return compile_view("v", sql, {table.name: table for table in (*TABLES, WINDOWS)})


@settings(max_examples=40 * THOROUGH, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_windows_and_bounds_are_right_after_every_tick(data: st.DataObject) -> None:
    sources = [(table.name, tuple((column.name, str(column.type)) for column in table.columns)) for table in TABLES]
    grammar = Grammar(data.draw, sources)
    form = data.draw(st.sampled_from([grammar.by_time, grammar.within]))
    query = form(data.draw(st.integers(0, 1)), True)
    happening = data.draw(ticks(TABLES, most=5), label="ticks")

    check(TABLES, (View("v0", query),), happening, seed=data.draw(st.integers(0, 3)))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT window, k, count(*) AS n FROM r GROUP BY window(at, '5 minutes'), k", ["accumulating"]),
        (
            "SELECT window.start AS s, sum(x) AS n FROM r GROUP BY window(at, '9 minutes', '3 minutes')",
            ["accumulating"],
        ),
        ("SELECT session_window, k, count(*) AS n FROM r GROUP BY session_window(at, '5 minutes'), k", ["keyed"]),
        (
            "SELECT session_window.end AS e, count(*) AS n FROM r GROUP BY session_window(at, '5 minutes')",
            ["linear", "keyed"],
        ),
        (
            "SELECT k, max(n) AS longest FROM (SELECT session_window AS w, k, count(*) AS n FROM r "
            "GROUP BY session_window(at, '5 minutes'), k) GROUP BY k",
            ["keyed", "keyed"],
        ),
        (
            "SELECT window(window, '1 hour').start AS h, sum(n) AS n FROM (SELECT window, count(*) AS n FROM r "
            "GROUP BY window(at, '5 minutes')) GROUP BY 1",
            ["accumulating", "accumulating"],
        ),
        (
            "SELECT sum(x) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL 5 MINUTES PRECEDING AND CURRENT ROW)"
            " AS s FROM r",
            ["keyed"],
        ),
        (
            "SELECT a.id, b.id AS other FROM r a JOIN r b ON a.k = b.k "
            "AND b.at BETWEEN a.at - INTERVAL 5 MINUTES AND a.at",
            ["bilinear"],
        ),
        (
            "SELECT a.id, b.x FROM r a LEFT JOIN s b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR",
            ["keyed"],
        ),
        (
            "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.at BETWEEN r.at AND r.at "
            "+ INTERVAL 1 HOUR)",
            ["keyed"],
        ),
        ("SELECT session_window(at, '5 minutes') AS w, k FROM r", ["whole"]),
    ],
)
def test_a_query_by_time_has_these_stages(sql: str, expected: list[str]) -> None:
    assert [stage.kind.value for stage in plan_of(sql).stages] == expected


def test_sessions_are_keyed_by_the_other_groups_whatever_is_aggregated() -> None:
    (stage,) = plan_of(
        "SELECT session_window.start AS s, k, count(DISTINCT x) AS xs, collect_set(w) AS ws, sum(x) AS x FROM r "
        "GROUP BY session_window(at, '5 minutes'), k HAVING session_window.end > TIMESTAMP'2024-01-01'"
    ).stages

    assert isinstance(stage, KeyedStage)
    assert [given.plain for given in stage.inputs] == [("k",)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT session_window AS v, k, count(*) AS n FROM r GROUP BY session_window(at, '5 minutes'), k",
        "SELECT session_window(at, '5 minutes') AS v, k, count(*) AS n FROM r GROUP BY v, k",
        "SELECT session_window(at, '5 minutes') AS v, k, count(*) AS n FROM r GROUP BY 1, 2",
        "SELECT session_window(at, '5 minutes') AS v, k, count(*) AS n FROM r GROUP BY ALL",
    ],
)
def test_spellings_of_a_session_are_one(sql: str) -> None:
    assert [stage.sql for stage in plan_of(sql).stages] == [  # type: ignore[attr-defined]
        "SELECT session_window(t1.`r__at`, '5 minutes') AS `v`, t1.`g__1` AS `k`, count(*) AS `n`, t1.`g__1` AS `_k0` "
        "FROM (SELECT _l0.`k` AS `g__1`, _l0.`at` AS `r__at` FROM _l0) AS t1 "
        "GROUP BY session_window(t1.`r__at`, '5 minutes'), t1.`g__1`"
    ]


def test_an_output_that_is_a_window_can_be_asked_for_its_parts() -> None:
    plan = plan_of(
        "SELECT window(at, '5 minutes') AS w, count(*) AS n FROM r GROUP BY window(at, '5 minutes') "
        "HAVING w.start > TIMESTAMP'2024-01-01'"
    )

    (stage,) = plan.stages
    assert "HAVING window.`start` > " in plan.query  # a call in HAVING would be another window, over the groups
    assert isinstance(stage, AccumulateStage)
    assert "`_g0`.`start` > TIMESTAMP'2024-01-01'" in stage.combine


@pytest.mark.parametrize("time", ["window(window_time(hour), '1 day')", "window(hour, '1 day')"])
def test_a_window_of_windows_is_by_their_last_moment(time: str) -> None:
    plan = plan_of(f"SELECT {time} AS day, sum(n) AS n FROM hourly GROUP BY 1")

    assert "window((`hourly`.`hour`.`end` - INTERVAL '1' MICROSECOND), '1 day')" in plan.query


def test_a_window_without_a_name_has_sparks() -> None:
    plan = plan_of("SELECT window(at, '5 minutes'), count(*) AS n FROM r GROUP BY window(at, '5 minutes')")

    assert [column.name for column in plan.columns] == ["window", "n"]


SESSIONS = "SELECT session_window AS v, k, count(*) AS n FROM r GROUP BY session_window(at, '5 minutes'), k"


@pytest.mark.parametrize(
    ("sql", "cheap"),
    [
        (f"SELECT v, count(*) AS n FROM ({SESSIONS}) GROUP BY v", False),
        (f"SELECT v, count(*) AS n FROM (SELECT v FROM ({SESSIONS})) GROUP BY 1", False),
        (f"SELECT DISTINCT v FROM ({SESSIONS})", False),
        (f"SELECT v FROM ({SESSIONS}) UNION SELECT hour FROM hourly", False),
        (f"SELECT k, count(DISTINCT v) AS n FROM ({SESSIONS}) GROUP BY k", False),
        (f"SELECT v.start AS s, count(*) AS n FROM ({SESSIONS}) GROUP BY v.start", True),
        (f"SELECT v FROM ({SESSIONS}) UNION ALL SELECT hour FROM hourly", True),
        (f"SELECT k, max(v.end) AS e FROM ({SESSIONS}) GROUP BY k", True),
    ],
)
def test_what_spark_would_merge_again_is_computed_as_one_piece(sql: str, cheap: bool) -> None:
    plan = plan_of(sql)

    assert (plan.kind is not StageKind.WHOLE) == cheap
    assert ("one piece" in plan.stages[-1].what) != cheap


def test_different_values_of_a_session_are_counted_as_a_set() -> None:
    plan = plan_of(
        "SELECT k, count(DISTINCT x) AS xs, count(DISTINCT x, w) FILTER (WHERE x > 0) AS ws FROM r "
        "GROUP BY session_window(at, '5 minutes'), k"
    )

    assert "CAST(size(collect_set(`r`.`x`)) AS BIGINT) AS `xs`" in plan.query
    assert (
        "collect_set(CASE WHEN NOT `r`.`x` IS NULL AND NOT `r`.`w` IS NULL THEN struct(`r`.`x`, `r`.`w`) END) "
        "FILTER(WHERE `r`.`x` > 0)" in plan.query
    )
    assert plan.kind is StageKind.KEYED


def test_what_spark_gets_wrong_about_sessions_is_refused() -> None:
    with pytest.raises(InvalidView, match=r"sum\(DISTINCT …\) of a session, beside another DISTINCT or with FILTER"):
        plan_of(
            "SELECT count(DISTINCT w) AS w, sum(DISTINCT x) AS x FROM r GROUP BY session_window(at, '5 minutes'), k"
        )


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT window.start AS s, k, count(*) AS n FROM r GROUP BY window(at, '5 minutes'), k", ("s", "k")),
        ("SELECT k, window.end AS e, max(x) AS x FROM r GROUP BY window(at, '5 minutes'), k", ("e", "k")),
        ("SELECT window, window.start AS s, count(*) AS n FROM r GROUP BY window(at, '5 minutes')", ("window",)),
        (
            "SELECT session_window.start AS s, k, count(*) AS n FROM r GROUP BY session_window(at, '1 hour'), k",
            ("s", "k"),
        ),
        ("SELECT window.start AS s, count(*) AS n FROM r GROUP BY window(at, '5 minutes'), k", ()),
        ("SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY at) AS place FROM r", ("id",)),
        ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY at) AS place FROM r", ()),
        ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY at) AS place FROM s", ()),
    ],
)
def test_the_start_of_a_window_tells_it_apart_and_a_row_with_a_place_is_still_a_row(
    sql: str, key: tuple[str, ...]
) -> None:
    assert plan_of(sql).key == key
