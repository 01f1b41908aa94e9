"""Aggregates over member rows that the matcher computes itself: count, sum, min, max, avg.

What it is: ``computed``, the value of an aggregate for each output row, from the pairs (output row, member row).
Invariants: the types and values are Spark's: a sum of whole numbers is BIGINT and must fit, NaN is above every number,
an average of decimals has four more digits; nulls are left out; over no rows a count is 0 and the others are null.
Sums of floating numbers are added in some order, as Spark's are.
Not here: other aggregates, which Spark computes (``pattern_program.py``: ``aggregate_sql``).
Read next: ``match_result.py``.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import PatternFailed

DIGITS = 80  # of intermediate decimals: two of 38 multiplied fit


def computed(function: str, column: Any, output: np.ndarray, member: np.ndarray, count: int) -> pa.Array:
    """The aggregate of each of ``count`` output rows; ``output`` rises.

    >>> column = pa.chunked_array([[1, None, 5]])
    >>> computed("sum", column, np.array([0, 0, 2]), np.array([0, 1, 2]), 3).to_pylist()
    [1, None, 5]
    """
    if column is None:
        return pa.array(np.bincount(output, minlength=count).astype(np.int64))
    taken = column.take(pa.array(member)).combine_chunks()
    known = np.asarray(taken.is_valid())
    output, taken = output[known], taken.drop_null()
    if function == "count":
        return pa.array(np.bincount(output, minlength=count).astype(np.int64))
    numeric = pa.types.is_integer(taken.type) or pa.types.is_floating(taken.type)
    if numeric:
        return of_numbers(function, taken, output, count)
    return of_objects(function, taken, output, count)


def of_numbers(function: str, taken: pa.Array, output: np.ndarray, count: int) -> pa.Array:
    """Whole and floating numbers, by numpy."""
    values = taken.to_numpy(zero_copy_only=False)
    groups, starts, sizes = np.unique(output, return_index=True, return_counts=True)
    whole = pa.types.is_integer(taken.type)
    if function in ("min", "max"):
        operation: np.ufunc = (np.minimum if whole else np.fmin) if function == "min" else np.maximum
        kind = taken.type
    else:
        operation, kind = np.add, pa.int64() if whole and function == "sum" else pa.float64()
        values = values.astype(np.int64 if kind == pa.int64() else np.float64)
    found = operation.reduceat(values, starts) if len(values) else values
    if kind == pa.int64() and function == "sum" and len(values):
        near = np.add.reduceat(values.astype(np.float64), starts)
        # Far from the limit the estimate decides; near it the exact sum does.
        for at in np.nonzero(np.abs(near) > 2.0**62)[0]:
            exact = sum(int(each) for each in values[starts[at] : starts[at] + sizes[at]])
            if not -(2**63) <= exact < 2**63:
                raise PatternFailed(
                    f"a sum over the rows of a match, {exact}, does not fit BIGINT",
                    hint="Cast the column to DECIMAL(38, 0).",
                )
    if function == "avg" and len(values):
        found = found / sizes
    full = np.zeros(count, found.dtype)
    full[groups] = found
    missing = np.ones(count, bool)
    missing[groups] = False
    return pa.array(full, kind, mask=missing)


def of_objects(function: str, taken: pa.Array, output: np.ndarray, count: int) -> pa.Array:
    """Decimals, strings, instants and whatever else has an order, by plain Python."""
    kind = taken.type
    if function in ("sum", "avg"):
        if not pa.types.is_decimal(kind):
            raise PatternFailed(
                f"{function} of a column of type {kind} is not computed by the matcher",
                hint=f"Cast it to a number, or write try_{function}(…), which Spark computes.",
            )
        scale = kind.scale + (4 if function == "avg" else 0)
        kind = pa.decimal128(min(38, kind.precision + (10 if function == "sum" else 4)), scale)
    groups: dict[int, list[Any]] = {}
    # Instants keep their nanoseconds or time zone through the index, not through Python values.
    if function in ("min", "max") and (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)):
        found = of_numbers(function, taken.cast(pa.int64()), output, count)
        return found.cast(kind)
    for at, value in zip(output.tolist(), taken.to_pylist(), strict=True):
        groups.setdefault(at, []).append(value)
    values: list[Any] = [None] * count
    with localcontext() as context:
        context.prec = DIGITS
        for at, each in groups.items():
            if function in ("min", "max"):
                values[at] = min(each) if function == "min" else max(each)
            elif function == "sum":
                values[at] = sum(each, Decimal(0))
            else:
                average = sum(each, Decimal(0)) / len(each)
                values[at] = average.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return pa.array(values, kind)
