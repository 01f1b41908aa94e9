"""Conditions between rows: values and types as Spark's ANSI rules have them; aggregates of members.

What it is: comparisons, arithmetic and three-valued logic over two rows of a match, for each type; the aggregates that
the matcher computes, and the query for those that Spark computes, here run by DuckDB.
Invariants: expected values are written down from Spark's documented rules.
Not here: which parts of a condition are glue (``test_malformed_patterns.py`` has what is refused).
Read next: ``src/headwater/patterns/expressions/glue.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import PatternFailed
from headwater.patterns import MatchResult, compile_pattern, find_clauses
from tests.unit.patterns.random_patterns import compiled

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def holds(condition: str, before: dict[str, Any], now: dict[str, Any], types: dict[str, pa.DataType]) -> bool:
    """Whether B's condition holds at a row that follows a row A; columns are named as in the condition."""
    program = compile_pattern(find_clauses(f"t MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE B AS {condition})")[0])
    values = {column.sql: [before.get(column.sql), now.get(column.sql)] for column in program.row_columns}
    columns = {column.name: pa.array(values[column.sql], types[column.sql]) for column in program.row_columns}
    return len(program.match(pa.table(columns), np.array([0, 2]))) == 1


@pytest.mark.parametrize(
    ("condition", "kind", "before", "now", "expected"),
    [
        ("B.x > A.x", pa.float64(), 1.0, math.nan, True),  # NaN is above every number
        ("B.x = A.x", pa.float64(), math.nan, math.nan, True),
        ("B.x < A.x", pa.float64(), math.inf, math.nan, False),
        ("B.x <> A.x", pa.float64(), -0.0, 0.0, False),
        ("B.x > A.x", pa.int64(), None, 1, False),  # unknown is not true
        ("NOT (B.x > A.x)", pa.int64(), None, 1, False),
        ("B.x <=> A.x", pa.int64(), None, None, True),
        ("B.x IS DISTINCT FROM A.x", pa.int64(), None, 1, True),
        ("B.x > A.x OR B.x = 1", pa.int64(), None, 1, True),
        ("NOT (B.x > A.x AND B.x = A.x - 1)", pa.int64(), 3, 1, True),
        ("B.x / A.x = 2.5", pa.int64(), 2, 5, True),  # whole numbers divide to a double
        ("B.x % A.x = -1", pa.int64(), 3, -7, True),  # the sign of the dividend
        ("B.x DIV A.x = -2", pa.int64(), 3, -7, True),  # towards zero
        ("B.x IN (A.x, A.x + 1)", pa.int64(), 3, 4, True),
        ("B.x NOT IN (A.x, NULL)", pa.int64(), 3, 4, False),
        ("B.x BETWEEN A.x AND A.x + 1", pa.int64(), 3, 4, True),
        ("abs(A.x - B.x) = greatest(A.x, B.x)", pa.int64(), 0, -4, False),
        ("least(A.x, B.x) = nullif(A.x, B.x)", pa.int64(), 3, 4, True),
        ("CASE A.x WHEN B.x THEN FALSE ELSE TRUE END", pa.int64(), 3, 4, True),
        ("B.x - A.x = 0.10", pa.decimal128(38, 2), Decimal("12345678901234567890123456789012.10"), None, False),
        ("B.x - A.x = 0.01", pa.decimal128(38, 2), Decimal("9" * 36 + ".98"), Decimal("9" * 36 + ".99"), True),
        ("B.x > A.x", pa.string(), "Z", "a", True),  # by bytes
        ("B.x > A.x", pa.string(), "z", "é", True),
        ("B.x > A.x", pa.timestamp("us", "UTC"), NOON, NOON + dt.timedelta(microseconds=1), True),
        ("B.x > A.x", pa.date32(), dt.date(2024, 2, 29), dt.date(2024, 3, 1), True),
        ("B.x > A.x", pa.bool_(), False, True, True),
    ],
)
def test_two_rows_are_combined_as_spark_combines_values(
    condition: str, kind: pa.DataType, before: Any, now: Any, expected: bool
) -> None:
    types = dict.fromkeys(("x", "x - 1", "x + 1"), kind) | {"x = 1": pa.bool_()}
    rows = [{"x": value, "x - 1": minus(value), "x + 1": plus(value), "x = 1": value == 1} for value in (before, now)]

    assert holds(condition, rows[0], rows[1], types) is expected


