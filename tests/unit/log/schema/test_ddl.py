"""Spark DDL text becomes an Arrow schema and comes back; a mistake is shown where it stands."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import SIMPLE_TYPES, TIMESTAMP, TIMESTAMP_NTZ, parse_ddl, spark_type, to_ddl

EVERYTHING = """
    order_id BIGINT NOT NULL,      -- the key
    at TIMESTAMP, local timestamp_ntz,
    tags ARRAY<STRING>, m MAP<STRING,INT>, /* nested */ s STRUCT<a: INT NOT NULL, b STRING COMMENT 'in', `c d`: DATE>,
    price DECIMAL(10,2), whole dec, wide NUMERIC(38), `odd ``name` STRING COMMENT 'it''s' "joined",
    short VARCHAR(10), code CHAR(2), raw BINARY,
    deep ARRAY<MAP<STRING, STRUCT<x: ARRAY<DOUBLE>>>>
"""


def types_of(*, depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    leaf = st.one_of(st.sampled_from(sorted(set(SIMPLE_TYPES.values()), key=str)), decimals)
    if depth == 0:
        return leaf
    inner = types_of(depth=depth - 1)
    return st.one_of(leaf, inner.map(pa.list_), st.builds(pa.map_, leaf, inner), fields_of(inner).map(pa.struct))


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
    field = st.builds(pa.field, names, types, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name.lower())


def refusal(text: str) -> InvalidDeclaration:
    with pytest.raises(InvalidDeclaration) as caught:
        parse_ddl(text)
    return caught.value


def test_every_kind_of_column_is_read():
    schema = parse_ddl(EVERYTHING)

    assert schema.field("order_id") == pa.field("order_id", pa.int64(), nullable=False)
    assert schema.field("at").type == TIMESTAMP
    assert schema.field("local").type == TIMESTAMP_NTZ
    assert schema.field("m").type == pa.map_(pa.string(), pa.int32())
    assert schema.field("s").type == pa.struct(
        [pa.field("a", pa.int32(), nullable=False), ("b", pa.string()), ("c d", pa.date32())]
    )
    assert schema.field("whole").type == pa.decimal128(10, 0)
    assert schema.field("wide").type == pa.decimal128(38, 0)
    assert schema.field("odd `name").type == pa.string()
    assert schema.field("code").type == pa.string()
    assert schema.metadata is None


@pytest.mark.parametrize(("name", "arrow"), SIMPLE_TYPES.items())
def test_each_synonym_is_read_in_any_case(name: str, arrow: pa.DataType):
    assert parse_ddl(f"c {name}").field("c").type == arrow
    assert parse_ddl(f"c {name.lower()} not null").field("c") == pa.field("c", arrow, nullable=False)


def test_keywords_may_be_column_names():
    assert parse_ddl("comment STRING, not INT, null INT, array ARRAY<INT>, map DATE").names == [
        "comment",
        "not",
        "null",
        "array",
        "map",
    ]


def test_a_whole_struct_type_is_a_schema_too():
    assert parse_ddl("STRUCT<a: INT, b: STRING>") == parse_ddl("a INT, b STRING")


@settings(deadline=None)
@given(fields_of(types_of()).map(pa.schema))
def test_a_schema_survives_its_ddl(schema: pa.Schema):
    assert parse_ddl(to_ddl(schema)) == schema


@settings(deadline=None)
@given(st.text("ab`'<>(),: \nINTSRUCAY19_-", max_size=30))
def test_any_text_is_read_or_refused_with_a_sentence(text: str):
    try:
        schema = parse_ddl(text)
    except InvalidDeclaration:
        return

    assert parse_ddl(to_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a INTT", "unknown type INTT", "INTT: did you mean INT?"),
        ("a TEXT", "unknown type TEXT", "Spark's name for it is STRING."),
        ("a INTERVAL DAY TO SECOND", "a topic cannot store the type INTERVAL", "BIGINT"),
        ("a VARIANT", "a topic cannot store the type VARIANT", "STRUCT"),
        ("a", 'column "a" has no type', "a STRING"),
        ("a INT b INT", "unexpected 'b'", "separated by commas"),
        ("a INT,", "a column name is missing", "comma too many"),
        ("a-b INT", "unexpected '-'", "backquotes"),
        ("`a INT", "unexpected '`'", "closing ` is missing"),
        ("1a INT", "the column name 1a must be quoted", "`1a`"),
        ("größe INT", "the column name größe must be quoted", "`größe`"),
        ("a TIMESTAMP WITH TIME ZONE", "expected 'LOCAL', found 'TIME'", "WITHOUT TIME ZONE"),
        ("a DECIMAL(39,2)", "a DECIMAL's precision is 1 to 38, not 39", None),
        ("a DECIMAL(2,3)", "a DECIMAL's scale (3) cannot exceed its precision (2)", "all digits"),
        ("a ARRAY", "'<' is missing", "ARRAY<STRING>"),
        ("a ARRAY<INT", "'>' is missing", "ARRAY<STRING>"),
        ("a MAP<INT>", "expected ',', found '>'", "MAP<STRING, INT>"),
        ("a MAP<MAP<INT,INT>,INT>", "a MAP's key cannot be a MAP", None),
        ("a STRUCT<>", "a STRUCT needs at least one field", "Parquet"),
        ("a INT NOT", "'NULL' is missing", "NOT NULL"),
        ("a INT COMMENT x", "a COMMENT needs a quoted text", "COMMENT 'text'"),
        ("a VARCHAR", "'(' is missing", "VARCHAR(20)"),
        ("a INT(4)", "INT takes no length", "INT alone"),
        ("a STRING COLLATE UNICODE", "a topic stores no collation", "query"),
        ("a INT PRIMARY KEY", "unexpected 'PRIMARY'", "key="),
        ("", "the schema is empty", "at least one column"),
        (" -- nothing", "the schema is empty", "at least one column"),
    ],
)
def test_a_mistake_gets_its_own_sentence(text: str, message: str, hint: str | None):
    error = refusal(text)

    assert error.message == message
    assert hint is None or hint in (error.hint or "")


def test_the_mistake_is_underlined_on_its_own_line():
    error = refusal("id BIGINT,\n\tprice DECIMALL(10,2),\n\tat TIMESTAMP")

    assert str(error).splitlines()[1:3] == ["   price DECIMALL(10,2),", "         ^^^^^^^^"]
    assert error.data["position"] == 18


def test_a_long_line_is_cut_around_the_mistake():
    text = ", ".join(f"column_{i} BIGINT" for i in range(40)).replace("column_20 BIGINT", "column_20 BIGINTT")
    line, carets = (refusal(text).detail or "").split("\n")

    assert len(line) <= 100
    assert line[carets.index("^") - 2 :].startswith("BIGINTT")
    assert carets.count("^") == 7


def test_an_arrow_type_outside_spark_has_no_name():
    with pytest.raises(InvalidDeclaration, match="uint64"):
        spark_type(pa.uint64())
