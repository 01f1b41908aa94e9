"""What the parser refuses, and what it rewrites before anything else looks at the query."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidView, Misuse
from headwater.views.compiler.frontend.parse import parse
from headwater.views.compiler.sql.compiled_sqlglot import refuse_compiled
from headwater.views.compiler.sql.dialect import text


def test_with_clauses_are_put_where_they_are_mentioned() -> None:
    parsed = parse("WITH a AS (SELECT 1 AS x), b(y) AS (SELECT x FROM a) SELECT y FROM b JOIN a ON a.x = b.y")

    sql = text(parsed.query)

    assert sql == ("SELECT y FROM (SELECT x FROM (SELECT 1 AS x) AS a) AS b(y) JOIN (SELECT 1 AS x) AS a ON a.x = b.y")


def test_an_inner_with_hides_an_outer_one() -> None:
    parsed = parse("WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH a AS (SELECT 2 AS x) SELECT * FROM a) AS t")

    assert "1 AS x" not in text(parsed.query)


def test_window_is_a_function_before_a_bracket_and_a_clause_before_a_name() -> None:
    call = parse("SELECT window(at, '1 minute') AS w FROM t GROUP BY window(at, '1 minute')")
    clause = parse("SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY y)")

    assert call.query.args["group"] is not None
    assert clause.query.args["windows"]


def test_a_generator_of_the_select_list_becomes_a_lateral_view() -> None:
    parsed = parse("SELECT id, posexplode_outer(xs) AS (place, x) FROM t")

    sql = text(parsed.query)

    assert sql == "SELECT id, g__1.place, g__1.x FROM t LATERAL VIEW OUTER posexplode(xs) g__1 AS place, x"


def test_order_by_without_limit_is_left_out_with_a_note() -> None:
    parsed = parse("SELECT a FROM t ORDER BY a")

    assert parsed.query.args.get("order") is None
    assert "ORDER BY has no effect" in parsed.notes[0]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT a FROM t LIMIT 3", "LIMIT without ORDER BY"),
        ("SELECT a FROM t LIMIT CAST(NULL AS INT)", "LIMIT without ORDER BY"),
        ("SELECT a FROM (SELECT a FROM t LIMIT 3) AS x", "LIMIT without ORDER BY"),
        ("SELECT a FROM t; SELECT b FROM t", "a view is one query"),
        ("DROP TABLE t", "a view is a query"),
        ("", "empty"),
        ("SELECT a FROM", "cannot be read"),
    ],
)
def test_what_is_no_function_of_its_inputs_is_refused(sql: str, message: str) -> None:
    with pytest.raises(InvalidView, match=message):
        parse(sql)


def test_limit_inside_exists_needs_no_order() -> None:
    parsed = parse("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s LIMIT 1)")

    assert "LIMIT" not in text(parsed.query)


def test_compiled_sqlglot_is_refused_in_a_sentence() -> None:
    """With sqlglotc every view was refused as SQL that cannot be read."""
    refuse_compiled("sqlglot/parser.py")
    with pytest.raises(Misuse, match="compiled form of sqlglot") as refused:
        refuse_compiled("sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    assert "pip uninstall sqlglotc" in str(refused.value.hint)
