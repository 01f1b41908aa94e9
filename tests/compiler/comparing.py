"""Bags of rows, compared: exactly, but for doubles, which are compared to rounding.

What it is: one function for all tests that hold a view against a query.
Invariants: order does not matter, how often a row is there does. NaN is NaN, 0.0 is -0.0, a decimal and a double of the
same value are the same.
Not here: where the rows come from.
Read next: ``test_incremental_equals_batch.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

Row = Sequence[object]
DIGITS = 5
LARGE = 1e6


def bag_difference(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """What is wrong with what was found, in lines; an empty text when nothing is.

    >>> print(bag_difference([(1, 0.1 + 0.2)], [(1, 0.3), (2, None)]))
    missing 1 x (2, None)
    """
    ours, theirs = (Counter(tuple(plain(value) for value in row) for row in rows) for rows in (found, expected))
    lines = [f"too many {count} x {row}" for row, count in (ours - theirs).items()]
    return "\n".join(lines + [f"missing {count} x {row}" for row, count in (theirs - ours).items()])


def plain(value: object) -> object:
    """A value that is equal, and hashes equal, when it is the same to rounding."""
    if isinstance(value, float | Decimal):
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            return str(number)
        # An average of decimals has six digits behind the point in Spark, sixteen in all in DuckDB. What is large is
        # rounded to the digits that count. Adding zero makes 0.0 of -0.0; a whole number equals the integer.
        return (round(number, DIGITS) if abs(number) < LARGE else float(f"{number:.12g}")) + 0.0
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, plain(item)) for name, item in value.items())
    return value
