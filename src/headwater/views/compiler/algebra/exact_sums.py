"""Doubles: an exact sum of floating-point numbers, from which they can be taken away again.

What it is: the part of an accumulator that holds the total of DOUBLE values, as SQL templates.
Invariants: the total is exact, so that it does not depend on the order, and a value that comes and goes leaves no
trace, be it 1e300, NaN or infinity; only reading the value off it rounds, by a few units in the last place.
Not here: counting, averages, FILTER (``accumulators.py``).
Read next: ``accumulators.py``.

A value *in range* (zero, or 2^-22 <= |x| < 2^53) is a whole number of 2^-74, since a double has 53 bits. It is cut into
four *limbs*, whole numbers of 2^22, 2^-10, 2^-42 and 2^-74, each at most 2^31 in size: limb k is x rounded to grid k,
less x rounded to grid k-1. All steps are exact in double arithmetic. Each limb is summed as a BIGINT, which holds for
250 million rows of one tick, each at most 16 times; the merge carries from limb to limb, so that a stored limb stays
below 2^31.

Every other value is *out of range*, and so is each value of a *heavy* row: one that is there more than 16 times, as a
join of equal rows yields. A finite one is a whole number of 2^(16 c) for its class c, with at most 70 bits, and is
summed for each class as a DECIMAL(38, 0), which leaves 56 bits for weights; NaN and the infinities are counted, under
classes of their own. These sums are an array, nearly always empty, of at most 140 structs. Collecting it takes Spark
off its fastest way of aggregating (measured: four times the time), and makes the query long. So there are *in-range*
forms of everything too, which tell where they met a value out of range: a stage tries those first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp

from headwater.views.compiler.sql.dialect import SparkAsWritten, Spelled, text

GRIDS = (22, -10, -42, -74)  # the exponents of the limbs' units
LIMB = 2**32
HALF = 2**31
TAME_MIN, TAME_MAX = 2.0**-22, 2.0**53
NAN, PLUS_INFINITY, MINUS_INFINITY = 1000, 1001, 1002  # classes of their own, beyond every exponent
LIGHT_MAX = 16  # so often may a row be there for its part of a sum to be kept in 64 bits
IS_LIGHT = f"_weight BETWEEN -{LIGHT_MAX} AND {LIGHT_MAX}"
IS_HEAVY = f"NOT ({IS_LIGHT})"
LIGHT_WEIGHT = f"(CASE WHEN {IS_LIGHT} THEN _weight ELSE 0 END)"
HEAVY_ROWS = f"COALESCE(SUM(CASE WHEN {IS_LIGHT} THEN 0 ELSE 1 END), 0)"
OUT_OF_RANGE_TYPE = "ARRAY<STRUCT<class: INT, total: DECIMAL(38, 0)>>"
OUT_OF_RANGE = f"(CASE WHEN {{x1}} IS NULL AND {IS_HEAVY} AND {{x0}} <> 0 THEN {{x0}} ELSE {{x1}} END)"
NOTHING_OUT_OF_RANGE = f"CAST(ARRAY() AS {OUT_OF_RANGE_TYPE})"


def spark_sql(template: str, **names: str) -> exp.Expr:
    """The expression that a template of Spark SQL stands for, with names put in.

    >>> from headwater.views.compiler.sql.dialect import text
    >>> text(spark_sql("COALESCE({x}, 0)", x="t.a"))
    'coalesce(t.a, 0)'
    """
    return _parsed(template.format(**names)).copy()


def spelled_sql(template: str, **names: str) -> exp.Expr:
    """The same as one piece of text, for an expression that is written and not looked into: copying it costs nothing.

    >>> from headwater.views.compiler.sql.dialect import text
    >>> text(spelled_sql("COALESCE({x}, 0)", x="t.a"))
    'coalesce(t.a, 0)'
    """
    return Spelled(pieces=(_written(template.format(**names)),), open=True)


@functools.lru_cache(maxsize=4096)
def _written(sql: str) -> str:
    return text(_parsed(sql))


@functools.lru_cache(maxsize=4096)  # an app of many views has the same few over and over
def _parsed(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, read=SparkAsWritten)


@dataclass(frozen=True)
class ExactSum:
    """The templates of one exact total; ``first`` is the number of its first column among the accumulator's.

    >>> ExactSum(first=1).types
    ('BIGINT', 'BIGINT', 'BIGINT', 'BIGINT', 'ARRAY<STRUCT<class: INT, total: DECIMAL(38, 0)>>')
    """

    first: int

    @property
    def types(self) -> tuple[str, ...]:
        return (*("BIGINT" for _ in GRIDS), OUT_OF_RANGE_TYPE)

    def arguments(self, argument: exp.Expr) -> tuple[exp.Expr, ...]:
        """The value where it is in-range, the value where it is out-of-range: at most one of the two is not null."""
        value = exp.cast(argument.copy(), "DOUBLE")
        # NaN is larger than every number to Spark, and so not in-range.
        size, zero = exp.Abs(this=value.copy()), _double(0.0)
        in_range = exp.and_(
            exp.LT(this=size, expression=_double(TAME_MAX)),
            exp.or_(
                exp.EQ(this=value.copy(), expression=zero), exp.GTE(this=size.copy(), expression=_double(TAME_MIN))
            ),
        )
        return (
            exp.Case(ifs=[exp.If(this=in_range, true=value)]),
            exp.Case(ifs=[exp.If(this=exp.not_(in_range.copy()), true=value.copy())]),
        )

    @property
    def count(self) -> str:
        return "COALESCE(SUM(CASE WHEN {x0} IS NOT NULL OR {x1} IS NOT NULL THEN _weight END), 0)"

    @property
    def partials(self) -> tuple[str, ...]:
        row = f"STRUCT({_class(OUT_OF_RANGE)} AS class, {_amount(OUT_OF_RANGE)} AS total)"
        rows = f"COLLECT_LIST(CASE WHEN {OUT_OF_RANGE} IS NOT NULL THEN {row} END)"
        return (*self._limb_sums, f"COALESCE({rows}, {NOTHING_OUT_OF_RANGE})")

    @property
    def in_range_partials(self) -> tuple[str, ...]:
        """The same where no value is out-of-range and no row heavy; the last one counts the rows where one is."""
        # Heavy rows are counted here and not in a column of their own, as each column costs every row. Where all
        # weights are 1, as in a topic that is only appended to, Spark folds the test away.
        return (*self._limb_sums, f"COALESCE(SUM(CASE WHEN {{x1}} IS NOT NULL OR {IS_HEAVY} THEN 1 ELSE 0 END), 0)")

    @property
    def in_range_merges(self) -> tuple[str, ...]:
        return (*self._merged_limbs, f"COALESCE({{b{self.first + len(GRIDS)}}}, {NOTHING_OUT_OF_RANGE})")

    @property
    def out_of_range(self) -> str:
        """Whether the in-range forms do not hold for a group."""
        last = self.first + len(GRIDS)
        return f"({{p{last}}} > 0 OR COALESCE(SIZE({{b{last}}}), 0) > 0)"

    @property
    def _limb_sums(self) -> tuple[str, ...]:
        rounded = [f"RINT({{x0}} * {_number(2.0**-grid)})" for grid in GRIDS]
        limbs = [rounded[0]] + [
            f"({finer} - {coarser} * {_number(float(LIMB))})" for coarser, finer in pairwise(rounded)
        ]
        return tuple(f"COALESCE(SUM(CAST({limb} AS BIGINT) * {LIGHT_WEIGHT}), 0)" for limb in limbs)

    @property
    def merges(self) -> tuple[str, ...]:
        last = self.first + len(GRIDS)
        out_of_range = _merged(f"CONCAT(COALESCE({{b{last}}}, {NOTHING_OUT_OF_RANGE}), {{p{last}}})")
        return (*self._merged_limbs, out_of_range)

    @property
    def _merged_limbs(self) -> tuple[str, ...]:
        raw = [f"(COALESCE({{b{number}}}, 0) + {{p{number}}})" for number in range(self.first, self.first + len(GRIDS))]
        kept: list[str] = []
        carry = ""
        for number in reversed(range(len(GRIDS))):
            total = f"({raw[number]} + {carry})" if carry else raw[number]
            carry = f"SHIFTRIGHT({total} + {HALF}, 32)"
            kept.insert(0, f"{total} - {carry} * {LIMB}" if number else total)
        return tuple(kept)

    @property
    def value(self) -> str:
        out_of_range = f"{{a{self.first + len(GRIDS)}}}"
        every = _with_out_of_range(self.in_range_value, out_of_range)
        return f"CASE WHEN SIZE({out_of_range}) = 0 THEN {self.in_range_value} ELSE {every} END"

    @property
    def in_range_value(self) -> str:
        limbs = [f"CAST({{a{self.first + number}}} AS DOUBLE)" for number in range(len(GRIDS))]
        in_range = ""
        for limb, grid in reversed(list(zip(limbs, GRIDS, strict=True))):  # from small to large
            part = f"{limb} * {_number(2.0**grid)}"
            in_range = f"({in_range} + {part})" if in_range else part
        return in_range


def _number(value: float) -> str:
    return f"CAST({value!r} AS DOUBLE)"


def _double(value: float) -> exp.Expr:
    return spark_sql(_number(value))


def _class(x: str) -> str:
    """The class of an out-of-range value; its unit 2^(16 class) is 53 to 69 binary places below its first bit."""
    exponent = f"FLOOR((LOG(2, ABS({x})) - 53) / 16)"
    return (
        f"CASE WHEN ISNAN({x}) THEN {NAN} WHEN {x} = CAST('Infinity' AS DOUBLE) THEN {PLUS_INFINITY} "
        f"WHEN {x} = CAST('-Infinity' AS DOUBLE) THEN {MINUS_INFINITY} ELSE CAST({exponent} AS INT) END"
    )


def _amount(x: str) -> str:
    """An out-of-range value in units of its class, times the weight; for NaN and the infinities the weight alone."""
    # Scaled in two steps, for 2^(-16 class) itself may be too large for a double.
    step = f"POWER(CAST(2 AS DOUBLE), -8 * ({_class(x)}))"
    scaled = f"({x} * {step} * {step})"
    # A cast of a double to a decimal goes through its shortest text, which is not exact: by halves, as integers.
    high = f"RINT({scaled} * {_number(2.0**-50)})"
    low = f"({scaled} - {high} * {_number(2.0**50)})"
    units = (
        f"CAST(CAST({high} AS BIGINT) AS DECIMAL(20, 0)) * CAST({2**50} AS DECIMAL(16, 0)) "
        f"+ CAST(CAST({low} AS BIGINT) AS DECIMAL(20, 0))"
    )
    weight = "CAST(_weight AS DECIMAL(19, 0))"
    return (
        f"CASE WHEN ({_class(x)}) >= {NAN} THEN CAST({weight} AS DECIMAL(38, 0)) "
        f"ELSE CAST(CAST({units} AS DECIMAL(38, 0)) * {weight} AS DECIMAL(38, 0)) END"
    )


def _merged(rows: str) -> str:
    """One struct for each class, the ones that came to nothing left out."""
    total = (
        f"AGGREGATE(FILTER({rows}, r -> r.class = c), CAST(0 AS DECIMAL(38, 0)), "
        "(t, r) -> CAST(t + r.total AS DECIMAL(38, 0)))"
    )
    classes = f"ARRAY_SORT(ARRAY_DISTINCT(TRANSFORM({rows}, r -> r.class)))"
    merged = f"FILTER(TRANSFORM({classes}, c -> STRUCT(c AS class, {total} AS total)), r -> r.total <> 0)"
    # The usual case first, and cheap.
    return f"CASE WHEN SIZE({rows}) = 0 THEN {NOTHING_OUT_OF_RANGE} ELSE {merged} END"


def _with_out_of_range(in_range: str, out_of_range: str) -> str:
    nan, plus, minus = (
        f"SIZE(FILTER({out_of_range}, r -> r.class = {number})) > 0" for number in (NAN, PLUS_INFINITY, MINUS_INFINITY)
    )
    step = "POWER(CAST(2 AS DOUBLE), 8 * r.class)"
    small, large = (
        f"AGGREGATE(FILTER({out_of_range}, r -> {test}), {{start}}, "
        f"(t, r) -> t + CAST(r.total AS DOUBLE) * {step} * {step})"
        for test in ("r.class < 0", "r.class >= 0")
    )
    # The classes stand in rising order: tiny values, then the in-range ones, then the huge.
    tiny = small.replace("{start}", _number(0.0))
    finite = large.replace("{start}", f"{tiny} + ({in_range})")
    return (
        f"CASE WHEN {nan} OR ({plus} AND {minus}) THEN CAST('NaN' AS DOUBLE) "
        f"WHEN {plus} THEN CAST('Infinity' AS DOUBLE) WHEN {minus} THEN CAST('-Infinity' AS DOUBLE) ELSE {finite} END"
    )
