"""The serving store's file: connections to one SQLite database.

What it is: ``ServingFile`` opens the database to write (the process that runs the app) or to read (any process).
Invariants: one writing transaction at a time (BEGIN IMMEDIATE), all of it or nothing, also after ``kill -9`` (WAL); a
reader sees one committed moment and never waits; users' queries go over a connection of its own that can only
read, and has a gate. Connections do not cross a fork.
Not here: what is in the tables (``serving_store.py``); what users may ask (``sql_authorizer.py``); what SQLite's errors
mean (``log/catalog/sqlite_file.py``).
Read next: ``serving_store.py``.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import ClosedError, Corruption, Unavailable
from headwater.log.catalog.sqlite_file import BUSY_TIMEOUT_S, DatabaseFile, immediate, rewritten
from headwater.log.storage.files import translated
from headwater.views.serving.serving_columns import DECIMAL_COLLATION, compare_decimals
from headwater.views.serving.sql_authorizer import SqlAuthorizer

CACHE_KIB = 64 << 10
CHECKPOINT_PAGES = 8_000  # of 4 KiB

# Of a query; a value's length is bounded for each query (serving_queries.py).
LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 500,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class ServingFile:
    """The connections of one process, made when they are first used."""

    def __init__(self, path: Path, *, spill: bool = True) -> None:
        self.path = path
        self._spill = spill  # whether large sorts of queries may go to temporary files
        self._file = DatabaseFile(
            f"the serving store {path}",
            damage=Corruption,
            damage_detail="It holds copies only; the views' state and the log are untouched.",
            damage_hint="Stop the app, delete the file and those beside it that begin with its name, and run the app.",
        )
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        self._asking = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._asked: tuple[sqlite3.Connection, SqlAuthorizer] | None = None
        self._closed = False

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, all of it or nothing."""
        self._check()
        with self._writing, self._file.translated():
            if self._writer is None:
                with translated(f"open {self.path}"):
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = self._connect("rwc")
                self._writer.execute("PRAGMA journal_mode = WAL")
                # A power cut may take the last ticks back, never half of one; the app applies them again.
                self._writer.execute("PRAGMA synchronous = NORMAL")
                # Pages that many ticks change go to the main file once, and its syncs are few.
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            with immediate(self._writer) as db:
                yield db

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One committed moment, to look at for as long as the block lasts."""
        self._check()
        with self._reading, self._file.translated():
            if self._reader is None:
                self._reader = self._connect("ro")
            with _moment(self._reader) as db:
                yield db

    @contextmanager
    def ask(self) -> Iterator[tuple[sqlite3.Connection, SqlAuthorizer]]:
        """One committed moment for a user's query; the gate is closed."""
        self._check()
        with self._asking, self._file.translated():
            if self._asked is None:
                self._asked = self._gated()
            db, gate = self._asked
            with gate.trusting():
                db.execute("BEGIN")
            try:
                yield db, gate
            finally:
                with gate.trusting():
                    db.execute("ROLLBACK")

    def _gated(self) -> tuple[sqlite3.Connection, SqlAuthorizer]:
        db = self._connect("ro", kept_statements=0)
        for kind, most in LIMITS.items():
            db.setlimit(kind, most)
        db.execute("PRAGMA trusted_schema = OFF")
        if not self._spill:
            db.execute("PRAGMA temp_store = MEMORY")
        return db, SqlAuthorizer(db)

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._begin()  # a forked child: the parent's connections are not for it, not even to be closed
        if self._closed:
            raise ClosedError(f"the serving store {self.path} was closed", hint="Open it again: ServingStore(path).")

    def _connect(self, mode: str, *, kept_statements: int = 128) -> sqlite3.Connection:
        if mode == "ro" and not self.path.exists():
            raise Unavailable(
                f"there is no serving store at {self.path}",
                detail="It is made by the first tick of an app.",
                hint="Run the app: headwater run APP.py",
            )
        uri = f"{self.path.resolve().as_uri()}?mode={mode}"
        db = sqlite3.connect(
            uri,
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=kept_statements,
        )
        db.create_collation(DECIMAL_COLLATION, compare_decimals)
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return db

    def vacuum(self) -> bool:
        """Write the file anew, so that nothing is left of rows that are gone; False while the old log is read."""
        if not self.path.exists():
            return True
        with self.write():
            pass  # which opens it
        with self._writing, self._file.translated():
            assert self._writer is not None
            return rewritten(self._writer)

    def close(self) -> None:
        """Close this process's connections."""
        if self._pid == os.getpid():
            with self._writing, self._reading, self._asking:
                self._closed = True
                for db in (self._writer, self._reader, self._asked[0] if self._asked is not None else None):
                    if db is not None:
                        db.close()
                self._writer = self._reader = self._asked = None


@contextmanager
def _moment(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    db.execute("BEGIN")
    try:
        yield db
    finally:
        db.execute("ROLLBACK")
