"""Every widening that a topic's schema may take is one that Spark's Parquet reader does by itself.

``read_range`` hands files of all versions to one scan under the latest schema. That is right only while this holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.log.schema.ddl import SIMPLE_TYPES, parse_ddl, spark_type
from headwater.log.schema.evolution import widens
from headwater.views.source.data_source import read_range
from tests.spark.topics import rows_of, seal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.log.home import Log

DECIMALS = ["DECIMAL(5,2)", "DECIMAL(9,2)", "DECIMAL(12,4)", "DECIMAL(18,4)", "DECIMAL(20,2)", "DECIMAL(38,10)"]
SIMPLE = [parse_ddl(f"c {name}").field("c").type for name in (*SIMPLE_TYPES, *DECIMALS)]
WIDENINGS = sorted(
    {(old, new) for old, new in itertools.product(SIMPLE, SIMPLE) if old != new and widens(old, new)}, key=str
)
SHAPES: dict[str, Callable[[Any], Any]] = {
    "{}": lambda value: value,
    "ARRAY<{}>": lambda value: [value],
    "MAP<STRING, {}>": lambda value: {"k": value},
    "STRUCT<x: {}>": lambda value: {"x": value},
}


def extremes(kind: pa.DataType) -> list[Any]:
    if pa.types.is_integer(kind):
        return [-(2 ** (kind.bit_width - 1)), 7, None, 2 ** (kind.bit_width - 1) - 1]
    if pa.types.is_decimal(kind):
        most = (Decimal(10**kind.precision) - 1).scaleb(-kind.scale)
        return [-most, Decimal(0), None, most]
    return [-1.5, 0.25, None, 3e38 if pa.types.is_float32(kind) else 1e300]


def test_there_are_widenings_to_try():
    names = {(spark_type(old), spark_type(new)) for old, new in WIDENINGS}

    assert {("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("INT", "DOUBLE"), ("DECIMAL(5,2)", "DECIMAL(38,10)")} <= names


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_older_files_under_every_wider_type(spark: SparkSession, log: Log, vectorized: str):
    """One topic with a column, a list, a map and a struct for each widening: one file, one scan."""
    old, new = [], []
    rows: list[dict[str, Any]] = [{}, {}, {}, {}]
    for number, (narrow, wide) in enumerate(WIDENINGS):
        for shape, wrap in SHAPES.items():
            name = f"c{number}_{shape[:3].strip('{}')}"
            old.append(f"{name} {shape.format(spark_type(narrow))}")
            new.append(f"{name} {shape.format(spark_type(wide))}")
            for row, value in zip(rows, extremes(narrow), strict=True):
                row[name] = wrap(value)
    topic = log.topic("wide", ", ".join(old))
    topic.append(rows)
    seal(topic)
    topic = log.topic("wide", ", ".join(new))

    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        got = rows_of(read_range(spark, topic, {0: 0}, {0: 4}, topic.schema.names))
    finally:
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", "true")

    assert got == list(topic.rows())


def test_columns_and_fields_that_older_files_lack_are_null(spark: SparkSession, log: Log):
    topic = log.topic("grown", "id INT, place STRUCT<lat: FLOAT>, tags ARRAY<STRUCT<name: STRING>>")
    topic.append([{"id": 1, "place": {"lat": 1.5}, "tags": [{"name": "a"}]}, {"id": 2, "place": None, "tags": []}])
    seal(topic)
    topic = log.topic(
        "grown",
        "id INT, place STRUCT<lat: DOUBLE, long: DOUBLE>, tags ARRAY<STRUCT<name: STRING, weight: INT>>, note STRING",
    )
    topic.append([{"id": 3, "place": {"lat": 2.5, "long": 0.5}, "tags": None, "note": "new"}])
    seal(topic)

    everything = rows_of(read_range(spark, topic, {0: 0}, {0: 3}, topic.schema.names))
    only_new = rows_of(read_range(spark, topic, {0: 0}, {0: 2}, ["note"]))

    assert sorted(everything, key=lambda row: row["id"]) == list(topic.rows())
    assert only_new == [{"note": None}, {"note": None}]
