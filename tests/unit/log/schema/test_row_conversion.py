"""Rows of every form become one batch of the schema, unchanged, or the first guilty row is named."""

from __future__ import annotations

import collections
import dataclasses
import enum
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import RowRefused
from headwater.log.schema.normalization import normalize_schema
from headwater.log.schema.row_conversion import FEW_ROWS_MAX, RowConverter, to_batches, to_rows
from tests.unit.typed_rows import EXAMPLES, same, schemas_with_rows
from tests.unit.weighted_rows import thorough

ORDERS = normalize_schema("order_id BIGINT, amount DOUBLE, note STRING, at TIMESTAMP")
AT = datetime(2026, 1, 31, 10, tzinfo=UTC)
# Few rows and many take different paths; both must say the same.
PADDINGS = [0, 3, FEW_ROWS_MAX + 5]


def one_column(spark_type: str, *values: Any) -> list[Any]:
    schema = normalize_schema(f"c {spark_type}")
    return [row["c"] for row in to_rows(to_batches([{"c": value} for value in values], schema))]


def refusal(rows: Any, schema: pa.Schema | str, **not_null: Any) -> RowRefused:
    with pytest.raises(RowRefused) as caught:
        to_batches(rows, normalize_schema(schema), **not_null)
    return caught.value


@settings(max_examples=thorough(150), deadline=None)
@given(schemas_with_rows)
def test_rows_come_back_as_they_went_in(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]):
    schema, rows = schema_and_rows

    batch = to_batches(rows, schema)
    batch.validate(full=True)

    assert batch.schema.equals(schema, check_metadata=True)
    assert same(to_rows(batch), rows)


@settings(deadline=None)
@given(schemas_with_rows, st.integers(0, 3))
def test_a_slice_of_a_batch_gives_its_own_rows(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], start: int):
    schema, rows = schema_and_rows

    batch = to_batches(rows, schema).slice(start, 2)

    assert same(to_rows(batch), rows[start : start + 2])
    assert same(to_rows(to_batches(batch, schema)), rows[start : start + 2])


@settings(deadline=None)
@given(schemas_with_rows, st.data())
def test_a_misfit_in_any_column_is_named_with_its_row(
    schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], data: st.DataObject
):
    schema, rows = schema_and_rows
    if not rows:
        return
    row, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.sampled_from(schema.names))
    rows[row] = rows[row] | {column: object()}

    error = refusal(rows, schema)

    assert (error.data["row"], error.data["column"]) == (row, column)
    assert "counted from 0" in error.message


