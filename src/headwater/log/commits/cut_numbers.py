"""Cut numbers: the home's clock for cuts that are causally closed.

What it is: ``CutCounter``, one number in a file that all processes of a home map into memory, and the gate between
commits over several partitions and cuts.
Invariants: the number only rises. An append reads it under its partition's lock and stores it with its frames, so if
one append returned before another began, its cut number is not the larger one. A cut closes the number first and
collects frames afterwards: of the frames with a closed number, it finds every one whose append had returned before any
other of them began. A commit over several partitions holds the gate from reading the number until all its parts are
listed, and a cut waits for it: it finds all of its parts or none.
After a restart of the machine, which may have lost the newest value, the number continues at the time of day in
microseconds: it is advanced less often than that.
Not here: what a cut collects (``consistent_cut.py``). Read next: ``atomic_append.py``.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from headwater.clock import Clock
from headwater.log.storage.file_descriptors import open_file
from headwater.log.storage.files import Files, translated
from headwater.log.storage.locks import FileLock

FILE = "cut_number"
CUT_ROWS_MAX = 65_536  # a process that has appended so many rows closes the number, so that ticks can be limited
CUT_SECONDS_MAX = 1.0  # so does one that appends after so long, before it does: points in time can be restored
_BYTES = mmap.PAGESIZE
_BOOT, _NUMBER = 0, 1  # the words of the file


class CutCounter:
    """The cut number of one home, for all threads of one process.

    >>> import tempfile
    >>> clock = CutCounter(Path(tempfile.mkdtemp()), Clock(), Files())
    >>> first = clock.now()
    >>> clock.close_cut(lambda: None) == first, clock.now() == first + 1
    (True, True)
    """

    def __init__(self, home: Path, clock: Clock, files: Files) -> None:
        self._rows = 0
        self._clock = clock
        self._advanced_s = float("-inf")
        self._turn = FileLock(home / f"{FILE}.turn")
        self._gate = _Gate(home / f"{FILE}.gate")
        self._writing = FileLock(home / FILE)  # held for a moment, so it may be taken with any other lock
        fd = files.create(home / FILE, label="cut_number.open")
        try:
            with self._writing:
                if os.fstat(fd).st_size < _BYTES:
                    files.truncate(fd, _BYTES, label="cut_number.size")
                self._map = mmap.mmap(fd, _BYTES)
                self._words = memoryview(self._map).cast("Q")
                boot = _boot()
                if self._words[_BOOT] != boot:
                    self._words[_NUMBER] = max(self._words[_NUMBER] + 1, clock.now_us())
                    self._words[_BOOT] = boot
        finally:
            os.close(fd)

    def now(self) -> int:
        """The current number, to be stored with an append that is being written; a new one after a while."""
        now_s = self._clock.monotonic()
        if now_s - self._advanced_s >= CUT_SECONDS_MAX:
            self._advanced_s = now_s
            self._advance()
        return self._words[_NUMBER]

    def close_cut(self, settle: Callable[[], None]) -> int:
        """Close the current number; returns it. Commits over several partitions that have it are listed whole.

        ``settle`` is called while no commit is under way: it finishes those of processes that died.
        """
        with self._turn, self._gate.exclusive():
            settle()
            return self._advance()

    def count(self, rows: int) -> None:
        """Count appended rows, and begin a new number after many."""
        self._rows += rows
        if self._rows >= CUT_ROWS_MAX:
            self._rows = 0
            self._advance()

    def at_least(self, number: int) -> None:
        """Let the number be no smaller than one that was found in a file."""
        if self._words[_NUMBER] < number:
            with self._writing:
                self._words[_NUMBER] = max(self._words[_NUMBER], number)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Around the writes of a commit over several partitions: no number is closed meanwhile."""
        # Through the turn, so that commits that follow one another closely do not keep a cut waiting for ever.
        with self._turn:
            self._gate.enter()
        try:
            yield
        finally:
            self._gate.leave()

    def _advance(self) -> int:
        with self._writing:
            closed = self._words[_NUMBER]
            self._words[_NUMBER] = closed + 1
        return closed

    def close(self) -> None:
        self._words.release()
        self._map.close()
        self._turn.close()
        self._writing.close()
        self._gate.close()

    def abandon(self) -> None:
        """Close the descriptors in a forked child."""
        self._turn.abandon()
        self._writing.abandon()
        self._gate.close()


class StoppedCounter(CutCounter):
    """The cut number of a home that cannot be written: everything in it belongs to the past."""

    def __init__(self) -> None:
        pass

    def now(self) -> int:
        return 0

    def close_cut(self, settle: Callable[[], None]) -> int:  # noqa: ARG002
        return 2**62

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _Gate:
    """A lock that many may share, between threads and processes. Entered and made exclusive in turns only."""

    def __init__(self, path: Path) -> None:
        with translated(f"open {path}"):
            self._fd = open_file(path, os.O_RDWR | os.O_CREAT)
        self._inside = 0
        self._changed = threading.Condition()

    def enter(self) -> None:
        with self._changed:
            if self._inside == 0:
                fcntl.flock(self._fd, fcntl.LOCK_SH)
            self._inside += 1

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._inside == 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._inside == 0)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _boot() -> int:
    """A number that differs after a restart of the machine; the same one where it cannot be known."""
    try:
        return xxhash.xxh3_64_intdigest(Path("/proc/sys/kernel/random/boot_id").read_bytes()) | 1
    except OSError:
        return 1
