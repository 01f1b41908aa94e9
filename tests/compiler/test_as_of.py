"""Joins as of a moment: whatever comes when, each row meets the table as it was.

What it is: random histories delivered in several ways, on DuckDB, compared after every tick with answers in plain
Python; what a query may not ask; what a plan of it is.
Invariants: after all ticks every delivery gives the same rows.
Not here: the log and Spark (``tests/spark/test_views_as_of.py``).
Read next: ``server/status/lag_history.py``, ``src/headwater/views/compiler/frontend/as_of.py``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headwater.errors import InvalidView
from headwater.views.compiler.algebra.plan_nodes import Unsupported
from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.frontend.as_of import versions_of
from headwater.views.compiler.plan import PlanColumn, Relation, ViewPlan
from headwater.views.explain import explain
from tests.compiler.comparing import bag_difference
from tests.compiler.duck import DuckRunner, compile_all
from tests.compiler.past import AS_OF, VIEWS, Order, Record, Row, Ticks, User, answers, delivered, histories, moment
from tests.compiler.schemas import difference

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
many = settings(
    max_examples=5 * THOROUGH,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

USERS = Relation(
    "users",
    (PlanColumn("id", "BIGINT"), PlanColumn("country", "STRING"), PlanColumn("since", "TIMESTAMP")),
    key=("id",),
    not_null=("id",),
    event_time="since",
)
ORDERS = Relation(
    "orders",
    (
        PlanColumn("order_id", "BIGINT"),
        PlanColumn("user_id", "BIGINT"),
        PlanColumn("amount", "INT"),
        PlanColumn("at", "TIMESTAMP"),
    ),
    key=("order_id",),
    not_null=("order_id",),
    event_time="at",
)
PLAIN = Relation("plain", (PlanColumn("id", "BIGINT"), PlanColumn("name", "STRING")), key=("id",))
VISITS = Relation("visits", (PlanColumn("id", "BIGINT"), PlanColumn("at", "TIMESTAMP")), append_only=True)
SEEN = Relation("seen", (PlanColumn("id", "BIGINT"), PlanColumn("at", "TIMESTAMP")), key=("id",), is_view=True)
RELATIONS = {relation.name: relation for relation in (USERS, ORDERS, PLAIN, VISITS, SEEN)}


@pytest.mark.timeout(600 * THOROUGH)  # minutes where other work takes the cores
@many
@given(histories(), st.integers(0, 1000))
def test_each_order_meets_the_user_as_it_was_whatever_comes_when(
    history: tuple[list[User], list[Order]], seed: int
) -> None:
    expected = answers([*history[0], *history[1]])
    for how in ("first", "last", "between"):
        ticks = delivered(*history, how, seed)
        note(f"{how}: {ticks}")

        found = after_each_tick(ticks, seed)

        for name in VIEWS:
            assert not (wrong := bag_difference(found[name], expected[name])), f"{how}, {name}:\n{wrong}"


@functools.cache
def plans() -> list[ViewPlan]:
    return compile_all([USERS, ORDERS], list(VIEWS.items()))


def after_each_tick(ticks: Ticks, seed: int) -> dict[str, list[Row]]:
    """Run them, and compare after each; gives what the views hold at the end."""
    runner = DuckRunner([USERS, ORDERS, versions_of(USERS)], plans(), random=Random(seed))
    seen: list[Record] = []
    for number, tick in enumerate(ticks):
        before = contents(seen)
        seen += tick
        runner.tick({name: difference(before[name], rows) for name, rows in contents(seen).items()})
        expected = answers(seen)
        for name in VIEWS:
            assert not (wrong := bag_difference(runner.rows(name), expected[name])), f"tick {number}, {name}:\n{wrong}"
    return {name: runner.rows(name) for name in VIEWS}


def contents(seen: Sequence[Record]) -> dict[str, list[Row]]:
    """What the relations hold, as the log would tell them."""
    users = [record for record in seen if isinstance(record, User)]
    rows = [
        (user.id, None if user.deleted else user.country, None if user.since is None else moment(user.since))
        for user in users
    ]
    latest = {user.id: (user, row) for user, row in zip(users, rows, strict=True)}
    orders = {order.order_id: order for order in seen if isinstance(order, Order)}
    return {
        "users": [row for user, row in latest.values() if not user.deleted],
        "users$versions": [
            (*row, user.deleted, offset, moment(user.appended))
            for offset, (user, row) in enumerate(zip(users, rows, strict=True))
        ],
        "orders": [
            (order.order_id, order.user_id, order.amount, moment(order.at))
            for order in orders.values()
            if not order.deleted
        ],
    }


# What a query may not ask

JOIN = "SELECT o.order_id, u.id FROM orders o"


@pytest.mark.parametrize(
    ("sql", "message", "underlined"),
    [
        (
            f"{JOIN} JOIN seen FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id",
            '"seen" is a view, and AS OF looks into the records of a table',
            "seen FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            f"WITH mine AS (SELECT * FROM users) {JOIN} JOIN mine FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id",
            '"mine" is a query, and AS OF looks into the records of a table',
            "mine FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            f"{JOIN} JOIN visits FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id",
            '"visits" has no key, so none of its rows takes the place of another',
            "visits FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            f"{JOIN} JOIN plain FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id",
            '"plain" has no event time, so it is not known since when a row counts',
            "plain FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            "SELECT u.id FROM users TIMESTAMP AS OF TIMESTAMP'2024-01-01' AS u",
            "AS OF needs rows on its left whose time counts, and this table comes first",
            "users TIMESTAMP AS OF TIMESTAMP'2024-01-01' AS u",
        ),
        (
            f"{JOIN} RIGHT JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id",
            "RIGHT JOIN cannot be AS OF: a row without a partner has no moment",
            "users FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            f"{JOIN} FULL OUTER JOIN users FOR TIMESTAMP AS OF o.at AS u ON u.id = o.user_id",
            "FULL JOIN cannot be AS OF: a row without a partner has no moment",
            "users FOR TIMESTAMP AS OF o.at AS u",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF v.at AS u ON u.id = o.user_id JOIN visits v ON v.id = u.id",
            'the time of AS OF must come from a table to its left, and "v" is not one',
            "v.at",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF u.since AS u ON u.id = o.user_id",
            'the time of AS OF must come from a table to its left, and "u" is not one',
            "u.since",
        ),
        (
            f"SELECT v.id FROM visits v WHERE EXISTS ({JOIN} JOIN users FOR SYSTEM_TIME AS OF v.at AS u ON true)",
            'the time of AS OF must come from a table to its left, and "v" is not one',
            "v.at",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF (SELECT max(at) FROM visits) AS u ON u.id = o.user_id",
            "the moment behind AS OF must follow from a row alone",
            "users FOR SYSTEM_TIME AS OF (SELECT max(at) FROM visits) AS u",
        ),
        (
            f"{JOIN} JOIN users VERSION AS OF 3 AS u ON u.id = o.user_id",
            "only AS OF a moment can be asked for",
            "users VERSION AS OF 3 AS u",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME BETWEEN o.at AND o.at AS u ON u.id = o.user_id",
            "only AS OF a moment can be asked for",
            "users FOR SYSTEM_TIME BETWEEN o.at AND o.at AS u",
        ),
        (
            f"SELECT * FROM ({JOIN} JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id) "
            "PIVOT (count(order_id) FOR id IN (1, 2))",
            "AS OF cannot be part of this query: PIVOT is computed as one piece",
            "users FOR SYSTEM_TIME AS OF o.at AS u",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF now() AS u ON u.id = o.user_id",
            "now() depends on the time of day, so it cannot be part of a view",
            "now()",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF o.when AS u ON u.id = o.user_id",
            'no column "when" in "o"',
            "o.when",
        ),
        (
            f"{JOIN} JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON u.id = o.user_id AND u.valid__from = o.at",
            'no column "valid__from" in "u"',
            "u.valid__from",
        ),
        ("SELECT v.id FROM `users$versions` v", 'no topic, table or view "users$versions"', "`users$versions`"),
    ],
)
def test_what_cannot_be_asked_is_underlined(sql: str, message: str, underlined: str) -> None:
    with pytest.raises(InvalidView) as caught:
        compile_view("v", sql, RELATIONS)

    assert caught.value.message == f"{message} (line 1, column {sql.index(underlined) + 1})"
    assert sql[caught.value.data["start"] : caught.value.data["stop"]] == underlined
    assert caught.value.hint


# What becomes of it


@pytest.mark.parametrize(
    "mention",
    ["users FOR SYSTEM_TIME AS OF o.at AS u", "users FOR TIMESTAMP AS OF o.at u", "users TIMESTAMP AS OF at u"],
)
def test_all_spellings_mean_the_same(mention: str) -> None:
    one = compile_view("v", f"SELECT order_id, country FROM orders o JOIN {mention} ON user_id = id", RELATIONS)
    other = compile_view("v", VIEWS["taxed"].replace("o.amount, ", ""), RELATIONS)

    assert one.fingerprint == other.fingerprint
    assert one.stages == other.stages


def test_the_plan_tells_of_versions() -> None:
    plan = compile_view("taxed", VIEWS["taxed"], RELATIONS)

    assert explain(plan).splitlines() == [
        "view taxed: a tick costs the rows of the touched keys",
        "  taxed$1  keyed         versions of users  (reads users$versions)",
        "  taxed    bilinear      orders ⋈ (versions of users)  (reads orders, taxed$1)",
    ]
    assert plan.reads == ("orders", "users$versions")


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        (VIEWS["taxed"], ("order_id",)),
        (f"SELECT o.order_id, u.id, u.country FROM orders o JOIN {AS_OF} o.at AS u ON true", ("order_id", "id")),
        (f"SELECT v.id, u.country FROM visits v JOIN {AS_OF} v.at AS u ON u.id = v.id", ()),
        (f"SELECT o.order_id, u.country FROM orders o JOIN {AS_OF} o.at AS u ON u.id > o.user_id", ()),
    ],
)
def test_an_order_meets_at_most_one_version_of_a_key(sql: str, key: tuple[str, ...]) -> None:
    assert compile_view("v", sql, RELATIONS).key == key


def test_stars_show_the_tables_own_columns_only() -> None:
    plan = compile_view("v", "SELECT u.* FROM orders o JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON true", RELATIONS)
    both = compile_view("v", "SELECT * FROM orders o JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON true", RELATIONS)

    assert [column.name for column in plan.columns] == ["id", "country", "since"]
    assert [column.name for column in both.columns] == ["order_id", "user_id", "amount", "at", "id", "country", "since"]


def test_spelling_does_not_matter_and_is_kept() -> None:
    columns = (PlanColumn("Id", "BIGINT"), PlanColumn("Price", "INT"), PlanColumn("validFrom", "DATE"))
    prices = Relation("Prices", columns, key=("Id",), event_time="validFrom")
    sql = "SELECT order_id, p.* FROM Orders o JOIN PRICES FOR SYSTEM_TIME AS OF O.At AS P USING (id)"
    orders = Relation(
        "orders", (PlanColumn("order_id", "INT"), PlanColumn("id", "BIGINT"), PlanColumn("at", "TIMESTAMP"))
    )

    plan = compile_view("v", sql, {"Prices": prices, "orders": orders})

    assert plan.reads == ("orders", "Prices$versions")
    assert [column.name for column in plan.columns] == ["order_id", "Id", "Price", "validFrom"]
    assert plan.stages[0].leaves[0].columns == ("Id", "Price", "validFrom", "_appended_at", "_offset", "_deleted")


def test_columns_may_have_names_that_are_used_inside() -> None:
    columns = [PlanColumn(name, "TIMESTAMP") for name in ("valid__from", "valid__until", "deleted__")]
    odd = Relation("odd", (PlanColumn("id", "BIGINT"), *columns), key=("id",), event_time="valid__from")

    plan = compile_view(
        "v",
        "SELECT r.* FROM orders record JOIN odd FOR SYSTEM_TIME AS OF record.at AS r ON r.id = user_id",
        {"odd": odd, "orders": ORDERS},
    )

    assert [column.name for column in plan.columns] == ["id", "valid__from", "valid__until", "deleted__"]


def test_a_query_that_is_computed_as_one_piece_has_its_versions_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def trip(*_: object) -> None:
        raise Unsupported("tripped")

    monkeypatch.setattr("headwater.views.compiler.compile.compile_query", trip)

    plan = compile_view("taxed", VIEWS["taxed"], RELATIONS)

    (stage,) = plan.stages
    assert stage.reads == {"orders", "users$versions"}
    assert "AS OF" not in plan.query