MISFITS = [
    ("BIGINT", 1.5, "1.5 is of type float, expected BIGINT"),
    ("BIGINT", 1.0, "1.0 is of type float"),
    ("BIGINT", "1", "'1' is of type str"),
    ("BIGINT", True, "True is of type bool"),
    ("BIGINT", Decimal(1), "Decimal('1') is of type Decimal"),
    ("BIGINT", 2**63, "is outside of BIGINT"),
    ("BIGINT", np.uint64(2**63), "is outside of BIGINT"),
    ("INT", 2**31, "2147483648 is outside of INT, which holds -2147483648 to 2147483647"),
    ("SMALLINT", -(2**15) - 1, "is outside of SMALLINT"),
    ("TINYINT", 128, "128 is outside of TINYINT, which holds -128 to 127"),
    ("DOUBLE", "1.5", "'1.5' is of type str"),
    ("DOUBLE", False, "False is of type bool"),
    ("DOUBLE", Decimal("1.5"), "is of type Decimal"),
    ("DOUBLE", 2**53 + 1, "cannot be held exactly by DOUBLE"),
    ("DOUBLE", 10**400, "cannot be held exactly by DOUBLE"),
    ("FLOAT", 1e300, "1e+300 is too large for FLOAT"),
    ("FLOAT", 2**25 + 1, "cannot be held exactly by FLOAT"),
    ("STRING", b"text", "is of type bytes"),
    ("STRING", 5, "5 is of type int"),
    ("STRING", "\ud800", "cannot be written as UTF-8"),
    ("BOOLEAN", 1, "1 is of type int"),
    ("BOOLEAN", "true", "'true' is of type str"),
    ("BINARY", "text", "'text' is of type str"),
    ("DATE", AT, "is of type datetime"),
    ("DATE", "2026-01-31", "is of type str"),
    ("TIMESTAMP", 1769853600, "1769853600 is of type int"),
    ("TIMESTAMP", date(2026, 1, 31), "is of type date"),
    ("TIMESTAMP", "yesterday", "'yesterday' is not an ISO-8601 time"),
    ("TIMESTAMP", "2026-01-31T10:00:00.1234567Z", "is finer than a microsecond"),
    ("TIMESTAMP_NTZ", AT, "carries a time zone"),
    ("TIMESTAMP_NTZ", "2026-01-31T10:00:00Z", "carries a time zone"),
    ("DECIMAL(10,2)", 1.5, "1.5 is of type float"),
    ("DECIMAL(10,2)", "1.5", "'1.5' is of type str"),
    ("DECIMAL(10,2)", True, "True is of type bool"),
    ("DECIMAL(10,2)", Decimal("1.005"), "which holds 8 digits before the point and 2 after it"),
    ("DECIMAL(10,2)", Decimal("123456789.00"), "does not fit DECIMAL(10,2)"),
    ("DECIMAL(10,2)", 123456789, "does not fit DECIMAL(10,2)"),
    ("DECIMAL(10,2)", Decimal("NaN"), "is not a number"),
    ("ARRAY<INT>", "abc", "'abc' is of type str"),
    ("ARRAY<INT>", {1, 2}, "is of type set"),
    ("MAP<STRING, INT>", "abc", "'abc' is of type str"),
    ("MAP<STRING, INT>", [("a", 1), ("a", 2)], "a key stands twice"),
    ("MAP<STRING, INT>", [("a", 1, 2)], "nor a list of (key, value) pairs"),
    ("MAP<STRING, INT>", {None: 1}, "key cannot be null"),
    ("STRUCT<a: INT>", 5, "expected a dict or a dataclass"),
]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("spark_type", "value", "reason"), MISFITS, ids=lambda value: str(value)[:30])
def test_each_kind_of_misfit_is_refused(spark_type: str, value: Any, reason: str, padding: int):
    good = {"c": EXAMPLES[spark_type], "other": 1}
    rows = [good] * padding + [good | {"c": value}] + [good]

    error = refusal(rows, f"other INT, c {spark_type}")

    assert reason in error.message
    assert error.message.startswith(f'row {padding} (counted from 0), column "c": ')
    assert error.data["expected"] == spark_type
    assert error.data["row"] == padding
    assert isinstance(error.data["value"], str)


@pytest.mark.parametrize(
    ("spark_type", "value", "path"),
    [
        ("ARRAY<INT>", [1, "2"], "c[1]"),
        ("ARRAY<ARRAY<INT>>", [[], [1, 2.5]], "c[1][1]"),
        ("STRUCT<a: INT, b: STRUCT<x: STRING>>", {"a": 1, "b": {"x": 5}}, "c.b.x"),
        ("STRUCT<a: INT NOT NULL>", {"a": None}, "c.a"),
        ("STRUCT<a: INT NOT NULL>", {}, "c.a"),
        ("STRUCT<a: INT>", {"a": 1, "z": 2}, "c.z"),
        ("MAP<STRING, INT>", {"a": 1, "b": "2"}, "c[value 1]"),
        ("MAP<STRING, INT>", {5: 1}, "c[key 0]"),
    ],
)
def test_a_misfit_inside_a_value_is_named_with_its_path(spark_type: str, value: Any, path: str):
    error = refusal([{"c": None}, {"c": None}, {"c": value}], f"c {spark_type}")

    assert (error.data["row"], error.data["column"]) == (2, path)


