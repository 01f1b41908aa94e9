"""Conditions: the part of a WHERE that is pushed down to a store.

What it is: a few forms (a column compared with a value, IN, LIKE, IS NULL, AND, OR), and ``condition_of``, which reads
one from the syntax tree of a conjunct, or raises the reason why not.
Invariants: a condition is true for every row for which the conjunct is true in Spark. It may be true for more, so AND
may lose a part; OR may not. NOT is pushed inwards, where three-valued logic allows it (De Morgan), so no form has a
NOT. ``StoreColumn.operators`` says what a column may be asked.
Not here: values (``literals.py``), rendering (``rendering.py``, ``file_store.py``). Read next: ``literals.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from headwater.federation.literals import Value, value_of
from headwater.federation.store import ComparedAs, StoreColumn, StoreTable

LISTED_MAX = 1_000  # a longer IN is not pushed down
COMPARED = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# The parts of each form that are understood. A form with any other part is not pushed down.
UNDERSTOOD = {"this", "expression", "expressions", "low", "high", "table"}
TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Comparison:
    """``column operator value``."""

    column: StoreColumn
    operator: str
    value: Value


@dataclass(frozen=True)
class OneOf:
    """``column IN (values)``."""

    column: StoreColumn
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Like:
    """``column LIKE pattern``, without an escape in it."""

    column: StoreColumn
    pattern: str


@dataclass(frozen=True)
class Null:
    """``column IS NULL``, or ``IS NOT NULL``."""

    column: StoreColumn
    is_null: bool


@dataclass(frozen=True)
class Both:
    """All of them."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    """One of them at least."""

    parts: tuple[Condition, ...]


Condition = Comparison | OneOf | Like | Null | Both | Either


class Kept(Exception):
    """The reason why a conjunct is not pushed down."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def condition_of(conjunct: exp.Expr, shape: StoreTable, *, texts: bool = True) -> Condition:
    """The condition of a conjunct that references only this table; raises ``Kept`` with the reason.

    Without ``texts``, no texts are compared: the query has escapes, which Spark reads in its own way.

    >>> import pyarrow as pa, sqlglot
    >>> shape = StoreTable("crm.users", ("users",), (StoreColumn("age", pa.int64(), frozenset({"<"})),))
    >>> found = condition_of(sqlglot.parse_one("age < 18 AND upper(name) = 'X'"), shape)
    >>> found.column.name, found.operator, found.value
    ('age', '<', 18)
    """
    return _Reader(shape, texts).read(conjunct, negated=False)


def rejects_nulls(condition: Condition) -> bool:
    """Whether a row of nulls, which an outer join adds, certainly fails the condition.

    >>> import pyarrow as pa
    >>> age = StoreColumn("age", pa.int64())
    >>> rejects_nulls(Comparison(age, ">", 3)), rejects_nulls(Null(age, is_null=True))
    (True, False)
    """
    if isinstance(condition, Both):
        return any(map(rejects_nulls, condition.parts))
    if isinstance(condition, Either):
        return all(map(rejects_nulls, condition.parts))
    return not (isinstance(condition, Null) and condition.is_null)


def all_of(conditions: Sequence[Condition]) -> Condition | None:
    """The conjunction; None when there are none."""
    return None if not conditions else conditions[0] if len(conditions) == 1 else Both(tuple(conditions))


def text_of(condition: Condition) -> str:
    """A condition as text.

    >>> import pyarrow as pa
    >>> age = StoreColumn("age", pa.int64())
    >>> text_of(Either((Comparison(age, ">", 3), Null(age, is_null=True))))
    '(age > 3 or age is null)'
    """
    if isinstance(condition, Both | Either):
        return f"({(' and ' if isinstance(condition, Both) else ' or ').join(map(text_of, condition.parts))})"
    name = condition.column.name
    if isinstance(condition, Comparison):
        return f"{name} {condition.operator} {condition.value}"
    if isinstance(condition, OneOf):
        return f"{name} in ({', '.join(map(str, condition.values))})"
    if isinstance(condition, Like):
        return f"{name} like {condition.pattern}"
    return f"{name} is {'' if condition.is_null else 'not '}null"


