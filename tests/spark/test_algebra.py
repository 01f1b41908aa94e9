"""The algebra of weighted rows: its Arrow bodies and its Spark bodies give the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.log.schema.ddl import parse_ddl
from headwater.views.spark.scans import local_frame
from headwater.views.state import algebra
from tests.unit.typed_rows import EXAMPLES, values
from tests.unit.weighted_rows import content, thorough, weighted_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TYPE = parse_ddl(", ".join(f"c{at} {name}" for at, name in enumerate(EXAMPLES)))
NESTED = parse_ddl(
    "m MAP<STRING, DOUBLE>, a ARRAY<MAP<INT, FLOAT>>, s STRUCT<at: TIMESTAMP, `odd name`: ARRAY<DOUBLE>>"
)
ODD = parse_ddl("`the x` DOUBLE, _shown BOOLEAN, m MAP<STRING, BIGINT>")
ODD_ROWS = [
    {"the x": x, "_shown": shown, "m": m}
    for x in (0.0, -0.0, float("nan"), None)
    for shown in (True, False)
    for m in (None, [("a", None)], [("a", 0)])
]
WEIGHTS = st.sampled_from([-2, -1, 0, 1, 2, 3_000_000_000, -3_000_000_000])


@st.composite
def weighted_tables(draw: st.DrawFn, weights: st.SearchStrategy[int] = WEIGHTS) -> pa.Table:
    """Rows of which some are equal, in types of every kind."""
    schema = draw(st.sampled_from([EVERY_TYPE, NESTED, ODD]))
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    pool = ODD_ROWS if schema is ODD else draw(st.lists(row, min_size=1, max_size=4))
    return weighted_table(schema, draw(st.lists(st.tuples(st.sampled_from(pool), weights), max_size=12)))


def random_cases(count: int):  # no shrinking: each case is a Spark job
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=thorough(count), deadline=None, phases=phases, suppress_health_check=checks)


@random_cases(8)
@given(weighted_tables(), weighted_tables())
def test_both_bodies_consolidate_negate_and_add_alike(spark: SparkSession, table: pa.Table, other: pa.Table):
    frame = local_frame(spark, table)
    other = other if other.schema == table.schema else table.slice(0, 3)
    other_frame = local_frame(spark, other)

    here = algebra.consolidate(algebra.union(table, algebra.negate(other)))
    there = algebra.consolidate(algebra.union(frame, algebra.negate(other_frame))).toArrow()

    assert content(here) == content(there)
    assert here.num_rows == there.num_rows == len(content(here))
    assert here.column_names == there.column_names == table.column_names


@random_cases(6)
@given(weighted_tables(st.integers(-1, 3)))
def test_both_bodies_repeat_rows_alike(spark: SparkSession, table: pa.Table):
    consolidated = algebra.consolidate(table)

    here = algebra.expand(consolidated)
    there = algebra.expand(local_frame(spark, consolidated)).toArrow()
    batches = list(algebra.expand_in_batches(consolidated, 3))

    assert content(here) == content(there) == content(pa.Table.from_batches(batches, here.schema))
    assert all(batch.num_rows <= 3 for batch in batches)


def test_both_bodies_show_the_same_rows(spark: SparkSession):
    table = weighted_table(ODD, [(row, place + 1) for place, row in enumerate(ODD_ROWS)])

    here = algebra.visible(table, ["the x"])
    there = algebra.visible(local_frame(spark, table), ["the x"]).toArrow()

    assert content(here) == content(there)
    assert here.column_names == there.column_names == ["the x", "_weight"]
    assert here.num_rows == len(ODD_ROWS) // 2


@pytest.mark.parametrize("weight", [1, -1])
def test_both_bodies_give_rows_a_weight(spark: SparkSession, weight: int):
    rows = pa.table({"id": [1, 1, None]})

    here = algebra.with_weight(rows, weight)
    there = algebra.with_weight(local_frame(spark, rows), weight).toArrow()

    assert content(here) == content(there)


@pytest.mark.parametrize("weight", [100_000_000, 3_000_000_000])
def test_the_first_rows_of_a_large_weight_come_without_an_array_of_that_length(spark: SparkSession, weight: int):
    table = pa.table({"id": [1, 2], "_weight": [weight, 1]})

    there = algebra.expand(local_frame(spark, table), ["id"]).limit(10_000).count()
    here = next(algebra.expand_in_batches(table, 10_000)).num_rows

    assert there == here == 10_000


def test_a_row_of_a_hundred_million_is_counted_in_batches():
    table = pa.table({"id": [1, 2], "_weight": [100_000_000, 1]})

    assert sum(batch.num_rows for batch in algebra.expand_in_batches(table, 4_000_000)) == 100_000_001
