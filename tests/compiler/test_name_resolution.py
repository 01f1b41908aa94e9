"""Names are settled as Spark settles them, and mistakes are underlined."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidView
from headwater.views.compiler.frontend.name_resolution import settle
from headwater.views.compiler.frontend.parse import parse
from headwater.views.compiler.sql.dialect import text
from tests.compiler.shop import RELATIONS, plan_of


def settled(sql: str) -> str:
    return text(settle(parse(sql).query, RELATIONS, sql).query).replace("`", "")


def test_cases_do_not_matter_and_the_users_spelling_is_shown() -> None:
    plan = plan_of("SELECT Order_ID AS Number, ORDERS.PLACEDAT FROM Orders")

    assert [column.name for column in plan.columns] == ["Number", "PLACEDAT"]


def test_a_star_shows_the_columns_as_the_relation_spells_them() -> None:
    plan = plan_of("SELECT * FROM orders")

    assert [column.name for column in plan.columns] == ["order_id", "user_id", "amount", "placedAt", "tags"]


def test_leaves_are_spelled_as_their_relation_spells_them() -> None:
    plan = plan_of("SELECT PlacedAt AS at FROM orders")

    assert plan.stages[0].leaves[0].columns == ("placedAt",)


def test_sources_of_one_name_get_names_of_their_own() -> None:
    sql = settled("SELECT o.amount AS a FROM orders o JOIN (SELECT o.user_id AS u FROM orders o) x ON x.u = o.user_id")

    assert sql == (
        "SELECT o_3.amount AS a FROM orders AS o_3 "
        "JOIN (SELECT o_2.user_id AS u FROM orders AS o_2) AS x ON x.u = o_3.user_id"
    )


def test_an_alias_may_be_grouped_by_and_asked_for_in_having() -> None:
    sql = settled("SELECT amount * 2 AS double, count(*) AS n FROM orders GROUP BY double HAVING n > 1")

    assert "GROUP BY orders.amount * 2 HAVING count(*) > 1" in sql


def test_two_sources_of_one_name_are_left_to_spark() -> None:
    plan = plan_of("SELECT 1 AS a FROM users u, orders u")

    assert plan.opaque == 'computed as one piece: two sources are named "u"'


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT amout AS a FROM orders", 'no column "amout"', 'Did you mean "amount"'),
        ("SELECT o.amout AS a FROM orders o", 'no column "amout" in "o"', 'Did you mean "amount"'),
        ("SELECT o.amout FROM orders o GROUP BY o.amout", 'no column "amout" in "o"', 'Did you mean "amount"'),
        ("SELECT amout, count(*) AS n FROM orders GROUP BY amout", 'no column "amout"', 'Did you mean "amount"'),
        (
            "SELECT user_id AS u FROM orders, visits",
            'column "user_id" is ambiguous',
            "orders.user_id or visits.user_id",
        ),
        ("SELECT x.amount AS a FROM orders o", 'no source "x"', "The sources here are o"),
        ("SELECT a FROM order", 'no topic, table or view "order"', 'Did you mean "orders"'),
        ("SELECT amount AS a, user_id AS A FROM orders", 'two columns are named "A"', "another name"),
        ("SELECT amount AS _a FROM orders", "begins with an underscore", "rename it"),
        ("SELECT id FROM users UNION SELECT id, age FROM users", "UNION of 1 columns and 2", "as many"),
        (
            "SELECT country, age, count(*) AS n FROM users GROUP BY country",
            '"age" is neither grouped',
            "any_value(age)",
        ),
    ],
)
def test_mistakes_are_named_and_underlined(sql: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidView) as caught:
        plan_of(sql)

    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "^" in (caught.value.detail or "")
