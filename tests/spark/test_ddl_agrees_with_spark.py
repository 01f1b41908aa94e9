"""What our parser takes means the same to Spark, and what it writes Spark can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import KNOWN_TYPES, SIMPLE_TYPES, TEXTS_WITH_LENGTH, parse_ddl, to_ddl

if TYPE_CHECKING:
    import pyarrow as pa

# StructType.fromDDL asks the running session's parser.
pytestmark = pytest.mark.usefixtures("spark")

GOOD = [
    "order_id BIGINT NOT NULL, at TIMESTAMP, tags ARRAY<STRING>",
    "m MAP<STRING,INT>, s STRUCT<a: INT, b: STRING>, t struct<a int not null, b: string comment 'x'>",
    "price DECIMAL(10,2), whole DECIMAL, wide numeric(38), d dec(5,5)",
    "`odd name` STRING COMMENT 'x', `tick``ed` INT COMMENT \"two\"",
    "deep ARRAY<MAP<STRING, STRUCT<x: ARRAY<ARRAY<DOUBLE>>, y: MAP<INT, DATE>>>>",
    "a: INT, b: STRING NOT NULL",
    "a TIMESTAMP WITHOUT TIME ZONE, b TIMESTAMP WITH LOCAL TIME ZONE NOT NULL",
    "struct<a: int, b: array<string>>",
    "comment STRING, not INT, select INT, array INT, timestamp TIMESTAMP",
    "a INT -- first\n, b INT /* second */",
    "a INT COMMENT 'one' 'two'",
    *(f"c {name}, n {name.lower()} NOT NULL" for name in SIMPLE_TYPES),
]
BAD = [
    "",
    "a",
    "a INTT",
    "a INT,",
    "a INT b INT",
    "a-b INT",
    "größe INT",
    "a DECIMAL(39,2)",
    "a DECIMAL(2,3)",
    "a ARRAY",
    "a ARRAY<INT",
    "a MAP<INT>",
    "a INT NOT",
    "a INT COMMENT x",
    "a VARCHAR",
    "a INT(4)",
    "`a INT",
    "a INT DEFAULT 3",
]


def as_spark_reads_it(text: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(StructType.fromDDL(text), timezone="UTC").remove_metadata()


@pytest.mark.parametrize("text", GOOD)
def test_spark_reads_the_same_schema(text: str):
    assert parse_ddl(text).equals(as_spark_reads_it(text))
    assert parse_ddl(to_ddl(parse_ddl(text))).equals(as_spark_reads_it(to_ddl(parse_ddl(text))))


@pytest.mark.parametrize("text", BAD)
def test_spark_refuses_it_too(text: str):
    with pytest.raises(InvalidDeclaration):
        parse_ddl(text)
    try:
        columns = as_spark_reads_it(text).names
    except Exception:  # Spark's parse errors come in several classes
        columns = []

    # Spark reads the empty text as no columns at all.
    assert columns == []


def test_every_type_we_name_is_one_of_sparks():
    shapes = {"ARRAY": "<INT>", "MAP": "<INT,INT>", "STRUCT": "<a: INT>"} | dict.fromkeys(TEXTS_WITH_LENGTH, "(3)")

    for name in KNOWN_TYPES:
        assert StructType.fromDDL(f"c {name}{shapes.get(name, '')}").names == ["c"]
