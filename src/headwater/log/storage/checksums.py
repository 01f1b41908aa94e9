"""Checksums of whole files: xxh3_64, compared once per process.

What it is: ``checksum_of`` computes a file's checksum, ``has_checksum`` compares it with the expected one.
Invariants: a match is remembered by path, time and size, so that a changed file is compared again; a mismatch is not
remembered, so that a restored file is accepted.
Not here: checksums of single frames (``frame_index.py``). Read next: ``sealed_segment.py``, ``views/state/run.py``.
"""

from __future__ import annotations

import functools
from pathlib import Path

import xxhash

from headwater.log.storage.file_descriptors import with_room


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
    try:
        _compare(path, stat.st_mtime_ns, stat.st_size, checksum)
    except _ChecksumMismatch:
        return False
    return True


class _ChecksumMismatch(Exception):
    """Raised instead of returned: ``lru_cache`` does not remember exceptions."""


@functools.lru_cache(maxsize=131_072)
def _compare(path: Path, _mtime_ns: int, _size: int, checksum: int) -> None:
    if checksum_of(path) != checksum:
        raise _ChecksumMismatch
