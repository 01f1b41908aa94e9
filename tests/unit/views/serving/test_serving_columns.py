"""Every Spark type through SQLite and back, found again, and sorted as Spark sorts it."""

from __future__ import annotations

import math
import os
import sqlite3
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.views.serving.serving_columns import (
    DECIMAL_COLLATION,
    ServedColumn,
    compare_decimals,
    inferred,
    row_hashes,
)
from tests.unit.typed_rows import EXAMPLES, any_types, same, values

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
ORDERED = [
    "BOOLEAN",
    "TINYINT",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(9,2)",
    "DECIMAL(30,4)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
]


def kept(column: ServedColumn, given: list[Any]) -> sqlite3.Connection:
    """A table t with the values, and their places, in a database in memory."""
    db = sqlite3.connect(":memory:")
    db.create_collation(DECIMAL_COLLATION, compare_decimals)
    db.execute(f"CREATE TABLE t (place INTEGER, {column.declaration})")
    array = to_batches([{"x": value} for value in given], pa.schema([("x", column.arrow)])).column(0)
    db.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(column.stored(array)[1])))
    return db


def read(column: ServedColumn, db: sqlite3.Connection, sql: str) -> list[Any]:
    array = column.loaded([value for (value,) in db.execute(sql)])
    return [row["x"] for row in to_rows(pa.record_batch([array], names=["x"]))]


def without_negative_zero(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {without_negative_zero(key): without_negative_zero(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_negative_zero(part) for part in value]
    return value


@settings(max_examples=60 * THOROUGH, deadline=None)
@given(data=st.data())
def test_every_type_comes_back_as_it_was_and_is_found_again(data: st.DataObject) -> None:
    arrow = data.draw(any_types)
    listed = data.draw(st.lists(values(arrow), min_size=1, max_size=5))
    column = ServedColumn.of("x", spark_type(arrow))
    batch = to_batches([{"x": value} for value in listed], pa.schema([("x", arrow)]))
    db = kept(column, listed)

    again = read(column, db, "SELECT x FROM t ORDER BY place")
    found = [
        place
        for place, value in enumerate(column.stored(batch.column(0))[1])
        if (place,) in db.execute("SELECT place FROM t WHERE x IS ?", (value,)).fetchall()
    ]

    assert same([without_negative_zero(row["x"]) for row in to_rows(batch)], without_negative_zero(again))
    assert found == list(range(len(listed)))


@pytest.mark.parametrize("type", ORDERED)
@settings(max_examples=15 * THOROUGH, deadline=None)
@given(data=st.data())
def test_values_sort_as_in_spark(type: str, data: st.DataObject) -> None:
    column = ServedColumn.of("x", type)
    listed = data.draw(st.lists(values(column.arrow, nullable=False), max_size=6))
    db = kept(column, listed)

    ordered = read(column, db, "SELECT x FROM t ORDER BY x")

    def place(value: Any) -> Any:
        return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value

    assert list(map(place, ordered)) == sorted(map(place, listed))


@pytest.mark.parametrize("type", sorted(EXAMPLES))
def test_a_declared_type_names_sqlites_and_sparks(type: str) -> None:
    column = ServedColumn.of("x", type)
    db = kept(column, [EXAMPLES[type], None])

    (declared,) = [row[2] for row in db.execute("PRAGMA table_info(t)") if row[1] == "x"]

    affinity, _, spark = declared.partition(": ")
    assert affinity in {"INTEGER", "REAL", "NUMERIC", "TEXT", "BLOB"}
    assert spark == type


@pytest.mark.parametrize(
    ("type", "number"), [("DATE", 10**6 * 5), ("DATE", -(10**6)), ("TIMESTAMP", 2**62), ("TIMESTAMP_NTZ", -(2**60))]
)
def test_a_year_that_text_cannot_say_is_not_lost(type: str, number: int) -> None:
    column = ServedColumn.of("x", type)
    plain = pa.int32() if type == "DATE" else pa.int64()
    array = pa.array([number, 0, None], plain).cast(column.arrow)

    again = column.loaded(column.stored(array)[1])

    assert again.equals(array)


def test_types_that_only_a_view_can_yield_are_kept_too() -> None:
    samples = {
        "VOID": pa.nulls(1),
        "interval day to second": pa.array([timedelta(days=-3, microseconds=7)], pa.duration("us")),
        "ARRAY<VOID>": pa.array([[None], []], pa.list_(pa.null())),
        "ARRAY<INTERVAL DAY TO SECOND>": pa.array([[timedelta(days=-3, microseconds=7)]], pa.list_(pa.duration("us"))),
        "ARRAY<TIMESTAMP>": pa.array([[2**63 - 1, -(2**63), 0]], pa.list_(pa.timestamp("us", "UTC"))),
        "MAP<DATE, INT>": pa.array([[(2**31 - 1, 1)]], pa.map_(pa.date32(), pa.int32())),
    }

    again = {
        type: ServedColumn.of("x", type).loaded(ServedColumn.of("x", type).stored(array)[1])
        for type, array in samples.items()
    }

    assert all(again[type].equals(array) for type, array in samples.items())


def test_a_type_that_cannot_be_kept_is_refused_with_advice() -> None:
    with pytest.raises(InvalidDeclaration, match='column "v" has the type VARIANT') as refused:
        ServedColumn.of("v", "VARIANT")

    assert "Cast it" in str(refused.value)


def test_arrow_of_another_width_is_taken_for_what_was_declared() -> None:
    column = ServedColumn.of("x", "TIMESTAMP")
    paris = pa.array([datetime(2026, 1, 31, 10, tzinfo=UTC)], pa.timestamp("ms", "Europe/Paris"))

    assert column.stored(paris)[1] == ["2026-01-31 10:00:00.000000Z"]
    assert ServedColumn.of("x", "STRING").stored(pa.array(["a"], pa.large_string()))[1] == ["a"]
    assert ServedColumn.of("x", "DECIMAL(20,2)").stored(pa.array([Decimal("1.5")]))[1] == ["1.50"]


def test_equal_rows_have_equal_hashes() -> None:
    columns = [pa.array([0.0, -0.0, None]), pa.array([b"\xff", b"\xff", None])]

    one, other, nulls = row_hashes(columns)

    assert one == other != nulls
    assert all(-(2**63) <= number < 2**63 for number in (one, nulls))


def test_an_expression_has_the_type_of_its_values() -> None:
    assert inferred([1, None]).type == pa.int64()
    assert inferred([1, 2.5]).to_pylist() == [1.0, 2.5]
    assert inferred(["a", 1, None]).to_pylist() == ["a", "1", None]
    assert inferred([]).type == pa.null()
    assert inferred([date(2026, 1, 1)]).type == pa.date32()
