"""Refusals: the clause is underlined, and nothing of the parser's own words comes through.

What it is: errors for SQL that cannot be read, and the search for a node's place in the text.
Invariants: every error is ``InvalidView`` with line, column, the line of SQL and carets under the clause.
Not here: what is refused (``test_functions.py`` and the compiler's own tests).
Read next: ``src/headwater/views/compiler/sql/refusal.py``.
"""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from headwater.errors import InvalidView
from headwater.hints import underline
from headwater.views.compiler.sql.refusal import find_span, refuse, syntax_error


def refusal_of(sql: str) -> InvalidView:
    with pytest.raises(sqlglot.errors.SqlglotError) as theirs:
        sqlglot.parse_one(sql, read="spark")
    with pytest.raises(InvalidView) as ours:
        syntax_error(sql, theirs.value)
    return ours.value


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SELECT a b c FROM t", 1, 12),
        ("SELECT a FROM t WHERE", 1, 17),
        ("SELECT a\nFROM (SELECT 1", 2, 14),
        ("SELECT a,\n  'it is open FROM t", 2, 3),
        ("SELECT CAST(a AS intt) FROM t", 1, 18),
        ("SELECT ä, ß b c FROM t", 1, 15),
    ],
)
def test_a_syntax_error_names_line_and_column(sql: str, line: int, column: int) -> None:
    error = refusal_of(sql)

    assert (error.data["line"], error.data["column"]) == (line, column)
    shown, carets = (error.detail or "").split("\n")
    assert shown == sql.split("\n")[line - 1]
    assert carets.index("^") == column - 1 + len("  ")


@pytest.mark.parametrize(
    "sql", ["SELECT a FROM t WHERE", "SELECT (", "SELECT 'x", "SELECT a FROM t JOIN", "WITH x AS (", "("]
)
def test_nothing_of_the_parser_comes_through(sql: str) -> None:
    text = str(refusal_of(sql))

    assert "\x1b" not in text
    assert "sqlglot" not in text
    assert "<class" not in text


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("SELECT sum(a + 1) FROM t", exp.Sum, "sum(a + 1)"),
        ("SELECT count(*) FROM t", exp.Count, "count(*)"),
        ("SELECT a FROM t ORDER BY a, b DESC LIMIT 3", exp.Order, "ORDER BY a, b"),
        ("SELECT a FROM t ORDER BY a LIMIT 3", exp.Limit, "LIMIT 3"),
        ("SELECT a FROM t LEFT JOIN s ON t.a = s.b", exp.EQ, "t.a = s.b"),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM s)", exp.In, "a IN (SELECT b FROM s)"),
        ("SELECT current_date FROM t", exp.CurrentDate, "current_date"),
        ("SELECT `odd name` FROM t", exp.Column, "`odd name`"),
    ],
)
def test_a_nodes_place_in_the_text(sql: str, kind: type[exp.Expr], expected: str) -> None:
    node = sqlglot.parse_one(sql, read="spark").find(kind)
    assert node is not None

    span = find_span(sql, node)

    assert span is not None
    assert sql[slice(*span)] == expected


def test_a_long_line_is_cut_around_the_clause() -> None:
    sql = f"SELECT {', '.join(f'column_{number}' for number in range(50))}, rand() FROM t"
    start = sql.index("rand()")

    shown, carets = underline(sql, (start, start + 6)).split("\n")

    assert len(shown) <= 100
    assert shown[carets.index("^") - 2 :].startswith("rand()")


def test_a_node_that_is_not_in_the_text_is_refused_without_a_place() -> None:
    with pytest.raises(InvalidView) as caught:
        refuse("SELECT a FROM t", exp.column("elsewhere"), "no such column", "Did you mean a?")

    assert caught.value.detail is None
    assert caught.value.hint == "Did you mean a?"
