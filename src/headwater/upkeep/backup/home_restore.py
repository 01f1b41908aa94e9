"""Home restore: a home from a backup.

What it is: ``restore_home`` fetches the files of a backup, gives the home an identity of its own, and makes it one.
Invariants: ``headwater.json``, which makes a directory a home, is written last: a restore that was killed leaves no
home, and is continued by the same call; what was fetched is compared with its checksum, not fetched again. A directory
that holds anything else is refused. Every byte is compared with its checksum. The new identity tells sinks and
subscribers that their progress is of another home: they take a full copy; captures are told to look for their place,
and to read their tables anew when the database does not have it any more.
Not here: what a backup holds (``backup_manifest.py``). Read next: ``backup_repository.py``.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from headwater.clock import Clock, format_us
from headwater.encryption.encryption_key import KeySource
from headwater.errors import CorruptSegment, Misuse
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.home_folder import FORMAT_FILE, make_home
from headwater.log.commits.cut_numbers import FILE as CUT_NUMBER
from headwater.log.erasure.erasure_records import TABLES_ERASURES
from headwater.log.erasure.log_erasure import at_work, end_begun
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, HEADER, ROLL, Entry, padded
from headwater.log.token import Token
from headwater.upkeep.backup.backup_cut import CAPTURES, CATALOG
from headwater.upkeep.backup.backup_manifest import BackedFile, BackupManifest, check_places
from headwater.upkeep.backup.backup_repository import THREADS, BackupRepository, Progress
from headwater.upkeep.erasure.told_erasures import begin_replay
from headwater.views.state.manifest_entries import ManifestEntries

UNFINISHED = "restoring.json"  # in the home while it is restored
PART = ".part"
MANIFEST_TABLES = ("apps", "remote_states", "ticks", "tick_changes", "manifest_entries", "manifest_runs", "small_runs")


@dataclass(frozen=True)
class RestoreReport:
    """A home that was restored."""

    home: Path
    identity: str
    backup: str
    token: Token
    at_us: int  # the log is as it was then
    rows: int
    fetched_bytes: int
    kept_bytes: int  # fetched by an earlier attempt
    apps: dict[str, int]  # by name: the tick that its views are at; 0: they are computed from the log
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "home": str(self.home),
            "token": str(self.token),
            "at": format_us(self.at_us),
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        views = "".join(
            f"; the views of {app} are at tick {tick}" if tick else f"; the views of {app} are computed from the log"
            for app, tick in self.apps.items()
        )
        return (
            f"{self.home} is the home of backup {self.backup} as it was at {format_us(self.at_us)}: {self.rows:,} rows,"
            f" {self.fetched_bytes:,} bytes fetched in {self.seconds:.1f} s{views}"
        )


def restore_home(
    source: str | os.PathLike[str],
    home: str | os.PathLike[str],
    *,
    backup: str | None = None,
    key: KeySource | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> RestoreReport:
    """Make a home from the newest backup at ``source``, or from the one with this id. ``key``: of encrypted backups.

    >>> import headwater as hw, tempfile
    >>> from headwater.upkeep.backup.backup_writer import create_backup
    >>> log, place = hw.Log(tempfile.mkdtemp()), tempfile.mkdtemp()
    >>> _ = log.topic("orders", "id BIGINT").append([{"id": 1}, {"id": 2}])
    >>> _ = create_backup(log, place)
    >>> report = restore_home(place, tempfile.mkdtemp() + "/again")
    >>> [batch.to_pylist() for batch in hw.Log(report.home).get_topic("orders").read("earliest")]
    [[{'id': 1}, {'id': 2}]]
    """
    repository = BackupRepository.at(source, key)
    manifest = repository.newest() if backup is None else repository.manifest(backup)
    restore = HomeRestore(repository, manifest, Path(home), progress, clock or Clock(), files or Files())
    return restore.run()


class HomeRestore:
    """One restore into one directory."""

    def __init__(
        self,
        repository: BackupRepository,
        manifest: BackupManifest,
        home: Path,
        progress: Progress | None,
        clock: Clock,
        files: Files,
    ) -> None:
        self.repository = repository
        self.manifest = manifest
        self.home = home.expanduser().absolute()
        self.progress = progress
        self.clock = clock
        self.files = files
        self.fetched_bytes = self.kept_bytes = 0
        self.erased_rows = 0  # of people who were erased after the backup
        self._counting = threading.Lock()

    def run(self) -> RestoreReport:
        began = time.monotonic()
        self.begin({"backup": self.manifest.id, **self.manifest.claim})
        self.fetch(self.manifest.files)
        catalog = self.home / (CATALOG + PART)
        apps = self.adapt(catalog)
        for file in self.manifest.files:
            if file.path.endswith(".arrow"):
                self.index(self.home / file.path)
        self.roll_indexes()
        identity = self.finish(catalog, self.manifest.token, self.manifest.cut_number)
        return RestoreReport(
            self.home,
            identity,
            self.manifest.id,
            self.manifest.token,
            self.manifest.cut_us,
            self.manifest.rows - self.erased_rows,
            self.fetched_bytes,
            self.kept_bytes,
            apps,
            time.monotonic() - began,
        )

    # Beginning

    def begin(self, what: dict[str, Any]) -> None:
        """Claim the directory, or go on in one that the same restore had claimed."""
        if (self.home / FORMAT_FILE).exists():
            raise Misuse(f"{self.home} is a home already", hint="Restore into a new directory, and then move it.")
        unfinished = self.home / UNFINISHED
        if unfinished.exists():
            text = unfinished.read_text()
            if text and json.loads(text) != what:
                raise Misuse(
                    f"{self.home} has an unfinished restore of something else",
                    detail=f"It is {text}; asked for was {json.dumps(what)}.",
                    hint="Remove the directory, or restore into another one.",
                )
        elif self.home.exists() and any(not path.name.startswith(UNFINISHED) for path in self.home.iterdir()):
            raise Misuse(f"{self.home} is not empty", hint="Restore into a new directory.")
        self.files.make_dir(self.home, label="restore.make_directory")
        self._write(unfinished, json.dumps(what).encode())

    # Fetching

    def fetch(self, files: Sequence[BackedFile]) -> None:
        """Bring files into the home; the catalog under a name by which it is no catalog yet."""
        total = sum(file.bytes for file in files)
        for folder in {(self.home / file.path).parent for file in files}:
            if not folder.resolve().is_relative_to(self.home.resolve()):
                raise Misuse(f"{folder} is a link out of {self.home}", hint="Restore into a new directory.")
            self.files.make_dir(folder, label="restore.make_directory")
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(self._fetch, files):
                if self.progress is not None:
                    self.progress(self.fetched_bytes + self.kept_bytes, total)
        for folder in {(self.home / file.path).parent for file in files}:
            self.files.sync_dir(folder, label="restore.sync_directory")

    def _fetch(self, file: BackedFile) -> None:
        is_catalog = file.path == CATALOG
        target = self.home / (file.path + PART if is_catalog else file.path)
        # Databases are changed after they were fetched, so these are fetched again.
        if not file.path.endswith(".sqlite") and _is_there(target, file):
            with self._counting:
                self.kept_bytes += file.bytes
            return
        temporary = target.with_name(target.name + ".tmp")
        fd = self.files.create(temporary, label="restore.create")
        try:
            self.files.truncate(fd, 0, label="restore.empty")
            for piece in file.pieces:
                for part in self.repository.read(piece):
                    self.files.write(fd, [part], label="restore.write")
            self.files.sync(fd, label="restore.sync")
        finally:
            os.close(fd)
        self.files.rename(temporary, target, label="restore.rename")
        with self._counting:
            self.fetched_bytes += file.bytes

    # Making it a home

    def adapt(self, catalog: Path) -> dict[str, int]:
        """Forget in the catalog what belongs to the processes and places of the other home; returns apps' ticks."""
        with closing(Catalog(catalog)) as opened:
            names = [name for (name,) in opened.read("SELECT name FROM topics UNION SELECT name FROM apps")]
            check_places(self.manifest.id, names)  # they are those of folders
            with opened.write(durable=True) as db:
                for table in ("members", "assignments", "commits", "sinks", "tick_reports"):
                    db.execute(f"DELETE FROM {table}")
                apps = {}
                for name, tick, address in db.execute(
                    "SELECT name, tick, address FROM apps LEFT JOIN remote_states ON app = name"
                ).fetchall():
                    # The state on a store belongs to the other home, and is not in the backup.
                    apps[name] = tick if address is None else 0
                    if apps[name]:
                        keep_one_tick(opened, db, name, tick)
                    else:
                        forget_app(db, name)
            opened.read("PRAGMA wal_checkpoint(TRUNCATE)")
            opened.read("PRAGMA journal_mode = DELETE")
        return apps

    def index(self, data: Path) -> None:
        """Write the index of an Arrow segment, which its frames tell."""
        entries, end = frames_of(data)
        if data.stat().st_size < padded(end):
            fd = self.files.create(data, label="restore.open")
            try:
                self.files.write(fd, [bytes(padded(end) - data.stat().st_size)], label="restore.pad")
                self.files.sync(fd, label="restore.sync")
            finally:
                os.close(fd)
        header = Entry(kind=HEADER, base_offset=int(data.stem), position=padded(end), length=0)
        self._write(data.with_suffix(".index"), b"".join(entry.pack() for entry in [header, *entries]))

    def roll_indexes(self) -> None:
        """Say in the index of each Arrow segment that another one follows where the next one begins."""
        for directory in sorted((self.home / "topics").glob("*/*/")):
            bases = sorted(directory.glob("*.index"))
            for path, following in itertools.pairwise(bases):
                roll = Entry(kind=ROLL, base_offset=int(following.stem), position=0, length=0)
                self._write(path, path.read_bytes() + roll.pack())

    def finish(self, catalog: Path, token: Token, cut_number: int, *, read_again: bool = False) -> str:
        """Give the home its identity, and make it one. ``read_again``: captures do not look for their place."""
        identity = secrets.token_hex(8)
        with closing(Catalog(catalog, tables=(TABLES_ERASURES,))) as opened:
            begin_replay(self.repository, opened)  # so that nobody comes back
            with opened.write(durable=True) as db:
                db.execute("DELETE FROM home_id")
                db.execute("INSERT INTO home_id (one, id) VALUES (1, ?)", (identity,))
                db.execute(
                    "INSERT INTO restores VALUES (?, ?, ?, ?, ?)",
                    (identity, self.manifest.home, self.manifest.id, str(token), self.clock.now_us()),
                )
            opened.read("PRAGMA wal_checkpoint(TRUNCATE)")
            opened.read("PRAGMA journal_mode = DELETE")
        for path in sorted((self.home / CAPTURES).glob("*.sqlite")):
            _tell_capture(path, read_again=read_again)
        self.number_cuts(cut_number)
        self.files.rename(catalog, self.home / CATALOG, label="restore.rename_catalog")
        self.files.sync_dir(self.home, label="restore.sync_directory")
        make_home(self.home, self.home / FORMAT_FILE, self.files)
        self.files.unlink(self.home / UNFINISHED, label="restore.remove_claim")
        with (
            Log(self.home, clock=self.clock, files=self.files, maintenance_interval=None) as log,
            at_work(log, wait=True),
        ):  # after a crash here, the next tick or round of maintenance does it
            self.erased_rows = sum(each.erased.removed for each in end_begun(log))
            note_audit(log, AuditEntry("restore", local_user(), detail=f"backup {self.manifest.id}"))
        return identity

    def number_cuts(self, last: int) -> None:
        """Let numbers of cuts go on after those that rows have; 0 is no boot of any machine."""
        self._write(self.home / CUT_NUMBER, struct.pack("=QQ", 0, last + 1).ljust(mmap.PAGESIZE, b"\0"))

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = self.files.create(temporary, label="restore.create")
        try:
            self.files.truncate(fd, 0, label="restore.empty")
            self.files.write(fd, [data], label="restore.write")
            self.files.sync(fd, label="restore.sync")
        finally:
            os.close(fd)
        self.files.rename(temporary, path, label="restore.rename")
        self.files.sync_dir(path.parent, label="restore.sync_directory")