def plus(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else None


def minus(value: Any) -> Any:
    return value - 1 if isinstance(value, int) else None


def test_a_difference_of_instants_is_compared_with_an_interval() -> None:
    interval = "INTERVAL 10 MINUTES"
    types = {"x": pa.timestamp("us", "UTC"), interval: pa.duration("us"), f"x + {interval}": pa.timestamp("us", "UTC")}
    ten, now = dt.timedelta(minutes=10), NOON + dt.timedelta(minutes=9)

    for condition in (f"B.x - A.x < {interval}", f"B.x < A.x + {interval}"):
        rows = [{"x": each, interval: ten, f"x + {interval}": each + ten} for each in (NOON, now)]
        assert holds(condition, rows[0], rows[1], types)


@pytest.mark.parametrize(
    ("condition", "before", "now", "sentence"),
    [("B.x / A.x > 1", 0, 1, "division by zero"), ("B.x + A.x > 1", 2**63 - 1, 1, "does not fit its type, BIGINT")],
)
def test_arithmetic_that_fails_names_the_place(condition: str, before: int, now: int, sentence: str) -> None:
    with pytest.raises(PatternFailed, match=sentence) as caught:
        holds(condition, {"x": before}, {"x": now}, {"x": pa.int64()})
    assert caught.value.message.startswith("PATTERN (A B), attempt at partition 0, row 1: ")


def aggregated(measures: str, values: pa.Array) -> tuple[MatchResult, pa.Table]:
    program = compiled(f"t MATCH_RECOGNIZE (ORDER BY t MEASURES {measures} PATTERN (A+ | ()) DEFINE A AS x > 0)")
    columns = {column.name: values for column in program.row_columns}
    columns[program.row_columns[0].name] = pa.array([True, True, True, False])
    table = pa.table(columns)
    return program.match(table, np.array([0, 4])), table


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 4, 9], pa.int32()), (2, 5, 2.5, 1, 4)),
        (pa.array([1.5, math.nan, None, 9.0]), (2, math.nan, math.nan, 1.5, math.nan)),
        (pa.array([Decimal("1.1"), Decimal("2.2"), Decimal("0.2"), None], pa.decimal128(5, 1)), None),
    ],
)
def test_aggregates_of_a_match_are_those_of_spark(values: pa.Array, expected: Any) -> None:
    result, table = aggregated("count(x) AS a, sum(x) AS b, avg(x) AS c, min(x) AS d, max(x) AS e", values)

    slots = result.slot_table(table)
    found = tuple(slots.column(name)[0].as_py() for name in ("_a0", "_a1", "_a2", "_a3", "_a4"))
    none = tuple(slots.column(name)[1].as_py() for name in ("_a0", "_a1", "_a2", "_a3", "_a4"))

    assert none == (0, None, None, None, None)
    if expected is None:
        assert found == (3, Decimal("3.5"), Decimal("1.16667"), Decimal("0.2"), Decimal("2.2"))
        assert [slots.schema.field(f"_a{at}").type for at in (1, 2)] == [pa.decimal128(15, 1), pa.decimal128(9, 5)]
    else:
        assert str(found) == str(expected)


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    result, table = aggregated("sum(x) AS total", pa.array([2**62, 2**62, 2**62, 0]))

    with pytest.raises(PatternFailed, match="does not fit BIGINT"):
        result.slot_table(table)


def test_other_aggregates_are_a_query_over_the_members() -> None:
    result, table = aggregated(
        "median(x) AS m, count(DISTINCT x) AS d, string_agg(CLASSIFIER(), '') AS c", pa.array([1, 5, 5, 9])
    )

    o, m = result.slot_table(table), result.member_table(table)
    sql = result.program.aggregate_sql(outputs="o", members="m")
    answer = duckdb.sql(sql + " ORDER BY _row").fetchall()

    assert result.program.aggregates_need_spark
    assert answer == [(0, 5.0, 2, "AAA"), (1, None, 0, None)]
    assert (len(o), len(m)) == (2, 9)


def test_running_aggregates_grow_with_the_rows() -> None:
    program = compiled(
        """t MATCH_RECOGNIZE (ORDER BY t MEASURES max(x) AS now, FINAL max(x) AS all_of_it ALL ROWS PER MATCH
        PATTERN (A+) DEFINE A AS x > 0)"""
    )
    table = pa.table({"_r0": [True, True, True], "_r1": ["a", "c", "b"]})

    slots = program.match(table, np.array([0, 3])).slot_table(table)

    assert slots.select(["_a0", "_a1"]).to_pydict() == {"_a0": ["a", "c", "c"], "_a1": ["c", "c", "c"]}
