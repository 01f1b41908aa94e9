"""Accumulators: aggregates that can be added to and taken from.

What it is: for an aggregate of a GROUP BY, what to keep for each group, how a tick's rows change it, and how the
aggregate's value is read off it. All of it is SQL that Spark runs inside the stage's own query.
Invariants: numbers do not drift. What is kept is an integer or a decimal, so that adding a row and taking it away
again leaves exactly what was there before, whatever the order; the value has the type that Spark's own aggregate
has, and fails where Spark's fails (a total that does not fit its type).
Not here: aggregates that are computed anew from the rows of a touched group (min, max and sketches of rows that may go,
percentiles, collect_list, …): for those ``accumulator`` gives None. Sums of DOUBLE are a matter of their own
(``exact_sums.py``), and so are sketches (``sketches.py``).
Read next: ``exact_sums.py``, ``sketches.py``, then ``plan.py``'s ``AccumulateStage``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.views.compiler.algebra.exact_sums import IS_HEAVY, LIGHT_WEIGHT, ExactSum, spark_sql, spelled_sql
from headwater.views.compiler.algebra.sketches import sketch
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.dialect import text

DECIMAL_PRECISION_MAX = 38
# Spark adds two DECIMAL(38, s) as DECIMAL(38, s) up to this scale; above it the sum loses a digit.
EXACT_SCALE_MAX = 6
# DECIMAL(p, s) by this precision: the quotient keeps nine digits more than the average shows, so that rounding twice
# is rounding once for groups of less than a thousand million rows.
AVERAGE_PRECISION_MAX = 15
# Squares of n values of so many digits, times n, fit 38 digits for n up to ten thousand million.
SQUARE_PRECISION_MAX = 9
SPREAD_ROWS_MAX = 10_000_000_000

SMALL_INTEGERS = {"TINYINT": 3, "BYTE": 3, "SMALLINT": 5, "SHORT": 5, "INT": 10, "INTEGER": 10}
BIG_INTEGERS = {"BIGINT", "LONG"}
FLOATS = {"FLOAT", "REAL", "DOUBLE"}


@dataclass(frozen=True)
class Accumulator:
    """What a stage keeps of one aggregate.

    ``arguments`` are the expressions over the flow's columns that it needs, as columns ``_x…``. ``types`` are the
    types of what it keeps, as columns ``_a…``. The other four are templates of Spark SQL: in ``partials`` and
    ``finals`` ``{x0}…`` stand for the arguments, ``{a0}…`` for what is kept, ``{b0}…`` and ``{p0}…`` for what was
    kept before (null for a new group) and the tick's difference, ``{n}`` for the number of rows in the group.
    """

    arguments: tuple[exp.Expr, ...]
    types: tuple[str | None, ...]
    partials: tuple[str, ...]
    merges: tuple[str, ...]
    value: str
    # The same, cheaper, where no row is heavy and ``out_of_range`` (over ``{b0}…`` and ``{p0}…``) is false
    # (``exact_sums.py``). ``out_of_range`` is true where a row is heavy, too.
    in_range: Accumulator | None = None
    out_of_range: str = ""
    # Of sketches (``sketches.py``), of which one value is kept. ``gathers``: the merge is an aggregate over ``{u0}``,
    # which stands for what was kept before, if anything was, and for the tick's. ``repeats``: a row that is there twice
    # is to be given twice.
    is_sketch: bool = False
    gathers: bool = False
    repeats: bool = False

    def partial(self, xs: tuple[str, ...]) -> tuple[exp.Expr, ...]:
        """Aggregate expressions over the columns ``xs`` and ``_weight``: the differences that a tick makes.

        >>> import sqlglot
        >>> from headwater.views.compiler.sql.dialect import SparkAsWritten, text
        >>> kept = accumulator(sqlglot.parse_one("count(a)", read=SparkAsWritten), ("INT",), append_only=False)
        >>> [text(part) for part in kept.partial(("_x0",))]
        ['coalesce(sum(CASE WHEN _x0 THEN _weight END), 0)']
        """
        names = {f"x{number}": name for number, name in enumerate(xs)}
        return tuple(spelled_sql(template, **names) for template in self.partials)

    def merge(self, before: tuple[str, ...], partial: tuple[str, ...]) -> tuple[exp.Expr, ...]:
        """What is kept after the tick, of what was kept before (columns that are null for a new group).

        >>> import sqlglot
        >>> from headwater.views.compiler.sql.dialect import SparkAsWritten, text
        >>> kept = accumulator(sqlglot.parse_one("count(a)", read=SparkAsWritten), ("INT",), append_only=False)
        >>> [text(part) for part in kept.merge(("b._a0",), ("p._a0",))]
        ['coalesce(b._a0, 0) + p._a0']
        """
        names = {f"b{number}": name for number, name in enumerate(before)}
        names |= {f"p{number}": name for number, name in enumerate(partial)}
        return tuple(spelled_sql(template, **names) for template in self.merges)

    def gathered(self, both: tuple[str, ...]) -> tuple[exp.Expr, ...]:
        """What is kept after the tick, as aggregates over a column of what was kept before and of the tick's.

        >>> import sqlglot
        >>> from headwater.views.compiler.sql.dialect import SparkAsWritten, text
        >>> call = sqlglot.parse_one("bitmap_or_agg(a)", read=SparkAsWritten)
        >>> kept = accumulator(call, ("BINARY",), append_only=True)
        >>> [text(part) for part in kept.gathered(("_a0",))]
        ['bitmap_or_agg(_a0)']
        """
        return tuple(spelled_sql(template, **{"u0": name}) for template, name in zip(self.merges, both, strict=True))

    def is_out_of_range(self, before: tuple[str, ...], partial: tuple[str, ...]) -> exp.Expr:
        """Whether the ``in_range`` form does not hold for a group."""
        names = {f"b{number}": name for number, name in enumerate(before)}
        names |= {f"p{number}": name for number, name in enumerate(partial)}
        return exp.Paren(this=spelled_sql(self.out_of_range, **names))

    def final(self, accumulators: tuple[str, ...], n: str) -> exp.Expr:
        """The aggregate's value, of what is kept and the number of rows in the group.

        >>> import sqlglot
        >>> from headwater.views.compiler.sql.dialect import SparkAsWritten, text
        >>> kept = accumulator(sqlglot.parse_one("count(*)", read=SparkAsWritten), (), append_only=False)
        >>> kept.types, text(kept.final((), "_n"))
        ((), '_n')
        """
        return spark_sql(self.value, n=n, **{f"a{number}": name for number, name in enumerate(accumulators)})


def accumulator(
    aggregate: exp.Expr, argument_types: tuple[str | None, ...], *, append_only: bool
) -> Accumulator | None:
    """The accumulator of an aggregate, with or without its FILTER; None when it has none.

    ``argument_types`` are the types of the aggregate's arguments in Spark's words; None is an unknown type.
    ``append_only`` says that rows are only ever added to what is aggregated.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten, text
    >>> accumulator(sqlglot.parse_one("sum(a)", read=SparkAsWritten), ("INT",), append_only=False).types
    ('BIGINT', 'BIGINT')
    >>> accumulator(sqlglot.parse_one("max(a)", read=SparkAsWritten), ("INT",), append_only=False) is None
    True
    """
    condition: exp.Expr | None = None
    if isinstance(aggregate, exp.Filter):
        condition, aggregate = aggregate.expression.this, aggregate.this
    name = aggregate_name(aggregate)
    if name is None:
        return None
    arguments = _arguments(aggregate)
    if arguments is None:  # DISTINCT
        return None
    kind = argument_types[0] if argument_types else None
    if name == "count":
        return _count(arguments, condition)
    united = _sketch(name, arguments, condition, kind) if append_only else None
    if united is not None or len(arguments) != 1:
        return united
    argument = arguments[0]
    if name in ("count_if", "bool_or", "bool_and") and kind is not None and kind.upper() != "BOOLEAN":
        argument = exp.cast(argument.copy(), "BOOLEAN")  # as Spark does: every('yes')
    argument = _filtered(argument, condition)
    if name == "count_if":
        return _counted(argument)
    if name in ("bool_or", "bool_and"):
        return _boolean(argument, name)
    if name in ("min", "max"):
        return _extreme(argument, kind, name) if append_only else None
    if kind is None:
        return None
    if name == "sum":
        return _sum(argument, _Number.parse(kind))
    if name == "avg":
        return _average(argument, _Number.parse(kind))
    if name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop"):
        return _spread(argument, _Number.parse(kind), name)
    return None


@dataclass(frozen=True)
class _Number:
    """A numeric type: how many digits an exact one has, and how many of them behind the point."""

    kind: str  # "small", "big", "decimal", "float" or "other"
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> _Number:
        name = text.upper().strip()
        decimal = re.fullmatch(r"(?:DECIMAL|DEC|NUMERIC)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", name)
        if decimal:
            return cls("decimal", int(decimal[1] or 10), int(decimal[2] or 0))
        if name in SMALL_INTEGERS:
            return cls("small", SMALL_INTEGERS[name])
        if name in BIG_INTEGERS:
            return cls("big", 19)
        return cls("float" if name in FLOATS else "other")


def _arguments(aggregate: exp.Expr) -> list[exp.Expr] | None:
    """The arguments of a call; None when they are to be taken once each and that makes a difference."""
    if isinstance(aggregate, exp.Anonymous):
        given = list(aggregate.expressions)
    else:
        given = [aggregate.this, *(aggregate.args.get("expressions") or [])]
    if len(given) == 1 and isinstance(given[0], exp.Paren):  # sqlglot reads any(x) as ANY (x)
        given = [given[0].this]
    if not any(isinstance(argument, exp.Distinct) for argument in given):
        return given
    if aggregate_name(aggregate) in ("min", "max", "bool_or", "bool_and"):
        return [part for argument in given for part in argument.expressions]
    return None


def _filtered(argument: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """The argument where the FILTER holds, null elsewhere: every accumulator passes over nulls."""
    if condition is None:
        return argument.copy()
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=argument.copy())])


def _count(arguments: list[exp.Expr], condition: exp.Expr | None) -> Accumulator:
    tests: list[exp.Expr] = [
        exp.Not(this=exp.Is(this=exp.paren(argument.copy()), expression=exp.Null()))
        for argument in arguments
        if not isinstance(argument, exp.Star) and not (isinstance(argument, exp.Literal))
    ]
    if condition is None:
        whole = Accumulator(arguments=(), types=(), partials=(), merges=(), value="{n}")
        return _counted(exp.and_(*tests)) if tests else whole
    # An argument is computed where the FILTER holds only: elsewhere it may raise.
    return _counted(_filtered(exp.and_(*tests), condition) if tests else exp.paren(condition.copy()))


def _counted(argument: exp.Expr) -> Accumulator:
    return Accumulator((argument,), ("BIGINT",), (COUNT_TRUE.format(test="{x0}"),), (ADD.format(0),), "{a0}")


COUNT_TRUE = "COALESCE(SUM(CASE WHEN {test} THEN _weight END), 0)"
COUNT_VALUES = "COALESCE(SUM(CASE WHEN {x0} IS NOT NULL THEN _weight END), 0)"
ADD = "COALESCE({{b{0}}}, 0) + {{p{0}}}"


def _boolean(argument: exp.Expr, name: str) -> Accumulator:
    value = "{a0} > 0" if name == "bool_or" else "{a0} = {a1}"
    return Accumulator(
        (argument,),
        ("BIGINT", "BIGINT"),
        (COUNT_TRUE.format(test="{x0}"), COUNT_VALUES),
        (ADD.format(0), ADD.format(1)),
        f"CASE WHEN {{a1}} > 0 THEN {value} END",
    )


def _extreme(argument: exp.Expr, kind: str | None, name: str) -> Accumulator:
    # LEAST and GREATEST pass over nulls and hold NaN for the largest number, as MIN and MAX do.
    pick = "LEAST" if name == "min" else "GREATEST"
    return Accumulator((argument,), (kind,), (f"{name.upper()}({{x0}})",), (f"{pick}({{b0}}, {{p0}})",), "{a0}")


def _sketch(name: str, arguments: list[exp.Expr], condition: exp.Expr | None, kind: str | None) -> Accumulator | None:
    """A sketch of rows that only come."""
    found = sketch(name, [text(part) for part in arguments], kind)
    if found is None or any(isinstance(part, exp.Kwarg) for part in arguments):
        return None
    if any(True for part in arguments[found.values :] for _ in part.find_all(exp.Column)):  # Spark refuses it
        return None
    values = [_filtered(part, condition) for part in arguments[: found.values]]
    # Some sketches count nulls, so a row that the FILTER leaves out must not be given as one.
    tests = ["_weight > 0"] if found.repeats else []
    if condition is not None:
        tests.append(f"{{x{len(values)}}}")
        values.append(exp.paren(condition.copy()))
    partial = f"{found.partial} FILTER (WHERE {' AND '.join(tests)})" if tests else found.partial
    return Accumulator(
        tuple(values),
        (found.type,),
        (partial,),
        (found.merge,),
        found.value,
        is_sketch=True,
        gathers=found.gathers,
        repeats=found.repeats,
    )


def _sum(argument: exp.Expr, number: _Number) -> Accumulator | None:
    if number.kind == "small":
        return _small_integers(argument, "{a1}")
    if number.kind == "big":
        # Fails where Spark's sum fails: when the total needs more than 64 bits.
        return _integers(argument, "CAST({a1} AS BIGINT)")
    if number.kind == "decimal":
        precision = min(DECIMAL_PRECISION_MAX, number.precision + 10)
        return _decimals(argument, number, f"CAST({{a1}} AS DECIMAL({precision}, {number.scale}))")
    if number.kind == "float":
        return _doubles(argument, "{total}")
    return None


def _average(argument: exp.Expr, number: _Number) -> Accumulator | None:
    if number.kind in ("small", "big"):
        return _integers(argument, "CAST({a1} AS DOUBLE) / CAST({a0} AS DOUBLE)")
    if number.kind == "decimal" and number.precision <= AVERAGE_PRECISION_MAX:
        precision, scale = number.precision, number.scale
        total, count = f"CAST({{a1}} AS DECIMAL({precision + 10}, {scale}))", "CAST({a0} AS DECIMAL(20, 0))"
        return _decimals(argument, number, f"CAST({total} / {count} AS DECIMAL({precision + 4}, {scale + 4}))")
    if number.kind == "float":
        return _doubles(argument, "{total} / CAST({a0} AS DOUBLE)")
    return None


TWO_32 = 2**32
WIDE = f"DECIMAL({DECIMAL_PRECISION_MAX}, 0)"
# What the rows of heavy weight bring, those of joins of rows that are there very often. A DECIMAL holds every product.
HEAVY_TOTAL = (
    f"COALESCE(SUM(CASE WHEN {IS_HEAVY} "
    f"THEN CAST(CAST({{x0}} AS DECIMAL(19, 0)) * CAST(_weight AS DECIMAL(19, 0)) AS {WIDE}) END), CAST(0 AS {WIDE}))"
)


def _when_any(value: str) -> str:
    """The aggregate's value, or null for a group without values."""
    return f"CASE WHEN {{a0}} > 0 THEN {value} END"


