"""Change notifier: wakes waiting requests when files change, without a thread for each.

What it is: ``ChangeNotifier``, one thread that waits on the log's waker and sets an event in the event loop.
Invariants: a request that takes ``next_change``, then reads, then waits for it misses no change. Notifications are
limited to ``NOTIFICATIONS_PER_S``.
Not here: what changed; watching files (``log/storage/wake.py``).
Read next: ``log/storage/wake.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from headwater.log.contract import EventTopic
from headwater.log.storage.wake import Waker

NOTIFICATIONS_PER_S = 200
LOOK_S = 1.0  # a waiting request looks this often without a change

Found = TypeVar("Found")


class ChangeNotifier:
    """Notifies one event loop when a watched topic or folder changes."""

    def __init__(self) -> None:
        self._waker = Waker()
        self._next_change = asyncio.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to notify this loop."""
        self._thread = threading.Thread(target=self._run, args=(loop,), name="headwater-notifier", daemon=True)
        self._thread.start()

    def watch(self, topic: EventTopic) -> None:
        """Notify when rows are appended to this topic; idempotent."""
        topic.watched_by(self._waker)

    def watch_folder(self, folder: Path) -> None:
        """Notify when files in this folder change; idempotent."""
        self._waker.watch(folder)

    def next_change(self) -> asyncio.Event:
        """The event that the next change sets."""
        return self._next_change

    async def after(self, next_change: asyncio.Event, timeout: float) -> None:
        """Wait for the event, up to the timeout."""
        # Not wait_for: before Python 3.12 it loses a cancellation that meets a change, and the server would never end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout)):
                await next_change.wait()

    async def until(
        self, look: Callable[[], Awaitable[Found | None]], timeout: float, again: float = LOOK_S
    ) -> Found | None:
        """Call ``look`` after each change, and every ``again`` seconds, until it finds something or the time is up."""
        deadline = time.monotonic() + timeout
        while True:
            next_change = self.next_change()
            found = await look()
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or self._closed:
                return found
            await self.after(next_change, min(left, again))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        seen = self._waker.count()
        while not self._closed:
            self._waker.wait(seen, LOOK_S)
            now = self._waker.count()
            if now != seen:
                seen = now
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._notify)
                time.sleep(1 / NOTIFICATIONS_PER_S)

    def _notify(self) -> None:
        passed, self._next_change = self._next_change, asyncio.Event()
        passed.set()

    def end(self) -> None:
        """Wake all waiting requests."""
        self._closed = True
        self._notify()

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._waker.close()
        if self._thread is not None:
            self._thread.join(timeout=5)
