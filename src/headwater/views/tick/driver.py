"""The driver: one thread that ticks an app whenever something was appended.

What it is: ``TickDriver``, the loop of ``app.run()``: tick until nothing waits, then sleep until the log wakes it.
Invariants: it knows nothing of a tick but when to call it: the manifest is the truth, and a tick takes what the log
holds. A row that is appended between a tick and the sleep wakes it. An error of a tick ends the loop, and reaches the
caller as it was raised.
Not here: what a tick does (``engine.py``); how waking works (``log/storage/wake.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.log.event_time import capture_markers, heartbeats
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.reports import TickReport

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
        self._waker = engine.prepared.log.waker
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Take what waits and fill new views, here; then go on ticking in the background."""
        self._advance()
        if self._stopping.is_set():  # by ``on_tick``
            self._ended.set()
            return
        self._thread = threading.Thread(target=self._run, name="headwater-ticks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._watch()
                seen = self._waker.count()  # before the tick looks: what comes later moves the count
                self._advance()
                if not self._stopping.is_set() and not self._waker.wait(seen, IDLE_S) and not self._has_spark():
                    raise ConnectionError("Spark has ended")  # no tick would notice while no row comes
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()

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
            for number in range(topic.settings.partitions):
                self._waker.watch(topic.directory / str(number))

    def check(self) -> None:
        """Raise the error that ended the loop, if one did."""
        if self.error is not None:
            raise self.error

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the loop ends, by ``stop`` or by an error, which is raised here. False when time ran out."""
        if not self._ended.wait(timeout):
            return False
        self.check()
        return True

    def stop(self) -> None:
        """Stop after the running tick. When it is called by that tick (``on_tick``): as soon as it has returned."""
        self._stopping.set()
        self._waker.wake()
        thread = self._thread
        # Ctrl-C may come between making the thread and starting it: then there is nothing to wait for.
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join()
