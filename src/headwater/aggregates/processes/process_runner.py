"""Process runner: a thread that takes the requests of a process, or violations of a constraint, further as they come.

What it is: ``ProcessRunner``, started and stopped with the app; ``OpenWork``, what it runs.
Invariants: a request that fails is tried again after a pause that doubles, and does not keep others from going on. What
is under way when it is stopped, or killed, is found again in the log. Several runners of one process, in several
programs, do no harm; they only do the same work.
Not here: one request (``process_run.py``).
Read next: ``process_run.py``, ``app_services.py``.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from headwater.backoff import Backoff
from headwater.errors import ClosedError, HeadwaterError
from headwater.log.contract import EventTopic

logger = logging.getLogger("headwater.aggregates")

LOOK_S = 0.5  # it looks this often without being woken
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
STOP_SECONDS_MAX = 30.0


class OpenWork(Protocol):
    """Requests of a process, or violations of a constraint."""

    @property
    def name(self) -> str: ...
    @property
    def topic(self) -> EventTopic: ...
    def open_ids(self) -> list[str]:
        """What is to be done, oldest first."""
        ...

    def seen(self) -> Mapping[int, int]:
        """How far ``open_ids`` has read each partition of the topic."""
        ...

    def advance(self, id: str, /) -> Any:
        """Take one as far as it goes. A failure is raised, and it is tried again later."""
        ...


class ProcessRunner:
    """Runs one process in the background."""

    def __init__(self, work: OpenWork) -> None:
        self.work = work
        self._clock = work.topic.clock
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, jitter=random.Random())
        self._failures: dict[str, tuple[int, float]] = {}  # how often in a row, and when it is tried again

    def start(self) -> None:
        """Begin."""
        if self._thread is None:
            self._stopping.clear()
            name = f"headwater-process-{self.work.name}"
            self._thread = threading.Thread(target=self.follow, name=name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, after the request that is being worked on."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS_MAX)
        self._thread = None

    def follow(self) -> None:
        """Work until it is stopped."""
        while not self._stopping.is_set():
            try:
                waits = self._round()
                self.work.topic.wait(self.work.seen(), timeout=min(LOOK_S, waits))
            except ClosedError:
                return
            except Exception:  # the disk may be full, the catalog busy
                logger.exception("process %s: its requests cannot be read; retrying", self.work.name)
                self._stopping.wait(LOOK_S)

    def _round(self) -> float:
        """Every open request once; returns the seconds until one is to be tried again."""
        waits = LOOK_S
        for request_id in self.work.open_ids():
            if self._stopping.is_set():
                return 0.0
            failures, due = self._failures.get(request_id, (0, 0.0))
            if due > self._clock.monotonic():
                waits = min(waits, due - self._clock.monotonic())
                continue
            try:
                self.work.advance(request_id)
                self._failures.pop(request_id, None)
            except ClosedError:
                raise
            except HeadwaterError as error:
                pause = self._backoff.after(failures + 1)
                self._failures[request_id] = (failures + 1, self._clock.monotonic() + pause)
                waits = min(waits, pause)
                if not failures:
                    logger.warning("process %s: %s", self.work.name, error.message)
        return waits
