"""Random predicates over the odd rows, in Spark's SQL.

What it is: hypothesis strategies for conditions that a store might be asked, and for some that it must not.
Invariants: every predicate is of the right types, so that Spark runs it in ANSI mode.
Not here: the rows (``odd_rows.py``).
Read next: ``test_push_down.py``.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tests.services.federation.odd_rows import POOLS

COMPARED = ["=", "<>", "<", "<=", ">", ">=", "!=", "=="]
OTHER_NUMBERS = [
    "0",
    "1",
    "-1",
    "0.5",
    "7.5",
    "7.500",
    "9.99",
    "2147483648",
    "9007199254740993",
    "9223372036854775808",
    "1e0",
    "0.1",
    "0.1D",
    "-0.01",
    "5L",
    "1e-1",
]
PATTERNS = [
    "a%",
    "A%",
    "%a",
    "_",
    "__",
    "%",
    "a_",
    "ä%",
    "%b%",
    "",
    "e%",
    "\U0001f600%",
    "1%",
    " %",
    "line%",
    "s_",
    "o''%",
]
NUMBERS = ("id", "small", "large", "price", "score")
# Texts of the pool that can stand in a literal without an escape.
TEXTS = ("name", "code")


def literal(value: Any, column: str) -> str:
    """A value as Spark's SQL writes it."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("\\", "").replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return f"{value!r}D" if value == value and abs(value) < 1e300 and value != 5e-324 else "1e300"
    if isinstance(value, Decimal) or column in NUMBERS:
        return str(value)
    raise TypeError(value)


@st.composite
def values(draw: st.DrawFn, column: str) -> str:
    """A literal of a column's type, mostly one that is there."""
    column = column.rpartition(".")[2]
    if column in NUMBERS and draw(st.booleans()):
        return draw(st.sampled_from(OTHER_NUMBERS))
    pool = [value for value in POOLS.get(column, range(150)) if value is not None]
    value = draw(st.sampled_from(pool))
    if isinstance(value, dt.date) and draw(st.integers(0, 3)) == 0:
        return f"'{value.isoformat(sep=' ') if isinstance(value, dt.datetime) else value.isoformat()}'"
    return literal(value, column)


@st.composite
def atoms(draw: st.DrawFn, columns: list[str]) -> str:
    """One comparison."""
    column = draw(st.sampled_from(columns))
    form = draw(st.integers(0, 9))
    if form == 0:
        return f"{column} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    is_text = column.rpartition(".")[2] in TEXTS
    if is_text and form in (1, 2):
        return f"{column} {draw(st.sampled_from(['LIKE', 'NOT LIKE']))} '{draw(st.sampled_from(PATTERNS))}'"
    if form == 3:
        listed = ", ".join(draw(st.lists(values(column), min_size=1, max_size=4)))
        return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({listed})"
    if form == 4:
        low, high = draw(values(column)), draw(values(column))
        return f"{column} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {low} AND {high}"
    if column == "active" and form in (5, 6):
        return draw(st.sampled_from(["active", "NOT active"]))
    if is_text and form == 7:
        return f"upper({column}) = {draw(values(column))}"
    sides = [column, draw(values(column))]
    if draw(st.booleans()):
        sides.reverse()
    return f"{sides[0]} {draw(st.sampled_from(COMPARED))} {sides[1]}"


def predicates(columns: list[str]) -> st.SearchStrategy[str]:
    """Comparisons, put together by AND, OR and NOT."""
    return st.recursive(
        atoms(columns),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda one: f"NOT ({one})"),
        ),
        max_leaves=4,
    )
