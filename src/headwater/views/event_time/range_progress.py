"""Range progress: how far each producer is in event time within a range of offsets.

What it is: ``progress_in``: by the log where it knows without reading the rows, or where they are few; else by Spark.
Invariants: the answer is that of ``EventTopic.progress``. No rows of a large range pass the driver.
Not here: watermarks (``progress.py``). Read next: ``log/event_time/producer_progress.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.contract import Capability, EventTopic
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress
from headwater.log.storage.sealed_segment import time_range
from headwater.views import thresholds
from headwater.views.spark.topic_scan import quoted, read_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress_in(
    spark: SparkSession,
    topics: Mapping[str, EventTopic],
    start: Mapping[str, Mapping[int, int]],
    stop: Mapping[str, Mapping[int, int]],
) -> dict[str, dict[int, ProducerProgress]]:
    """How far each producer (0: anonymous ones) of some topics is in event time within a range.

    >>> import datetime as dt, headwater as hw, tempfile
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> clicks = hw.Log(tempfile.mkdtemp()).topic("clicks", "at TIMESTAMP", event_time="at")
    >>> _ = clicks.append([{"at": dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC)} for second in (5, 3)])
    >>> progress_in(spark, {"clicks": clicks}, {"clicks": {0: 0}}, {"clicks": {0: 2}})["clicks"][0].newest_us
    5000000
    """
    return {name: _progress(spark, topic, start[name], stop[name]) for name, topic in topics.items()}


def _progress(
    spark: SparkSession, topic: EventTopic, start: Mapping[int, int], stop: Mapping[int, int]
) -> dict[int, ProducerProgress]:
    in_files = Capability.NATIVE_FILES in topic.log.capabilities  # whose statistics say it
    if in_files or topic.rows_most(start, stop) <= thresholds.TASK_ROWS_MAX:
        return topic.progress(start, stop)
    return progress_by_spark(spark, topic, start, stop)


def progress_by_spark(
    spark: SparkSession, topic: EventTopic, start: Mapping[int, int], stop: Mapping[int, int]
) -> dict[int, ProducerProgress]:
    """The same, by a query over the rows."""
    from pyspark.sql import functions

    column = topic.settings.event_time
    assert column is not None, "ask only for topics with an event time"
    rows = read_range(spark, topic, start, stop, [column, "_appended_at", "_producer"], by_workers=True)
    newest, seen = functions.max(quoted(column)).alias("newest"), functions.max("_appended_at").alias("seen")
    found: dict[int, ProducerProgress] = {}
    for batch in rows.groupBy("_producer").agg(newest, seen).toArrow().to_batches():
        for place in range(batch.num_rows):
            one = batch.slice(place, 1)
            seen_us = one.column("seen").cast(pa.int64())[0].as_py()
            progress = ProducerProgress(time_range(one.column("newest"))[1], seen_us=seen_us)
            found = merge_progress(found, {one.column("_producer")[0].as_py(): progress})
    return found
