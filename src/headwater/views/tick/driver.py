"""The runner: Structured Streaming calls the tick.

What it is: ``TickDriver`` starts one streaming query per app; each microbatch is one tick up to the frontier that
Spark's checkpoint remembers for it. Until Spark calls for the first time, which takes it some seconds, it ticks
without.
Invariants: the manifest is the truth: a microbatch that it covers already is skipped, a lost checkpoint begins at its
frontier; an error of a tick stops the query and reaches the caller as it was raised.
Not here: what a tick does (``engine.py``); where frontiers come from (``views/source/frontier_stream.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.views.source.frontier_stream import NAME, FrontierSource
from headwater.views.spark.jvm import REAPED_S, ended
from headwater.views.spark.spark_session import use_this_python
from headwater.views.state.manifest import Frontier
from headwater.views.tick.engine import TickEngine, TickReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("headwater.views")

EARLY_S = 0.1  # between two looks, before Spark calls for the first time

# Spark's bookkeeping per microbatch; none of it is needed, since the manifest is the truth.
SETTINGS = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.fileSource.log.compactInterval": "10",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
}


class TickDriver:
    """One streaming query that ticks an engine until stopped."""

    def __init__(
        self,
        engine: TickEngine,
        spark: SparkSession,
        home: Path,
        checkpoint: Path,
        on_tick: Callable[[TickReport], None] | None = None,
    ) -> None:
        self.engine = engine
        self.checkpoint = checkpoint
        self.home = home
        self.spark = spark.newSession()
        self.on_tick = on_tick
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._ticking = threading.Lock()
        self._ticker: int | None = None  # the thread that is in a tick
        self._called = threading.Event()  # by Spark, for the first time
        self._query: StreamingQuery | None = None
        self._awaiting: threading.Thread | None = None
        self._ended = threading.Event()
        self._failure: BaseException | None = None  # what the query ended with
        for name, value in SETTINGS.items():
            self.spark.conf.set(name, value)

    def start(self) -> None:
        """Take what waits, then begin to tick in the background."""
        use_this_python(self.spark)
        self.spark.dataSource.register(FrontierSource)
        self._tick(None)  # new views are filled, and what waits is taken, before the stream begins
        if self._stopping.is_set():
            return
        threading.Thread(target=self._tick_early, name="headwater-early-ticks", daemon=True).start()
        try:
            self._query = self._stream()
        except BaseException:
            self._called.set()
            raise
        if self._stopping.is_set():  # an early tick has stopped it
            self._end()

    def _stream(self) -> StreamingQuery:
        start = {
            name: {str(number): offset for number, offset in of.items()}
            for name, of in self.engine.manifest.frontier.items()
        }
        self._remove_lone_checksums()
        reader = self.spark.readStream.format(NAME).option("home", str(self.home.absolute()))
        reader = reader.option("topics", json.dumps(list(self.engine.prepared.topics))).option(
            "start", json.dumps(start)
        )
        writer = reader.load().writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(processingTime="0 seconds")
        return writer.start()

    def _tick_early(self) -> None:
        """Tick as rows come, until Spark calls for the first time."""
        while not self._called.wait(EARLY_S):
            with self._ticking:
                if self._called.is_set() or self._stopping.is_set():
                    return
                try:
                    self._tick(None)
                except BaseException:  # kept, and raised when Spark calls: there are rows that it has not seen
                    return

    def _remove_lone_checksums(self) -> None:
        """Of entries that somebody removed: Spark ends with an error when it is to write these entries again."""
        for checksum in self.checkpoint.glob("*/.*.crc"):
            if not checksum.with_name(checksum.name[1 : -len(".crc")]).exists():
                self.engine.store.files.unlink(checksum, label="checkpoint.unlink")

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Called by Spark for each microbatch, and again after a restart for the last one."""
        del frame
        self._called.set()
        with self._ticking:
            if self._stopping.is_set():
                return
            if self.error is not None:
                raise self.error
            self._tick(self._frontier(number))

    def _tick(self, frontier: Frontier | None) -> None:
        self._ticker = threading.get_ident()
        try:
            report = self.engine.tick(frontier)
            while report.moved or report.behind:
                if self.on_tick is not None and report.moved:
                    self.on_tick(report)
                if not report.behind or self._stopping.is_set():
                    return
                report = self.engine.tick(frontier)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._ticker = None

    def _frontier(self, number: int) -> Frontier | None:
        """The frontier that Spark wrote down for this microbatch."""
        try:
            lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
            found: dict[str, Any] = json.loads(lines[-1])
            return {topic: {int(part): offset for part, offset in of.items()} for topic, of in found.items()}
        except (OSError, ValueError, IndexError, AttributeError):
            return None  # without it the tick takes what there is

    def check(self) -> None:
        """Raise the error that ended the query, if one did."""
        if self._query is not None and not self._stopping.is_set() and not self._query.isActive:
            self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the query ends, by ``stop`` or by an error, which is raised here. False when time ran out."""
        from pyspark.errors import StreamingQueryException

        if self._query is None:
            return True  # the first tick stopped it
        if self._awaiting is None:
            # In another thread, so that Ctrl-C does not come in the middle of a question to Java.
            self._awaiting = threading.Thread(target=self._await, name="headwater-await", daemon=True)
            self._awaiting.start()
        if not self._ended.wait(timeout):
            return False
        if isinstance(self._failure, StreamingQueryException):
            if isinstance(self.error, HeadwaterError):
                raise self.error from None
            raise self.error or self._failure from self._failure
        if self._failure is not None:
            raise self._failure
        return True

    def _await(self) -> None:
        assert self._query is not None
        try:
            self._query.awaitTermination()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    def settle(self) -> None:
        """Wait until everything appended so far was ticked, and Spark has written that down."""
        if self._query is not None:
            self._query.processAllAvailable()

    def stop(self) -> None:
        """Stop after the running tick. When it is called by that tick (``on_tick``): as soon as it has returned."""
        self._stopping.set()
        if self._query is None:
            return
        if self._ticker == threading.get_ident():
            threading.Thread(target=self._end, name="headwater-stop").start()
        else:
            self._end()

    def _end(self) -> None:
        # Spark interrupts the thread that runs a microbatch, and cancels its jobs: not in the middle of a tick.
        with self._ticking:
            assert self._query is not None
            try:
                self._query.stop()
            except Exception as error:
                if ended(self.spark, within=REAPED_S) is None:
                    raise
                logger.debug("Spark has ended before its query was stopped: %s", error)
