"""Range reports: what tasks that read ranges of a log say of the rows that passed.

What it is: ``RangeReports``, one for each Spark context: while executors read a range of a topic with an event time
they note how far its producers are, and the driver takes the notes when the query is over. So nobody has to read the
range a second time for its times.
Invariants: a range is reported when all of its rows were read, and by tasks that succeeded; a task that is repeated
reports the same again. Where ranges that were reported do not cover what is asked for, the answer is None: a query may
have read less, or nothing.
Not here: how far producers are by a query of its own (``views/event_time/range_progress.py``).
Read next: ``views/spark/topic_scan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.accumulators import Accumulator, AccumulatorParam

from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress
from headwater.log.storage.file_listing import Range

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Place = tuple[str, int, int, int]  # topic, partition, first offset, the offset behind the last
Reported = dict[Place, dict[int, ProducerProgress]]


class _Together(AccumulatorParam[Reported]):
    """Reports of several tasks as one."""

    def zero(self, value: Reported) -> Reported:
        del value
        return {}

    def addInPlace(self, value1: Reported, value2: Reported) -> Reported:
        return {**value1, **value2}  # a new one: the driver may read the old one meanwhile


class RangeReports:
    """What was reported in one Spark context. It travels inside tasks."""

    def __init__(self, context: SparkContext) -> None:
        self._found: Accumulator[Reported] = context.accumulator({}, _Together())

    def add(self, topic: str, read: Range, progress: dict[int, ProducerProgress]) -> None:
        """All rows of a range were read; called on an executor."""
        self._found.add({(topic, read.partition, read.start, read.stop): progress})

    def take(self, topic: str, start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, ProducerProgress] | None:
        """How far each producer is within a range; None when not all of it was reported. Reports are given once."""
        every = self._found.value
        self._found.value = {place: found for place, found in every.items() if place[0] != topic}
        progress: dict[int, ProducerProgress] = {}
        for number in stop:
            position = start.get(number, 0)
            for _, partition, first, following in sorted(place for place in every if place[0] == topic):
                if partition == number and first <= position < following <= stop[number]:
                    position = following
                    progress = merge_progress(progress, every[topic, partition, first, following])
            if position < stop[number]:
                return None
        return progress


_of_contexts: WeakKeyDictionary[SparkContext, RangeReports] = WeakKeyDictionary()


def reports_of(spark: SparkSession) -> RangeReports:
    """The reports of the tasks of a session."""
    context = spark.sparkContext
    if context not in _of_contexts:
        _of_contexts[context] = RangeReports(context)
    return _of_contexts[context]
