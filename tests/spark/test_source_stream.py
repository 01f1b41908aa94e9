"""``spark.readStream.format("headwater")``: each row once, whatever happens to the query in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.topics import append_orders, forget, orders, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headwater.log.home import Log
    from headwater.log.topic import Topic

SECONDS_MAX = 120


class Batches:
    """What a query saw: {batch id: sorted ids}. A batch that is repeated must be the same."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        ids = sorted(row["id"] for row in frame.select("id").collect())
        if number in self.seen:
            assert self.seen[number] == ids
        self.seen[number] = ids
        if number == self.fail_at:
            raise RuntimeError("the sink is down")

    @property
    def ids(self) -> list[int]:
        return sorted(number for ids in self.seen.values() for number in ids)


def stream(
    spark: SparkSession, topic: Topic, checkpoint: Path, sink: Callable[[DataFrame, int], None], **options: Any
) -> StreamingQuery:
    """A query that reads what is there, trigger by trigger, and ends."""
    reader = spark.readStream.format("headwater").option("home", str(topic.log.home)).option("topic", topic.name)
    writer = reader.options(**options).load().writeStream.option("checkpointLocation", str(checkpoint))
    return writer.foreachBatch(sink).trigger(availableNow=True).start()


def test_each_row_is_seen_once_over_triggers_failures_and_restarts(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log, partitions=3)
    for number in range(70):  # one by one, for a trigger holds whole appends
        append_orders(topic, 1, first=number)
    seal(topic)
    for number in range(70, 100):
        append_orders(topic, 1, first=number)
    batches = Batches()
    batches.fail_at = 2

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        stream(registered, topic, tmp_path / "check", batches, maxRowsPerTrigger="16").awaitTermination(SECONDS_MAX)
    for number in range(100, 120):
        append_orders(topic, 1, first=number)
    seal(topic)
    batches.fail_at = None
    stream(registered, topic, tmp_path / "check", batches, maxRowsPerTrigger="16").awaitTermination(SECONDS_MAX)

    assert batches.ids == list(range(120))
    assert [len(batches.seen[number]) for number in sorted(batches.seen)] == [16] * 7 + [8]


def test_a_trigger_holds_whole_appends_whatever_its_limit(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log, partitions=1)
    for first in range(0, 60, 10):
        append_orders(topic, 10, first=first)
    batches = Batches()

    stream(registered, topic, tmp_path / "check", batches, maxRowsPerTrigger="16").awaitTermination(SECONDS_MAX)

    assert batches.ids == list(range(60))
    assert [len(batches.seen[number]) for number in sorted(batches.seen)] == [20, 20, 20]


def test_a_running_query_sees_what_is_appended_meanwhile(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log, partitions=2)
    append_orders(topic, 10)
    batches = Batches()
    reader = registered.readStream.format("headwater").option("home", str(log.home)).option("topic", "orders")
    writer = reader.load().writeStream.option("checkpointLocation", str(tmp_path / "check")).foreachBatch(batches)

    query = writer.start()
    try:
        query.processAllAvailable()
        append_orders(topic, 10, first=10)
        query.processAllAvailable()
        progress = query.lastProgress
    finally:
        query.stop()

    assert batches.ids == list(range(20))
    assert progress is not None
    assert progress.sources[0].endOffset == progress.sources[0].latestOffset == '{"0": 10, "1": 10}'


def test_available_now_ends_where_the_topic_ended_when_it_began(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log)
    append_orders(topic, 20)
    batches = Batches()

    def sink(frame: DataFrame, number: int) -> None:
        append_orders(topic, 5, first=1000 + 5 * number)
        batches(frame, number)

    stream(registered, topic, tmp_path / "check", sink, maxRowsPerTrigger="8").awaitTermination(SECONDS_MAX)

    assert batches.ids == list(range(20))


def test_a_checkpoint_before_the_start_is_an_error_that_names_the_new_start(
    registered: SparkSession, log: Log, tmp_path: Path
):
    topic = orders(log)
    append_orders(topic, 10)
    batches = Batches()
    stream(registered, topic, tmp_path / "check", batches).awaitTermination(SECONDS_MAX)
    append_orders(topic, 10, first=10)
    seal(topic)
    append_orders(topic, 10, first=20)
    forget(topic)

    with pytest.raises(StreamingQueryException) as caught:
        stream(registered, topic, tmp_path / "check", batches).awaitTermination(SECONDS_MAX)
    stream(registered, topic, tmp_path / "check", batches, failOnDataLoss="false").awaitTermination(SECONDS_MAX)

    assert 'offset 10 is before the start of topic "orders" partition 0' in str(caught.value)
    assert "Retention moved the start to 20" in str(caught.value)
    assert 'Go on without the lost rows: .option("failOnDataLoss", "false")' in str(caught.value)
    assert batches.ids == [*range(10), *range(20, 30)]


def test_a_stream_begins_where_it_is_told(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log)
    append_orders(topic, 20)
    batches = Batches()

    stream(registered, topic, tmp_path / "check", batches, startingOffsets='{"0": 17}').awaitTermination(SECONDS_MAX)

    assert batches.ids == [17, 18, 19]


def test_a_column_that_widens_under_a_running_query_stops_it_with_the_reason(
    registered: SparkSession, log: Log, tmp_path: Path
):
    topic = log.topic("grown", "id INT")
    topic.append([{"id": 1}])
    batches = Batches()
    reader = registered.readStream.format("headwater").option("home", str(log.home)).option("topic", "grown")
    writer = reader.load().writeStream.option("checkpointLocation", str(tmp_path / "check")).foreachBatch(batches)

    query = writer.start()
    query.processAllAvailable()
    log.topic("grown", "id BIGINT, note STRING").append([{"id": 2**40}])
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(SECONDS_MAX)
    stream(registered, topic, tmp_path / "check", batches).awaitTermination(SECONDS_MAX)

    assert 'column "id" of topic "grown" is BIGINT, and this query reads it as INT' in str(caught.value)
    assert batches.ids == [1, 2**40]
