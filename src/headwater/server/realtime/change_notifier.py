"""The pulse: how requests that wait learn that something has come, without a thread each.

What it is: ``ChangeNotifier``, one thread that sleeps on the log's waker and beats in the event loop.
Invariants: whoever takes a moment, then looks, then waits for what comes after that moment misses nothing. It beats at
most ``BEATS_PER_S`` times a second, however much is appended.
Not here: what changed (whoever waits looks for himself); watching files (``log/storage/wake.py``).
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

from headwater.log.storage.wake import Waker

BEATS_PER_S = 200
LOOK_S = 1.0  # whoever waits looks this often even if nothing beats

Found = TypeVar("Found")


class ChangeNotifier:
    """Beats in one event loop whenever a watched directory changes."""

    def __init__(self) -> None:
        self._waker = Waker()
        self._moment = asyncio.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to beat in this loop."""
        self._thread = threading.Thread(target=self._run, args=(loop,), name="headwater-pulse", daemon=True)
        self._thread.start()

    def watch(self, directory: Path) -> None:
        """Beat when files in this directory change; again is fine."""
        self._waker.watch(directory)

    def moment(self) -> asyncio.Event:
        """What is set by the next beat."""
        return self._moment

    async def after(self, moment: asyncio.Event, timeout: float) -> None:
        """Sleep until there was a beat since the moment, or the time is up."""
        # Not wait_for: before Python 3.12 it loses a cancellation that meets a beat, and the server would never end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout)):
                await moment.wait()

    async def until(
        self, look: Callable[[], Awaitable[Found | None]], timeout: float, again: float = LOOK_S
    ) -> Found | None:
        """Look, and look again after each beat, until something was found or the time is up; then None.

        After ``again`` seconds it looks even if nothing beats.
        """
        deadline = time.monotonic() + timeout
        while True:
            moment = self.moment()
            found = await look()
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or self._closed:
                return found
            await self.after(moment, min(left, again))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        seen = self._waker.count()
        while not self._closed:
            self._waker.wait(seen, LOOK_S)
            now = self._waker.count()
            if now != seen:
                seen = now
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._beat)
                time.sleep(1 / BEATS_PER_S)

    def _beat(self) -> None:
        past, self._moment = self._moment, asyncio.Event()
        past.set()

    def end(self) -> None:
        """Let everybody who waits go."""
        self._closed = True
        self._beat()

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._waker.close()
        if self._thread is not None:
            self._thread.join(timeout=5)
