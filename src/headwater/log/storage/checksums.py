"""Checksums of whole files: xxh3_64, compared once per process; and what a process remembers of files.

What it is: ``checksum_of`` computes a file's checksum, ``has_checksum`` compares it. ``FileFacts``
is a bounded memory of files that do not change, by path, until they are gone, whichever process removed them.
Invariants: a match is remembered by path, time and size, so that a changed file is compared again, and forgotten when
the file is gone; a mismatch is not remembered, so that a restored file is accepted. There are never more than ``most``
facts, nor many more than twice those of files that are there; looking for these costs each fact one look on average.
Not here: checksums of single frames (``frame_index.py``). Read next: ``sealed_segment.py``, ``views/state/run.py``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Generic, TypeVar

import xxhash

from headwater.log.storage.file_descriptors import with_room

LOOK_MIN = 32  # fewer facts than this are not worth a look

Fact = TypeVar("Fact")


class FileFacts(Generic[Fact]):
    """Facts by file.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> facts = FileFacts[int](most=1000)
    >>> for number in range(100):
    ...     (place / str(number)).touch()
    ...     facts.keep(place / str(number), number)
    ...     if number >= 10:
    ...         (place / str(number)).unlink()
    >>> facts.find(place / "3"), len(facts) <= LOOK_MIN
    (3, True)
    """

    def __init__(self, *, most: int) -> None:
        self.most = most
        self._facts: dict[str, Fact] = {}  # the oldest first
        self._look_at = min(LOOK_MIN, most)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._facts)

    def find(self, path: Path) -> Fact | None:
        """What is remembered of a file."""
        return self._facts.get(str(path))

    def keep(self, path: Path, fact: Fact) -> None:
        """Remember this of a file, in place of what was remembered before."""
        with self._lock:
            self._facts.pop(str(path), None)
            self._facts[str(path)] = fact
            if len(self._facts) >= self._look_at:
                self._forget_gone()

    def _forget_gone(self) -> None:
        """Forget the files that are gone; of too many others half, the oldest ones."""
        there = [(path, fact) for path, fact in self._facts.items() if Path(path).exists()]
        if 2 * len(there) > self.most:
            there = there[-(self.most // 2) :]
        self._facts = dict(there)
        self._look_at = min(self.most, max(LOOK_MIN, 2 * len(there)))


_compared: FileFacts[tuple[int, int, int]] = FileFacts(most=131_072)  # time, size and checksum that a file had


def checksum_of(path: Path) -> int:
    """xxh3_64 of a whole file, as the signed number that SQLite stores."""
    hasher = xxhash.xxh3_64()
    with with_room(lambda: path.open("rb", buffering=0)) as file:
        while block := file.read(4 << 20):
            hasher.update(block)
    return signed(hasher.intdigest())


def signed(number: int) -> int:
    """An unsigned 64-bit number as SQLite's signed one."""
    return number - (1 << 64) if number >= 1 << 63 else number


def has_checksum(path: Path, checksum: int, *, size: int | None = None) -> bool:
    """Whether a file has this checksum, and this size if one is given; FileNotFoundError when it is gone."""
    stat = path.stat()
    if size is not None and stat.st_size != size:
        return False
    found = (stat.st_mtime_ns, stat.st_size, checksum)
    if _compared.find(path) == found:
        return True
    if checksum_of(path) != checksum:
        return False
    _compared.keep(path, found)
    return True
