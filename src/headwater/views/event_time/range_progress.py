"""Range progress: how far each producer is in event time within a range of offsets.

What it is: ``progress_by_spark``, for ranges of which Spark reads the rows.
Invariants: the answer is that of ``EventTopic.progress``. No rows of a large range pass the driver.
Not here: watermarks (``progress.py``); what tasks tell while views read (``tick_times.py``).
Read next: ``tick_times.py``, ``log/event_time/producer_progress.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.contract import EventTopic
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress
from headwater.log.storage.sealed_segment import time_range
from headwater.views.spark.topic_scan import quoted, read_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress_by_spark(
    spark: SparkSession, topic: EventTopic, start: Mapping[int, int], stop: Mapping[int, int]
) -> dict[int, ProducerProgress]:
    """How far each producer (0: anonymous ones) of a topic is in event time within a range, by a query."""
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
