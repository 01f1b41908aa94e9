"""A disk that crashes, for tests.

What it is: ``CrashingFiles``, the files of ``log/storage/files.py`` with a crash at a chosen point: before or after any
change, or in the middle of a write. With ``power_cut`` unsynced data is lost too.
Invariants: after the crash nothing changes any more; the same arguments crash in the same way; synced data (of a file,
or of a directory for its entries) is never lost.
Not here: SQLite's files; Parquet while pyarrow writes it (a ``.tmp`` file until it is synced and renamed through here).
Read next: ``log/storage/files.py``; ``tests/crash/``, which crashes at every boundary.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.log.storage.files import Files

PAGE_BYTES = 512  # disks write whole sectors; smaller than a memory page, to be nastier


class Crash(BaseException):
    """The process is dead from here on. No ``except Exception`` survives it.

    >>> issubclass(Crash, Exception)
    False
    """


@dataclass(frozen=True)
class _Entry:
    """A change of a directory that no sync of the directory has covered, and how to take it back."""

    directory: Path
    undo: Callable[[], None]


class CrashingFiles(Files):
    """Files that crash at the ``crash_at``-th boundary (the first is 0; None: never, only count).

    >>> import headwater as hw, tempfile
    >>> home = tempfile.mkdtemp()
    >>> topic = hw.Log(home).topic("t", "x INT", fsync="always")
    >>> _ = topic.append([{"x": 1}])
    >>> crashing = CrashingFiles(crash_at=5)
    >>> try:
    ...     hw.Log(home, files=crashing).get_topic("t").append([{"x": 2}])
    ... except Crash as crash:
    ...     crashing.crashed
    True
    >>> list(hw.Log(home).get_topic("t").rows(stop=1))
    [{'x': 1}]
    """

    def __init__(self, *, crash_at: int | None = None, power_cut: bool = False, seed: int = 0) -> None:
        self.crash_at = crash_at
        self.crashed = False
        self.boundaries: list[str] = []  # what was passed so far, for a test's message
        self._power_cut = power_cut
        self._random = random.Random(f"{seed} {crash_at}")
        self._lock = threading.RLock()
        self._on_disk: dict[int, bytes] = {}  # by inode: the contents that a sync has covered
        self._names: dict[int, Path] = {}  # by inode: where the file is now
        self._entries: list[_Entry] = []

    # The boundaries

    def _boundary(self, label: str, last_act: Callable[[], Any] | None = None) -> None:
        """Pass, or do the ``last_act`` and die."""
        if self.crashed:
            raise Crash(f"refused after the crash: {label}")
        self.boundaries.append(label)
        if self.crash_at is not None and len(self.boundaries) > self.crash_at:
            if last_act is not None:
                last_act()
            self.crashed = True
            if self._power_cut:
                self._forget()
            raise Crash(label)

    def _tear(self, fd: int, data: bytes, position: int) -> None:
        os.pwrite(fd, data[: self._random.randrange(len(data))], position)

    def cut_power(self) -> None:
        """Pull the plug now: nothing is written from here on, and what no sync has covered may be lost.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "file"
        >>> files = CrashingFiles()
        >>> fd = files.create(path, label="doctest")
        >>> files.sync_dir(path.parent, label="doctest")
        >>> _ = files.write(fd, [b"kept"], label="doctest")
        >>> files.sync(fd, label="doctest")
        >>> _ = files.write(fd, [b"perhaps not"], label="doctest")
        >>> files.cut_power()
        >>> path.read_bytes().startswith(b"kept")
        True
        """
        with self._lock:
            if not self.crashed:
                self.crashed = True
                self._forget()

    # The changes

    def write(self, fd: int, parts: Sequence[Any], *, label: str) -> int:
        """Append, and perhaps die before it, after it, or with only some bytes written."""
        with self._lock:
            self._boundary(f"{label}: before")
            self._know(fd)
            self._boundary(f"{label}: torn", lambda: self._tear(fd, b"".join(parts), os.fstat(fd).st_size))
            written = super().write(fd, parts, label=label)
            self._boundary(f"{label}: after")
            return written

    def write_at(self, fd: int, data: bytes, position: int, *, label: str) -> None:
        """Overwrite in place, with the same three places to die."""
        with self._lock:
            self._boundary(f"{label}: before")
            self._know(fd)
            self._boundary(f"{label}: torn", lambda: self._tear(fd, data, position))
            super().write_at(fd, data, position, label=label)
            self._boundary(f"{label}: after")

    def sync(self, fd: int, *, label: str) -> None:
        """Make the file's present content survive a power cut, once this has returned."""
        with self._lock:
            self._boundary(f"{label}: before")
            super().sync(fd, label=label)
            self._on_disk[os.fstat(fd).st_ino] = _contents(fd)
            self._boundary(f"{label}: after")

    def sync_dir(self, path: Path, *, label: str) -> None:
        """The directory's entries survive a power cut, once this has returned."""
        with self._lock:
            self._boundary(f"{label}: before")
            super().sync_dir(path, label=label)
            self._entries = [entry for entry in self._entries if entry.directory != path]
            self._boundary(f"{label}: after")

    def create(self, path: Path, *, label: str) -> int:
        """Open or create; a new entry needs a sync of its directory."""
        with self._lock:
            self._boundary(f"{label}: before")
            new = not path.exists()
            fd = super().create(path, label=label)
            inode = os.fstat(fd).st_ino
            if new:
                self._on_disk[inode] = b""
                self._entries.append(_Entry(path.parent, lambda: _remove_file(path, inode)))
            self._know(fd, path)
            self._boundary(f"{label}: after")
            return fd

    def truncate(self, fd: int, size: int, *, label: str) -> None:
        """Cut, or die before or after."""
        with self._lock:
            self._boundary(f"{label}: before")
            self._know(fd)
            super().truncate(fd, size, label=label)
            self._boundary(f"{label}: after")

    def rename(self, source: Path, target: Path, *, label: str) -> None:
        """Rename; until the directory is synced a power cut may take it back."""
        with self._lock:
            self._boundary(f"{label}: before")
            inode = source.stat().st_ino
            self._on_disk.setdefault(inode, b"")  # written by another process and never synced here
            before = target.read_bytes() if target.exists() else None
            super().rename(source, target, label=label)
            self._names[inode] = target
            self._entries.append(_Entry(target.parent, lambda: _rename_back(source, target, inode, before)))
            self._boundary(f"{label}: after")

    def unlink(self, path: Path, *, label: str) -> None:
        """Remove; until the directory is synced a power cut may bring it back."""
        with self._lock:
            self._boundary(f"{label}: before")
            if path.exists():
                inode = path.stat().st_ino
                contents = self._on_disk.pop(inode, None)
                kept = path.read_bytes() if contents is None else contents
                self._names.pop(inode, None)
                self._entries.append(_Entry(path.parent, lambda: _bring_back(path, kept)))
            super().unlink(path, label=label)
            self._boundary(f"{label}: after")

    def make_dir(self, path: Path, *, label: str) -> None:
        """Create a directory; its entry needs a sync of its parent."""
        with self._lock:
            self._boundary(f"{label}: before")
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            for folder in reversed(missing):
                self._entries.append(_Entry(folder.parent, lambda folder=folder: shutil.rmtree(folder, True)))  # type: ignore[misc]
            super().make_dir(path, label=label)
            self._boundary(f"{label}: after")

    # The power cut

    def _know(self, fd: int, path: Path | None = None) -> None:
        """Before the first change of a file: what it holds now was there before us, and is taken as safe."""
        inode = os.fstat(fd).st_ino
        if path is not None:
            self._names[inode] = path
        if inode not in self._on_disk:
            self._on_disk[inode] = _contents(fd)

    def _forget(self) -> None:
        for inode, path in self._names.items():
            if path.exists() and path.stat().st_ino == inode:
                now, safe = path.read_bytes(), self._on_disk.get(inode, b"")
                if now != safe:
                    with path.open("r+b") as file:  # in place: other handles must see it too
                        file.truncate(0)
                        file.write(self._survivor(safe, now))
        # The youngest first, each by chance: a file system may write its directories in any order.
        for entry in reversed(self._entries):
            if self._random.random() < 0.5:
                entry.undo()

    def _survivor(self, safe: bytes, now: bytes) -> bytes:
        """Some mixture of what is surely on disk and what was written since, sector by sector."""
        way = self._random.randrange(4)
        if way == 0:
            return safe
        if way == 1 and now.startswith(safe):  # a prefix of what was appended
            return now[: self._random.randint(len(safe), len(now))]
        size = self._random.randint(min(len(safe), len(now)), max(len(safe), len(now)))
        if way == 2:
            size = len(now)  # the length was written, the sectors only in part: these read as zeros
        mixed = bytearray()
        for at in range(0, size, PAGE_BYTES):
            source = safe if self._random.random() < 0.5 else now
            mixed += source[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        return bytes(mixed[:size])


def _contents(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _remove_file(path: Path, inode: int) -> None:
    if path.exists() and path.stat().st_ino == inode:
        path.unlink()


def _rename_back(source: Path, target: Path, inode: int, before: bytes | None) -> None:
    if target.exists() and target.stat().st_ino == inode:
        os.replace(target, source)
        if before is not None:
            target.write_bytes(before)


def _bring_back(path: Path, contents: bytes) -> None:
    if path.parent.exists() and not path.exists():
        path.write_bytes(contents)
