"""Accumulators: exact, whatever comes and goes, in whatever order.

What it is: each accumulator by itself on DuckDB, against exact arithmetic in Python.
Invariants: after every tick the value is that of the rows that are there then; and after rows have come and gone what
is kept is what was kept before.
Not here: the same on Spark, with its types (``tests/spark/test_accumulators_on_spark.py``).
Read next: ``accumulating.py``.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from decimal import Context, Decimal
from fractions import Fraction

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.views.compiler.algebra.accumulators import accumulator
from headwater.views.compiler.sql.dialect import SparkAsWritten
from tests.compiler.accumulating import Keeping, keeping
from tests.compiler.dialect import connect, to_duckdb, type_to_duckdb

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
few = settings(max_examples=10 * THOROUGH, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

DUCK = connect()
WIDE = Context(prec=60)

in_range_doubles = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)
all_doubles = st.floats(allow_nan=True, allow_infinity=True)
some_doubles = st.sampled_from(
    [
        0.0,
        -0.0,
        0.1,
        0.2,
        -0.3,
        1e300,
        -1e300,
        1e-300,
        5e-324,
        1.7e308,
        1e16,
        2.0**53,
        1e-7,
        math.nan,
        math.inf,
        -math.inf,
    ]
)
doubles = st.one_of(in_range_doubles, some_doubles, all_doubles)
bigints = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
decimals = st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n) / 100)


def ticks_of(values: st.SearchStrategy[object]) -> st.SearchStrategy[list[list[tuple[object, int]]]]:
    """Ticks of (value, weight), in which no value is ever taken away more often than it was given."""
    drawn = st.lists(st.lists(st.tuples(st.one_of(st.none(), values), st.integers(-3, 3)), max_size=6), max_size=4)

    def sensible(ticks: list[list[tuple[object, int]]]) -> list[list[tuple[object, int]]]:
        there: Counter[str] = Counter()
        result = []
        for tick in ticks:
            rows = []
            for value, wanted in tick:
                weight = max(wanted, -there[repr(value)])
                there[repr(value)] += weight
                rows.append((value, weight))
            result.append(rows)
        return result

    return drawn.map(sensible)


def run(plan: Keeping, kind: str, ticks: list[list[tuple[object, int]]]) -> list[object]:
    """The value after each tick; and, as the last of the list, what is kept in the end."""
    DUCK.execute(f"CREATE OR REPLACE TEMP TABLE given (a {type_to_duckdb(kind)}, b BOOLEAN, _weight BIGINT)")
    DUCK.execute(f"CREATE OR REPLACE TEMP TABLE kept AS {to_duckdb(plan.start)}")
    values: list[object] = []
    for tick in ticks:
        DUCK.execute("DELETE FROM given")
        if tick:
            DUCK.executemany("INSERT INTO given VALUES (?, true, ?)", tick)
        DUCK.execute(f"CREATE OR REPLACE TEMP TABLE next AS {to_duckdb(plan.step)}")
        DUCK.execute("CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM next")
        values.append(DUCK.execute(to_duckdb(plan.read)).fetchall()[0][0])
    return [*values, DUCK.execute("SELECT * FROM kept").fetchall()]


def rows_after(ticks: list[list[tuple[object, int]]]) -> list[tuple[object, int]]:
    there: dict[str, tuple[object, int]] = {}
    for tick in ticks:
        for value, weight in tick:
            there[repr(value)] = (value, there.get(repr(value), (value, 0))[1] + weight)
    return [(value, weight) for value, weight in there.values() if weight and value is not None]


def exact_sum(rows: list[tuple[float, int]]) -> float | None:
    if not rows:
        return None
    special = [value for value, _ in rows if not math.isfinite(value)]
    if special:
        return math.fsum(special) if len({*special}) == 1 else math.nan
    total = sum((Fraction(value) * weight for value, weight in rows), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def close(value: float | None, expected: float | None, rows: list[tuple[float, int]]) -> bool:
    """Equal but for rounding, which is measured by the largest value: cancellation costs digits in a batch run too."""
    if value is None or expected is None:
        return value is expected
    if math.isnan(expected) or math.isinf(expected):
        return math.isnan(value) if math.isnan(expected) else value == expected
    size = max((abs(value) * weight for value, weight in rows), default=0.0)
    return abs(value - expected) <= max(2 * math.ulp(expected), 2.0**-50 * size if math.isfinite(size) else math.inf)


@few
@given(ticks_of(doubles))
def test_a_sum_of_doubles_is_exact_to_rounding_after_every_tick(ticks: list[list[tuple[object, int]]]) -> None:
    *values, _ = run(keeping("sum(a)", "DOUBLE"), "DOUBLE", ticks)

    for number, value in enumerate(values, start=1):
        rows = rows_after(ticks[:number])
        assert close(value, exact_sum(rows), rows), (number, value, exact_sum(rows))


@few
@given(ticks_of(in_range_doubles))
def test_a_sum_of_in_range_doubles_is_within_two_units_in_the_last_place(ticks: list[list[tuple[object, int]]]) -> None:
    *values, _ = run(keeping("sum(a)", "DOUBLE", in_range=True), "DOUBLE", ticks)

    for number, value in enumerate(values, start=1):
        expected = exact_sum(rows_after(ticks[:number]))
        assert value == expected or abs(value - expected) <= 2 * math.ulp(expected), (number, value, expected)


@settings(few, max_examples=4 * THOROUGH)
@given(ticks_of(doubles), ticks_of(doubles))
def test_what_comes_and_goes_leaves_no_trace(
    kept: list[list[tuple[object, int]]], passing: list[list[tuple[object, int]]]
) -> None:
    back = [[(value, -weight) for value, weight in tick] for tick in reversed(passing)]
    plan = keeping("sum(a)", "DOUBLE")

    *_, before = run(plan, "DOUBLE", [*kept, []])
    *_, after = run(plan, "DOUBLE", [*kept, *passing, *back, []])

    assert after == before


def test_the_smallest_double_survives_the_largest() -> None:
    plan = keeping("sum(a)", "DOUBLE")

    *values, _ = run(plan, "DOUBLE", [[(1e300, 1), (1e-300, 1), (3.0, 1)], [(1e300, -1)], [(3.0, -1)]])

    assert values == [1e300, 3.0, 1e-300]


def test_nan_and_infinities_come_and_go() -> None:
    plan = keeping("avg(a)", "DOUBLE")

    *values, _ = run(
        plan, "DOUBLE", [[(2.0, 1), (math.inf, 1)], [(-math.inf, 1)], [(math.inf, -1)], [(-math.inf, -1), (4.0, 1)]]
    )

    assert values[0] == math.inf
    assert math.isnan(values[1])
    assert values[2:] == [-math.inf, 3.0]


@few
@given(ticks_of(bigints))
def test_a_sum_of_bigints_fails_only_when_the_total_does_not_fit(ticks: list[list[tuple[object, int]]]) -> None:
    plan = keeping("sum(a)", "BIGINT")
    totals = [
        sum(value * weight for value, weight in rows_after(ticks[:number])) if rows_after(ticks[:number]) else None
        for number in range(1, len(ticks) + 1)
    ]

    if any(total is not None and not -(2**63) <= total < 2**63 for total in totals):
        with pytest.raises(Exception, match=r"range|Failed to cast decimal"):
            run(plan, "BIGINT", ticks)
    else:
        assert run(plan, "BIGINT", ticks)[:-1] == totals


@few
@given(ticks_of(decimals))
def test_decimals_sum_and_average_exactly(ticks: list[list[tuple[object, int]]]) -> None:
    *sums, _ = run(keeping("sum(a)", "DECIMAL(15, 2)"), "DECIMAL(15, 2)", ticks)
    *averages, _ = run(keeping("avg(a)", "DECIMAL(15, 2)"), "DECIMAL(15, 2)", ticks)

    for number, (total, average) in enumerate(zip(sums, averages, strict=True), start=1):
        rows = rows_after(ticks[:number])
        count, exact = sum(weight for _, weight in rows), sum(Fraction(value) * weight for value, weight in rows)
        assert total == (Decimal(exact.numerator) / exact.denominator if rows else None)
        if rows:
            half_up = (abs(exact / count) * 10**6 + Fraction(1, 2)).__floor__() * (1 if exact >= 0 else -1)
            assert average == Decimal(half_up).scaleb(-6)


@few
@given(ticks_of(st.integers(-(10**35) + 1, 10**35 - 1).map(lambda n: Decimal(n).scaleb(-10, WIDE))))
def test_wide_decimals_keep_every_digit(ticks: list[list[tuple[object, int]]]) -> None:
    *sums, _ = run(keeping("sum(a)", "DECIMAL(35, 10)"), "DECIMAL(35, 10)", ticks)

    for number, total in enumerate(sums, start=1):
        rows = rows_after(ticks[:number])
        units = sum(int(value.scaleb(10, WIDE)) * weight for value, weight in rows)
        assert total == (Decimal(units).scaleb(-10, WIDE) if rows else None)


@pytest.mark.parametrize(
    ("aggregate", "values"),
    [
        ("count(*)", [3, 2, 0]),
        ("count(a)", [2, 1, 0]),
        ("count(1)", [3, 2, 0]),
        ("count(*) FILTER (WHERE a > 1)", [1, 1, 0]),
        ("count(a, b)", [2, 1, 0]),
        ("count_if(a > 1)", [1, 1, 0]),
        ("sum(a)", [3, 2, None]),
        ("sum(a) FILTER (WHERE a < 2)", [1, None, None]),
        ("avg(a)", [1.5, 2.0, None]),
        ("mean(a)", [1.5, 2.0, None]),
        ("any(a > 1)", [True, True, None]),
        ("some(a < 2)", [True, False, None]),
        ("every(a > 1)", [False, True, None]),
        ("var_pop(a)", [0.25, 0.0, None]),
        ("variance(a)", [0.5, None, None]),
        ("std(a)", [0.5**0.5, None, None]),
    ],
)
def test_each_aggregate_of_a_few_integers(aggregate: str, values: list[object]) -> None:
    *found, _ = run(keeping(aggregate, "INT"), "INT", [[(1, 1), (2, 1), (None, 1)], [(1, -1)], [(2, -1), (None, -1)]])

    assert found == values


def test_the_least_and_the_largest_of_rows_that_only_come() -> None:
    ticks = [[(None, 1)], [(2.0, 1), (math.nan, 1)], [(1.0, 2)], [(math.inf, 1)]]

    *least, _ = run(keeping("min(a)", "DOUBLE", append_only=True), "DOUBLE", ticks)
    *largest, _ = run(keeping("max(a)", "DOUBLE", append_only=True), "DOUBLE", ticks[:2])

    assert least == [None, 2.0, 1.0, 1.0]
    assert largest[0] is None
    assert math.isnan(largest[1])


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        ("min(a)", "INT"),
        ("count(DISTINCT a)", "INT"),
        ("sum(DISTINCT a)", "INT"),
        ("collect_list(a)", "INT"),
        ("sum(a)", None),
        ("stddev(a)", "DOUBLE"),
        ("abs(a)", "INT"),
        ("row_number()", None),
        ("sum(a)", "STRING"),
    ],
)
def test_what_has_no_accumulator(aggregate: str, kind: str | None) -> None:
    assert accumulator(sqlglot.parse_one(aggregate, read=SparkAsWritten), (kind,), append_only=False) is None
