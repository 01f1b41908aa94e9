"""Types of glue: what values of row columns are inside the matcher, and how two of them are compared.

What it is: ``GlueType``, made of an Arrow type; ``python_values``, a column as a list of plain values; comparison and
arithmetic of two values as Spark does them under ANSI.
Invariants: an instant and a duration are whole microseconds; NaN equals NaN and is above every number; whole numbers
that do not fit their type are an error, as is a division by zero.
Not here: the tree (``glue.py``).
Read next: ``glue.py``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import PatternFailed

NUMERIC = {"int", "float", "decimal"}
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class GlueType:
    """A kind of value; ``bits`` of whole and floating numbers, ``scale`` and ``precision`` of decimals."""

    kind: str
    bits: int = 64
    precision: int = 38
    scale: int = 0

    def __str__(self) -> str:
        return {"int": "BIGINT" if self.bits == 64 else "INT", "float": "DOUBLE", "null": "NULL"}.get(
            self.kind, self.kind.upper()
        )


BOOL, STRING, NULL = GlueType("boolean"), GlueType("string"), GlueType("null")
BIGINT, DOUBLE, DURATION = GlueType("int"), GlueType("float"), GlueType("interval")


def type_of(arrow: pa.DataType) -> GlueType:
    """The type of a row column's values.

    >>> type_of(pa.int32()), type_of(pa.timestamp("us", tz="UTC")).kind
    (GlueType(kind='int', bits=32, precision=38, scale=0), 'timestamp')
    """
    if pa.types.is_boolean(arrow):
        return BOOL
    if pa.types.is_integer(arrow):
        return GlueType("int", arrow.bit_width)
    if pa.types.is_floating(arrow):
        return GlueType("float", arrow.bit_width)
    if pa.types.is_decimal(arrow):
        return GlueType("decimal", 128, arrow.precision, arrow.scale)
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return STRING
    if pa.types.is_timestamp(arrow):
        return GlueType("timestamp" if arrow.tz else "timestamp_ntz")
    if pa.types.is_duration(arrow):
        return DURATION
    if pa.types.is_date(arrow):
        return GlueType("date")
    if pa.types.is_null(arrow):
        return NULL
    return GlueType(str(arrow))


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as plain values: instants and durations as microseconds, dates as days.

    >>> python_values(pa.chunked_array([pa.array([1_500, None], pa.timestamp("ms"))]))
    [1500000, None]
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    values: list[Any] = column.to_pylist()
    return values


def common(types: list[GlueType]) -> GlueType | None:
    """The type that values of several types are compared in; None where there is none without a cast."""
    kinds = {each.kind for each in types if each.kind != "null"}
    if not kinds:
        return NULL
    if len(kinds) == 1:
        same = [each for each in types if each.kind != "null"]
        return GlueType(same[0].kind, max(each.bits for each in same), 38, max(each.scale for each in same))
    if kinds <= NUMERIC:
        return DOUBLE if "float" in kinds else GlueType("decimal", 128, 38, max(each.scale for each in types))
    return None


def converter(source: GlueType, target: GlueType) -> Callable[[Any], Any] | None:
    """What turns a value of one type into the common one; None: nothing to do."""
    if source.kind == target.kind or source.kind == "null":
        return None
    return float if target.kind == "float" else Decimal


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN is above every number and equal to itself.

    >>> order(1.0, math.nan), order(math.nan, math.nan), order("b", "a")
    (-1, 0, 1)
    """
    if left != left or right != right:
        return int(left != left) - int(right != right)
    return int(left > right) - int(left < right)


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(symbol: str, floating: bool) -> Callable[[Any, Any], bool]:
    """The comparison of two values of one type, neither null."""
    plain = COMPARED[symbol]
    if not floating:
        return plain
    return lambda left, right: plain(order(left, right), 0)


def arithmetic(symbol: str, result: GlueType) -> Callable[[Any, Any], Any]:
    """The operation on two values of one type, neither null."""
    if symbol in ("/", "%", "DIV"):
        return division(symbol, result)
    plain = {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol]
    if result.kind == "float" and result.bits == 32:
        return lambda left, right: float(np.float32(plain(left, right)))
    if result.kind not in ("int", "interval", "timestamp", "timestamp_ntz"):
        return plain
    most = 2 ** (result.bits - 1)

    def checked(left: int, right: int) -> int:
        value: int = plain(left, right)
        if not -most <= value < most:
            raise PatternFailed(
                f"{left} {symbol} {right} does not fit its type, {result}",
                hint="Cast the columns to a wider type, such as DECIMAL(38, 0).",
            )
        return value

    return checked


def division(symbol: str, result: GlueType) -> Callable[[Any, Any], Any]:
    def divided(left: Any, right: Any) -> Any:
        if right == 0:
            raise PatternFailed(
                f"{left} {symbol} 0: division by zero", hint="Write x / nullif(y, 0): a null condition does not hold."
            )
        if symbol == "/":
            return left / right
        if result.kind == "float":
            return math.fmod(left, right)
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return left % right if symbol == "%" else int(left / right)
        whole = abs(left) // abs(right)
        whole = whole if (left < 0) == (right < 0) else -whole
        return whole if symbol == "DIV" else left - whole * right

    return divided