def test_hints_say_what_to_do():
    assert "Pass Decimal" in (refusal([{"c": 0.1}], "c DECIMAL(10,2)").hint or "")
    assert "unit" in (refusal([{"c": 5}], "c TIMESTAMP").hint or "")
    assert "value.date()" in (refusal([{"c": AT}], "c DATE").hint or "")
    assert "BINARY" in (refusal([{"c": b""}], "c STRING").hint or "")


def test_a_long_value_is_shortened_in_the_message():
    assert len(refusal([{"c": "x" * 10_000}], "c BIGINT").message) < 200
    assert len(refusal([{"c": b"x" * 10_000}], "c BIGINT").message) < 200


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("spark_type", "given", "stored"),
    [
        ("BIGINT", np.int32(5), 5),
        ("BIGINT", Level.HIGH, 3),
        ("DOUBLE", 5, 5.0),
        ("DOUBLE", np.float32(1.5), 1.5),
        ("DOUBLE", np.float64(1.5), 1.5),
        ("DOUBLE", float("inf"), float("inf")),
        ("FLOAT", float("-inf"), float("-inf")),
        ("FLOAT", 5, 5.0),
        ("STRING", Color.RED, "red"),
        ("STRING", "x" * 1_000_000, "x" * 1_000_000),
        ("BOOLEAN", np.bool_(True), True),
        ("BINARY", bytearray(b"ab"), b"ab"),
        ("BINARY", memoryview(b"abcd")[::2], b"ac"),
        ("TIMESTAMP", datetime(2026, 1, 31, 10), AT),
        ("TIMESTAMP", "2026-01-31T10:00:00", AT),
        ("TIMESTAMP", "2026-01-31T12:00:00+02:00", AT),
        ("TIMESTAMP", datetime(2026, 1, 31, 5, tzinfo=timezone(timedelta(hours=-5))), AT),
        ("TIMESTAMP", datetime(2026, 1, 31, 11, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")), AT),
        ("TIMESTAMP_NTZ", "2026-01-31T10:00:00", datetime(2026, 1, 31, 10)),
        ("DECIMAL(10,2)", 5, Decimal("5.00")),
        ("DECIMAL(10,2)", Decimal("1.2"), Decimal("1.20")),
        ("DECIMAL(10,2)", Decimal("1E+3"), Decimal("1000.00")),
        ("ARRAY<INT>", (1, None), [1, None]),
        ("ARRAY<DOUBLE>", np.array([1.5, 2.5]), [1.5, 2.5]),
        ("ARRAY<TIMESTAMP_NTZ>", np.array(["2026-01-31T10:00:00"], "M8[ns]"), [datetime(2026, 1, 31, 10)]),
        ("MAP<STRING, INT>", [("a", 1)], {"a": 1}),
        ("MAP<STRING, INT>", collections.OrderedDict(a=1), {"a": 1}),
        ("MAP<ARRAY<INT>, INT>", [([1], 1), ([2], 2)], [([1], 1), ([2], 2)]),
    ],
    ids=lambda value: str(value)[: 30 if not isinstance(value, memoryview) else 7],
)
@pytest.mark.parametrize("padding", PADDINGS)
def test_what_means_the_same_is_taken(spark_type: str, given: Any, stored: Any, padding: int):
    values = one_column(spark_type, *[None] * padding, given)

    assert same(values, [None] * padding + [stored])


def test_naive_and_aware_times_may_be_mixed():
    paris = datetime(2026, 7, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))

    values = one_column("TIMESTAMP", AT, datetime(2026, 1, 31), None, paris, "2026-01-31T00:00:00Z")

    midnight = datetime(2026, 1, 31, tzinfo=UTC)
    assert values == [AT, midnight, None, datetime(2026, 7, 1, tzinfo=UTC), midnight]


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_missing_key_is_null_when_the_column_may_be(padding: int):
    full = {"order_id": 1, "amount": 1.0, "note": "n", "at": AT}
    rows = [full] * padding + [{"order_id": 2}]

    batch = to_batches(rows, ORDERS, not_null=frozenset({"order_id"}))

    assert to_rows(batch)[-1] == {"order_id": 2, "amount": None, "note": None, "at": None}


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("last", [{"order_id": 1}, {"order_id": 1, "amount": 1.0, "note": "n", "at": None}])
def test_a_null_is_refused_where_it_must_not_be(last: dict[str, Any], padding: int):
    full = {"order_id": 1, "amount": 1.0, "note": "n", "at": AT}

    error = refusal([full] * padding + [last], ORDERS, not_null=frozenset({"order_id", "at"}))

    assert (error.data["row"], error.data["column"]) == (padding, "at")
    assert error.data["expected"] == "TIMESTAMP NOT NULL"
    assert ("missing" in error.message) == ("at" not in last)


