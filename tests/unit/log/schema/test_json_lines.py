"""JSON lines are read strictly and written so that they read back the same."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from headwater.errors import RowRefused
from headwater.log.schema.json_lines import json_line, json_lines
from headwater.log.schema.json_text import batch_to_json_lines
from headwater.log.schema.normalization import normalize_schema
from headwater.log.schema.row_conversion import to_batches, to_rows
from tests.unit.typed_rows import same, schemas_with_rows
from tests.unit.weighted_rows import thorough

AT = datetime(2026, 1, 31, 10, tzinfo=UTC)


def read(text: Any, ddl: str) -> list[dict[str, Any]]:
    return to_rows(json_lines(text, normalize_schema(ddl)))


def refusal(text: Any, ddl: str, **not_null: Any) -> RowRefused:
    with pytest.raises(RowRefused) as caught:
        json_lines(text, normalize_schema(ddl), **not_null)
    return caught.value


@settings(max_examples=thorough(100), deadline=None)
@given(schemas_with_rows)
def test_rows_written_as_json_read_back_the_same(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]):
    schema, rows = schema_and_rows

    batch = to_batches(rows, schema)
    lines = batch_to_json_lines(batch)

    assert lines == [json_line(row) for row in to_rows(batch)]
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert same(to_rows(json_lines(lines, schema)), rows)
    assert same(to_rows(json_lines("\n".join(lines).encode(), schema)), rows)


def test_values_without_a_json_word_have_a_fixed_form():
    row = {
        "at": AT,
        "local": datetime(2026, 1, 31, 10, 0, 0, 5),
        "day": date(2026, 1, 31),
        "raw": b"\xff",
        "price": Decimal("12345678901234567890.10"),
        "ratio": float("-inf"),
        "by_number": {1: "a"},
        "text": "é\n",
    }

    assert json_line(row) == (
        '{"at":"2026-01-31T10:00:00Z","local":"2026-01-31T10:00:00.000005","day":"2026-01-31","raw":"/w==",'
        '"price":12345678901234567890.10,"ratio":"-Infinity","by_number":[[1,"a"]],"text":"é\\n"}'
    )


def test_lines_of_many_rows_are_those_of_each_row():
    columns = {
        '100 % "of" it': pa.array([None, True, False]),
        "n": pa.array([-(2**63), None, 2**63 - 1]),
        "text": pa.array(["é", None, '"\\\n\x1f']),
        "plain": pa.array(["é%s", None, "\x7f"]),
        "wrong": pa.array([b"a\xff", None, b"b"]).view(pa.string()),
        "x": pa.array([0.1, None, float("nan")]),
        "at": pa.array([0, None, 1], pa.timestamp("us", tz="UTC")),
        "first": pa.array([-62_135_596_800_000_000, None, 253_402_300_799_999_999], pa.timestamp("us")),
        "far": pa.array([-62_135_596_800_000_001, None, 0], pa.timestamp("us")),
        "day": pa.array([-719_162, None, 2_932_896], pa.date32()),
        "far_day": pa.array([-719_163, None, 0], pa.date32()),
        "empty": pa.nulls(3, pa.timestamp("us")),
    }
    batch = pa.record_batch(columns)

    assert batch_to_json_lines(batch) == [json_line(row) for row in to_rows(batch)]
    assert batch_to_json_lines(batch.slice(0, 0)) == []
    assert batch_to_json_lines(batch.select([])) == ["{}"] * 3


def test_a_decimal_never_passes_through_a_float():
    text = '{"p": 12345678901234567890.123456789}\n{"p": "0.1"}\n{"p": 5}'

    assert [row["p"] for row in read(text, "p DECIMAL(38,9), x DOUBLE")] == [
        Decimal("12345678901234567890.123456789"),
        Decimal("0.1"),
        Decimal(5),
    ]


def test_floats_beside_decimals_are_the_nearest_double():
    assert read('{"p": 0.1, "x": 0.1}', "p DECIMAL(2,1), x DOUBLE")[0]["x"] == 0.1


@pytest.mark.parametrize(
    "form", [str, str.encode, lambda text: text.split("\n"), lambda text: text.encode().split(b"\n")]
)
def test_text_bytes_and_lines_are_read_alike(form: Any):
    text = '\ufeff{"id": 1, "s": "a\u2028b"}\r\n\n  \n{"id": 2}\n'

    assert read(form(text), "id BIGINT, s STRING") == [{"id": 1, "s": "a\u2028b"}, {"id": 2, "s": None}]


@pytest.mark.parametrize(
    ("value", "spark_type", "reason"),
    [
        ("1769853600", "TIMESTAMP", "1769853600 is of type int"),
        ('"yesterday"', "TIMESTAMP", "is not an ISO-8601 time"),
        ('"31.1.2026"', "DATE", "is not an ISO-8601 date"),
        ("20484", "DATE", "20484 is of type int"),
        ('"not base64!"', "BINARY", "is not base64"),
        ("1.0", "BIGINT", "1.0 is of type float"),
        ("1e3", "BIGINT", "is of type float"),
        ('"1"', "BIGINT", "'1' is of type str"),
        ("9223372036854775808", "BIGINT", "is outside of BIGINT"),
        ('"1.5"', "DOUBLE", "expected a number"),
        ("1e999", "DOUBLE", "too large for DOUBLE"),
        ("1", "BOOLEAN", "1 is of type int"),
        ("1.005", "DECIMAL(10,2)", "does not fit DECIMAL(10,2)"),
        ('"abc"', "DECIMAL(10,2)", "is not a decimal number"),
        ('"NaN"', "DECIMAL(10,2)", "is not a number"),
        ('{"1": 2}', "MAP<INT, INT>", "'1' is of type str"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(value: str, spark_type: str, reason: str):
    error = refusal(f'{{"c": null}}\n{{"c": {value}}}', f"c {spark_type}")

    assert reason in error.message
    assert error.data["row"] == 1
    assert error.data["column"].startswith("c")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not a line of JSON"),
        ('{"id": 1}{"id": 2}', "Extra data"),
        ('[{"id": 1}]', "it is not an object"),
        ('{"id": 1, "id": 2}', "stands twice"),
        ('{"id": NaN}', "is not JSON"),
        (b'{"id": "\xff"}', "utf-8"),
        ("[" * 100_000, "is not a line of JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_line_that_is_no_json_object_is_refused(line: str | bytes, reason: str):
    error = refusal(['{"id": 0}', line], "id BIGINT")

    assert reason in error.message
    assert error.data["row"] == 1
    assert len(str(error)) < 400


def test_nulls_and_unknown_names_are_refused_as_in_dicts():
    assert refusal('{"id": null}', "id BIGINT", not_null=frozenset({"id"})).data["column"] == "id"
    assert refusal('{"idd": 1}', "id BIGINT").hint == 'Did you mean "id"?'