class _Reader:
    def __init__(self, shape: StoreTable, texts: bool) -> None:
        self.shape = shape
        self.texts = texts

    def read(self, node: exp.Expr, *, negated: bool) -> Condition:
        if isinstance(node, exp.Paren):
            return self.read(node.this, negated=negated)
        if isinstance(node, exp.Not):
            return self.read(node.this, negated=not negated)
        if isinstance(node, exp.And | exp.Or):
            return self._connected(node, all_of=isinstance(node, exp.And) != negated, negated=negated)
        if {name for name, value in node.args.items() if value} - UNDERSTOOD:  # NOT LIKE, IN over a query, SYMMETRIC, …
            raise Kept("it is a form that is not pushed down")
        for form, read in self._forms().items():
            if isinstance(node, form):
                return read(node, negated)
        raise Kept("it is not a comparison of a column with a value")

    def _forms(self) -> dict[Any, Callable[[Any, bool], Condition]]:
        return {
            tuple(COMPARED): self._comparison,
            exp.Between: self._between,
            exp.In: self._one_of,
            exp.Like: self._like,
            exp.Is: self._null,
            exp.Column: self._truth,
        }

    def _connected(self, node: Any, *, all_of: bool, negated: bool) -> Condition:
        parts: list[Condition] = []
        kept: Kept | None = None
        for side in (node.this, node.expression):
            try:
                parts.append(self.read(side, negated=negated))
            except Kept as found:
                if not all_of:
                    raise
                kept = found
        if kept is not None and not parts:
            raise kept
        if len(parts) == 1:
            return parts[0]
        return Both(tuple(parts)) if all_of else Either(tuple(parts))

    def _comparison(self, node: Any, negated: bool) -> Condition:
        operator = next(sign for form, sign in COMPARED.items() if isinstance(node, form))
        left, right = node.this, node.expression
        if not isinstance(_bare(left), exp.Column):
            left, right, operator = right, left, TURNED[operator]
        return self._compared(left, OPPOSITE[operator] if negated else operator, right)

    def _compared(self, left: exp.Expr, operator: str, right: exp.Expr) -> Condition:
        column = self._column(left)
        self._allowed(column, operator)
        return Comparison(column, operator, self._value(column, right))

    def _between(self, node: Any, negated: bool) -> Condition:
        low, high = (exp.LT, exp.GT) if negated else (exp.GTE, exp.LTE)
        bounds = low(this=node.this, expression=node.args["low"]), high(this=node.this, expression=node.args["high"])
        whole = (
            exp.Or(this=bounds[0], expression=bounds[1]) if negated else exp.And(this=bounds[0], expression=bounds[1])
        )
        return self.read(whole, negated=False)

    def _one_of(self, node: Any, negated: bool) -> Condition:
        column = self._column(node.this)
        self._allowed(column, "<>" if negated else "=")
        if len(node.expressions) > LISTED_MAX:
            raise Kept(f"IN has more than {LISTED_MAX:,} values")
        values = tuple(self._value(column, each) for each in node.expressions)
        if not negated:
            return OneOf(column, values)
        parts = tuple(Comparison(column, "<>", value) for value in values)
        return parts[0] if len(parts) == 1 else Both(parts)

    def _like(self, node: Any, negated: bool) -> Condition:
        column = self._column(node.this)
        pattern = self._value(column, node.expression)
        if negated or not isinstance(pattern, str):
            raise Kept("NOT LIKE is not pushed down")
        prefix = pattern.endswith("%") and not any(sign in pattern[:-1] for sign in "%_")
        if "like" not in column.operators and not (prefix and "prefix" in column.operators):
            raise Kept(f"the store may match {column.name} otherwise than Spark")
        return Like(column, pattern)

    def _null(self, node: Any, negated: bool) -> Condition:
        if not isinstance(node.expression, exp.Null):
            raise Kept("it is not a comparison of a column with a value")
        column = self._column(node.this)
        if not negated:
            self._allowed(column, "null")
        return Null(column, is_null=not negated)

    def _truth(self, node: Any, negated: bool) -> Condition:
        return self._compared(node, "=", exp.Boolean(this=not negated))

    def _column(self, node: exp.Expr) -> StoreColumn:
        node = _bare(node)
        column = self.shape.column(node.name) if isinstance(node, exp.Column) else None
        if column is None:
            raise Kept("it is not a comparison of a column with a value")
        return column

    def _allowed(self, column: StoreColumn, operator: str) -> None:
        if operator not in column.operators:
            raise Kept(f"the store may compare {column.name} otherwise than Spark")

    def _value(self, column: StoreColumn, node: exp.Expr) -> Value:
        if not self.texts and column.kind is ComparedAs.TEXT:
            raise Kept("the query has a backslash, which stores may read differently")
        value = value_of(_bare(node), column)
        if value is None or not column.admits(value):
            raise Kept(f"{column.name} is compared with something other than a plain value of its type")
        return value


def _bare(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
