"""The frontier as a stream: what lets Structured Streaming drive the ticks.

What it is: a Python data source whose offsets are frontiers and whose rows nobody needs. Spark's checkpoint remembers
the frontier of each microbatch, and a restart repeats the same one.
Invariants: offsets only grow; asking for the latest offset sleeps until something was appended (or a second passed),
so an idle app does not spin.
Not here: the tick (``views/tick/engine.py``); topics as data (``data_source.py``).
Read next: ``views/tick/driver.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from headwater.log.event_time import capture_markers, heartbeats
from headwater.log.event_time.heartbeats import HEARTBEATS
from headwater.log.topic import Topic
from headwater.views.source.data_source import POLL_AGE, told_plainly
from headwater.views.source.log_handles import open_topic, opened

IDLE_S = 1.0
NAME = "headwater-frontier"


class FrontierSource(DataSource):
    """``format("headwater-frontier")``, for the runner."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return NAME

    def schema(self) -> str:
        """There are no rows to speak of."""
        return "nothing BOOLEAN"

    def streamReader(self, schema: StructType) -> FrontierReader:
        """Called when the query starts."""
        del schema
        return FrontierReader(self.options["home"], json.loads(self.options["topics"]), self.options["start"])


class FrontierReader(DataSourceStreamReader):
    """Lives in a process of its own, as long as the query."""

    def __init__(self, home: str, topics: Sequence[str], start: str) -> None:
        self.home = home
        self.names = list(topics)
        self.start = start
        self._beating, self._looked = False, 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins: at the manifest's frontier."""
        begin: dict[str, Any] = json.loads(self.start)
        return begin

    def getDefaultReadLimit(self) -> ReadLimit:
        """A tick limits itself."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The ends of all topics, as soon as one of them is past ``start``."""
        del limit
        with told_plainly():
            ends = self._ends()
            if ends == start:
                self._wait(start)
                ends = self._ends()
            return ends

    def _topics(self) -> list[Topic]:
        names = [*self.names, HEARTBEATS] if self._beats() else self.names
        return [open_topic(self.home, name, age=POLL_AGE) for name in names]

    def _beats(self) -> bool:
        """Whether heartbeats were ever sent. The topic is made by the first one, so it is looked for now and then."""
        now = time.monotonic()
        if not self._beating and now - self._looked > POLL_AGE:
            self._beating = heartbeats.find(opened(self.home)) is not None
            self._looked = now
        return self._beating

    def _ends(self) -> dict[str, Any]:
        topics = self._topics()
        # Of captured tables only whole transactions, or a tick would find less than it was called for, again and again.
        ends = capture_markers.bound(topics, {topic.name: topic.end_offsets() for topic in topics})
        return {name: {str(number): offset for number, offset in of.items()} for name, of in ends.items()}

    def _wait(self, seen: dict[str, Any]) -> None:
        topics = self._topics()
        if not topics:
            return
        log = topics[0].log
        for topic in [*topics, *capture_markers.watched(topics)]:
            for number in topic.end_offsets():
                log.waker.watch(topic.directory / str(number))
        count = log.waker.count()
        if self._ends() == seen:
            log.waker.wait(count, IDLE_S)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition that nobody reads."""
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No rows."""
        del partition
        return iter(())
