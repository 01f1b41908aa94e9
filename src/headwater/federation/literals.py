"""Literals: a value in a query's text, as Spark compares it with a column.

What it is: ``value_of`` gives the Python value of a literal if Spark compares it with a column of this kind by exactly
that value; otherwise None, and only Spark makes the comparison.
Invariants: where Spark would round, widen lossily, or read a text in several ways, the result is None. Times are in
UTC, the time zone of every query.
Not here: the store's use of the value. Read next: ``conditions.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from headwater.federation.store import ComparedAs, StoreColumn

Value = bool | int | Decimal | float | str | dt.date | dt.datetime

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?")
DAYS = (exp.DataType.Type.DATE,)
MOMENTS = (
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
)
WHOLE_DOUBLE_MAX = 1 << 53  # up to here a double holds every whole number
DIGITS_MAX = 38
WHOLE_BOUND = 1 << 63
WHOLE_DIGITS = 20  # Spark compares a BIGINT with a decimal as DECIMAL(20,0)


def value_of(node: Any, column: StoreColumn) -> Value | None:
    """The value of a literal.

    >>> import pyarrow as pa
    >>> value_of(exp.Literal.number("7.50"), StoreColumn("price", pa.decimal128(10, 2)))
    Decimal('7.50')
    >>> value_of(exp.Literal.number("1e3"), StoreColumn("price", pa.decimal128(10, 2))) is None
    True
    """
    kind = column.kind
    if kind is ComparedAs.TRUTH:
        return bool(node.this) if isinstance(node, exp.Boolean) else None
    if kind is ComparedAs.TEXT:
        return _text(node)
    if kind is ComparedAs.DAY:
        return _day(_unwrapped(node, DAYS))
    if kind is ComparedAs.MOMENT:
        return _moment(node)
    if kind in (ComparedAs.WHOLE, ComparedAs.EXACT, ComparedAs.FLOATING):
        return _number(node, column)
    return None


def _text(node: Any) -> str | None:
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    text = str(node.this)
    # Spark reads escapes in a literal in its own way, and no store takes the character 0.
    if "\\" in text or "\0" in text:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _number(node: Any, column: StoreColumn) -> int | Decimal | float | None:
    text = _digits(node)
    if text is None:
        return None
    if "e" in text.lower():  # a DOUBLE in Spark: compared as such, with a loss for the exact kinds
        value = float(text)
        return value if column.kind is ComparedAs.FLOATING and abs(value) != float("inf") else None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    scale = max(0, -int(number.as_tuple().exponent))
    whole_digits = max(1, len(str(abs(int(number)))))
    if whole_digits + scale > DIGITS_MAX:
        return None
    if column.kind is ComparedAs.FLOATING:
        return float(number) if scale or abs(number) <= WHOLE_DOUBLE_MAX else None
    if column.kind is ComparedAs.WHOLE and not -WHOLE_BOUND <= number < WHOLE_BOUND:
        return None  # here Spark answers for a null too: `big <= 9223372036854775808` is true for every row
    precision, column_scale = (WHOLE_DIGITS, 0)
    if column.kind is ComparedAs.EXACT:
        precision, column_scale = column.arrow.precision, column.arrow.scale
    # The common type must not need more than the available digits: Spark would round.
    if max(precision - column_scale, whole_digits) + max(column_scale, scale) > DIGITS_MAX:
        return None
    return int(number) if not scale else number


def _digits(node: Any) -> str | None:
    sign = ""
    if isinstance(node, exp.Neg):
        sign, node = "-", node.this
    if (
        isinstance(node, exp.Literal)
        and not node.is_string
        and re.fullmatch(r"[\d.]+(e[+-]?\d+)?", str(node.this), re.I)
    ):
        return sign + str(node.this)
    return None


def _unwrapped(node: Any, types: tuple[Any, ...]) -> str | None:
    """The text in ``DATE '…'``, or of a plain literal, which Spark casts to the column's type."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.this in types:
        node = node.this
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def _day(text: str | None) -> dt.date | None:
    if text is None or not DAY.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _moment(node: Any) -> dt.datetime | None:
    text = _unwrapped(node, MOMENTS + DAYS)
    day = _day(text)
    if day is not None:
        return dt.datetime(day.year, day.month, day.day)
    if isinstance(node, exp.Cast) and node.to.this in DAYS:
        return None
    if text is None or not MOMENT.fullmatch(text):
        return None
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None
