"""Compatible schema changes make a new version, others are refused with the reason; old batches follow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SchemaConflict
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.evolution import conform, evolve, widens
from headwater.log.schema.normalization import normalize_schema
from headwater.log.schema.row_conversion import to_batches, to_rows
from tests.unit.typed_rows import rows, same, schemas, schemas_with_rows
from tests.unit.weighted_rows import thorough


def follow(old: str, new: str, **roles: Any) -> str:
    return to_ddl(evolve(normalize_schema(old), normalize_schema(new), **roles))


def refusal(old: str, new: str, **roles: Any) -> SchemaConflict:
    with pytest.raises(SchemaConflict) as caught:
        follow(old, new, **roles)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ("a INT", "a INT", "a INT"),
        ("a INT", "b STRING, a INT", "a INT, b STRING"),
        ("a TINYINT", "a SMALLINT", "a SMALLINT"),
        ("a TINYINT", "a BIGINT", "a BIGINT"),
        ("a INT", "a DOUBLE", "a DOUBLE"),
        ("a FLOAT", "a DOUBLE", "a DOUBLE"),
        ("a DECIMAL(10,2)", "a DECIMAL(12,2)", "a DECIMAL(12,2)"),
        ("a DECIMAL(10,2)", "a DECIMAL(12,4)", "a DECIMAL(12,4)"),
        ("a INT NOT NULL", "a INT", "a INT"),
        ("a INT NOT NULL", "a BIGINT", "a BIGINT"),
        ("a ARRAY<INT>", "a ARRAY<BIGINT>", "a ARRAY<BIGINT>"),
        ("a MAP<STRING, INT>", "a MAP<STRING, DOUBLE>", "a MAP<STRING, DOUBLE>"),
        ("a STRUCT<x: INT>", "a STRUCT<x: BIGINT, y: DATE>", "a STRUCT<x: BIGINT, y: DATE>"),
        ("a STRUCT<x: INT NOT NULL>", "a STRUCT<x: INT>", "a STRUCT<x: INT>"),
        ("a ARRAY<STRUCT<x: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>"),
        # A declaration of some of the columns, or in another order, changes nothing.
        ("a BIGINT, b STRING", "b STRING, a BIGINT", "a BIGINT, b STRING"),
        ("a STRUCT<x: INT, y: INT>", "a STRUCT<y: INT, x: INT>", "a STRUCT<x: INT, y: INT>"),
        ("a STRUCT<x: INT>", "a STRUCT<y: INT, x: BIGINT>", "a STRUCT<x: BIGINT, y: INT>"),
    ],
)
def test_a_compatible_declaration_is_merged(old: str, new: str, merged: str):
    assert follow(old, new) == merged


@pytest.mark.parametrize(
    ("old", "new", "column", "reason"),
    [
        ("a INT, b INT", "a INT, c INT", "b", "neither removed nor renamed"),
        ("a INT, b STRING", "a BIGINT", "b", "neither removed nor renamed"),
        ("a INT NOT NULL, b INT", "b INT", "a", "every row must have it"),
        ("a BIGINT", "a INT", "a", "narrower"),
        ("a INT", "a INT NOT NULL", "a", "cannot become NOT NULL"),
        ("a BIGINT, b STRING", "a INT", "b", "neither removed nor renamed"),
        ("a DOUBLE", "a STRING", "a", "not of one kind"),
        ("a BIGINT", "a DOUBLE", "a", "cannot hold every BIGINT"),
        ("a INT", "a FLOAT", "a", "not of one kind"),
        ("a STRING", "a BINARY", "a", "not of one kind"),
        ("a TIMESTAMP", "a TIMESTAMP_NTZ", "a", "not of one kind"),
        ("a DECIMAL(10,2)", "a DECIMAL(12,5)", "a", "fewer digits"),
        ("a INT", "a INT, b INT NOT NULL", "b", "already stored have no value"),
        ("a INT", "A INT", "a", 'Write "a" instead of "A"'),
        ("a INT, b INT", "a INT NOT NULL, b BIGINT", "a", "cannot become NOT NULL"),
        ("a ARRAY<INT>", "a ARRAY<STRING>", "a", "In its elements: The types are not of one kind."),
        ("a MAP<INT, INT>", "a MAP<BIGINT, INT>", "a", "key type cannot change"),
        ("a MAP<INT, INT>", "a MAP<INT, DATE>", "a", "In its values"),
        ("a STRUCT<x: INT, y: INT>", "a STRUCT<x: INT, z: INT>", "a", 'field "y" was removed'),
        ("a STRUCT<x: INT>", "a STRUCT<x: STRING>", "a", 'field "x" changed from INT to STRING'),
        ("a STRUCT<x: INT>", "a STRUCT<x: INT, y: INT NOT NULL>", "a", 'new field "y" must be nullable'),
        ("a STRUCT<x: INT>, b INT", "a STRUCT<x: INT NOT NULL>, b BIGINT", "a", "narrower"),
    ],
)
def test_an_incompatible_declaration_is_refused_with_the_reason(old: str, new: str, column: str, reason: str):
    error = refusal(old, new)

    assert error.data["column"] == column
    assert reason in str(error)
    assert error.hint


def test_the_key_and_the_event_time_keep_their_meaning():
    assert follow("k INT, at TIMESTAMP", "k BIGINT, at TIMESTAMP", key=("k",), event_time="at").startswith("k BIGINT")

    assert "part of the key" in str(refusal("k INT", "k DOUBLE", key=("k",)))
    assert "part of the key" in str(refusal("k DECIMAL(3,0)", "k DECIMAL(4,0)", key=("k",)))
    assert "never null" in str(refusal("k INT NOT NULL", "k INT", key=("k",)))
    assert "event time" in str(refusal("at INT", "at BIGINT", event_time="at"))
    assert "never null" in str(refusal("at TIMESTAMP NOT NULL", "at TIMESTAMP", event_time="at"))


def test_leaving_a_column_out_is_refused():
    assert "missing" in str(refusal("a INT, b STRING", "a INT"))


WIDER = {
    pa.int8(): [pa.int16(), pa.int32(), pa.int64(), pa.float64()],
    pa.int16(): [pa.int32(), pa.int64(), pa.float64()],
    pa.int32(): [pa.int64(), pa.float64()],
    pa.float32(): [pa.float64()],
}


def wider(arrow: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    if arrow in WIDER:
        return st.sampled_from([arrow, *WIDER[arrow]])
    if pa.types.is_decimal(arrow):
        room = 38 - arrow.precision
        return st.tuples(st.integers(0, room // 2), st.integers(0, room // 2)).map(
            lambda more: pa.decimal128(arrow.precision + sum(more), arrow.scale + more[0])
        )
    if pa.types.is_list(arrow):
        return wider(arrow.value_type).map(pa.list_)
    if pa.types.is_map(arrow):
        return wider(arrow.item_type).map(lambda item: pa.map_(arrow.key_type, item))
    if pa.types.is_struct(arrow):
        return later_fields(list(arrow)).map(pa.struct)
    return st.just(arrow)


def later_fields(fields: list[pa.Field]) -> st.SearchStrategy[list[pa.Field]]:
    parts = [
        wider(field.type).map(lambda arrow, field=field: pa.field(field.name, arrow, field.nullable))
        for field in fields
    ]
    extra = st.lists(st.just(pa.field("new one", pa.string())), max_size=1)
    return st.tuples(st.tuples(*parts), extra).flatmap(lambda both: st.permutations([*both[0], *both[1]]))


versions_with_rows = schemas_with_rows.flatmap(
    lambda pair: st.tuples(st.just(pair[0]), st.just(pair[1]), later_fields(list(pair[0])).map(pa.schema))
)


@settings(max_examples=thorough(100), deadline=None)
@given(versions_with_rows, st.integers(0, 2))
def test_an_old_batch_reads_as_if_it_were_written_under_the_new_schema(
    case: tuple[pa.Schema, list[dict[str, Any]], pa.Schema], start: int
):
    old, old_rows, declared = case
    latest = evolve(old, declared)

    batch = conform(to_batches(old_rows, old).slice(start), latest)
    batch.validate(full=True)

    assert latest.names[: len(old)] == old.names
    assert evolve(latest, declared) == latest
    expected = to_batches(old_rows[start:], latest)
    assert batch.schema == latest
    assert same(to_rows(batch), to_rows(expected))


@settings(deadline=None)
@given(schemas.flatmap(lambda schema: st.tuples(st.just(schema), rows(schema))))
def test_a_batch_of_the_schema_is_handed_on(case: tuple[pa.Schema, list[dict[str, Any]]]):
    schema, old_rows = case
    batch = to_batches(old_rows, schema)

    assert conform(batch, schema) is batch


def test_columns_that_are_not_asked_for_are_dropped():
    batch = pa.record_batch({"a": [1, 2], "b": [3, 4]})

    assert conform(batch, normalize_schema("b BIGINT")).to_pylist() == [{"b": 3}, {"b": 4}]
    assert conform(batch, pa.schema([])).num_rows == 2


def test_a_batch_that_no_version_wrote_is_refused():
    with pytest.raises(SchemaConflict, match='column "a" cannot change from STRING to INT'):
        conform(pa.record_batch({"a": ["x"]}), normalize_schema("a INT"))


def test_widening_is_reflexive_and_one_way():
    for narrow, wides in WIDER.items():
        assert widens(narrow, narrow)
        for wide in wides:
            assert widens(narrow, wide)
            assert not widens(wide, narrow)
