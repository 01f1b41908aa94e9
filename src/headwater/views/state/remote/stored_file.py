"""A stored file: one file of a run on the object store.

What it is: ``StoredFile``, its name there, size and checksum, and ``download``, which brings it whole to a path.
Invariants: a name is used once, so its bytes never change; what was downloaded has the size and the checksum that the
writer told, or it is an error and never rows.
Not here: which copies are kept on the driver's machine (``run_cache.py``); who reads and writes rows on executors
(``executor_tasks.py``).
Read next: ``run_cache.py``, ``executor_files.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import xxhash

from headwater.errors import Corruption
from headwater.log.storage.checksums import signed
from headwater.log.storage.files import translated
from headwater.objects.object_store import ObjectStore
from headwater.views.state.run import RunFile

RUNS = "runs/"


@dataclass(frozen=True)
class StoredFile:
    """A file of a run, by the name of its trace's folder.

    >>> StoredFile("users-1", RunFile("7.parquet", 812, 99)).name
    'runs/users-1/7.parquet'
    """

    folder: str
    file: RunFile

    @property
    def name(self) -> str:
        """The object's name."""
        return f"{RUNS}{self.folder}/{self.file.name}"


def download(store: ObjectStore, stored: StoredFile, path: Path) -> bool:
    """Bring a file to a path where there is none; False when the store does not have it."""
    pieces = store.read(stored.name)
    if pieces is None:
        return False
    size, hasher = 0, xxhash.xxh3_64()
    with translated(f"copy {path}"), path.open("xb") as copy:
        for piece in pieces:
            copy.write(piece)
            hasher.update(piece)
            size += len(piece)
    if (size, signed(hasher.intdigest())) == (stored.file.bytes, stored.file.checksum):
        return True
    if store.get_range(stored.name, 0, 1) is None:
        return False  # deleted meanwhile: it is missing, not damaged
    raise Corruption(
        f"the object {stored.name} at {store.shown} is damaged",
        detail=f"It was written once, with {stored.file.bytes} bytes and checksum {stored.file.checksum}.",
        hint="State is derived from the log: rebuild the view.",
        address=store.shown,
    )


def missing(store: ObjectStore, stored: StoredFile) -> Corruption:
    """The error of a file that a manifest lists and the store does not have."""
    return Corruption(
        f"the object {stored.name} at {store.shown} is missing",
        detail=f"It was written once, with {stored.file.bytes} bytes and checksum {stored.file.checksum}.",
        hint="State is derived from the log: rebuild the view.",
        address=store.shown,
    )
