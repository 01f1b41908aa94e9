"""A declared schema becomes the one stored form, or is refused with the reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import TIMESTAMP, TIMESTAMP_NTZ
from headwater.log.schema.normalization import RESERVED_COLUMNS, normalize_schema, normalize_type


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.timestamp("ns", tz="Europe/Paris"), TIMESTAMP),
        (pa.timestamp("us", tz="+02:00"), TIMESTAMP),
        (pa.date64(), pa.date32()),
        (pa.decimal256(20, 4), pa.decimal128(20, 4)),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32())),
        (pa.list_view(pa.int8()), pa.list_(pa.int8())),
        (pa.list_(pa.field("element", pa.int8(), nullable=False)), pa.list_(pa.int8())),
        (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int16())),
        (pa.struct([("a", pa.uint8())]), pa.struct([("a", pa.int16())])),
    ],
    ids=str,
)
def test_a_type_spark_lacks_becomes_one_that_holds_all_its_values(given: pa.DataType, stored: pa.DataType):
    assert normalize_type(given) == stored
    assert normalize_type(stored) == stored


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (pa.uint64(), "DECIMAL(20,0)"),
        (pa.time64("us"), "microseconds since midnight"),
        (pa.duration("s"), "BIGINT (microseconds)"),
        (pa.month_day_nano_interval(), "BIGINT (microseconds)"),
        (pa.dense_union([pa.field("a", pa.int8())]), "STRUCT"),
        (pa.null(), "type that its values will have"),
        (pa.decimal256(60, 2), "STRING"),
        (pa.decimal128(5, -2), "smaller precision"),
        (pa.uuid(), "storage type"),
        (pa.list_(pa.uint64()), "DECIMAL(20,0)"),
    ],
    ids=str,
)
def test_a_type_without_a_lossless_place_is_refused(given: pa.DataType, hint: str):
    with pytest.raises(InvalidDeclaration) as caught:
        normalize_schema(pa.schema([("amount", given)]))

    assert '"amount' in caught.value.message
    assert hint in (caught.value.hint or "")


def test_metadata_is_stripped_everywhere():
    inner = pa.struct([pa.field("x", pa.int64(), metadata={"a": "b"})])
    schema = pa.schema([pa.field("s", inner, metadata={"c": "d"})], metadata={"pandas": "{}"})

    stored = normalize_schema(schema)

    assert stored.metadata is None
    assert stored.field("s").metadata is None
    assert stored.field("s").type.field(0).metadata is None


def test_not_null_is_kept_on_columns_and_inside_structs():
    text = "id BIGINT NOT NULL, s STRUCT<a: INT NOT NULL>"

    assert not normalize_schema(text).field("id").nullable
    assert not normalize_schema(text).field("s").type.field(0).nullable


@pytest.mark.parametrize("name", sorted(RESERVED_COLUMNS))
def test_a_reserved_name_is_refused_in_any_case(name: str):
    with pytest.raises(InvalidDeclaration, match="reserved name"):
        normalize_schema(f"{name.upper()} BIGINT")


def test_a_reserved_name_inside_a_struct_harms_nobody():
    assert normalize_schema("s STRUCT<_offset: BIGINT>").names == ["s"]


@pytest.mark.parametrize("text", ["a INT, a INT", "a INT, A STRING", "s STRUCT<x: INT, X: INT>"])
def test_names_that_spark_cannot_tell_apart_are_refused(text: str):
    with pytest.raises(InvalidDeclaration, match="declared twice"):
        normalize_schema(text)


def test_what_is_no_schema_is_refused():
    with pytest.raises(InvalidDeclaration, match="the schema is empty"):
        normalize_schema(pa.schema([]))
    with pytest.raises(InvalidDeclaration, match="not dict"):
        normalize_schema({"id": "BIGINT"})  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="empty name"):
        normalize_schema(pa.schema([("", pa.int8())]))
    with pytest.raises(InvalidDeclaration, match="without fields"):
        normalize_schema(pa.schema([("s", pa.struct([]))]))