def _small_integers(argument: exp.Expr, value: str) -> Accumulator:
    # After each tick the total is what the view shows: one that does not fit a BIGINT fails, as Spark's sum does.
    light = f"COALESCE(SUM(CAST({{x0}} AS BIGINT) * {LIGHT_WEIGHT}), 0)"
    every = f"CAST(CAST({light} AS {WIDE}) + {HEAVY_TOTAL} AS BIGINT)"
    return _light_or_heavy(argument, "BIGINT", light, every, ADD.format(1), value)


def _integers(argument: exp.Expr, value: str) -> Accumulator:
    """Integers whose total may pass beyond 64 bits and come back, or never be shown: an average's."""
    # In two halves of 32 bits, for a sum of BIGINT takes a fraction of the time of one of DECIMAL.
    low = f"COALESCE(SUM((CAST({{x0}} AS BIGINT) & {TWO_32 - 1}) * {LIGHT_WEIGHT}), 0)"
    high = f"COALESCE(SUM(SHIFTRIGHT(CAST({{x0}} AS BIGINT), 32) * {LIGHT_WEIGHT}), 0)"
    light = f"CAST(CAST({high} AS {WIDE}) * CAST({TWO_32} AS DECIMAL(10, 0)) + CAST({low} AS {WIDE}) AS {WIDE})"
    every = f"CAST({light} + {HEAVY_TOTAL} AS {WIDE})"
    merge = f"CAST(COALESCE({{b1}}, CAST(0 AS {WIDE})) + {{p1}} AS {WIDE})"
    return _light_or_heavy(argument, WIDE, light, every, merge, value)


