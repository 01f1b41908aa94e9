"""Accumulators on Spark: its own types, its own values, after rows came and went.

What it is: every accumulator for every type of argument, in one query as a stage would run it, over a few ticks;
beside Spark's own aggregates over the rows that are left.
Invariants: the type of each value is the type that Spark's aggregate has, and so is the value (DOUBLE to rounding).
Not here: many random rows (``tests/compiler/test_accumulators.py``, on DuckDB).
Read next: ``src/headwater/views/compiler/algebra/accumulators.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import sqlglot

from headwater.views.compiler.algebra.accumulators import Accumulator, accumulator
from headwater.views.compiler.algebra.exact_sums import spark_sql
from headwater.views.compiler.sql.dialect import SparkAsWritten
from headwater.views.compiler.sql.dialect import text as as_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "t": "TINYINT",
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(15, 2)",
    "s": "DECIMAL(7, 3)",
    "w": "DECIMAL(32, 4)",
    "v": "DECIMAL(38, 12)",
    "b": "BOOLEAN",
}
AGGREGATES = [
    *("sum(t)", "avg(i)", "sum(l)", "sum(f)", "avg(d)", "avg(m)", "sum(w)", "sum(v)", "count(*)", "every(b)"),
    *("stddev(s)", "var_pop(i)", "sum(d) FILTER (WHERE b)", "avg(m) FILTER (WHERE i > 100)"),
]
WITH_OUT_OF_RANGE = ["sum(d)", "avg(d)"]
ROWS = [
    (1, 7, 2**61, 0.5, 0.1, "1.05", "0.001", "123456789012345678901234567.1234", "0.000000000001", True),
    (-3, None, 2**61, 1.25, 0.2, "-7.15", None, "0.0001", "99999999999999999999999.5", False),
    (None, 2**31 - 1, -(2**62) - 5, None, 1e15, "99999999.99", "-12.345", None, "-0.000000000007", None),
    (100, -40, 77, -2.0, 3.7e-5, None, "9999.999", "-5.5", None, True),
    (5, 6, 2**61 + 1, 0.1, None, "0.01", "0.002", "7", "7", False),
]
GOES = (5, 8, 2**63 - 1, 3e15, 1e15, "9999999999999.99", "9999.999", "9999999999999999999999999999", "5", True)
OUT_OF_RANGE = [1e300, 1e-300, math.nan, math.inf, -math.inf, 5e-324]


def row(values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(Decimal(value) if isinstance(value, str) else value for value in values)


def kept_of(aggregates: list[str], *, in_range: bool) -> list[Accumulator]:
    found = []
    for text in aggregates:
        tree = sqlglot.parse_one(text, read=SparkAsWritten)
        call = tree.this if isinstance(tree, sqlglot.exp.Filter) else tree
        columns = [column.name for column in call.find_all(sqlglot.exp.Column)]
        kept = accumulator(tree, tuple(KINDS[column] for column in columns[:1]), append_only=False)
        assert kept is not None, text
        found.append(replace(kept.in_range, out_of_range=kept.out_of_range) if in_range and kept.in_range else kept)
    return found


class Stage:
    """What a stage of one group keeps of all the aggregates at once."""

    def __init__(self, spark: SparkSession, aggregates: list[str], *, in_range: bool = False) -> None:
        self.spark = spark
        self.in_range = in_range
        self.kept = kept_of(aggregates, in_range=in_range)
        types = [
            f"CAST(NULL AS {kind}) AS {name}"
            for number, kept in enumerate(self.kept)
            for kind, name in zip(kept.types, self.names(number), strict=True)
        ]
        self.state = spark.sql(f"SELECT CAST(NULL AS BIGINT) AS _n, {', '.join(types)}")

    def names(self, number: int, side: str = "") -> tuple[str, ...]:
        return tuple(f"{side}a{number}_{part}" for part in range(len(self.kept[number].types)))

    def tick(self, rows: list[tuple[object, ...]]) -> bool:
        """Returns whether an out-of-range value was met, which the in-range forms cannot hold."""
        schema = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
        self.spark.createDataFrame(rows, f"{schema}, _weight BIGINT").createOrReplaceTempView("given")
        self.state.createOrReplaceTempView("kept")
        arguments, partials, merges = ["_weight"], ["SUM(_weight) AS _n"], ["COALESCE(b._n, 0) + p._n AS _n"]
        out_of_range = ["FALSE"]
        for number, kept in enumerate(self.kept):
            xs = tuple(f"x{number}_{part}" for part in range(len(kept.arguments)))
            arguments += [f"{as_text(part)} AS {x}" for part, x in zip(kept.arguments, xs, strict=True)]
            names = self.names(number)
            partials += [f"{as_text(part)} AS {name}" for part, name in zip(kept.partial(xs), names, strict=True)]
            before, partial = self.names(number, "b."), self.names(number, "p.")
            merged = kept.merge(before, partial)
            out_of_range += [out_of_range_sql(kept, before, partial)] if kept.out_of_range else []
            merges += [f"{as_text(part)} AS {name}" for part, name in zip(merged, names, strict=True)]
        flow = f"SELECT {', '.join(arguments)} FROM given"
        partial = f"SELECT {', '.join(partials)} FROM ({flow})"
        merges.append(f"{' OR '.join(out_of_range if self.in_range else ['FALSE'])} AS _out_of_range")
        query = self.spark.sql(f"SELECT {', '.join(merges)} FROM ({partial}) AS p CROSS JOIN kept AS b").toArrow()
        rest = self.spark.createDataFrame(query).drop("_out_of_range")
        assert [field.dataType for field in rest.schema] == [field.dataType for field in self.state.schema]
        self.state = rest
        return bool(query["_out_of_range"][0].as_py())

    def values(self) -> tuple[list[str], tuple[object, ...]]:
        self.state.createOrReplaceTempView("kept")
        values = [as_text(kept.final(self.names(number), "_n")) for number, kept in enumerate(self.kept)]
        result = self.spark.sql(f"SELECT {', '.join(f'{value} AS v{n}' for n, value in enumerate(values))} FROM kept")
        return [field.dataType.simpleString() for field in result.schema], tuple(result.collect()[0])


def out_of_range_sql(kept: Accumulator, before: tuple[str, ...], partial: tuple[str, ...]) -> str:
    names = {f"b{number}": name for number, name in enumerate(before)}
    names |= {f"p{number}": name for number, name in enumerate(partial)}
    return as_text(spark_sql(kept.out_of_range, **names))


def sparks_own(
    spark: SparkSession, rows: list[tuple[object, ...]], aggregates: list[str]
) -> tuple[list[str], tuple[object, ...]]:
    spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in KINDS.items())).createOrReplaceTempView(
        "t"
    )
    result = spark.sql(f"SELECT {', '.join(f'{text} AS v{n}' for n, text in enumerate(aggregates))} FROM t")
    return [field.dataType.simpleString() for field in result.schema], tuple(result.collect()[0])


def differences(found: tuple[object, ...], expected: tuple[object, ...]) -> list[tuple[object, object]]:
    def same(one: object, other: object) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)
        return one == other

    return [(one, other) for one, other in zip(found, expected, strict=True) if not same(one, other)]


def test_values_and_types_are_those_of_sparks_own_aggregates(spark: SparkSession) -> None:
    rows, goes = [row(values) for values in ROWS], row(GOES)
    stage = Stage(spark, AGGREGATES, in_range=True)

    out_of_range = [
        stage.tick([(*rows[0], 3), (*rows[1], 1), (*goes, 2)]),
        stage.tick([(*rows[0], -2), (*goes, -2), *((*values, 1) for values in rows[2:])]),
    ]

    types, found = stage.values()
    expected_types, expected = sparks_own(spark, rows, AGGREGATES)
    assert list(zip(AGGREGATES, types, strict=True)) == list(zip(AGGREGATES, expected_types, strict=True))
    assert differences(found, expected) == []
    assert not any(out_of_range)


def test_out_of_range_values_are_summed_and_leave_no_trace_and_the_in_range_form_says_so(spark: SparkSession) -> None:
    rows = [row(values) for values in ROWS]
    out_of_range = [(*rows[3][:4], value, *rows[3][5:]) for value in OUT_OF_RANGE]
    stage, plain = Stage(spark, WITH_OUT_OF_RANGE), Stage(spark, WITH_OUT_OF_RANGE)
    plain.tick([(*values, 1) for values in rows])

    stage.tick([(*values, 1) for values in rows + out_of_range])
    everything = stage.values()[1]
    stage.tick([(*values, -1) for values in out_of_range[2:]])
    huge = stage.values()[1]
    stage.tick([(*values, -1) for values in out_of_range[:2]])

    assert differences(everything, sparks_own(spark, rows + out_of_range, WITH_OUT_OF_RANGE)[1]) == []
    assert differences(huge, sparks_own(spark, rows + out_of_range[:2], WITH_OUT_OF_RANGE)[1]) == []
    assert stage.state.collect() == plain.state.collect()
    assert Stage(spark, WITH_OUT_OF_RANGE, in_range=True).tick([(*values, 1) for values in out_of_range])


@pytest.mark.parametrize(("weight", "heavy"), [(16, False), (17, True), (-17, True), (2**62, True)])
def test_the_in_range_form_says_so_where_a_row_is_there_very_often(
    spark: SparkSession, weight: int, heavy: bool
) -> None:
    assert Stage(spark, ["sum(d)"], in_range=True).tick([(*row(ROWS[3]), weight)]) is heavy
