"""``spark.read.format("headwater")``: a bounded read is exactly a range of the log."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from headwater.log.maintenance.compaction import compact_partition
from headwater.views.source.data_source import read_range
from tests.spark.topics import NESTED, NOON, append_orders, by_place, forget, order, orders, rows_of, seal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.home import Log
    from headwater.log.topic import Topic

CONDITIONS = {
    "_offset >= 5 AND _offset < 8": 6,
    "_offset = 7 AND _partition = 1": 1,
    "_partition IN (0, 5) AND _offset <= 2": 3,
    "_partition > 0 AND _offset > 17": 2,
    "_offset < 3 OR id = 15": 7,
    "NOT (_offset < 18) AND _partition <> 0": 2,
    "at >= TIMESTAMP'2026-01-01 12:00:30Z' AND _offset IS NOT NULL": 10,
    "_appended_at < TIMESTAMP'2020-01-01 00:00:00Z'": 0,
}
METADATA = ["_partition", "_offset", "_appended_at"]


def load(spark: SparkSession, source: Topic, **options: Any) -> DataFrame:
    reader = spark.read.format("headwater").option("home", str(source.log.home)).option("topic", source.name)
    return reader.options(**options).load()


def test_a_batch_is_what_the_topic_holds(registered: SparkSession, log: Log):
    topic = orders(log, partitions=3)
    append_orders(topic, 60)
    seal(topic)
    append_orders(topic, 30, first=60)

    frame = load(registered, topic, includeMetadata="true")

    assert frame.columns == ["id", "amount", "at", *METADATA]
    assert by_place(rows_of(frame)) == by_place(list(topic.rows(columns=frame.columns)))


def test_the_schema_is_the_topics(registered: SparkSession, log: Log):
    topic = orders(log)

    assert load(registered, topic).schema.simpleString() == "struct<id:bigint,amount:double,at:timestamp>"


def test_a_range_is_exact(registered: SparkSession, log: Log):
    topic = orders(log, partitions=2)
    append_orders(topic, 40)
    seal(topic)
    append_orders(topic, 40, first=40)
    start, stop = {0: 3, 1: 15}, {0: 33, 1: 21}

    frame = load(
        registered, topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(stop), includeMetadata="true"
    )

    got = sorted((row["_partition"], row["_offset"]) for row in rows_of(frame))
    assert got == [(number, offset) for number in (0, 1) for offset in range(start[number], stop[number])]


def test_the_end_is_fixed_when_the_query_is_planned(registered: SparkSession, log: Log):
    topic = orders(log)
    append_orders(topic, 10)
    frame = load(registered, topic)
    assert len(frame.collect()) == 10

    append_orders(topic, 10, first=10)

    assert len(frame.collect()) == 10
    assert load(registered, topic).count() == 20


def test_reading_starts_at_a_time(registered: SparkSession, log: Log):
    topic = orders(log)
    append_orders(topic, 20)

    frame = load(registered, topic, startingTimestamp=(NOON + dt.timedelta(seconds=15)).isoformat())

    assert sorted(row["id"] for row in rows_of(frame)) == [15, 16, 17, 18, 19]


def test_only_the_named_columns_are_read(registered: SparkSession, log: Log):
    topic = orders(log)
    append_orders(topic, 3)

    assert rows_of(load(registered, topic, columns="_offset, amount"))[2] == {"_offset": 2, "amount": 1.0}

    reader = registered.read.format("headwater").option("home", str(log.home)).option("topic", "orders")
    assert rows_of(reader.schema("at TIMESTAMP, id BIGINT").load())[2] == {"at": order(2)["at"], "id": 2}


def test_an_empty_topic_is_an_empty_frame(registered: SparkSession, log: Log):
    topic = orders(log, partitions=2)

    assert load(registered, topic).collect() == []


def test_tombstones_are_marked(registered: SparkSession, log: Log):
    topic = log.topic("users", "id INT, name STRING NOT NULL", key="id")
    topic.append([{"id": 1, "name": "Ada"}])
    topic.delete([{"id": 1}])

    frame = load(registered, topic)

    assert rows_of(frame) == [{"id": 1, "name": "Ada", "_deleted": False}, {"id": 1, "name": None, "_deleted": True}]


def test_a_compacted_topic_is_read_over_its_gaps(registered: SparkSession, log: Log):
    topic = log.topic("users", "id INT, name STRING", key="id", compact=True)
    for round_ in range(5):
        topic.append([{"id": number, "name": f"{number} in {round_}"} for number in range(20)])
    seal(topic)
    compact_partition(topic, 0, wait=True)
    topic.append([{"id": 1, "name": "new"}])
    columns = ["id", "name", "_deleted", "_partition", "_offset", "_appended_at"]
    expected = list(topic.rows(columns=columns))
    assert len(expected) == 21

    frame = load(registered, topic, includeMetadata="true")
    ranged = read_range(registered, topic, {0: 10}, {0: 101})

    assert by_place(rows_of(frame)) == expected
    assert by_place(rows_of(ranged)) == expected


def test_nested_types_come_as_they_went(registered: SparkSession, log: Log):
    topic = log.topic("nested", NESTED)
    written = [
        {"id": 1, "tags": ["a", None], "sizes": {"x": 1}, "place": {"lat": 1.5, "seen": NOON}},
        {"id": 2, "tags": [], "sizes": {}, "place": {"lat": None, "seen": None}},
        {"id": 3, "tags": None, "sizes": None, "place": None},
    ]
    topic.append(written)

    before = rows_of(load(registered, topic))
    seal(topic)

    assert before == written
    assert rows_of(load(registered, topic)) == written


def test_older_rows_come_in_the_latest_schema(registered: SparkSession, log: Log):
    topic = log.topic("grown", "id INT")
    topic.append([{"id": 1}])
    seal(topic)
    topic = log.topic("grown", "id BIGINT, note STRING")
    topic.append([{"id": 2**40, "note": "new"}])

    frame = load(registered, topic)

    assert frame.schema.simpleString() == "struct<id:bigint,note:string>"
    assert rows_of(frame.orderBy("id")) == [{"id": 1, "note": None}, {"id": 2**40, "note": "new"}]


def test_the_filter_of_one_query_does_not_leak_into_the_next(registered: SparkSession, log: Log):
    topic = orders(log, partitions=2)
    append_orders(topic, 20)
    seal(topic)
    append_orders(topic, 20, first=20)
    frame = load(registered, topic, includeMetadata="true")
    registered.createDataFrame(frame.toArrow()).createOrReplaceTempView("copied")

    for condition, count in CONDITIONS.items():
        filtered = by_place(rows_of(frame.where(condition)))
        plainly = by_place(rows_of(registered.sql(f"SELECT * FROM copied WHERE {condition}")))

        assert filtered == plainly, condition
        assert len(filtered) == count, condition
    assert frame.count() == 40


def test_rows_that_retention_took_are_an_error_that_names_the_new_start(registered: SparkSession, log: Log):
    topic = orders(log)
    append_orders(topic, 10)
    seal(topic)
    append_orders(topic, 5, first=10)
    forget(topic)

    with pytest.raises(AnalysisException) as caught:
        load(registered, topic, startingOffsets='{"0": 4}').count()
    lenient = load(registered, topic, startingOffsets='{"0": 4}', failOnDataLoss="false")

    assert 'offset 4 is before the start of topic "orders" partition 0' in first_lines(caught)
    assert "Retention moved the start to 10" in first_lines(caught)
    assert sorted(row["id"] for row in rows_of(lenient)) == [10, 11, 12, 13, 14]


def first_lines(caught: pytest.ExceptionInfo[Exception]) -> str:
    return "\n".join(str(caught.value).splitlines()[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "order"}, 'UnknownTopic: no topic "order" in this home\n  Hint: Did you mean "orders"?'),
        ({"topic": ""}, 'option "topic" is missing'),
        ({"home": "nowhere"}, "there is no Headwater home at"),
        ({"startingOfsets": "latest"}, 'Did you mean "startingOffsets"?'),
        ({"startingOffsets": '{"7": 1}'}, 'topic "orders" has no partition 7'),
        ({"startingOffsets": '{"0": 11}'}, "offset 11 is after the end"),
        ({"startingOffsets": "latest", "endingOffsets": '{"0": 3}'}, "would be read from offset 10 to offset 3"),
        ({"columns": "amout"}, 'topic "orders" has no column "amout"'),
        ({"maxRowsPerTrigger": "5"}, "makes no sense for spark.read"),
    ],
)
def test_a_mistake_is_told_in_the_first_lines(
    registered: SparkSession, log: Log, options: dict[str, str], message: str
):
    topic = orders(log)
    append_orders(topic, 10)

    with pytest.raises(AnalysisException) as caught:
        load(registered, topic, **options).collect()

    assert message in first_lines(caught)
    assert "Traceback" not in str(caught.value)