def _light_or_heavy(argument: exp.Expr, kind: str, light: str, every: str, merge: str, value: str) -> Accumulator:
    """The total of all rows; its in-range form is that of rows of light weight: a stage tells heavy ones itself."""
    whole = Accumulator((argument,), ("BIGINT", kind), (COUNT_VALUES, every), (ADD.format(0), merge), _when_any(value))
    return replace(whole, in_range=replace(whole, partials=(COUNT_VALUES, light)))


def _decimals(argument: exp.Expr, number: _Number, value: str) -> Accumulator:
    scale, kept = number.scale, f"DECIMAL({DECIMAL_PRECISION_MAX}, {number.scale})"
    # Nearly every weight is 1 or -1. For others the product is taken in units of the last digit, as Spark's product
    # of a wide decimal and an integer would lose digits behind the point.
    product = _of_units(f"{_units('{x0}', scale)} * CAST(_weight AS DECIMAL(19, 0))", scale)
    weighted = (
        f"CASE _weight WHEN 1 THEN CAST({{x0}} AS {kept}) WHEN -1 THEN CAST(-{{x0}} AS {kept}) ELSE {product} END"
    )
    before = f"COALESCE({{b1}}, CAST(0 AS {kept}))"
    if scale <= EXACT_SCALE_MAX:
        total = f"CAST({before} + {{p1}} AS {kept})"
    else:
        total = _of_units(f"{_units(before, scale)} + {_units('{p1}', scale)}", scale)
    return Accumulator(
        (argument,),
        ("BIGINT", kept),
        (COUNT_VALUES, f"CAST(COALESCE(SUM({weighted}), CAST(0 AS {kept})) AS {kept})"),
        (ADD.format(0), total),
        _when_any(value),
    )