def frames_of(data: Path) -> tuple[list[Entry], int]:
    """The entries of an Arrow segment's frames, and where the last one ends."""
    size, entries = data.stat().st_size, []
    with data.open("rb") as file:
        header = Entry.unpack(os.pread(file.fileno(), ENTRY_BYTES, 0))
        if header is None or header.kind != HEADER:
            raise _damaged(data)
        end = header.end
        while end < size:
            entry = Entry.unpack(os.pread(file.fileno(), ENTRY_BYTES, end))
            if entry is None or entry.kind != DATA or entry.position != end:
                raise _damaged(data)
            entries.append(entry)
            end = entry.end
    return entries, end


def keep_one_tick(catalog: Catalog, db: sqlite3.Connection, app: str, tick: int) -> None:
    """Forget the ticks of an app before this one, whose files a backup does not have."""
    ManifestEntries(catalog, app).forget(db, tick)
    # What this tick set apart for its change feed, and files of runs that it replaced, are not in the backup either.
    db.execute("DELETE FROM manifest_entries WHERE app = ? AND last_tick IS NOT NULL", (app,))
    db.execute("DELETE FROM manifest_runs WHERE app = ? AND last_tick IS NOT NULL", (app,))
    for table in ("ticks", "tick_changes"):
        db.execute(f"DELETE FROM {table} WHERE app = ? AND tick < ?", (app, tick))


