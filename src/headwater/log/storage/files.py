"""Files: every change that the log makes to a file.

What it is: write, sync, rename, unlink and truncate, each with a label, and the mapping of OS errors.
Invariants: no other module of ``log`` calls ``os.write``, ``os.fsync``, ``os.rename``, ``os.unlink`` or
``os.ftruncate``, so a test can crash at each boundary (``testing/crashing_disk.py``) and a full or read-only disk gives
one error. A write that fails leaves the file as long as it was.
Not here: SQLite's own files; the meaning of the bytes. Read next: ``frame_index.py``, ``active_segment.py``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import DiskFull, HeadwaterError, ReadOnlyHome
from headwater.log.storage.file_descriptors import EXHAUSTED, open_file, too_many_files

PARTS_MAX = 1000  # the kernel takes at most IOV_MAX (1024) parts in one call


class Files:
    """The machine's files. ``label`` names the boundary for crash tests."""

    def write(self, fd: int, parts: Sequence[Any], *, label: str) -> int:
        """Append all parts to the file, or none of them; returns the bytes written."""
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        total = sum(map(len, parts))  # of bytes and Arrow's buffers
        before = os.lseek(fd, 0, os.SEEK_END)  # a third of the time of fstat
        try:
            written = os.pwritev(fd, parts, before)
            if written < total:  # a signal or a nearly full disk may cut a write short
                joined = memoryview(b"".join(parts))
                while written < total:
                    written += os.pwrite(fd, joined[written:], before + written)
        except OSError as error:
            os.ftruncate(fd, before)
            raise mapped(error, label) from error
        return total

    def write_at(self, fd: int, data: bytes, position: int, *, label: str) -> None:
        """Overwrite a few bytes in place (a header field)."""
        with translated(label):
            os.pwrite(fd, data, position)

    def sync(self, fd: int, *, label: str) -> None:
        with translated(label):
            # macOS has no fdatasync; its fsync is the nearest thing.
            getattr(os, "fdatasync", os.fsync)(fd)

    def sync_dir(self, path: Path, *, label: str) -> None:
        """Make a directory's entries (creations, renames) durable."""
        with translated(label):
            fd = open_file(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def create(self, path: Path, *, label: str) -> int:
        """Open for reading and writing, creating it when missing; returns the descriptor."""
        with translated(label):
            return open_file(path, os.O_RDWR | os.O_CREAT)

    def truncate(self, fd: int, size: int, *, label: str) -> None:
        """Cut the file to ``size`` bytes."""
        with translated(label):
            os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path, *, label: str) -> None:
        """Atomically give a file its name."""
        with translated(label):
            os.replace(source, target)

    def unlink(self, path: Path, *, label: str) -> None:
        """Remove a file; a missing one is no error."""
        with translated(label):
            path.unlink(missing_ok=True)

    def make_dir(self, path: Path, *, label: str) -> None:
        """Create a directory and its parents, durably."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        with translated(label):
            path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self.sync_dir(folder.parent, label=label)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Map the operating system's errors inside the block."""
    try:
        yield
    except OSError as error:
        raise mapped(error, what) from error


def mapped(error: OSError, what: str) -> HeadwaterError | OSError:
    """The mapped error of the operating system, or the same error when there is no mapping."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"no space left on the disk for: {what}{where}",
            detail="Nothing of this write was kept; everything acknowledged before it is safe.",
            hint="Free some space, or set retention_bytes on the largest topic, and append again.",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyHome(
            f"the home cannot be written: {what}{where}",
            detail=os.strerror(error.errno),
            hint="Check the directory's owner and permissions, or open the log where you may write.",
        )
    if error.errno in EXHAUSTED:
        return too_many_files(error)
    return error