def _units(decimal: str, scale: int) -> str:
    """A decimal as a whole number of units of its last digit, exactly: through its text."""
    return f"CAST(CONCAT(CAST({decimal} AS STRING), 'E{scale}') AS DECIMAL(38, 0))"


def _of_units(units: str, scale: int) -> str:
    return f"CAST(CONCAT(CAST({units} AS STRING), 'E-{scale}') AS DECIMAL(38, {scale}))"


def _doubles(argument: exp.Expr, value: str) -> Accumulator:
    total = ExactSum(first=1)
    arguments, types = total.arguments(argument), ("BIGINT", *total.types)
    in_range = Accumulator(
        arguments,
        types,
        (total.count, *total.in_range_partials),
        (ADD.format(0), *total.in_range_merges),
        _when_any(value.replace("{total}", total.in_range_value)),
    )
    return Accumulator(
        arguments,
        types,
        (total.count, *total.partials),
        (ADD.format(0), *total.merges),
        _when_any(value.replace("{total}", total.value)),
        in_range,
        total.out_of_range,
    )


def _spread(argument: exp.Expr, number: _Number, name: str) -> Accumulator | None:
    """Variance and standard deviation, from the exact sums of the values and of their squares."""
    if number.kind not in ("small", "decimal") or number.precision > max(SQUARE_PRECISION_MAX, SMALL_INTEGERS["INT"]):
        return None
    if number.kind == "decimal" and number.precision > SQUARE_PRECISION_MAX:
        return None
    scale, wide = number.scale, WIDE
    # Squares are taken of whole units of the last digit.
    unit = f"CAST({_units('{x0}', scale)} AS BIGINT)" if scale else "CAST({x0} AS BIGINT)"
    weight = "CAST(_weight AS DECIMAL(19, 0))"
    square = f"CAST({unit} AS DECIMAL(10, 0)) * CAST({unit} AS DECIMAL(10, 0))"
    count = "CAST({a0} AS DOUBLE)"
    spread = f"CAST(CAST({{a0}} AS {wide}) * {{a2}} - {{a1}} * {{a1}} AS DOUBLE)"
    # Of more rows the products would have too many digits. Then from squared distances to the whole number m next to
    # the mean, S = sum((x - m)^2) = a2 - 2 m a1 + n m^2, and the rest r = a1 - n m: n^2 times the variance is
    # n S - r^2, where r^2 / n is at most half of S, so nothing is lost.
    n = f"CAST({{a0}} AS {wide})"
    m = f"CAST(({{a1}} * 2 + (CASE WHEN {{a1}} < 0 THEN -{n} ELSE {n} END)) DIV ({n} * 2) AS {wide})"
    rest = f"CAST({{a1}} - {n} * {m} AS DOUBLE)"
    distances = f"CAST({{a2}} - 2 * {m} * {{a1}} + {n} * {m} * {m} AS DOUBLE)"
    spread = f"CASE WHEN {{a0}} <= {SPREAD_ROWS_MAX} THEN {spread} ELSE {count} * {distances} - {rest} * {rest} END"
    divisor = f"({count} * {count})" if name.endswith("_pop") else f"({count} * ({count} - CAST(1 AS DOUBLE)))"
    unit_squared = repr(10.0 ** (2 * scale))
    value = f"({spread}) / {divisor} / CAST({unit_squared} AS DOUBLE)"
    value = f"SQRT({value})" if name.startswith("stddev") else value
    least = 0 if name.endswith("_pop") else 1  # Spark gives null for the sample variance of one value
    return Accumulator(
        (argument,),
        ("BIGINT", wide, wide),
        (
            COUNT_VALUES,
            f"CAST(COALESCE(SUM(CAST({unit} AS DECIMAL(18, 0)) * {weight}), CAST(0 AS {wide})) AS {wide})",
            f"CAST(COALESCE(SUM(CAST({square} AS DECIMAL(20, 0)) * {weight}), CAST(0 AS {wide})) AS {wide})",
        ),
        (ADD.format(0), *(f"CAST(COALESCE({{b{n}}}, CAST(0 AS {wide})) + {{p{n}}} AS {wide})" for n in (1, 2))),
        f"CASE WHEN {{a0}} > {least} THEN {value} END",
    )
