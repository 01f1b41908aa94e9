"""Sink task: one sink that follows the committed ticks of its view.

What it is: ``SinkTask`` opens the sink's target, chooses between a full copy and changes, and records the outcome.
Invariants: the target gets each committed change once and in order, or a full copy of one tick; it is never ahead. An
unavailable sink is retried with back-off and raises one alert; a sink that refuses, or fails repeatedly with an unknown
error, is stopped and raises one. Neither delays a tick or another sink.
Not here: threads (``sink_runner.py``); targets (``sink.py``).
Read next: ``sink_runner.py``.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.backoff import Backoff
from headwater.errors import Corruption, Fenced, HeadwaterError, SinkRefused, Unavailable
from headwater.log.maintenance.alerts import note_sink
from headwater.sinks.runner.captured_table_reader import CapturedTableReader
from headwater.sinks.runner.sink_status import SinkState, SinkStatus, SinkStatuses
from headwater.sinks.sink import Leftover, Sink, SinkContext, StoredProgress, Target
from headwater.views.serving.view_reader import ViewHead, ViewReader

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

logger = logging.getLogger("headwater.sinks")

MERGED_ROWS_MAX = 200_000  # merge waiting ticks up to about so many changes
MERGED_TICKS_MAX = 1000
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 30.0
STEPS_IN_VAIN_MAX = 10  # a target whose progress never becomes the delivered tick
UNKNOWN_MAX = 5  # consecutive unexpected errors
REFILLS_MAX = 2  # consecutive full copies after missing rows


class SinkTask:
    """One sink of an app. Thread-safe; one thread works at a time."""

    def __init__(
        self, name: str, view: str, app: str, sink: Sink, reader: ViewReader | CapturedTableReader, log: EventLog
    ) -> None:
        self.name = name
        self.view = view
        self.app = app
        self.sink = sink
        self.reader = reader
        self.log = log
        self.identity = f"{app}/{view}/{name}"
        self._statuses = SinkStatuses(log, app)
        self._fresh = SinkStatus(name, view, sink.kind, str(sink))
        self._status = replace(self._fresh)
        self._target: Target | None = None
        self._progress: StoredProgress | None = None
        self.copied = 0  # rows of the current or last full copy
        self._refills = self._unknown = 0  # in a row
        self._retry_at = 0.0
        self._advanced = False
        self._turn = threading.RLock()
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, jitter=random.Random())

    # Asking

    @property
    def status(self) -> SinkStatus:
        """The status with the current lag. Works in any process."""
        known = (
            self._status
            if self._status.state is not SinkState.IDLE
            else self._statuses.load(self.identity, self._fresh)
        )
        return replace(known, lag=self.reader.lag(known.tick))

    @property
    def stopped(self) -> bool:
        """Whether it was refused for good."""
        return self._status.state is SinkState.STOPPED

    @property
    def retry_in(self) -> float:
        """Seconds until the next try, after failures."""
        return self._backoff.after(self._status.failures)

    # Working

    def catch_up(self, *, stopping: Callable[[], bool] = lambda: False, patient: bool = False) -> SinkStatus:
        """Deliver up to the last committed tick. Never raises a sink's error.

        With ``patient``, a sink in back-off is skipped.
        """
        with self._turn:
            if patient and self.log.clock.monotonic() < self._retry_at:
                return self._status
            try:
                in_vain = 0
                while not self.stopped and not stopping() and self._step():
                    in_vain = 0 if self._advanced else in_vain + 1
                    if in_vain > STEPS_IN_VAIN_MAX:
                        raise SinkRefused(
                            f"sink {self.identity} does not advance beyond tick {self._status.tick}",
                            hint="Check whether another program writes its progress.",
                        )
            except Unavailable as error:
                self._failed(error)
            except Fenced as error:
                # The newer process owns the sink and its status.
                self._close()
                self._status = replace(self._status, state=SinkState.STOPPED, error=error.to_dict())
                logger.warning("sink %s: %s", self.identity, error.message)
            except HeadwaterError as error:
                self._stop(error)
            except Exception as error:  # an unmapped error of a client library
                logger.exception("sink %s failed", self.identity)
                self._unknown += 1
                unknown = HeadwaterError(f"unexpected {type(error).__name__}: {error}")
                self._failed(unknown) if self._unknown < UNKNOWN_MAX else self._stop(unknown)
            return self._status

    def _step(self) -> bool:
        """One full copy or one delivery; False when the sink is up to date."""
        self._advanced = False
        head = self.reader.head()
        if head is None:
            return False
        target = self._opened(head)
        progress = self._progress
        version = target.context.version
        if progress is not None and progress.version == version and progress.tick == head.tick:
            self._went_well(progress, 0)
            return False
        if progress is None:
            return self._fill(target, "it has no progress there")
        if progress.version != version:
            return self._fill(target, f"the progress there is of {progress.version}, and the view is {version}")
        if progress.tick > head.tick:
            later = self.reader.head()  # another process may have ticked since
            if later is None or progress.tick > later.tick:
                # The home was restored from a backup.
                return self._fill(target, f"the progress there is tick {progress.tick}, and the view is at {head.tick}")
            return True
        ticks_max = MERGED_TICKS_MAX if self.sink.merges else 1
        delivery = self.reader.changes(progress.tick, head, rows_max=MERGED_ROWS_MAX, ticks_max=ticks_max)
        if delivery is None:
            return self._fill(target, f"the changes since tick {progress.tick} are no longer kept")
        try:
            self._progress = target.apply(delivery)
        except Corruption as error:
            self._refills += 1
            if self._refills > REFILLS_MAX:
                raise
            logger.warning("sink %s takes a full copy: %s", self.identity, error.message)
            return self._fill(target, "what is there came apart")
        if self._progress.tick >= delivery.tick > delivery.after:
            self._refills, self._advanced = 0, True
            self._went_well(self._progress, delivery.changes.num_rows)
        return True

    def _opened(self, head: ViewHead) -> Target:
        context = SinkContext(self.app, self.view, self.name, head.schema, head.key, self._version(head))
        if self._target is not None and self._target.context != context:
            self._close()
        if self._target is None:
            self._target = self.sink.open(context, self.log)
            self._progress = self._target.progress()
        return self._target

    def _version(self, head: ViewHead) -> str:
        return f"{head.version}/{self.sink.layout}" if self.sink.layout else head.version

    def _fill(self, target: Target, reason: str) -> bool:
        if self._status.tick:  # it had one before
            logger.warning("sink %s is filled again: %s", self.identity, reason)
        with self.reader.rows() as (head, batches):
            if self._version(head) != target.context.version:
                self._close()  # the view was rebuilt meanwhile
                return True
            self._save(state=SinkState.FILLING)
            self.copied = 0

            def counted() -> Any:
                try:
                    for batch in batches:
                        self.copied += batch.num_rows
                        yield batch
                except FileNotFoundError as error:
                    raise Unavailable(
                        f'a full copy of view "{self.view}" took longer than the rows of its tick are kept',
                        detail=f"It began at tick {head.tick}; the files after row {self.copied:,} were removed.",
                        hint="It is retried. Make ticks larger, or the other system faster.",
                    ) from error

            self._progress = target.fill(counted(), head.tick, self.reader.epoch())
        self._advanced = True
        self._went_well(self._progress, self.copied)
        return True

    # Outcomes

    def _went_well(self, progress: StoredProgress, rows: int) -> None:
        if self._status.failures:
            logger.info("sink %s answers again after %d failures", self.identity, self._status.failures)
        self._unknown = 0
        if self._status.state is SinkState.FOLLOWING and not rows and self._status.tick == progress.tick:
            return
        before = self._status
        self._save(state=SinkState.FOLLOWING, tick=progress.tick, failures=0, error=None, rows=before.rows + rows)
        if before.state is not SinkState.FOLLOWING:
            note_sink(self.log.local, self.identity, None, {})

    def _failed(self, error: HeadwaterError) -> None:
        self._close()
        first = self._status.failures == 0
        self._save(state=SinkState.RETRYING, failures=self._status.failures + 1, error=error.to_dict())
        self._retry_at = self.log.clock.monotonic() + self.retry_in
        if first:
            how = "does not answer" if isinstance(error, Unavailable) else "fails"
            note_sink(self.log.local, self.identity, f"sink {self.identity} {how}: {error.message}", {})
            logger.warning("sink %s %s and is retried: %s", self.identity, how, error.message)

    def _stop(self, error: HeadwaterError) -> None:
        self._close()
        if self._status.failures:
            note_sink(self.log.local, self.identity, None, {})  # ends the alert about retries
        self._save(state=SinkState.STOPPED, error=error.to_dict())
        note_sink(
            self.log.local, self.identity, f"sink {self.identity} has stopped: {error.message}", {"code": error.code}
        )
        logger.error("sink %s has stopped: %s", self.identity, error)

    def _save(self, **changes: Any) -> None:
        self._status = replace(self._status, changed_us=self.log.clock.now_us(), **changes)
        self._statuses.save(self.identity, self._status)

    def forget(self) -> Leftover | None:
        """Let go of what the other system keeps of rows that have left, as far as it can; what stays there."""
        with self._turn:
            status = self.catch_up()
            head = self.reader.head()
            if head is None:
                return None
            if status.state in (SinkState.RETRYING, SinkState.STOPPED) or status.tick < head.tick:
                return Leftover(f"it has not taken tick {head.tick}: headwater sink tells why; erase again when it has")
            try:
                target = self._opened(head)
                if self.sink.copy_replaces:
                    self._fill(target, "something was erased")
                return target.forget()
            except HeadwaterError as error:
                return Leftover(f"it did not answer: {error.message}")

    def restart(self) -> None:
        """Allow a stopped sink to run again."""
        with self._turn:
            if self.stopped:
                self._status = replace(self._status, state=SinkState.IDLE, failures=0, error=None)
                self._unknown = 0

    def _close(self) -> None:
        target, self._target, self._progress = self._target, None, None
        if target is not None:
            try:
                target.close()
            except Exception as error:  # the connection is lost anyway
                logger.debug("closing sink %s: %s", self.identity, error)

    def close(self) -> None:
        """Release the target's resources."""
        with self._turn:
            self._close()
