"""File locks between processes and threads.

What it is: ``FileLock``, an exclusive ``flock`` on a small file, combined with a thread lock.
Invariants: the kernel releases a dead process's lock at once, so ``kill -9`` never blocks others; the lock is
re-entrant within a thread.
Not here: locks over machines (a home belongs to one machine). Read next: ``partition_writer.py``.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType

from headwater.log.storage.file_descriptors import HeldFiles
from headwater.log.storage.files import mapped


class FileLock:
    """A lock that excludes all other threads and processes that use the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.RLock()
        self._depth = 0
        self._held = HeldFiles((path,), os.O_RDWR | os.O_CREAT)
        self._fd = -1  # while the lock is held

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock; without ``blocking``, False when it is held."""
        if not self._threads.acquire(blocking=blocking):
            return False
        try:
            if self._depth == 0:
                try:
                    (fd,) = self._held.__enter__()  # open for as long as the lock is held
                except OSError as error:
                    raise mapped(error, f"lock {self.path}") from error
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
                except BaseException:
                    self._held.__exit__(None, None, None)
                    raise
                self._fd = fd
        except BaseException as error:
            self._threads.release()
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._fd = -1
            self._held.__exit__(None, None, None)
        self._threads.release()

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def close(self) -> None:
        """Close the file; the kernel releases a held lock."""
        if self._fd >= 0:
            self._fd = -1
            self._held.__exit__(None, None, None)
        self._held.close()

    def abandon(self) -> None:
        """Close the file in a forked child, where the threads that may hold the lock do not exist."""
        self._fd = -1
        self._held.abandon()