def forget_app(db: sqlite3.Connection, app: str) -> None:
    """Forget the ticks of an app: its views are computed from the log when it is started."""
    for table in MANIFEST_TABLES:
        db.execute(f"DELETE FROM {table} WHERE {'name' if table == 'apps' else 'app'} = ?", (app,))
    for table in ("app_positions", "app_signs"):
        db.execute(f"DELETE FROM {table} WHERE app = ?", (app,))


def _is_there(path: Path, file: BackedFile) -> bool:
    """Whether an earlier attempt has brought a file: each piece of it is compared."""
    if not path.exists() or path.stat().st_size != file.bytes:
        return False
    with path.open("rb") as data:
        for piece in file.pieces:
            hasher, left = xxhash.xxh3_64(), piece.bytes
            while left and (part := data.read(min(left, 8 << 20))):
                hasher.update(part)
                left -= len(part)
            if hasher.intdigest() != piece.checksum:
                return False
    return True


def _tell_capture(path: Path, *, read_again: bool) -> None:
    """Let a capture know that its home was restored; see ``capture/capture.py``."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "INSERT OR REPLACE INTO facts (name, value) VALUES ('restored', ?)", ("again" if read_again else "look",)
        )


def _damaged(data: Path) -> CorruptSegment:
    return CorruptSegment(
        f"the frames of {data} do not follow one another",
        hint="The backup was made of a damaged file: restore another one.",
        file=str(data),
    )
