"""The driver: one thread that ticks an app whenever something was appended.

What it is: ``TickDriver``, the loop of ``app.run()``: tick until nothing waits, then sleep until the log wakes it.
Invariants: it knows nothing of a tick but when to call it: the manifest is the truth, and a tick takes what the log
holds. A row that is appended between a tick and the sleep wakes it. An error of a tick ends the loop, and reaches the
caller as it was raised; but a log that does not answer is waited for. No tick runs on the main thread, where Ctrl-C
would be raised between any two steps, a lock's among them, or be lost in a call-back of C code; and the main thread
never sleeps for long.
Not here: what a tick does (``engine.py``); how waking works (``log/storage/wake.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from headwater.errors import LogUnavailable
from headwater.log.event_time import capture_markers, heartbeats
from headwater.log.storage.wake import Waker
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.reports import TickReport

logger = logging.getLogger("headwater.views")

GRACE_S = 2.0  # for the running tick at Ctrl-C, before it is given up
CANCEL_S, CANCELS_MAX = 0.5, 120  # after that the thread is left to itself: it ends with the process
# The main thread looks up so often: a Ctrl-C that comes just before it falls asleep does not wake it.
LOOK_S = 0.5
RETRY_S = 2.0  # a log that does not answer
IDLE_S = 1.0  # a look at the log without being woken: the first heartbeat makes a topic that is not watched yet


class TickDriver:
    """Ticks an engine until stopped."""

    def __init__(
        self,
        engine: TickEngine,
        on_tick: Callable[[TickReport], None] | None = None,
        *,
        has_spark: Callable[[], bool] = lambda: True,
        accept_loss: bool = False,
    ) -> None:
        self.engine = engine
        self._accept_loss = accept_loss
        self._has_spark = has_spark
        self.on_tick = on_tick
        self.error: BaseException | None = None
        self._waker = Waker()
        self._stopping = threading.Event()
        self._caught_up: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headwater-ticks", daemon=True)

    def start(self) -> None:
        """Tick in the background; returns when what waited is taken and new views are filled."""
        self._thread.start()
        while True:
            with contextlib.suppress(queue.Empty):
                self._caught_up.get(timeout=LOOK_S)
                break
        self.check()

    def _run(self) -> None:
        try:
            if not self._stopping.is_set():
                self._advance()
            self._caught_up.put(None)
            while not self._stopping.is_set():
                try:
                    self._watch()
                    seen = self._waker.count()  # before the tick looks: what comes later moves the count
                    self._advance()
                except LogUnavailable as error:  # a failed tick has changed nothing
                    self._wait_for_log(error)
                    continue
                if not self._stopping.is_set() and not self._waker.wait(seen, IDLE_S):
                    self._check_idle()
        except BaseException as error:
            self.error = error
        finally:
            self._waker.close()
            self._caught_up.put(None)

    def _check_idle(self) -> None:
        """Notice what no tick would while no row comes."""
        if not self._has_spark():
            raise ConnectionError("Spark has ended")
        self.engine.manifests.check(self.engine.epoch)

    def _wait_for_log(self, error: LogUnavailable) -> None:
        """A log on a cluster that does not answer is waited for: it may come back, and no row is lost meanwhile."""
        logger.warning("no tick: %s; it is tried again", error.message)
        self._waker.wait(self._waker.count(), RETRY_S)

    def _advance(self) -> None:
        """Tick until nothing waits."""
        report = self.engine.tick(accept_loss=self._accept_loss)
        while report.moved or report.behind:
            if self.on_tick is not None and report.moved:
                self.on_tick(report)
            if not report.behind or self._stopping.is_set():
                return
            report = self.engine.tick(accept_loss=self._accept_loss)

    def _watch(self) -> None:
        """Watch every topic that a tick looks at; those that are watched already cost nothing."""
        prepared = self.engine.prepared
        topics = [base.topic for base in prepared.inputs.values()]
        beats = heartbeats.find(prepared.log)
        for topic in (*topics, *capture_markers.watched(topics), *([beats] if beats is not None else [])):
            topic.watched_by(self._waker)

    def check(self) -> None:
        """Raise the error that ended the loop, if one did."""
        if self.error is not None:
            raise self.error

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the loop ends, by ``stop`` or by an error, which is raised here. False when time ran out."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            left = LOOK_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._thread.join(min(LOOK_S, left))
        self.check()
        return True

    def stop(self, *, cancel: bool = False) -> None:
        """Stop after the running tick; with ``cancel`` a long one is given up, and its rows are taken by the next one.

        When it is called by that tick (``on_tick``): the loop ends as soon as it has returned.
        """
        self._stopping.set()
        self._waker.wake()
        # Ctrl-C may come before the thread has begun, which then finds that it is to stop: nothing to wait for.
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        if not cancel:
            self._thread.join()
            return
        self._thread.join(GRACE_S)
        for _ in range(CANCELS_MAX):  # again and again: the next job may just be on its way to Spark
            if not self._thread.is_alive():
                return
            self.engine.cancellation.request()
            self._thread.join(CANCEL_S)
