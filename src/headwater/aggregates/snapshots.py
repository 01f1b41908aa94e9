"""Snapshots: the states of aggregates as they were after some events, so that loading need not read all of them.

What it is: ``Snapshots``, a SQLite file in the home for each kind of aggregate.
Invariants: a snapshot is a copy that can be thrown away. One that is damaged, or was made by other code (its
fingerprint differs), is ignored, and the state is computed from the events. States are stored by ``pickle``: the file
is as trusted as the home's other files.
Not here: when one is made (``aggregate_repository.py``), the bytes of a state (``state_pickle.py``).
Read next: ``aggregate_repository.py``.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from headwater.aggregates import state_pickle

logger = logging.getLogger("headwater.aggregates")

TABLE = """CREATE TABLE IF NOT EXISTS snapshots (
    stream TEXT PRIMARY KEY, version INTEGER NOT NULL, position INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, state BLOB NOT NULL, checksum TEXT NOT NULL) WITHOUT ROWID"""


@dataclass(frozen=True)
class StateSnapshot:
    """A state, the version it has, and the position of the partition that it includes."""

    version: int
    position: int
    state: Any


class Snapshots:
    """The snapshots of one kind of aggregate.

    >>> import tempfile
    >>> snapshots = Snapshots(Path(tempfile.mkdtemp()) / "account.sqlite", "code-1")
    >>> snapshots.store("7", StateSnapshot(3, 12, {"cents": 5}))
    >>> snapshots.find("7")
    StateSnapshot(version=3, position=12, state={'cents': 5})
    >>> Snapshots(snapshots.path, "code-2").find("7") is None  # other code, other states
    True
    """

    def __init__(self, path: Path, fingerprint: str, declared: type = object) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self._declared = declared
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    def find(self, stream: str) -> StateSnapshot | None:
        """The snapshot of a stream, if there is a sound one of this code."""
        try:
            with self._lock:
                row = (
                    self._open()
                    .execute(
                        "SELECT version, position, fingerprint, state, checksum FROM snapshots WHERE stream = ?",
                        (stream,),
                    )
                    .fetchone()
                )
        except sqlite3.Error as error:
            self._lost(error)
            return None
        if row is None or row[2] != self.fingerprint:
            return None
        version, position, _, state, checksum = row
        if _checksum(stream, version, position, state) != checksum:
            logger.warning('the snapshot of "%s" in %s is damaged; its events are read instead', stream, self.path.name)
            return None
        try:
            return StateSnapshot(version, position, state_pickle.loaded(state, self._declared))
        except Exception as error:
            logger.warning('the snapshot of "%s" cannot be read (%s); its events are read instead', stream, error)
            return None

    def store(self, stream: str, snapshot: StateSnapshot) -> None:
        """Keep a snapshot in the place of the one before. One that cannot be stored is only slower."""
        try:
            state = state_pickle.dumped(snapshot.state, self._declared)
        except Exception as error:
            logger.warning('no snapshot of "%s": its state cannot be pickled (%s)', stream, error)
            return
        checksum = _checksum(stream, snapshot.version, snapshot.position, state)
        values = (stream, snapshot.version, snapshot.position, self.fingerprint, state, checksum)
        try:
            with self._lock:
                self._open().execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            self._lost(error)

    def streams(self) -> Iterator[str]:
        """The streams that have one."""
        with self._lock:
            rows = self._open().execute("SELECT stream FROM snapshots").fetchall()
        return (row[0] for row in rows)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():  # a forked child has a connection of its own
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=5, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")  # a copy: a power cut may lose it
            connection.execute(TABLE)
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def _lost(self, error: sqlite3.Error) -> None:
        """Go on without a damaged file: it is put aside, and another one is begun."""
        logger.warning("snapshots in %s cannot be used: %s; events are read instead", self.path.name, error)
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            self.close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _checksum(stream: str, version: int, position: int, state: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(f"{stream} {version} {position} ".encode() + state)
