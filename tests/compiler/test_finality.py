"""When a row of a view is final, and how far a row of its inputs reaches, as far as the query tells."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidDeclaration
from headwater.views.compiler.algebra.finality import CLOSES, with_closes
from headwater.views.compiler.frontend.parse import parse
from headwater.views.compiler.plan import PlanColumn, Relation, TimedStage
from headwater.views.event_time.timing import Timing, timed_plan

TIMES = {"searches": "at", "clicks": "at"}
MINUTE, HOUR = 60_000_000, 3_600_000_000
RELATIONS = {
    "searches": Relation("searches", (PlanColumn("id", "BIGINT"), PlanColumn("at", "TIMESTAMP")), append_only=True),
    "clicks": Relation("clicks", (PlanColumn("search_id", "BIGINT"), PlanColumn("at", "TIMESTAMP")), append_only=True),
    "users": Relation("users", (PlanColumn("id", "BIGINT"), PlanColumn("country", "STRING")), key=("id",)),
}
JOINED = "SELECT s.id, s.at AS searched_at, c.at AS clicked_at FROM searches s LEFT JOIN clicks c ON c.search_id = s.id"


def told(sql: str, closes: str | None = None):
    return with_closes(parse(sql), closes, TIMES)


@pytest.mark.parametrize(
    ("sql", "reach"),
    [
        ("SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 minute')", MINUTE),
        ("SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 hour 30 minutes'), search_id", HOUR + 30 * MINUTE),
        ("SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 hour', '5 minutes')", HOUR),
        ("SELECT window(at, '2 minutes') AS w, count(*) AS n FROM clicks GROUP BY w", 2 * MINUTE),
        (
            "SELECT count(*) AS n FROM clicks c, users u WHERE u.id = search_id GROUP BY window(c.at, '1 minute')",
            MINUTE,
        ),
        ("SELECT search_id FROM clicks WHERE search_id > 7", 0),
        ("SELECT count(*) AS n FROM clicks GROUP BY session_window(at, '5 minutes')", 5 * MINUTE),
        ("SELECT o.id FROM searches o JOIN prices FOR SYSTEM_TIME AS OF o.at AS p ON p.id = o.id", 0),
        (
            "SELECT o.id FROM searches o JOIN prices FOR SYSTEM_TIME AS OF o.at - INTERVAL 5 MINUTES AS p "
            "ON p.id = o.id",
            5 * MINUTE,
        ),
        (
            "SELECT count(*) AS n FROM searches s JOIN clicks c ON c.search_id = s.id AND c.at >= s.at "
            "AND c.at < s.at + INTERVAL 1 HOUR GROUP BY window(s.at, '1 minute')",
            HOUR + MINUTE,
        ),
    ],
)
def test_the_reach_of_a_row_follows_from_windows_and_bounds(sql, reach):
    found = told(sql)

    assert (found.closes, found.reach_us) == (True, reach)


@pytest.mark.parametrize(
    ("bound", "reach"),
    [
        ("c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR", 2 * HOUR),
        ("c.at BETWEEN s.at - INTERVAL 10 MINUTES AND s.at + INTERVAL 5 MINUTES", HOUR + 10 * MINUTE),
        ("s.at <= c.at AND c.at - INTERVAL '30' MINUTE <= s.at", HOUR + 30 * MINUTE),
        ("c.at >= s.at", None),  # at any time after it
        ("c.at <= s.at + INTERVAL 1 HOUR", None),
        ("c.at BETWEEN s.at AND s.at + INTERVAL 1 MONTH", None),  # which has no fixed length
        ("true", None),
    ],
)
def test_a_join_is_bounded_when_both_sides_are(bound, reach):
    found = told(f"{JOINED} AND {bound}", closes="searched_at + INTERVAL 1 HOUR")

    assert (found.closes, found.reach_us) == (True, reach)
    assert reach is not None or "may meet at any distance in time" in found.why


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT search_id, count(*) AS n FROM clicks GROUP BY search_id", "without a window"),
        (f"{JOINED} AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR", "declare it with closes"),
        ("SELECT id FROM searches UNION ALL SELECT search_id FROM clicks", "follows only from a plain SELECT"),
        ("SELECT count(*) AS n FROM clicks GROUP BY window(sent_at, '1 minute')", "window(sent_at, …) is not known"),
        ("SELECT count(*) AS n FROM v GROUP BY window(at, '1 minute')", "is not known to go by the event time"),
    ],
)
def test_some_queries_do_not_tell_when_a_row_is_final(sql, why):
    found = told(sql)

    assert not found.closes
    assert why in found.why


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) AS n FROM clicks GROUP BY session_window(at, make_interval(0, 0, 0, 0, n))", "the length of"),
        (
            "SELECT count(*) AS n FROM clicks c JOIN searches s ON c.search_id = s.id AND c.at = s.at "
            "GROUP BY session_window(c.at, '5 minutes')",
            "sessions of a join",
        ),
        ("SELECT count(*) AS n FROM (SELECT * FROM clicks) GROUP BY window(at, '1 minute')", "in a subquery"),
        (
            "SELECT window.start AS m, lag(count(*)) OVER (ORDER BY window.start) AS n FROM clicks "
            "GROUP BY window(at, '1 minute')",
            "compared with others",
        ),
    ],
)
def test_some_are_final_and_have_no_bound(sql, why):
    found = told(sql)

    assert (found.closes, found.reach_us) == (True, None)
    assert why in found.why


def test_the_column_is_added_and_the_views_own_columns_stay():
    sql = "SELECT window.start AS minute, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')"

    plan = timed_plan("minutes", sql, RELATIONS, Timing.declared("minutes", emit="final"), TIMES)

    assert [column.name for column in plan.columns] == ["minute", "n"]
    assert [stage.name for stage in plan.stages] == [
        "minutes$late.clicks",
        "minutes$in-time.clicks",
        "minutes$open",
        "minutes",
    ]
    assert CLOSES in [column.name for column in plan.stages[2].columns]
    assert plan.reach_us == MINUTE


def test_rows_that_are_looked_at_are_let_go():
    timing = Timing.declared("unclicked", horizon="10 minutes", closes="searched_at + INTERVAL 1 HOUR")
    sql = f"{JOINED} AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR"

    plan = timed_plan("unclicked", sql, RELATIONS, timing, TIMES)

    judged = {stage.name: stage.lets_go for stage in plan.stages if isinstance(stage, TimedStage) and not stage.late}
    assert judged == {"unclicked$in-time.searches": True, "unclicked$in-time.clicks": True}


def test_a_view_without_bound_says_that_its_state_stays():
    timing = Timing.declared("totals", late="drop")

    plan = timed_plan("totals", "SELECT count(*) AS n FROM clicks", RELATIONS, timing, TIMES)

    assert plan.reach_us is None
    assert any("its state is kept for ever" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"late": "ignore"}, "late cannot be 'ignore'"),
        ({"emit": "once"}, "emit cannot be 'once'"),
        ({"horizon": "soon"}, "horizon cannot be 'soon'"),
        ({"late": "drop", "horizon": "1 minute"}, "contradict each other"),
        ({"closes": "at"}, "closes has no effect"),
        ({"late_alert": 2}, "late_alert cannot be 2"),
    ],
)
def test_what_makes_no_sense_is_refused(declared, sentence):
    with pytest.raises(InvalidDeclaration) as refused:
        Timing.declared("v", **declared)

    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "timing", "sentence"),
    [
        ("SELECT id FROM users", {"late": "drop"}, "reads no topic that has an event time"),
        ("SELECT search_id, count(*) AS n FROM clicks GROUP BY search_id", {"emit": "final"}, "without a window"),
        ("SELECT search_id FROM clicks", {"emit": "final", "closes": "at +"}, "is not an expression"),
    ],
)
def test_a_query_that_cannot_be_timed_is_refused(sql, timing, sentence):
    with pytest.raises(InvalidDeclaration) as refused:
        timed_plan("v", sql, RELATIONS, Timing.declared("v", **timing), TIMES)

    assert sentence in str(refused.value)
