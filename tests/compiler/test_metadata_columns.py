"""Metadata columns: which mentions of a topic are written out, and what becomes of stars and errors."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidView
from headwater.views.compiler.frontend.metadata_columns import write_out_metadata
from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.event_time.timing import Timing, timed_plan

ORDERS = Relation("orders", (PlanColumn("id", "BIGINT"), PlanColumn("odd `name", "STRING")), append_only=True)
USERS = Relation("users", (PlanColumn("id", "BIGINT"), PlanColumn("country", "STRING")), ("id",))
BAG = Relation("bag", (PlanColumn("id", "BIGINT"),))
NAMED = Relation("named", (PlanColumn("id", "BIGINT"), PlanColumn("_actor", "STRING")), is_view=True)
RELATIONS = {relation.name: relation for relation in (ORDERS, USERS, BAG, NAMED)}

UNTOUCHED = (
    "SELECT * FROM orders",
    "SELECT '_actor' AS a FROM orders",
    "SELECT _actor FROM named JOIN orders ON named.id = orders.id",
    "SELECT n._actor FROM named n, orders",
    "SELECT _actor AS a FROM bag",
    "SELECT _actor AS a FROM (SELECT 'x' AS _actor FROM orders)",
    "SELECT _actor AS a FROM orders AS o(_actor, b)",
    "WITH orders AS (SELECT 1 AS _actor) SELECT _actor AS a FROM orders",
    "SELECT _actor FROM no SQL at all (",
    "FROM orders |> WHERE _actor = 'x'",
)
WRITTEN_OUT = {
    "SELECT _ACTOR AS a FROM Orders": "SELECT _ACTOR AS a FROM `orders$metadata` AS Orders",
    "SELECT `_actor` AS a FROM `orders` AS o": "SELECT `_actor` AS a FROM `orders$metadata` AS o",
    "SELECT _actor, count(*) AS n, (SELECT max(id) FROM users) AS m FROM orders GROUP BY 1": "SELECT _actor, "
    "count(*) AS n, (SELECT max(id) FROM users) AS m FROM `orders$metadata` AS orders GROUP BY 1",
    "SELECT *, _offset AS n FROM orders": "SELECT orders.`id`, orders.`odd ``name`, _offset AS n "
    "FROM `orders$metadata` AS orders",
    "SELECT * FROM orders o, users u WHERE u._actor = 'x'": "SELECT o.*, u.`id`, u.`country` "
    "FROM orders o, `users$metadata` u WHERE u._actor = 'x'",
    "SELECT u.*, o._actor AS a FROM orders o JOIN users u USING (id)": "SELECT u.*, o._actor AS a "
    "FROM `orders$metadata` o JOIN users u USING (id)",
    "SELECT id FROM users WHERE id IN (SELECT id FROM orders WHERE _actor = 'x')": "SELECT id FROM users "
    "WHERE id IN (SELECT id FROM `orders$metadata` AS orders WHERE _actor = 'x')",
    "SELECT id FROM users WHERE EXISTS (SELECT 1 FROM named WHERE named._actor = users._actor)": "SELECT id "
    "FROM `users$metadata` AS users WHERE EXISTS (SELECT 1 FROM named WHERE named._actor = users._actor)",
    "WITH a AS (SELECT _actor FROM orders) SELECT _actor FROM a": "WITH a AS (SELECT _actor "
    "FROM `orders$metadata` AS orders) SELECT _actor FROM a",
}
REFUSED = {
    "SELECT _actor FROM orders, users": '_actor may be that of "orders" or "users"',
    "SELECT a._actor FROM orders a NATURAL JOIN users b": "NATURAL JOIN beside a metadata column",
    "SELECT * FROM orders JOIN users USING (id) WHERE orders._actor = 'x'": "this star beside a metadata column",
    "SELECT * EXCEPT (id) FROM orders WHERE _actor = 'x'": "this star beside a metadata column",
    "SELECT _actor, count(DISTINCT *) AS n FROM orders GROUP BY _actor": "this star beside a metadata column",
    "SELECT _actor, struct(o.*) AS s FROM orders o": "this star beside a metadata column",
    "SELECT _actor, struct(*) AS s FROM orders": "this star beside a metadata column",
    "SELECT * FROM orders LATERAL VIEW explode(array(1)) AS n WHERE _actor = 'x'": "this star beside a metadata column",
}


@pytest.mark.parametrize("sql", UNTOUCHED)
def test_a_text_that_names_none_of_a_topic_stays_as_it_is(sql):
    written = write_out_metadata(sql, RELATIONS)

    assert written.sql == sql
    assert written.relations is RELATIONS


@pytest.mark.parametrize("sql", WRITTEN_OUT)
def test_a_mention_is_of_the_relation_that_has_the_columns(sql):
    assert write_out_metadata(sql, RELATIONS).sql == WRITTEN_OUT[sql]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_could_mean_two_things_is_refused(sql):
    with pytest.raises(InvalidView) as refused:
        write_out_metadata(sql, RELATIONS)

    assert REFUSED[sql] in str(refused.value)


def test_a_plan_reads_the_second_relation_and_keeps_the_users_text():
    sql = "SELECT _actor, count(*) AS n FROM orders GROUP BY _actor"

    plan = timed_plan("v", sql, RELATIONS, Timing(), {})

    assert (plan.sql, plan.reads, plan.key) == (sql, ("orders$metadata",), ("_actor",))
    assert plan.batch == "SELECT _actor, count(*) AS n FROM `orders$metadata` AS orders GROUP BY _actor"


@pytest.mark.parametrize(
    ("sql", "underlined"),
    [
        ("SELECT *, _actor AS a, wrong FROM orders", "wrong"),
        ("SELECT _actor AS a, id\nFROM orders WHERE wrong > 1", "wrong"),
        ("SELECT *, _actor AS a FROM orders WHERE rand() > 1", "rand()"),
        ("SELECT * FROM orders JOIN wrong ON true WHERE orders._actor = 'x'", "wrong"),
    ],
)
def test_an_error_underlines_the_users_own_text(sql, underlined):
    with pytest.raises(InvalidView) as refused:
        timed_plan("v", sql, RELATIONS, Timing(), {})

    data = refused.value.data
    assert sql[data["start"] : data["stop"]] == underlined
    assert "$" not in str(refused.value)
    assert data["line"] == sql[: data["start"]].count("\n") + 1


def test_a_misspelt_metadata_column_is_suggested():
    with pytest.raises(InvalidView) as refused:
        timed_plan("v", "SELECT _actr, count(*) AS n FROM orders GROUP BY _actr", RELATIONS, Timing(), {})

    assert refused.value.hint == 'Did you mean "_actor"?'
