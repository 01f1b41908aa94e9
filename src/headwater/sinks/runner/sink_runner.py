"""A convoy: all sinks of an app, each on its own way.

What it is: ``SinkRunner`` holds the followers of one app: ``sync`` brings all along once, in turn and while the caller
waits; ``start`` gives each a thread of its own, which a committed tick wakes.
Invariants: no sink waits for another one; what one raises never reaches a tick. After ``stop`` nothing is delivered.
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

LOOK_S = 1.0  # a thread looks this often even if nobody wakes it
STOP_SECONDS_MAX = 30.0  # a delivery that is under way is let finish for so long


class SinkRunner:
    """The sinks of one app at work."""

    def __init__(self, followers: Iterable[SinkTask]) -> None:
        self.followers = {follower.name: follower for follower in followers}
        self._threads: list[threading.Thread] = []
        self._wakes: list[threading.Event] = []
        self._stopping = threading.Event()

    @property
    def running(self) -> bool:
        """Whether threads lead the sinks along."""
        return bool(self._threads)

    def sync(self, *, patient: bool = False) -> list[SinkStatus]:
        """Bring every sink to the last committed tick, as far as it lets us; what does not answer is left behind.

        With ``patient``, sinks that were stopped, or did not answer a moment ago, are left alone.
        """
        found = []
        for follower in self.followers.values():
            if not patient:
                follower.restart()
            found.append(follower.catch_up(patient=patient))
        return found

    def start(self) -> None:
        """Lead every sink along in the background."""
        if self._threads:
            return
        self._stopping.clear()
        for follower in self.followers.values():
            follower.restart()
            wake = threading.Event()
            thread = threading.Thread(
                target=self._follow, args=(follower, wake), name=f"headwater-sink-{follower.name}", daemon=True
            )
            self._wakes.append(wake)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """A tick was committed."""
        for wake in self._wakes:
            wake.set()

    def _follow(self, follower: SinkTask, wake: threading.Event) -> None:
        while not self._stopping.is_set():
            wake.clear()
            try:
                follower.catch_up(stopping=self._stopping.is_set)
            except Exception:  # how it is could not be written down: the home's disk is full, perhaps
                logger.exception("sink %s is looked at again", follower.identity)
                self._stopping.wait(LOOK_S)
                continue
            if follower.stopped:
                return
            if follower.retry_in:
                self._stopping.wait(follower.retry_in)  # a tick does not make it answer sooner
            else:
                wake.wait(LOOK_S)

    def stop(self) -> None:
        """End the threads, after the deliveries that are under way."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS_MAX)
        self._threads, self._wakes = [], []

    def close(self) -> None:
        """Stop, and give all resources back."""
        self.stop()
        for follower in self.followers.values():
            follower.close()
