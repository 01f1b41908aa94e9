"""Unpacked backup: a backup as a home in a scratch folder; its sealed files come when they are asked for.

What it is: ``UnpackedBackup`` fetches the databases, the Arrow segments and the commitments of one backup, and makes a
home of them; ``fetch`` brings a sealed segment, ``pack`` says what a backup of the home as it is now would be.
Invariants: the home has the identity of the one that was backed up, its catalog is that of the backup, and nothing runs
on it but its caller. What the caller does not change is not copied again by ``pack``, and need not be there.
Not here: restoring (``home_restore.py``), what is changed (``upkeep/erasure/backup_erasure.py``).
Read next: ``home_restore.py``, ``home_copy.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from headwater.clock import Clock
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.home_folder import FORMAT_FILE, make_home
from headwater.log.home import Log
from headwater.log.proof.commitment_file import SUFFIX
from headwater.log.storage.files import Files
from headwater.upkeep.backup.backup_cut import CAPTURES, CATALOG, BackupCut
from headwater.upkeep.backup.backup_manifest import BackedFile, BackupManifest
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.home_copy import HomeCopy
from headwater.upkeep.backup.home_restore import PART, HomeRestore

FETCHED = (".sqlite", ".arrow", SUFFIX, "moved")
RENAMED = re.compile(r"~\d+$")  # of objects whose own name a prune may still remove


class ScratchFiles(Files):
    """Files that need not outlive a power cut: they are fetched anew."""

    def sync(self, fd: int, *, label: str) -> None:
        """Nothing."""

    def sync_dir(self, path: Path, *, label: str) -> None:
        """Nothing."""


class UnpackedBackup:
    """One backup in one folder, which it is given empty and leaves empty.

    >>> import headwater as hw, tempfile
    >>> from headwater.upkeep.backup.backup_writer import create_backup
    >>> log, place = hw.Log(tempfile.mkdtemp()), tempfile.mkdtemp()
    >>> _ = log.topic("orders", "id BIGINT").append([{"id": 1}])
    >>> made = create_backup(log, place).manifest
    >>> with UnpackedBackup(BackupRepository.at(place), made, Path(tempfile.mkdtemp()) / "home").unpacked() as backup:
    ...     backup.log.identity == log.identity, backup.pack().token == made.token
    (True, True)
    """

    def __init__(
        self, repository: BackupRepository, manifest: BackupManifest, folder: Path, clock: Clock | None = None
    ) -> None:
        self.repository = repository
        self.manifest = manifest
        self.home = folder
        self.clock = clock or Clock()
        self.files = {file.path: file for file in manifest.files}
        self._restore = HomeRestore(repository, manifest, folder, None, self.clock, ScratchFiles())
        self._log: Log | None = None

    @contextmanager
    def unpacked(self) -> Iterator[UnpackedBackup]:
        """Fetch the databases; at the end of the block all is removed."""
        shutil.rmtree(self.home, ignore_errors=True)  # of a process that was killed
        self.home.mkdir(parents=True)
        try:
            self._restore.fetch([file for file in self.manifest.files if file.path.endswith(".sqlite")])
            os.rename(self.home / (CATALOG + PART), self.home / CATALOG)
            yield self
        finally:
            if self._log is not None:
                self._log.close()
            shutil.rmtree(self.home, ignore_errors=True)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """Its catalog, before anything else is fetched."""
        with closing(Catalog(self.home / CATALOG)) as opened:
            yield opened

    @property
    def log(self) -> Log:
        """The home. The rest that it needs to be one is fetched by the first call."""
        if self._log is None:
            wanted = [file for file in self.manifest.files if file.path.endswith(FETCHED[1:])]
            self._restore.fetch(wanted)
            for file in wanted:
                if file.path.endswith(".arrow"):
                    self._restore.index(self.home / file.path)
            self._restore.roll_indexes()
            self._restore.number_cuts(self.manifest.cut_number)
            make_home(self.home, self.home / FORMAT_FILE, self._restore.files)
            self._log = Log(self.home, clock=self.clock, files=ScratchFiles(), maintenance_interval=None)
        return self._log

    def file_of(self, path: Path) -> BackedFile:
        """What the backup has of a file of the home."""
        return self.files[str(path.relative_to(self.home))]

    def fetch(self, file: BackedFile) -> Path:
        """Bring a file."""
        self._restore.fetch([file])
        return self.home / file.path

    def pack(self) -> BackupManifest:
        """What the backup is when it is of this home as it is now. What is new is copied; the manifest is not."""
        self.log.close()
        names = [CATALOG, *(f"{CAPTURES}/{path.name}" for path in sorted((self.home / CAPTURES).glob("*.sqlite")))]
        for name in names:
            with closing(sqlite3.connect(self.home / name, isolation_level=None)) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                db.execute("PRAGMA journal_mode = DELETE")
        cut = BackupCut(
            self.manifest.cut_number,
            self.manifest.cut_us,
            {name: dict(topic.end) for name, topic in self.manifest.topics.items()},
            {name: self.home / name for name in names},
        )
        named = {RENAMED.sub("", piece.name): piece.name for piece in self.manifest.pieces()}
        copied = HomeCopy(self.home, self.repository, named=named).run(cut)
        return replace(self.manifest, topics=copied.topics, apps=copied.apps, files=copied.files)
