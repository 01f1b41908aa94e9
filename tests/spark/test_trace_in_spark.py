"""Traces read and merged by Spark: the same content as on the driver, for every type and every way of reading."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.errors import Corruption
from headwater.log.schema.ddl import parse_ddl
from headwater.views import thresholds
from headwater.views.state.algebra import with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.merge import RunMerge
from headwater.views.state.trace import Trace
from tests.unit.typed_rows import EXAMPLES, values
from tests.unit.weighted_rows import content, model, project, thorough, weighted_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_TYPE = parse_ddl(", ".join(f"c{at} {name}" for at, name in enumerate(EXAMPLES)))
NESTED = parse_ddl(
    "m MAP<STRING, DOUBLE>, a ARRAY<MAP<INT, FLOAT>>, s STRUCT<at: TIMESTAMP, `odd name`: ARRAY<DOUBLE>>"
)
ORDERS = parse_ddl("id BIGINT, amount DOUBLE, `the note` STRING")


def shown(frame: DataFrame) -> Counter[Any]:
    """The content of a frame, weighted or not."""
    return content(frame.toArrow())


def with_changes(trace: Trace, rows: list[tuple[dict[str, Any], int]]) -> Trace:
    changes = Delta.local(weighted_table(trace.schema.remove(len(trace.schema) - 1), rows))
    return trace.with_run(trace.write(changes, tick=len(trace.runs), epoch=1), changes)


def order(number: int, amount: float = 1.0) -> dict[str, Any]:
    return {"id": number, "amount": amount, "the note": f"note {number}"}


@st.composite
def histories(draw: st.DrawFn, schema: pa.Schema) -> list[list[tuple[dict[str, Any], int]]]:
    """Ticks of changes, after each of which no row is there less than no times."""
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    pool = draw(st.lists(row, min_size=1, max_size=4))
    there: Counter[int] = Counter()
    ticks = []
    for _ in range(draw(st.integers(1, 4))):
        tick = []
        for at in draw(st.lists(st.integers(0, len(pool) - 1), max_size=5)):
            weight = draw(st.integers(-there[at], 2))
            there[at] += weight
            tick.append((pool[at], weight))
        ticks.append(tick)
    return ticks


@pytest.mark.parametrize("schema", [EVERY_TYPE, NESTED], ids=["every type", "nested"])
@settings(
    max_examples=thorough(2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate, Phase.shrink] if thorough(1) > 1 else [Phase.generate],
)
@given(st.data())
def test_frames_bags_and_merges_agree_with_a_counter(spark: SparkSession, schema: pa.Schema, data: st.DataObject):
    ticks = data.draw(histories(schema))
    expected = model([change for tick in ticks for change in tick], schema)
    columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "DRIVER_MERGE_ROWS_MAX", -1)  # so that Spark merges
        trace = Trace(Path(folder), schema)
        for tick in ticks[:-1]:
            trace = with_changes(trace, tick)
        last = Delta.local(weighted_table(schema, ticks[-1]))

        assert shown(trace.bag(spark, columns, last)) == project(expected, columns)
        trace = with_changes(trace, ticks[-1])
        assert shown(trace.frame(spark)) == expected

        trace = trace.with_merge(*RunMerge(trace, trace.runs).run(spark))
        assert content(pa.Table.from_batches(trace.read(), schema=trace.schema)) == expected
        assert all(run.positive for run in trace.runs)


# Each way that views/state/multisets.py has, and what leads to it.
WAYS: dict[str, tuple[tuple[str, ...], int]] = {
    "with a key, one scan": (("id",), 1_000),
    "without a key, two scans": ((), 1_000),
    "many rows changed": (("id",), 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_taking_rows_away_is_right(
    spark: SparkSession, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
):
    key, tail_rows_max = WAYS[way]
    monkeypatch.setattr(thresholds, "BROADCAST_HASHES_MAX", tail_rows_max)
    trace = Trace(tmp_path, ORDERS, key=key)
    history = [
        [(order(number), 1) for number in range(50)],
        [(order(1), -1), (order(1, 2.0), 1), (order(2), -1), (order(60), 1)],
        [(order(70), 1)],  # positive, and behind rows that were taken away
        [(order(1, 2.0), -1), (order(1), 1), (order(70), -1)],
        [(order(2), 1)],  # back again
    ]
    for tick in history:
        trace = with_changes(trace, tick)
    last = [(order(3), -1), (order(60), -1), (order(60, float("nan")), 1)]

    everything = model([change for tick in [*history, last] for change in tick], ORDERS)
    changes = Delta.local(weighted_table(ORDERS, last))

    assert shown(trace.bag(spark, None, changes)) == everything
    assert shown(trace.bag(spark, ["amount"], changes)) == project(everything, ["amount"])
    assert trace.bag(spark, [], changes).count() == sum(everything.values())


def test_a_row_that_is_there_very_often_is_repeated_as_often(spark: SparkSession, tmp_path: Path):
    often = 2 * thresholds.EXPLODED_ROWS_MAX + 7
    trace = with_changes(
        Trace(tmp_path, ORDERS), [(order(1), often), (order(2), 1), (order(3), thresholds.EXPLODED_ROWS_MAX)]
    )

    counted = trace.bag(spark, ["id"]).groupBy("id").count().collect()

    assert {row["id"]: row["count"] for row in counted} == {1: often, 2: 1, 3: thresholds.EXPLODED_ROWS_MAX}


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_restricted_bag_holds_the_rows_that_the_restriction_keeps(
    spark: SparkSession, tmp_path: Path, key: tuple[str, ...]
):
    trace = with_changes(Trace(tmp_path, ORDERS, key=key), [(order(number), 1) for number in range(10)])
    trace = with_changes(trace, [(order(4), -1), (order(4, 9.0), 1), (order(5), -1)])

    bag = trace.bag(spark, ["amount"], restrict=lambda frame: frame.where("id BETWEEN 3 AND 5"))

    assert sorted(row["amount"] for row in bag.collect()) == [1.0, 9.0]


def test_a_null_key_is_a_key_like_others(spark: SparkSession, tmp_path: Path):
    nobody: dict[str, Any] = {"id": None, "amount": 1.0, "the note": None}
    trace = with_changes(Trace(tmp_path, ORDERS, key=["id"]), [(nobody, 1), (order(1), 1)])
    trace = with_changes(trace, [(nobody, -1), ({**nobody, "amount": 2.0}, 1)])

    assert shown(trace.bag(spark)) == model([({**nobody, "amount": 2.0}, 1), (order(1), 1)], ORDERS)


def test_large_changes_are_adopted_and_still_readable(spark: SparkSession, tmp_path: Path):
    staging = tmp_path / "staging"
    spark.range(1000).selectExpr("id", "double(id) AS amount", "'x' AS `the note`", "1L AS _weight").write.parquet(
        str(staging)
    )
    changes = Delta.written(sorted(staging.glob("*.parquet")), ORDERS)
    before = shown(changes.frame(spark))

    trace = Trace(tmp_path / "trace", ORDERS)
    trace = trace.with_run(trace.write(changes, tick=1, epoch=1), changes)

    assert trace.runs[0].plain
    assert shown(changes.frame(spark)) == before == shown(trace.bag(spark))
    assert trace.lookup(["id"], pa.table({"id": [7]}), ["amount"]).to_pylist() == [{"amount": 7.0, "_weight": 1}]


def test_the_same_frame_is_given_again_until_the_runs_change(spark: SparkSession, tmp_path: Path):
    trace = with_changes(Trace(tmp_path, ORDERS), [(order(1), 1)])

    assert trace.frame(spark) is trace.frame(spark)
    assert with_changes(trace, [(order(2), 1)]).frame(spark).count() == 2
    assert trace.frame(spark).count() == 1


def test_an_empty_pile_is_an_empty_frame(spark: SparkSession, tmp_path: Path):
    trace = Trace(tmp_path, EVERY_TYPE)

    assert trace.frame(spark).columns == [*EVERY_TYPE.names, "_weight"]
    assert trace.bag(spark, ["c3"]).collect() == []


def test_lists_of_nothing_but_nulls_can_be_grouped(spark: SparkSession, tmp_path: Path):
    schema = parse_ddl("a ARRAY<DOUBLE>, s ARRAY<STRING>")
    row: dict[str, Any] = {"a": [None], "s": [None, None]}
    trace = with_changes(Trace(tmp_path, schema), [(row, 2), ({"a": None, "s": None}, 1)])
    trace = with_changes(trace, [(row, -1)])

    assert shown(trace.bag(spark)) == model([(row, 1), ({"a": None, "s": None}, 1)], schema)


def test_nulls_in_maps_survive_grouping(spark: SparkSession, tmp_path: Path):
    schema = parse_ddl("m MAP<STRING, INT>, n ARRAY<STRUCT<`a b`: MAP<INT, MAP<INT, DOUBLE>>>>")
    row: dict[str, Any] = {"m": {"x": None, "a": 1}, "n": [{"a b": {2: {1: None}, 1: None}}, None]}
    turned = {"m": {"a": 1, "x": None}, "n": [{"a b": {1: None, 2: {1: None}}}, None]}
    trace = with_changes(Trace(tmp_path, schema), [(row, 1), (turned, 2), ({"m": None, "n": None}, 1)])
    trace = with_changes(trace, [(turned, -1)])

    assert shown(trace.bag(spark)) == model([(row, 2), ({"m": None, "n": None}, 1)], schema)


def test_a_damaged_run_is_refused_before_spark_sees_it(spark: SparkSession, tmp_path: Path):
    trace = with_changes(Trace(tmp_path, ORDERS), [(order(1), 1)])
    (path,) = trace.runs[0].paths(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(Corruption, match="damaged"):
        trace.frame(spark)


NUMBERS = parse_ddl("a TINYINT, b SMALLINT, c INT, d BIGINT, e DATE, f TIMESTAMP, g TIMESTAMP_NTZ")


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_spark_reads_numbers_that_are_stored_by_their_differences(
    spark: SparkSession, tmp_path: Path, nulls: float
) -> None:
    count, random = 10_000, np.random.default_rng(7)
    columns = []
    for bits, field in zip((8, 16, 32, 64, 24, 56, 56), NUMBERS, strict=True):
        numbers = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, count, np.int64, endpoint=True)
        numbers[: count // 2] = random.integers(0, 9, count // 2) + np.arange(count // 2) % 100
        stored = pa.int64() if field.type.bit_width == 64 else pa.int32()
        columns.append(pa.array(numbers, mask=random.random(count) < nulls).cast(stored).cast(field.type))
    table = pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in NUMBERS]))
    trace = Trace(tmp_path, NUMBERS)
    trace = trace.with_run(trace.write(Delta.local(with_weight(table, 1)), tick=1, epoch=1))

    read = trace.bag(spark).toArrow().select(NUMBERS.names)

    assert read.cast(table.schema).equals(table)
    assert pa.Table.from_batches(trace.read()).select(NUMBERS.names).equals(table)
