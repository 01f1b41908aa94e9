"""A text that only Spark's parser reads is a whole view, and refused for the same reasons as any other.

What it is: ``compile_view`` with a ``read`` that says what Spark's parser would find.
Invariants: no Spark here.
Not here: what Spark's parser finds (``tests/spark/test_spark_parser.py``).
Read next: ``src/headwater/views/compiler/whole_query.py``.
"""

from __future__ import annotations

import pytest

from headwater.errors import InvalidView
from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import PlanColumn, Relation, StageKind, WholeStage
from headwater.views.compiler.whole_query import UNREAD, Reading

ORDERS = Relation("orders", (PlanColumn("id", "BIGINT"), PlanColumn("amount", "INT")))
USERS = Relation("users", (PlanColumn("id", "BIGINT"), PlanColumn("current_date", "DATE")))
RELATIONS = {"orders": ORDERS, "users": USERS}
PIPES = "FROM Orders |> WHERE amount > 1 |> DROP amount"


def test_a_text_that_only_spark_reads_is_one_whole_stage_in_the_users_words() -> None:
    plan = compile_view("v", f"{PIPES};\n", RELATIONS, read=lambda _: Reading(relations=("Orders",)))

    assert (plan.kind, plan.reads, plan.opaque, plan.notes) == (StageKind.WHOLE, ("orders",), UNREAD, (UNREAD,))
    (stage,) = plan.stages
    assert isinstance(stage, WholeStage)
    assert stage.sql == f"/* as written */ WITH `orders` AS (SELECT * FROM _l0) (\n{PIPES}\n)"


def test_its_columns_are_those_that_spark_tells() -> None:
    plan = compile_view(
        "v",
        PIPES,
        RELATIONS,
        read=lambda _: Reading(relations=("orders",)),
        describe=lambda *_: (PlanColumn("id", "BIGINT"),),
    )

    assert plan.columns == (PlanColumn("id", "BIGINT"),)


def test_a_name_of_with_is_no_relation() -> None:
    reading = Reading(relations=("x", "users"), defined=frozenset({"x"}))

    assert compile_view("v", PIPES, RELATIONS, read=lambda _: reading).reads == ("users",)


def test_what_spark_cannot_read_either_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidView, match=r"a table is missing after this \(line 1, column 11\)"):
        compile_view("v", "SELECT id FROM", RELATIONS, read=lambda _: None)


def test_what_our_parser_reads_is_never_asked_about() -> None:
    def read(sql: str) -> Reading:
        raise AssertionError(sql)

    with pytest.raises(InvalidView, match='no column "amuont"'):
        compile_view("v", "SELECT amuont FROM orders", RELATIONS, read=read)


@pytest.mark.parametrize(
    ("sql", "reading", "message"),
    [
        (PIPES, Reading(relations=("ordres",)), 'no topic, table or view "ordres"'),
        (PIPES, Reading(relations=("spark_catalog.default.orders",)), 'no topic, table or view "spark_catalog'),
        (PIPES, Reading(calls=(("rand", 0),)), "rand gives another value each time"),
        (PIPES, Reading(calls=(("unix_timestamp", 0),)), "unix_timestamp depends on the time of day"),
        (PIPES, Reading(calls=(("aes_encrypt", 2),)), "without an initialisation vector"),
        (PIPES, Reading(relations=("orders",), words=("current_date",)), "current_date depends on the time of day"),
        (f"{PIPES} |> WHERE 'today' > x", Reading(), "'today' as a time depends on the time of day"),
        (f"{PIPES} |> LIMIT 1", Reading(unordered=True), "LIMIT without ORDER BY may take any rows"),
        (PIPES, Reading(other="TABLESAMPLE"), "TABLESAMPLE cannot be part of a view"),
    ],
)
def test_what_is_no_function_of_its_inputs_is_refused(sql: str, reading: Reading, message: str) -> None:
    with pytest.raises(InvalidView, match=message):
        compile_view("v", sql, RELATIONS, read=lambda _: reading)


@pytest.mark.parametrize(
    "reading",
    [Reading(calls=(("unix_timestamp", 1), ("upper", 1))), Reading(relations=("users",), words=("current_date", "id"))],
)
def test_what_is_one_is_not(reading: Reading) -> None:
    assert compile_view("v", PIPES, RELATIONS, read=lambda _: reading).kind is StageKind.WHOLE
