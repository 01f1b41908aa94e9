"""Commit records: one small file decides a write over several partitions.

What it is: ``CommitRecords``, the folder ``commits/`` of a home.
Invariants: a commit is decided when its record is whole: ``BY_RECORD`` by the file itself, ``BY_CATALOG`` by its number
in the catalog's table ``commits``, written in one transaction with group positions and other rows there. A record is
removed when every part is listed (and, where its topic asks for it, on disk). So a record that is found while no commit
is under way belongs to a process that died: its parts are recovered, shown or cut off, and the record is removed.
Not here: writing the parts (``atomic_append.py``), recovery of a part (``log/storage/recovery.py``).
Read next: ``atomic_append.py``.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headwater.log.catalog.catalog import Catalog
from headwater.log.storage.files import Files

FOLDER = "commits"
BY_RECORD, BY_CATALOG = "record", "catalog"

Part = tuple[str, int]  # the topic's directory and the partition's number


@dataclass(frozen=True)
class CommitRecord:
    """A commit over several partitions."""

    id: int
    decided_by: str
    parts: tuple[Part, ...]

    def to_bytes(self) -> bytes:
        """The record's content, with its checksum."""
        text = json.dumps({"id": self.id, "decided_by": self.decided_by, "parts": self.parts}).encode()
        return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)

    @staticmethod
    def from_bytes(data: bytes) -> CommitRecord | None:
        """The record that these bytes hold; None when they are not whole.

        >>> record = CommitRecord(7, BY_RECORD, (("000001-orders", 3),))
        >>> CommitRecord.from_bytes(record.to_bytes()) == record
        True
        >>> CommitRecord.from_bytes(record.to_bytes()[:-5]) is None
        True
        """
        checksum, _, text = data.rstrip(b"\n").partition(b" ")
        if checksum != b"%016x" % xxhash.xxh3_64_intdigest(text):
            return None
        held = json.loads(text)
        return CommitRecord(held["id"], held["decided_by"], tuple((name, number) for name, number in held["parts"]))


class CommitRecords:
    """The commits of a home that are under way, or were left by a process that died."""

    def __init__(self, home: Path, catalog: Catalog, files: Files) -> None:
        self.folder = home / FOLDER
        self._catalog = catalog
        self._files = files

    def new(self, parts: Sequence[Part], decided_by: str) -> CommitRecord:
        """A record that is not written yet."""
        return CommitRecord(secrets.randbits(62) + 1, decided_by, tuple(parts))

    def write(self, record: CommitRecord, *, sync: bool) -> None:
        """Write a record; one that is decided by itself is decided now."""
        path = self._path(record.id)
        fd = self._files.create(path, label="commit.create_record")
        try:
            self._files.write(fd, [record.to_bytes()], label="commit.write_record")
            if sync:
                self._files.sync(fd, label="commit.sync_record")
                self._files.sync_dir(self.folder, label="commit.sync_directory")
        except Exception:
            self._files.unlink(path, label="commit.take_back")
            raise
        finally:
            os.close(fd)

    def remove(self, record: CommitRecord) -> None:
        """Remove a record: its parts are listed."""
        if record.decided_by == BY_CATALOG:
            with self._catalog.write() as db:
                db.execute("DELETE FROM commits WHERE id = ?", (record.id,))
        self._files.unlink(self._path(record.id), label="commit.remove_record")

    def discard(self, record: CommitRecord) -> None:
        """Remove the record of a commit that was refused."""
        self._files.unlink(self._path(record.id), label="commit.take_back")

    def is_committed(self, number: int) -> bool:
        """Whether a commit whose parts are not all listed was decided."""
        record = self._read(self._path(number))
        if record is None:
            return False
        return record.decided_by == BY_RECORD or bool(
            self._catalog.read("SELECT 1 FROM commits WHERE id = ?", (number,))
        )

    def settle(self, recover: Callable[[Part], None]) -> None:
        """Recover the parts of commits whose process died. The caller knows that no commit is under way."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            record = self._read(path)
            if record is None:  # never written whole: its parts are cut off when their partitions are opened
                self._files.unlink(path, label="commit.remove_torn")
                continue
            for part in record.parts:
                recover(part)
            self.remove(record)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:016x}"

    @staticmethod
    def _read(path: Path) -> CommitRecord | None:
        try:
            return CommitRecord.from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
