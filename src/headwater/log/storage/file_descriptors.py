"""File descriptors: a bounded number of open files for many segments.

What it is: ``HeldFiles``, files of one owner, opened on use; ``Descriptors``, which closes the least recently used ones
when the process holds more than its share of the system's limit.
Invariants: a file in use is never closed, so a descriptor never refers to another file; files that belong together are
opened and closed together, so they are of one moment. The share is about half of the limit; the rest is for
connections, databases and other libraries. Running out is ``TooManyFiles``, after every idle file was closed.
Not here: content (``active_segment.py``, ``locks.py``), changes (``files.py``). Read next: ``active_segment.py``.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from headwater.errors import TooManyFiles

Opened = TypeVar("Opened")

HELD_MIN, HELD_MAX = 16, 16_384
WANTED = 65_536  # descriptors that Headwater's own programs ask for
EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class Descriptors:
    """All held files of this process; recently used ones get a second chance (clock algorithm)."""

    def __init__(self) -> None:
        self.held: OrderedDict[HeldFiles, None] = OrderedDict()
        self.count = 0
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: the lock may be held by a thread that does not exist there."""
        # Re-entrant: the garbage collector may close a segment while this very thread is in here.
        self.lock = threading.RLock()

    @property
    def limit(self) -> int:
        """The number of files that may be held: half of the process's limit."""
        return max(HELD_MIN, min(HELD_MAX, open_files_max() // 2))

    def make_room(self, wanted: int) -> None:
        """Close the least recently used files until this many more fit. Files in use stay, also beyond the limit."""
        limit = self.limit
        for _ in range(2 * len(self.held)):
            if self.count + wanted <= limit:
                return
            self._close_oldest()

    def close_idle(self) -> bool:
        """Close every file that is not in use; whether there was one."""
        with self.lock:
            before = self.count
            for _ in range(2 * len(self.held)):
                self._close_oldest()
            return self.count < before

    def _close_oldest(self) -> None:
        if self.held:
            oldest = next(iter(self.held))
            if oldest.recent or not oldest.close_if_idle():
                oldest.recent = False
                self.held.move_to_end(oldest)


DESCRIPTORS = Descriptors()
os.register_at_fork(after_in_child=DESCRIPTORS.after_fork)


class HeldFiles:
    """Files that belong together: ``with held as (data, index):`` opens them.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_text("abc")
    >>> held = HeldFiles([path], os.O_RDONLY)
    >>> with held as (fd,):
    ...     os.pread(fd, 3, 0)
    b'abc'
    >>> held.close()
    """

    __slots__ = ("_closing", "_fds", "_flags", "_paths", "_users", "recent")

    def __init__(self, paths: Sequence[Path], flags: int, *, opened: Sequence[int] = ()) -> None:
        """``opened``: the descriptors, where the caller has opened the files already."""
        self._paths = tuple(paths)
        self._flags = flags | os.O_CLOEXEC
        self._fds: tuple[int, ...] = ()
        self._closing = False
        self._users: list[None] = []  # one for each; a list, because its append and pop need no lock
        self.recent = False
        if opened:
            with DESCRIPTORS.lock:
                DESCRIPTORS.make_room(len(opened))
                self._hold(tuple(opened))

    def __enter__(self) -> tuple[int, ...]:
        # Without a lock, since every append passes here: a user registers before it checks that the files are open, and
        # a closer removes them before it checks for users. So one of the two always sees the other.
        self._users.append(None)
        fds = self._fds
        if fds:
            self.recent = True
            return fds
        try:
            with DESCRIPTORS.lock:
                if not self._fds:
                    DESCRIPTORS.make_room(len(self._paths))
                    self._hold(self._open())
                return self._fds
        except BaseException:
            self._users.pop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._users:  # none, where it was abandoned meanwhile
            self._users.pop()
        if self._closing:
            self.close()

    def _open(self) -> tuple[int, ...]:
        fds: list[int] = []
        try:
            for path in self._paths:
                fds.append(open_file(path, self._flags))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return tuple(fds)

    def _hold(self, fds: tuple[int, ...]) -> None:
        self._fds = fds
        self._closing = False
        DESCRIPTORS.held[self] = None
        DESCRIPTORS.count += len(fds)

    def stat(self, number: int) -> os.stat_result:
        """The stat of one file without opening it: of the open file, or by its name."""
        with DESCRIPTORS.lock:
            if self._fds:
                return os.fstat(self._fds[number])
        return os.stat(self._paths[number])

    def close(self) -> None:
        """Close the descriptors, at once or after the last user. They are opened again when needed."""
        with DESCRIPTORS.lock:
            self._closing = bool(self._fds) and not self.close_if_idle()
            if self._closing and not self._users:  # the last user has just left, before this was set
                self._closing = not self.close_if_idle()

    def close_if_idle(self) -> bool:
        """Close the descriptors unless they are in use; whether they were closed. The caller holds the lock."""
        fds, self._fds = self._fds, ()
        if self._users:
            self._fds = fds
            return False
        del DESCRIPTORS.held[self]
        DESCRIPTORS.count -= len(fds)
        for fd in fds:
            os.close(fd)
        return True

    def abandon(self) -> None:
        """Close them even if in use: in a forked child, where the using threads do not exist."""
        with DESCRIPTORS.lock:
            self._users.clear()
            self.close()


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """``os.open``; when descriptors have run out, again after closing all idle ones."""
    return with_room(lambda: os.open(path, flags | os.O_CLOEXEC, mode))


def with_room(opening: Callable[[], Opened]) -> Opened:
    """The result of ``opening``; when descriptors have run out, again after closing all idle ones."""
    try:
        return opening()
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
    DESCRIPTORS.close_idle()
    try:
        return opening()
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
        raise too_many_files(error) from error


def too_many_files(error: OSError) -> TooManyFiles:
    """Our error for EMFILE and ENFILE."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENFILE:
        return TooManyFiles(
            f"the system has as many files open as it may{where}", hint="Raise fs.file-max, or stop other programs."
        )
    return TooManyFiles(
        f"this process has as many files open as it may, {open_files_max()}{where}",
        detail="Nothing is damaged, and nothing was written.",
        hint="Raise the limit and start it again: ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit.",
        open_files_max=open_files_max(),
    )


def exhausted() -> TooManyFiles | None:
    """The error, if no file can be opened now: for libraries that do not name the cause."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return too_many_files(error) if error.errno in EXHAUSTED else None
    return None


def open_files_max() -> int:
    """The process's limit of open files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WANTED if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, also for child processes; returns it.

    For programs at their start; a library does not change the limit of its host.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files_max()
