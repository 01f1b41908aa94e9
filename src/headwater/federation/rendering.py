"""Rendering: a request as a statement of a database.

What it is: ``StatementRenderer`` builds the syntax tree of a SELECT from columns and conditions, and writes it in a
dialect. Subclasses say how values are written and how a column is compared.
Invariants: names are always quoted; values are literals of the right type, or parameters.
Not here: which conditions are pushed down (``conditions.py``).
Read next: ``postgres_store.py``, ``mysql_store.py``, ``sqlite_store.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from headwater.federation.conditions import Both, Comparison, Condition, Like, Null, OneOf
from headwater.federation.literals import Value
from headwater.federation.store import NUMBERED, StoreColumn, StoreRequest, StoreStatement

OPERATORS = {"=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}


class StatementRenderer:
    """Writes statements of one dialect."""

    dialect: str

    def __init__(self) -> None:
        self.parameters: list[Any] = []

    def select(self, request: StoreRequest) -> StoreStatement:
        """The statement. A query that needs no column gets the number 1 for each row."""
        tree = exp.Select(expressions=self.projections(request.columns))
        tree.set("from_", exp.From(this=_table(request.shape.parts)))
        if request.condition is not None:
            tree = tree.where(self.condition(request.condition), copy=False)
        tree = tree.limit(request.rows_max, copy=False)
        return StoreStatement(tree.sql(self.dialect), tuple(self.parameters))

    def projections(self, columns: Sequence[StoreColumn]) -> list[exp.Expr]:
        if not columns:
            return [exp.alias_(exp.Literal.number(1), NUMBERED, quoted=True)]
        return [
            exp.alias_(exp.Var(this=each.read_as), each.name, quoted=True) if each.read_as else _column(each)
            for each in columns
        ]

    def condition(self, condition: Condition) -> exp.Expr:
        if isinstance(condition, Comparison):
            operands = self.operand(condition.column, condition.operator), self.value(condition.column, condition.value)
            return OPERATORS[condition.operator](this=operands[0], expression=operands[1])
        if isinstance(condition, OneOf):
            values = [self.value(condition.column, value) for value in condition.values]
            return exp.In(this=self.operand(condition.column, "="), expressions=values)
        if isinstance(condition, Like):
            return exp.Like(
                this=self.operand(condition.column, "like"), expression=self.value(condition.column, condition.pattern)
            )
        if isinstance(condition, Null):
            found = exp.Is(this=_column(condition.column), expression=exp.Null())
            return found if condition.is_null else exp.Not(this=found)
        parts = [exp.paren(self.condition(part), copy=False) for part in condition.parts]
        return exp.and_(*parts) if isinstance(condition, Both) else exp.or_(*parts)

    def operand(self, column: StoreColumn, operator: str) -> exp.Expr:  # noqa: ARG002
        return _column(column)

    def value(self, column: StoreColumn, value: Value) -> exp.Expr:
        if isinstance(value, bool):
            return exp.Boolean(this=value)
        if isinstance(value, str):
            return exp.Literal.string(value)
        if isinstance(value, float):
            return self.floating(value)
        if isinstance(value, int | Decimal):
            return _number(f"{value:f}" if isinstance(value, Decimal) else str(value))
        if isinstance(value, dt.datetime):
            return self.moment(column, value)
        return exp.cast(exp.Literal.string(value.isoformat()), "date")

    def floating(self, value: float) -> exp.Expr:
        """A double, to its last bit."""
        raise NotImplementedError

    def moment(self, column: StoreColumn, value: dt.datetime) -> exp.Expr:
        raise NotImplementedError


def _number(text: str) -> exp.Expr:
    digits = exp.Literal.number(text.removeprefix("-"))
    return exp.Neg(this=digits) if text.startswith("-") else digits


def _column(column: StoreColumn) -> exp.Column:
    return exp.column(column.name, quoted=True)


def _table(parts: Sequence[str]) -> exp.Table:
    names = [exp.to_identifier(part, quoted=True) for part in parts]
    return exp.Table(this=names[-1], db=names[-2] if len(names) > 1 else None)


def moment_text(value: dt.datetime) -> str:
    """A time as text that all databases read.

    >>> moment_text(dt.datetime(2026, 1, 2, 3, 4, 5, 60))
    '2026-01-02 03:04:05.000060'
    """
    return f"{value.date().isoformat()} {value:%H:%M:%S.%f}"  # %Y alone may have fewer than four digits
