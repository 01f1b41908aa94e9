"""Tick times: how far in event time an app is after one tick.

What it is: ``TickTimes``, the progress of producers in the rows and heartbeats that a tick takes. Of a log without
files it is taken from whoever reads the rows for the views, the driver or tasks, after these have run, where no view
has to know it earlier: the rows are read once.
Invariants: ``after`` is what ``EventTimeProgress.moved`` gives for everything that came, whoever counted it, and is
asked for when the views were evaluated; ``before_evaluation`` is the same when some view needs it.
Not here: counting (``range_progress.py``, ``views/source/range_reports.py``); watermarks (``progress.py``).
Read next: ``range_progress.py``; ``views/tick/engine.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.log.contract import EventTopic
from headwater.log.event_time import heartbeats
from headwater.log.event_time.heartbeats import HEARTBEATS
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress
from headwater.views.event_time.progress import EventTimeProgress
from headwater.views.event_time.range_progress import progress_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.source.range_reports import RangeReports

Stops = dict[str, dict[int, int]]


class TickTimes:
    """The times of one tick over the rows from ``begin`` up to ``stop``."""

    def __init__(
        self,
        spark: SparkSession,
        before: EventTimeProgress,
        topics: Iterable[EventTopic],
        begin: Mapping[str, Mapping[int, int]],
        stop: Mapping[str, Mapping[int, int]],
        *,
        by_tasks: Collection[str],
        by_driver: Collection[str] = (),
        needed: bool,
    ) -> None:
        """``by_tasks``, ``by_driver``: topics whose rows these read, and tell of. ``needed``: some view is moved by
        time, and must know it before it is evaluated.
        """
        self._spark = spark
        self._before = before
        self._topics = {topic.name: topic for topic in topics if topic.settings.event_time}
        self._begin, self._stop = begin, stop
        self._came: dict[str, dict[int, ProducerProgress]] = {}
        self._later: list[str] = []  # who reads these will tell of them
        self._by_tasks = by_tasks
        for name, topic in self._topics.items():
            if name in by_driver:
                self._later.append(name)
            elif name not in by_tasks:
                self._came[name] = topic.progress(begin[name], stop[name])
            elif needed:
                self._came[name] = progress_by_spark(spark, topic, begin[name], stop[name])
            else:
                self._reports().take(name, {}, {})  # of an earlier tick that failed
                self._later.append(name)

    def with_heartbeats(self, sent: EventTopic, start: int) -> Stops:
        """Take the heartbeats from ``start`` on that speak of rows up to the tick's end; returns up to where."""
        stops = {name: self._stop[name] for name in self._topics}
        until, paces = heartbeats.taken(sent, start, sent.end_offsets()[0], stops)
        for name in self._topics:
            self._came[name] = merge_progress(self._came.get(name, {}), paces.get(name, {}))
        return {HEARTBEATS: {0: until}}

    def before_evaluation(self, reads: Mapping[str, Iterable[str]]) -> EventTimeProgress:
        """As far as it is known; all of it where a view needs it."""
        settings = {name: topic.settings for name, topic in self._topics.items()}
        return self._before.moved(self._came, settings, reads)

    def after(
        self, reads: Mapping[str, Iterable[str]], told_by_driver: Mapping[str, dict[int, ProducerProgress]]
    ) -> EventTimeProgress:
        """When the views were evaluated: all of it."""
        for name in self._later:
            topic, begin, stop = self._topics[name], self._begin[name], self._stop[name]
            if name not in self._by_tasks:
                told = told_by_driver.get(name)
                told = topic.progress(begin, stop) if told is None else told  # nothing had to be read
            else:
                told = self._reports().take(name, begin, stop)
                if told is None:  # no view has read all of it
                    told = progress_by_spark(self._spark, topic, begin, stop)
            self._came[name] = merge_progress(self._came.get(name, {}), told)
        self._later = []
        return self.before_evaluation(reads)

    def _reports(self) -> RangeReports:
        from headwater.views.source.range_reports import reports_of

        return reports_of(self._spark)
