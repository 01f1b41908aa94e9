"""History wait: how subscribers sleep until a history grows, or until they are stopped.

What it is: ``HistoryWaits``, the wake-up of a recorder's subscriptions, over that of the log.
Invariants: an event that is committed between the look and the sleep is not missed. A stopped subscription wakes at
once. Nothing is polled: ``LOOK_S`` is for a log that was closed under its subscribers.
Not here: what was written (``recorders.py``, ``tag_recorder.py``).
Read next: ``recorders.py``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from headwater.log.contract import EventTopic
from headwater.log.storage.wake import Waker

LOOK_S = 10.0


class HistoryWaits:
    """The waits of all subscriptions of one history of one partition."""

    def __init__(self, topic: EventTopic) -> None:
        self._topic = topic
        self._waker: Waker | None = None
        self._lock = threading.Lock()

    def until_after(self, position: int, stopped: Callable[[], bool]) -> None:
        """Sleep until there are events after a position, the subscription was stopped, or the log is closed."""
        waker = self._started()
        while not stopped() and not self._topic.log.closed:
            count = waker.count()
            # After the count was noted: what is committed from now on, and a stop, move it.
            if stopped() or self._topic.end_offset(0) > position:
                return
            waker.wait(count, LOOK_S)

    def wake(self) -> None:
        """Let every subscription look whether it was stopped."""
        if self._waker is not None:
            self._waker.wake()

    def _started(self) -> Waker:
        with self._lock:
            if self._waker is None:
                self._waker = Waker()
                self._topic.watched_by(self._waker)
                weakref.finalize(self, self._waker.close)
            return self._waker
