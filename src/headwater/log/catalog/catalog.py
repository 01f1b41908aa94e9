"""Catalog: the home's metadata in one SQLite database.

What it is: topics, schema versions, sealed segments, producers, groups, positions and leases, in WAL mode, shared by
every process that opens the home.
Invariants: every change is one ``write()`` transaction (BEGIN IMMEDIATE); a change that allows a file to be deleted is
committed with ``durable=True`` before the file is deleted; no transaction stays open while waiting.
Not here: rows of topics (segments); the meaning of each table (``registry.py`` for topics and segments,
``log/groups/consumer.py`` and ``log/groups/worker.py`` for groups).
Read next: ``registry.py``; ``docs/internals/files.md``.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import ClosedError, CorruptCatalog, ReadOnlyHome
from headwater.log.catalog.sqlite_file import BUSY_TIMEOUT_S, DatabaseFile, immediate, rewritten

# One statement per table, all "IF NOT EXISTS": opening is also creating. A change of a table's meaning
# raises FORMAT in home.py and gets a migration there.
TABLES = """
CREATE TABLE IF NOT EXISTS topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,              -- JSON of TopicSettings
    dropped_rows INTEGER NOT NULL DEFAULT 0,
    created_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS schemas (
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    arrow BLOB NOT NULL,                 -- serialized Arrow schema of the user's columns
    created_us INTEGER NOT NULL,
    PRIMARY KEY (topic_id, version)
);
CREATE TABLE IF NOT EXISTS partitions (
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    start_offset INTEGER NOT NULL DEFAULT 0,
    start_moved_us INTEGER,              -- when retention last moved the start
    PRIMARY KEY (topic_id, partition)
);
CREATE TABLE IF NOT EXISTS segments (   -- sealed segments only; the others are found on disk
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    file TEXT NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,           -- xxh3_64 of the whole file, as a signed 64-bit number
    schema_version INTEGER NOT NULL,
    time_min INTEGER, time_max INTEGER,  -- event time, microseconds
    appended_min INTEGER NOT NULL, appended_max INTEGER NOT NULL,
    compacted INTEGER NOT NULL DEFAULT 0, -- 1: compaction was here; 2: an erasure has removed rows; 3: both
    PRIMARY KEY (topic_id, partition, base_offset)
);
CREATE TABLE IF NOT EXISTS append_marks (  -- of sealed segments: where appends and cuts end
    topic_id INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    marks BLOB NOT NULL,                 -- see log/commits/append_marks.py
    PRIMARY KEY (topic_id, partition, base_offset),
    FOREIGN KEY (topic_id, partition, base_offset)
        REFERENCES segments (topic_id, partition, base_offset) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS commits (    -- those that were decided here and are not listed everywhere yet
    id INTEGER PRIMARY KEY               -- the number of the commit's record, see log/commits/commit_records.py
);
CREATE TABLE IF NOT EXISTS producers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    UNIQUE (topic_id, name)
);
CREATE TABLE IF NOT EXISTS producer_sequences (  -- what sealed segments held; newer ones are in the active index
    producer_id INTEGER NOT NULL REFERENCES producers(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    ranges TEXT NOT NULL,                -- see log/commits/sequence_ranges.py
    PRIMARY KEY (producer_id, partition)
);
CREATE TABLE IF NOT EXISTS groups (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('consumer', 'work')),
    generation INTEGER NOT NULL DEFAULT 0,
    settings TEXT NOT NULL DEFAULT '{}',
    created_us INTEGER NOT NULL,
    UNIQUE (topic_id, name)
);
CREATE TABLE IF NOT EXISTS positions (  -- consumer group: committed; work group: everything below is settled
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    committed_us INTEGER NOT NULL,
    PRIMARY KEY (group_id, partition)
);
"""


WAL_RETRY_S = 0.005
WAL_ATTEMPTS_MAX = round(BUSY_TIMEOUT_S / WAL_RETRY_S)


class Catalog:
    """One home's SQLite database. Safe to share between threads; each process opens its own.

    >>> import tempfile
    >>> catalog = Catalog(Path(tempfile.mkdtemp()) / "catalog.sqlite")
    >>> with catalog.write() as db:
    ...     _ = db.execute("INSERT INTO topics (name, settings, created_us) VALUES ('a', '{}', 0)")
    >>> catalog.read("SELECT name FROM topics")[0]["name"]
    'a'
    """

    def __init__(self, path: Path, *, read_only: bool = False, tables: Sequence[str] = ()) -> None:
        self.path = path
        self.read_only = read_only
        self._tables = (TABLES, *tables)
        self._file = DatabaseFile(
            f"the catalog {path}",
            damage=CorruptCatalog,
            damage_detail="Topics, schemas and group positions are in it; the segments are untouched.",
            damage_hint="Stop all processes on this home and restore catalog.sqlite from a backup; do not delete it.",
        )
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._db = self._connect()

    def _connect(self) -> sqlite3.Connection:
        with self.translated():
            uri = self.path.resolve().as_uri()
            if self.read_only:
                # A read-only disk cannot hold SQLite's -shm file: "immutable" reads without it, but ignores a -wal file
                # that a dead writer left; then SQLite reads in its normal mode.
                wal = self.path.with_name(self.path.name + "-wal")
                uri += "?mode=ro" + ("" if wal.exists() and wal.stat().st_size else "&immutable=1")
            db = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            db.row_factory = sqlite3.Row
            if not self.read_only:
                _use_wal(db)
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA foreign_keys = ON")
                have = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if not self._names() <= have:
                    db.executescript("BEGIN IMMEDIATE;" + "".join(self._tables) + "COMMIT;")
            return db

    def _names(self) -> set[str]:
        words = "".join(self._tables).split("CREATE TABLE IF NOT EXISTS ")[1:]
        return {word.split()[0] for word in words}

    def _live(self) -> sqlite3.Connection:
        # SQLite connections must not cross a fork: a child gets its own.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self._db = self._connect()
        return self._db

    def read(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        db = self._live()
        with self._lock, self.translated():
            return db.execute(sql, parameters).fetchall()

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction. ``durable``: it survives a power cut once the block has ended."""
        db = self._live()
        if self.read_only:
            raise ReadOnlyHome(f"the home cannot be written: catalog {self.path}")
        with self._lock, self.translated():
            if db.in_transaction:  # a nested write joins the outer one
                yield db
                return
            if durable:
                db.execute("PRAGMA synchronous = FULL")
            try:
                with immediate(db):
                    yield db
            finally:
                if durable:
                    db.execute("PRAGMA synchronous = NORMAL")

    def home_id(self) -> str:
        """The home's random id, made on first use; it never changes."""
        rows = self.read("SELECT id FROM home_id")
        if not rows:
            with self.write(durable=True) as db:
                db.execute("INSERT OR IGNORE INTO home_id (one, id) VALUES (1, ?)", (secrets.token_hex(8),))
            rows = self.read("SELECT id FROM home_id")
        return str(rows[0]["id"])

    def mask_secret(self) -> bytes:
        """What hashes of masked values are made with, made on first use; backups and restored homes have it too."""
        rows = self.read("SELECT secret FROM mask_secret")
        if not rows:
            with self.write(durable=True) as db:
                db.execute("INSERT OR IGNORE INTO mask_secret (one, secret) VALUES (1, ?)", (secrets.token_bytes(32),))
            rows = self.read("SELECT secret FROM mask_secret")
        return bytes(rows[0]["secret"])

    def integrity_problems(self) -> list[str]:
        """Problems that SQLite's integrity check finds; empty without any."""
        rows = self.read("PRAGMA integrity_check(20)")
        problems = [str(row[0]) for row in rows if row[0] != "ok"]
        problems += [f"foreign key: {tuple(row)}" for row in self.read("PRAGMA foreign_key_check")]
        return problems

    def vacuum(self) -> bool:
        """Write the file anew, so that nothing is left of rows that are gone; False while the old log is read."""
        db = self._live()
        with self._lock, self.translated():
            return rewritten(db)

    def close(self) -> None:
        if self._pid == os.getpid():
            with self._lock:
                self._db.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        with self._file.translated():
            try:
                yield
            except sqlite3.ProgrammingError as error:
                if "closed database" not in str(error):
                    raise
                raise ClosedError(f"the log {self.path.parent} was closed", hint="Open it again: Log(home).") from error


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL mode. While another process does so SQLite refuses at once, without its busy time-out."""
    for attempt in range(WAL_ATTEMPTS_MAX):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == WAL_ATTEMPTS_MAX - 1:
                raise
            threading.Event().wait(WAL_RETRY_S)
