"""Waking: notification of waiting readers about appends, also of other processes.

What it is: ``Waker`` watches directories (inotify on Linux, polling of file sizes elsewhere) from one thread per
process and counts changes; a reader notes the count, reads, and sleeps until the count moves.
Invariants: no change between the note and the sleep is missed; an idle process makes no system calls (Linux). One
inotify instance serves all topics of a ``Log``; without one, polling takes over.
Not here: what changed (the reader looks). Read next: ``log/topic_reader.py``.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

POLL_S = 0.005  # the polling interval without inotify


class Waker:
    """Counts changes in the watched directories."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._watched: dict[Path, Any] = {}
        self._thread: threading.Thread | None = None
        self._inotify: Any = None
        self._stop: socket.socket | None = None
        self._closed = False

    def watch(self, directory: Path) -> None:
        """Watch a directory; a second call does nothing."""
        if directory in self._watched:
            return
        with self._condition:
            if directory in self._watched or self._closed:
                return
            self._start()
            if self._inotify is not None:
                try:
                    self._watched[directory] = self._inotify.add_watch(str(directory), self._mask)
                    return
                except OSError:
                    self._fall_back()
            self._watched[directory] = None

    def count(self) -> int:
        """The number of changes seen so far."""
        return self._count

    def wait(self, count: int, timeout: float) -> bool:
        """Sleep until the count is not ``count`` any more; False when the time ran out."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count != count or self._closed, timeout)

    def _start(self) -> None:
        if self._thread is not None:
            return
        target = self._look
        if sys.platform == "linux":
            try:
                from inotify_simple import INotify, flags

                # A new segment is a creation, a frame a modification of the index, sealing a rename.
                self._mask = flags.MODIFY | flags.CREATE | flags.MOVED_TO
                self._inotify = INotify(nonblocking=True)
                target = self._listen
            except (ImportError, OSError):
                self._inotify = None
        self._run(target)

    def _run(self, target: Callable[[socket.socket], None]) -> None:
        self._stop, stopped = socket.socketpair()
        self._thread = threading.Thread(target=target, args=(stopped,), name="headwater-waker", daemon=True)
        self._thread.start()

    def _fall_back(self) -> None:
        """Poll file sizes instead: the kernel gives no more watches."""
        assert self._stop is not None
        self._stop.close()
        self._inotify = None
        self._run(self._look)

    def _listen(self, stop: socket.socket) -> None:
        inotify = self._inotify
        poller = select.poll()
        poller.register(inotify.fileno(), select.POLLIN)
        poller.register(stop.fileno(), select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if stop.fileno() in ready:  # the other end was closed
                inotify.close()
                stop.close()
                return
            events = inotify.read(timeout=0)
            # The data file is written before the index: only the index makes rows visible.
            if any(event.name.endswith(".index") for event in events):
                self.wake()

    def _look(self, stop: socket.socket) -> None:
        seen: dict[str, int] = {}
        poller = select.poll()  # not select, which is limited to the first 1024 descriptors
        poller.register(stop.fileno(), select.POLLIN)
        while not poller.poll(POLL_S * 1000):
            now: dict[str, int] = {}
            for directory in list(self._watched):
                try:
                    with os.scandir(directory) as entries:
                        now.update({e.path: e.stat().st_size for e in entries if e.name.endswith(".index")})
                except FileNotFoundError:
                    continue
            if now != seen:
                seen = now
                self.wake()
        stop.close()

    def wake(self) -> None:
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def close(self) -> None:
        """Stop watching and wake all waiting threads."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            assert self._stop is not None
            self._stop.close()
            self._thread.join(timeout=5)
            self._thread = None
