"""Arrow and pandas data are matched by name and cast only when no value changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from headwater.errors import RowRefused
from headwater.log.schema.normalization import normalize_schema
from headwater.log.schema.row_conversion import to_batches, to_rows
from tests.unit.typed_rows import same, schemas_with_rows

AT = datetime(2026, 1, 31, 10, tzinfo=UTC)


def stored(array: Any, spark_type: str) -> list[Any]:
    batch = to_batches(pa.table({"c": array}), normalize_schema(f"c {spark_type}"))
    batch.validate(full=True)
    return [row["c"] for row in to_rows(batch)]


def refusal(data: Any, ddl: str, **not_null: Any) -> RowRefused:
    with pytest.raises(RowRefused) as caught:
        to_batches(data, normalize_schema(ddl), **not_null)
    return caught.value


def test_a_batch_of_the_schema_is_handed_on_without_a_copy():
    schema = normalize_schema("id BIGINT, name STRING")
    batch = pa.record_batch([[1, 2, 3], ["a", "b", "c"]], schema=schema)

    assert to_batches(batch, schema) is batch
    sliced = to_batches(batch.slice(1, 1), schema)
    assert to_rows(sliced) == [{"id": 2, "name": "b"}]
    assert sliced.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


def test_columns_are_matched_by_name_and_metadata_is_dropped():
    schema = normalize_schema("id BIGINT NOT NULL, name STRING, extra INT")
    table = pa.table({"name": ["a", "b"], "id": [1, 2]}).replace_schema_metadata({"pandas": "{}"})

    batch = to_batches(table, schema)

    assert batch.schema.equals(schema, check_metadata=True)
    assert to_rows(batch) == [{"id": 1, "name": "a", "extra": None}, {"id": 2, "name": "b", "extra": None}]


@settings(deadline=None)
@given(schemas_with_rows)
def test_several_batches_and_chunks_become_one_batch(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]):
    schema, rows = schema_and_rows
    batch = to_batches(rows, schema)
    halves = [batch.slice(0, len(rows) // 2), batch.slice(len(rows) // 2)]

    for data in (halves, pa.Table.from_batches(halves), iter(halves)):
        joined = to_batches(data, schema)
        joined.validate(full=True)
        assert same(to_rows(joined), rows)


def test_a_refusal_in_a_later_batch_counts_the_rows_before_it():
    good, bad = pa.record_batch({"c": [1, 2, 3]}), pa.record_batch({"c": [1, 2**40]})

    assert refusal([good, good, bad], "c INT").data["row"] == 7


@pytest.mark.parametrize(
    ("array", "spark_type", "values"),
    [
        (pa.array([1, None], pa.int32()), "BIGINT", [1, None]),
        (pa.array([1, None], pa.int64()), "INT", [1, None]),
        (pa.array([1, 2], pa.uint64()), "BIGINT", [1, 2]),
        (pa.array([1, None], pa.int64()), "DOUBLE", [1.0, None]),
        (pa.array([1.5, None, float("nan")], pa.float32()), "DOUBLE", [1.5, None, float("nan")]),
        (pa.array([1.5, None, float("nan")], pa.float64()), "FLOAT", [1.5, None, float("nan")]),
        (pa.array([1.5], pa.float16()), "DOUBLE", [1.5]),
        (pa.array(["a", None], pa.large_string()), "STRING", ["a", None]),
        (pa.array(["a", None], pa.string_view()), "STRING", ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "STRING", ["a", None, "a"]),
        (pa.array([b"ab"], pa.binary(2)), "BINARY", [b"ab"]),
        (pa.array([AT], pa.timestamp("s", tz="Europe/Paris")), "TIMESTAMP", [AT]),
        (pa.array([AT.replace(tzinfo=None)], pa.timestamp("ns")), "TIMESTAMP", [AT]),
        (pa.array([AT.replace(tzinfo=None)], pa.timestamp("ms")), "TIMESTAMP_NTZ", [AT.replace(tzinfo=None)]),
        (pa.array([date(2026, 1, 31)], pa.date64()), "DATE", [date(2026, 1, 31)]),
        (pa.array([5, None], pa.int64()), "DECIMAL(10,2)", [Decimal("5.00"), None]),
        (pa.array([Decimal("1.5")], pa.decimal256(40, 1)), "DECIMAL(10,2)", [Decimal("1.50")]),
        (pa.nulls(2), "STRING", [None, None]),
        (pa.array([[1], None], pa.large_list(pa.int32())), "ARRAY<BIGINT>", [[1], None]),
        (pa.array([[1, 2]], pa.list_(pa.float32(), 2)), "ARRAY<FLOAT>", [[1.0, 2.0]]),
        (pa.array([{"b": 1, "a": 2}]), "STRUCT<a: INT, b: INT>", [{"a": 2, "b": 1}]),
        (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int8())), "MAP<STRING, INT>", [{"k": 1}]),
    ],
    ids=str,
)
def test_a_cast_that_changes_no_value_is_made(array: pa.Array, spark_type: str, values: list[Any]):
    assert same(stored(array, spark_type), values)
    assert same(stored(array.slice(1), spark_type), values[1:])


@pytest.mark.parametrize(
    ("array", "spark_type", "row", "reason"),
    [
        (pa.array([1, 2**40, 2**41]), "INT", 1, "1099511627776 is outside of INT"),
        (pa.array([1, 2**63], pa.uint64()), "BIGINT", 1, "is outside of BIGINT"),
        (pa.array([None, 1.0]), "BIGINT", 1, "Arrow type double, which is not cast to BIGINT"),
        (pa.array(["1"]), "BIGINT", 0, "Arrow type string"),
        (pa.array([1]), "STRING", 0, "Arrow type int64"),
        (pa.array([b"a"]), "STRING", 0, "Arrow type binary"),
        (pa.array([1]), "TIMESTAMP", 0, "Arrow type int64"),
        (pa.array([1]), "BOOLEAN", 0, "Arrow type int64"),
        (pa.array([date(2026, 1, 31)]), "TIMESTAMP", 0, "Arrow type date32[day]"),
        (pa.array([AT]), "TIMESTAMP_NTZ", 0, "not cast to TIMESTAMP_NTZ"),
        (pa.array([1000, 1001], pa.timestamp("ns", tz="UTC")), "TIMESTAMP", 1, "finer than a microsecond"),
        (pa.array([0, 2**53 + 1]), "DOUBLE", 1, "cannot be held exactly"),
        (pa.array([0.5, 0.1]), "FLOAT", 1, "0.1 would lose digits as FLOAT"),
        (pa.array([0.5, 1e300]), "FLOAT", 1, "1e+300 would lose digits as FLOAT"),
        (pa.array([0.5]), "DECIMAL(10,2)", 0, "Arrow type double"),
        (pa.array([1, 10**9]), "DECIMAL(10,2)", 1, "does not fit DECIMAL(10,2)"),
        (pa.array([Decimal("1.00"), Decimal("1.125")]), "DECIMAL(10,2)", 1, "does not fit DECIMAL(10,2)"),
        (pa.array([[1], [2**40]]), "ARRAY<INT>", 1, "outside of INT"),
        (pa.array([{"x": 1}]), "STRUCT<y: INT>", 0, "unknown column 'x'"),
        (pa.array([{"a": 1}, None, {"a": None}]), "STRUCT<a: BIGINT NOT NULL>", 2, "must not be null"),
    ],
    ids=str,
)
def test_a_cast_that_would_change_a_value_is_refused(array: pa.Array, spark_type: str, row: int, reason: str):
    error = refusal(pa.table({"c": array}), f"c {spark_type}")

    assert reason in error.message
    assert error.data["row"] == row
    assert error.data["column"].startswith("c")


def test_a_null_in_a_required_column_is_found():
    table = pa.table({"id": [1, 2, None], "name": ["a", "b", "c"]})
    exact = pa.record_batch({"id": [1, None]}, schema=pa.schema([pa.field("id", pa.int64())]))

    assert refusal(table, "id BIGINT NOT NULL, name STRING").data["row"] == 2
    assert refusal(exact, "id BIGINT", not_null=frozenset({"id"})).data["row"] == 1
    assert refusal(table.select(["name"]), "id BIGINT NOT NULL, name STRING").data["column"] == "id"


def test_a_null_hidden_in_a_struct_is_found_even_in_a_batch_of_the_schema():
    schema = normalize_schema("c ARRAY<STRUCT<a: BIGINT NOT NULL>>")
    bad = pa.StructArray.from_arrays([pa.array([1, None])], fields=list(schema.field("c").type.value_type))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), bad, type=schema.field("c").type)

    error = refusal(pa.record_batch([lists], schema=schema), "c ARRAY<STRUCT<a: BIGINT NOT NULL>>")

    assert (error.data["row"], error.data["column"]) == (1, "c[0].a")


def test_unknown_and_doubled_columns_are_refused():
    assert refusal(pa.table({"ID": [1]}), "id BIGINT").hint == 'Did you mean "id"?'
    assert "given twice" in refusal(pa.table([[1], [2]], names=["id", "id"]), "id BIGINT").message


def test_what_speaks_arrow_is_taken():
    class Speaker:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return pa.table({"id": [1, 2]}).__arrow_c_stream__(requested_schema)

    assert to_batches(Speaker(), normalize_schema("id BIGINT")).num_rows == 2


def test_a_pandas_frame_with_missing_values_is_taken():
    frame = pd.DataFrame(
        {
            "n": [1, None],
            "x": [1.5, float("nan")],
            "name": ["a", None],
            "mixed": ["a", float("nan")],
            "at": pd.to_datetime(["2026-01-31T10:00:00Z", None]),
            "kind": pd.Categorical(["k", None]),
            "nullable": pd.array([1, None], dtype="Int64"),
            "text": pd.array(["t", None], dtype="string"),
            "tags": [[1, 2], None],
            "vector": [np.array([1.5]), None],
            "price": [Decimal("1.50"), None],
            "day": [date(2026, 1, 31), pd.NaT],
        }
    )
    schema = normalize_schema(
        "n INT, x DOUBLE, name STRING, mixed STRING, at TIMESTAMP, kind STRING, nullable BIGINT, text STRING,"
        "tags ARRAY<INT>, vector ARRAY<DOUBLE>, price DECIMAL(10,2), day DATE"
    )

    first, second = to_rows(to_batches(frame, schema))

    assert list(first.values()) == [
        *(1, 1.5, "a", "a", AT, "k", 1, "t"),
        *([1, 2], [1.5], Decimal("1.50"), date(2026, 1, 31)),
    ]
    assert set(second.values()) == {None}


@settings(deadline=None, max_examples=50)
@given(schemas_with_rows)
def test_objects_in_pandas_go_the_same_strict_way(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]):
    schema, rows = schema_and_rows
    rows = [row for row in rows if not any(value != value for value in row.values())]
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in schema.names})

    assert same(to_rows(to_batches(frame, schema)), rows)


@pytest.mark.parametrize(
    ("values", "spark_type", "row", "reason"),
    [
        ([1.0, 1.5], "INT", 1, "1.5 is not a whole number"),
        ([1.0, 2.0**60], "BIGINT", 1, "is not a whole number"),
        ([1.0, float("inf")], "BIGINT", 1, "inf is not a whole number"),
        (["a", 5], "STRING", 1, "5 is of type int"),
        ([None, 1.5], "STRING", 1, "not cast to STRING"),
        (["1"], "BIGINT", 0, "'1' is of type str"),
        ([pd.Timestamp("2026-01-31T10:00:00.000000001Z")], "TIMESTAMP", 0, "finer than a microsecond"),
    ],
)
def test_a_pandas_value_that_does_not_fit_is_named(values: list[Any], spark_type: str, row: int, reason: str):
    error = refusal(pd.DataFrame({"c": values}), f"c {spark_type}")

    assert reason in error.message
    assert error.data["row"] == row


def test_a_pandas_timestamp_in_a_dict_is_a_time_but_its_nanoseconds_are_refused():
    schema = normalize_schema("c TIMESTAMP")

    assert to_rows(to_batches([{"c": pd.Timestamp(AT)}], schema)) == [{"c": AT}]
    assert "finer" in refusal([{"c": pd.Timestamp("2026-01-01T00:00:00.000000001Z")}], "c TIMESTAMP").message
    assert "NaTType" in refusal([{"c": pd.NaT}], "c TIMESTAMP").message


def test_a_column_in_the_index_is_pointed_out():
    frame = pd.DataFrame({"id": [1], "x": [2]}).set_index("id")

    assert refusal(frame, "id BIGINT, x BIGINT").hint == "Append frame.reset_index()."
