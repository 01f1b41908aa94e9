"""Which stages a query becomes: as few as may be, of the cheapest kind that is right."""

from __future__ import annotations

import pytest

from headwater.views.compiler.plan import AccumulateStage, KeyedStage, WholeStage
from tests.compiler.shop import kinds, only_stage, plan_of


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT country, count(*) AS n, sum(age) AS s FROM users GROUP BY country", ["accumulating"]),
        ("SELECT count(*) AS n FROM users", ["accumulating"]),
        ("SELECT DISTINCT country FROM users", ["accumulating"]),
        ("SELECT id FROM users UNION SELECT user_id FROM orders", ["accumulating"]),
        ("SELECT country, max(age) AS oldest FROM users GROUP BY country", ["keyed"]),
        ("SELECT page, max(ms) AS slowest FROM visits GROUP BY page", ["accumulating"]),
        ("SELECT max(age) AS oldest FROM users", ["leading"]),
        ("SELECT max(age) AS oldest, count(*) AS n FROM users", ["accumulating", "leading", "bilinear"]),
        ("SELECT max(ms) AS slowest FROM visits", ["accumulating"]),
        ("SELECT max(age) AS oldest, percentile(age, 0.5) AS middle FROM users", ["whole"]),
        (
            "SELECT min(o.amount) AS a, max(u.age) AS b FROM orders o JOIN users u ON o.user_id = u.id",
            ["bilinear", "leading", "leading", "bilinear"],
        ),
        ("SELECT country, count(DISTINCT age) AS n FROM users GROUP BY country", ["accumulating", "accumulating"]),
        (
            "SELECT country, count(DISTINCT age) AS n, count(DISTINCT id) AS m, sum(age) AS s FROM users "
            "GROUP BY country",
            ["accumulating", "accumulating"],
        ),
        ("SELECT country, age, count(*) AS n FROM users GROUP BY ROLLUP (country, age)", ["accumulating"]),
        ("SELECT o.order_id, u.country FROM orders o LEFT JOIN users u ON o.user_id = u.id", ["keyed"]),
        ("SELECT o.order_id, u.country FROM orders o FULL JOIN users u ON o.user_id = u.id", ["keyed"]),
        ("SELECT id FROM users EXCEPT ALL SELECT user_id FROM orders", ["keyed"]),
        ("SELECT id FROM users INTERSECT SELECT user_id FROM orders", ["keyed"]),
        ("SELECT id, rank() OVER (PARTITION BY country ORDER BY age) AS r FROM users", ["keyed"]),
        ("SELECT id, rank() OVER (ORDER BY age) AS r FROM users", ["whole"]),
        ("SELECT id FROM users ORDER BY age, id LIMIT 3", ["leading"]),
        ("SELECT country, count(*) AS n FROM users GROUP BY country ORDER BY n LIMIT 3", ["accumulating", "leading"]),
        (
            "SELECT id FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id)",
            ["accumulating", "bilinear"],
        ),
        ("SELECT order_id FROM orders WHERE user_id IN (SELECT id FROM users WHERE age > 9)", ["bilinear"]),
        ("SELECT id FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id)", ["keyed"]),
        ("SELECT o.order_id FROM orders o LEFT ANTI JOIN users u ON o.user_id = u.id", ["keyed"]),
        ("SELECT order_id FROM orders WHERE order_id NOT IN (SELECT id FROM users)", ["keyed"]),
        (
            "SELECT id FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id AND o.amount <> u.age) "
            "AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.user_id = u.id)",
            ["keyed"],
        ),
        ("SELECT order_id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)", ["accumulating", "bilinear"]),
        (
            "SELECT order_id FROM orders o "
            "WHERE amount > (SELECT avg(x.amount) FROM orders x WHERE x.user_id = o.user_id)",
            ["accumulating", "bilinear"],
        ),
        (
            "SELECT id, (SELECT count(*) FROM orders o WHERE o.user_id = u.id) AS n FROM users u",
            ["accumulating", "keyed"],
        ),
        ("SELECT order_id, (SELECT country FROM users WHERE id = o.user_id) AS c FROM orders o", ["keyed"]),
        ("SELECT a.id FROM users a JOIN LATERAL (SELECT 1 FROM orders WHERE user_id = a.id) AS x", ["whole"]),
    ],
)
def test_a_query_has_these_stages(sql: str, expected: list[str]) -> None:
    assert kinds(sql) == expected