@pytest.mark.parametrize("padding", PADDINGS)
def test_an_unknown_key_is_refused_with_the_near_name(padding: int):
    full = {"order_id": 1, "amount": 1.0, "note": "n", "at": AT}

    error = refusal([full] * padding + [{"order_id": 1, "ammount": 1.0, "note": "n", "at": AT}], ORDERS)

    assert (error.data["row"], error.data["column"]) == (padding, "ammount")
    assert error.hint == 'Did you mean "amount"?'


def test_one_row_too_many_keys_does_not_hide_a_missing_one():
    error = refusal([{"a": 1, "b": 2}, {"a": 1, "x": 2}], "a INT, b INT")

    assert error.data["column"] == "x"


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    order_id: int
    at: datetime | None = None


@dataclasses.dataclass
class Place:
    a: int


def test_dataclasses_are_rows():
    batch = to_batches([Order(1, AT), Order(2)], ORDERS)

    assert [row["order_id"] for row in to_rows(batch)] == [1, 2]
    assert to_rows(to_batches(Order(3), ORDERS))[0]["order_id"] == 3
    assert to_rows(to_batches([{"c": Place(1)}, {"c": None}], normalize_schema("c STRUCT<a: INT>"))) == [
        {"c": {"a": 1}},
        {"c": None},
    ]


def test_a_dataclass_with_an_unknown_field_is_refused():
    assert refusal([Order(1)], "order_id BIGINT").data["column"] == "at"
    assert refusal(Place(1), "order_id BIGINT").data["column"] == "a"


def test_rows_of_several_classes_may_be_mixed():
    rows = [
        Order(1, AT),
        {"order_id": 2},
        collections.OrderedDict(order_id=3),
        collections.defaultdict(int, order_id=4),
    ]

    batch = to_batches(iter(rows), ORDERS)

    assert [row["order_id"] for row in to_rows(batch)] == [1, 2, 3, 4]
    assert rows[3] == {"order_id": 4}


@pytest.mark.parametrize("rows", ["text", b"text", 5, [5], [None], [[1, 2]], [Order]])
def test_what_is_no_row_is_refused(rows: Any):
    assert refusal(rows, ORDERS).code == "row_refused"


def test_no_rows_make_an_empty_batch():
    for rows in ([], iter([]), pa.table({"order_id": pa.array([], pa.int64())})):
        batch = to_batches(rows, ORDERS)

        assert batch.num_rows == 0
        assert batch.schema == ORDERS


def test_many_rows_are_turned_piece_by_piece():
    rows = [{"order_id": i, "amount": float(i), "note": str(i), "at": None} for i in range(25_000)]

    batch = to_batches(rows, ORDERS)

    assert to_rows(batch) == rows
    assert refusal([*rows, {"order_id": "x"}], ORDERS).data["row"] == 25_000


def test_a_converter_can_be_used_again_and_again():
    converter = RowConverter(ORDERS, frozenset({"order_id"}))

    with pytest.raises(RowRefused):
        converter.batch([{"order_id": None}])

    assert converter.batch([{"order_id": 1}]).num_rows == 1
    assert converter.batch([Order(1), Order(2)]).num_rows == 2
