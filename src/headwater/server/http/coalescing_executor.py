"""Coalescing executor: short jobs of many requests, run in one thread.

What it is: ``CoalescingExecutor``; a request submits a job of less than a millisecond and awaits its result.
Invariants: a thread takes all queued jobs before it returns, so many requests share one thread switch, which costs more
than such a job. Jobs start in order of submission. A slow job delays the others for ``PATIENCE_S`` at most, then
another thread takes them.
Not here: jobs that wait for a disk or compute for long (``ServerState.read``, ``ServerState.write``).
Read next: ``server/server_state.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Found = TypeVar("Found")
Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]

TURN_S = 0.005  # a thread returns its results after this time
PATIENCE_S = 0.02


class CoalescingExecutor:
    """Runs short jobs in few threads. Used from one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._jobs: deque[Job] = deque()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        # Only the event loop touches what follows.
        self._turns = 0
        self._working: dict[int, float] = {}  # when each turn began that has not ended
        self._watch: asyncio.TimerHandle | None = None

    async def do(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Run ``work`` in a thread; returns or raises its outcome."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = loop.create_future()
        self._jobs.append((work, arguments, future))
        self._send(loop)
        return await future

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a thread, unless one will return soon."""
        now = loop.time()
        stuck = all(now - begun > PATIENCE_S for begun in self._working.values())
        if self._jobs and stuck and len(self._working) < self._threads:
            self._turns += 1
            self._working[self._turns] = now
            self._pool.submit(self._turn, loop, self._turns)
        if self._working and self._watch is None:
            self._watch = loop.call_later(PATIENCE_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = None
        self._deliver()  # results of a thread before the job that blocks it
        self._send(loop)

    def _turn(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        until = time.monotonic() + TURN_S
        while True:
            try:
                work, arguments, future = self._jobs.popleft()
            except IndexError:
                break
            try:
                self._done.append((future, work(*arguments), None))
            except BaseException as error:
                self._done.append((future, None, error))
            if time.monotonic() > until:
                break
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._handed_back, loop, number)

    def _handed_back(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        del self._working[number]
        self._deliver()
        self._send(loop)

    def _deliver(self) -> None:
        while self._done:
            future, found, error = self._done.popleft()
            if future.done():  # the request was cancelled
                continue
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)

    def close(self) -> None:
        """Finish running jobs and cancel queued ones."""
        if self._watch is not None:
            self._watch.cancel()
        with contextlib.suppress(IndexError):
            while True:
                _, _, future = self._jobs.popleft()
                future.cancel()
        self._pool.shutdown(wait=True)