def test_having_is_a_matter_of_what_is_shown() -> None:
    stage = only_stage("SELECT country, count(*) AS n FROM users GROUP BY country HAVING count(*) > 3")

    assert isinstance(stage, AccumulateStage)
    assert "_n > 3" in stage.combine.replace("`", "")
    assert [column.name for column in stage.hidden] == ["_g0", "_n", "_shown"]


def test_a_filter_on_a_grouped_subquery_is_taken_into_its_stage() -> None:
    plan = plan_of(
        "SELECT u.id, x.n FROM users u JOIN (SELECT user_id, count(*) AS n FROM orders GROUP BY user_id) x "
        "ON x.user_id = u.id WHERE x.n > 3"
    )

    grouped = plan.stages[0]
    assert isinstance(grouped, AccumulateStage)
    assert "_n > 3" in grouped.combine.replace("`", "")


def test_a_query_that_is_mentioned_twice_is_one_stage() -> None:
    assert kinds(
        "WITH w AS (SELECT user_id, sum(amount) AS s FROM orders GROUP BY user_id) "
        "SELECT a.user_id, b.user_id AS other FROM w a JOIN w b ON a.s = b.s"
    ) == ["accumulating", "bilinear"]


def test_the_key_of_a_keyed_stage_is_told_over_each_input() -> None:
    stage = only_stage("SELECT o.order_id, u.country FROM orders o LEFT JOIN users u ON o.user_id + 1 = u.id")

    assert isinstance(stage, KeyedStage)
    assert [given.keys for given in stage.inputs] == [("`user_id` + 1",), ("`id`",)]
    assert [given.plain for given in stage.inputs] == [None, ("id",)]


def test_an_outer_join_takes_only_the_source_that_its_condition_mentions() -> None:
    plan = plan_of(
        "SELECT u.country, n.text FROM orders o JOIN users u ON o.user_id = u.id LEFT JOIN notes n ON n.user_id = u.id"
    )

    keyed = plan.stages[0]
    assert isinstance(keyed, KeyedStage)
    assert [given.leaf.relation for given in keyed.inputs] == ["users", "notes"]
    assert [stage.kind.value for stage in plan.stages] == ["keyed", "bilinear"]


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT country AS land, count(*) AS n FROM users GROUP BY country", ("land",)),
        ("SELECT DISTINCT country, age FROM users", ("country", "age")),
        ("SELECT o.order_id, o.amount, u.country FROM orders o JOIN users u ON o.user_id = u.id", ("order_id",)),
        ("SELECT user_id, amount FROM orders", ()),
        ("SELECT page FROM visits", ()),
    ],
)
def test_the_key_is_what_is_known_to_be_unique(sql: str, key: tuple[str, ...]) -> None:
    assert plan_of(sql).key == key


def test_the_fingerprint_is_of_the_meaning() -> None:
    plan = plan_of("SELECT order_id, amount FROM orders WHERE amount > 3")
    spelled = plan_of(
        "select  ORDER_ID as order_id, o.Amount as amount -- a remark\n from orders as o where amount > 3"
    )
    other = plan_of("SELECT order_id, amount FROM orders WHERE amount > 4")

    assert plan.fingerprint != other.fingerprint
    assert plan.fingerprint == plan_of("SELECT order_id,amount FROM orders\nWHERE amount>3").fingerprint
    assert spelled.columns == plan.columns


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT id, rank() OVER (ORDER BY age) AS r FROM users", "PARTITION BY, and no filter that bounds the number"),
        ("SELECT id, sum(age) OVER (ORDER BY id) AS s FROM users", "a window function without PARTITION BY"),
        ("SELECT collect_list(age) AS a FROM users", "aggregates that take every row"),
        ("SELECT id FROM users ORDER BY age OFFSET 3", "LIMIT and OFFSET are not numbers"),
        (
            "SELECT session_window AS w, count(*) AS n FROM orders "
            "GROUP BY session_window(placedAt, CASE WHEN amount > 1 THEN '5 minutes' ELSE '1 minute' END)",
            "session_window without another group, whose gap",
        ),
        (
            "SELECT a.id FROM users a JOIN LATERAL (SELECT 1 FROM orders WHERE user_id = a.id) AS x",
            "LATERAL without names",
        ),
    ],
)
def test_what_is_computed_whole_says_why(sql: str, reason: str) -> None:
    stage = plan_of(sql).stages[-1]

    assert isinstance(stage, WholeStage)
    assert reason in stage.reason


def test_a_query_that_is_not_understood_is_one_whole_stage() -> None:
    plan = plan_of("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r")

    assert [stage.kind.value for stage in plan.stages] == ["whole"]
    assert plan.reads == ()
