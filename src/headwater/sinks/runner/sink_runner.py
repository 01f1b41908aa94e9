"""Sink runner: all sink tasks of an app.

What it is: ``SinkRunner``: ``sync`` runs every task once, in the caller's thread; ``start`` gives each task a thread,
which a committed tick wakes.
Invariants: no sink waits for another; a sink's errors never reach a tick. After ``stop`` nothing is delivered.
Not here: one sink (``sink_task.py``).
Read next: ``sink_task.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from headwater.sinks.runner.sink_status import SinkStatus
from headwater.sinks.runner.sink_task import SinkTask

logger = logging.getLogger("headwater.sinks")

LOOK_S = 1.0  # a thread looks this often without being woken
STOP_SECONDS_MAX = 30.0  # for deliveries that are running


class SinkRunner:
    """The sink tasks of one app."""

    def __init__(self, tasks: Iterable[SinkTask]) -> None:
        self.tasks = {task.name: task for task in tasks}
        self._threads: list[threading.Thread] = []
        self._wakes: list[threading.Event] = []
        self._stopping = threading.Event()

    @property
    def running(self) -> bool:
        """Whether the threads run."""
        return bool(self._threads)

    def sync(self, *, patient: bool = False) -> list[SinkStatus]:
        """Run every sink task once, up to the last committed tick; sinks that do not answer stay behind.

        With ``patient``, stopped sinks and those in back-off are skipped.
        """
        found = []
        for task in self.tasks.values():
            if not patient:
                task.restart()
            found.append(task.catch_up(patient=patient))
        return found

    def start(self) -> None:
        """Run every task in a thread."""
        if self._threads:
            return
        self._stopping.clear()
        for task in self.tasks.values():
            task.restart()
            wake = threading.Event()
            thread = threading.Thread(
                target=self._follow, args=(task, wake), name=f"headwater-sink-{task.name}", daemon=True
            )
            self._wakes.append(wake)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """A tick was committed."""
        for wake in self._wakes:
            wake.set()

    def _follow(self, task: SinkTask, wake: threading.Event) -> None:
        while not self._stopping.is_set():
            wake.clear()
            try:
                task.catch_up(stopping=self._stopping.is_set)
            except Exception:  # the status could not be saved: the home's disk may be full
                logger.exception("sink %s: its status could not be saved; retrying", task.identity)
                self._stopping.wait(LOOK_S)
                continue
            if task.stopped:
                return
            if task.retry_in:
                self._stopping.wait(task.retry_in)  # a tick does not shorten the back-off
            else:
                wake.wait(LOOK_S)

    def stop(self) -> None:
        """End the threads after their running deliveries."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS_MAX)
        self._threads, self._wakes = [], []

    def close(self) -> None:
        """Stop, and release all resources."""
        self.stop()
        for task in self.tasks.values():
            task.close()
