"""Background maintenance: the threads of a log.

What it is: ``Flusher`` syncs topics with ``fsync="interval"``, ``Sealer`` seals rolled segments, ``Cleaner`` runs a
round of maintenance at intervals.
Invariants: the threads do nothing that ``Log.maintain`` would not do; an error is logged and retried (the next
``maintain`` reports it if it lasts) and never stops appends; threads start with the first topic.
Not here: the steps of a round (``maintenance.py``). Read next: ``sealing.py``, ``maintenance.py``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.log.storage.partition_writer import PartitionWriter

logger = logging.getLogger("headwater.log")


class Flusher:
    """Syncs dirty partitions at their topics' intervals: one sync for all appends in between."""

    def __init__(self) -> None:
        self._dirty: dict[PartitionWriter, float] = {}
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def mark(self, partition: PartitionWriter) -> None:
        """Note that a partition has appends without a sync."""
        if partition in self._dirty:
            return
        with self._condition:
            interval = partition.topic().settings.fsync_interval_ms / 1000
            self._dirty.setdefault(partition, partition.clock.monotonic() + interval)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="headwater-flusher", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._dirty or self._closed)
                if self._closed:
                    return
                partition, due = min(self._dirty.items(), key=lambda item: item[1])
                left = due - partition.clock.monotonic()
                if left > 0:
                    self._condition.wait(left)
                    continue
                del self._dirty[partition]
            if not _quietly(partition.sync, f"sync of {partition.directory}"):
                self.mark(partition)  # again after the next interval

    def close(self, *, sync: bool = True) -> None:
        """Stop; with ``sync``, after syncing everything."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=30)
        refused: Exception | None = None
        for partition in list(self._dirty) if sync else []:
            try:
                partition.sync()
            except Exception as error:  # the others are synced nevertheless
                refused = refused or error
        self._dirty.clear()
        if refused is not None:
            raise refused


class Sealer:
    """Runs ``work`` on its own thread whenever it was woken, one run at a time."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Start a run, because a segment was rolled."""
        if self._thread is None and not self._closed:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="headwater-sealer", daemon=True)
                    self._thread.start()
        self._wanted.set()

    def _run(self) -> None:
        _lower_priority()
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            _quietly(self._work, "sealing")

    @property
    def closing(self) -> bool:
        """Whether the work should end soon."""
        return self._closed

    def close(self) -> None:
        """Finish the current segment and stop; the rest is sealed when the home is opened next."""
        self._closed = True
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=120)


class Cleaner:
    """Runs ``work`` every ``interval`` seconds, first after one interval: a short process never sees it run."""

    def __init__(self, work: weakref.WeakMethod[Callable[[], None]], interval: float | None) -> None:
        self._work = work  # weak, so that an unclosed log can be collected
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs or is disabled."""
        if self._thread is None and self._interval is not None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="headwater-maintenance", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        _lower_priority()
        while not self._stop.wait(self._interval):
            work = self._work()
            if work is None:
                return
            _quietly(work, "maintenance")
            del work

    @property
    def closing(self) -> bool:
        """Whether the work should end soon."""
        return self._stop.is_set()

    def close(self) -> None:
        """Stop; a running round ends at its next step."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=120)


def _lower_priority() -> None:
    """Lower this thread's priority (Linux), so that appends and reads go first where cores are few."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _quietly(work: Callable[[], None], what: str) -> bool:
    """Do the work and log an error; whether it succeeded."""
    try:
        work()
        return True
    except Exception as error:
        logger.warning("%s failed: %s", what, error)
        return False
