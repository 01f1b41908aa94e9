"""Capture state: a capture's progress outside the log.

What it is: one small SQLite file per capture, ``captures/NAME.sqlite`` in the home: the followed database, the phase of
each table, the chunks of a backfill with their snapshots, and large values by key.
Invariants: the topics' sequences alone say which changes are in the log. A chunk's snapshot is stored before its rows
are appended, and a chunk is done when the topic has its sequence.
Not here: passed positions (markers, ``log/event_time/capture_markers.py``). Read next: ``backfill.py``.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.capture.database import BackfillChunk
from headwater.log.catalog.sqlite_file import immediate

TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    name TEXT PRIMARY KEY,              -- the topic's
    source TEXT NOT NULL,               -- the table's, in its database
    phase TEXT NOT NULL,                -- waiting, backfill, catching up, following
    reach INTEGER NOT NULL DEFAULT 0,   -- shown to ticks when the stream has passed this position
    hold INTEGER NOT NULL DEFAULT 0,    -- until then the database keeps its log from here on
    rows_done INTEGER NOT NULL DEFAULT 0,
    rows_estimated INTEGER NOT NULL DEFAULT 0,
    appends INTEGER NOT NULL DEFAULT 0, -- of its backfill: the last sequence that was given out
    again_from INTEGER,                 -- a repeated backfill: where the rows before it end
    losses INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS chunks (
    name TEXT NOT NULL, number INTEGER NOT NULL, low TEXT, high TEXT,
    sequence INTEGER, snapshot TEXT, reach INTEGER,
    PRIMARY KEY (name, number)
);
CREATE TABLE IF NOT EXISTS large (
    name TEXT NOT NULL, key BLOB NOT NULL, column_name TEXT NOT NULL, value TEXT,
    PRIMARY KEY (name, key, column_name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS emptied (name TEXT PRIMARY KEY, place INTEGER NOT NULL, stop INTEGER NOT NULL);
"""

WAITING, BACKFILL, CATCHING_UP, FOLLOWING = "waiting", "backfill", "catching up", "following"


@dataclass(frozen=True)
class TableState:
    """The progress of one table."""

    name: str
    source: str
    phase: str
    reach: int
    hold: int
    rows_done: int
    rows_estimated: int
    appends: int
    again_from: int | None
    losses: int


@dataclass(frozen=True)
class ChunkState:
    """A chunk of a backfill, and the snapshot it was read at, if it was."""

    chunk: BackfillChunk
    sequence: int | None
    snapshot: str | None
    reach: int | None


@dataclass(frozen=True)
class StoredState:
    """What a capture has noted: facts, and the phase of each table."""

    facts: Mapping[str, str]
    phases: Mapping[str, str]


def stored_state(path: Path) -> StoredState:
    """A capture's file as another process sees it; nothing is changed."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as db:
        try:
            facts = dict(db.execute("SELECT name, value FROM facts WHERE name NOT LIKE 'columns %'").fetchall())
            phases = dict(db.execute("SELECT name, phase FROM tables").fetchall())
        except sqlite3.OperationalError:  # its tables are being made
            return StoredState({}, {})
    return StoredState(facts, phases)


class CaptureState:
    """The file of one capture. Threads may share one."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(TABLES)

    def _all(self, sql: str, values: Iterable[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(sql, tuple(values)).fetchall()

    def _do(self, *steps: tuple[str, Iterable[Any]]) -> None:
        with self._lock, immediate(self._db) as db:
            for sql, values in steps:
                db.execute(sql, tuple(values))

    # Facts

    def fact(self, name: str) -> str | None:
        """A stored value of the capture as a whole."""
        rows = self._all("SELECT value FROM facts WHERE name = ?", (name,))
        return rows[0]["value"] if rows else None

    def remember(self, **facts: str) -> None:
        """Store some values, in one transaction."""
        self._do(*(("INSERT OR REPLACE INTO facts VALUES (?, ?)", item) for item in facts.items()))

    def forget_facts(self) -> None:
        self._do(("DELETE FROM facts", ()))

    # Tables

    def tables(self) -> dict[str, TableState]:
        """All tables, by their topics' names."""
        return {row["name"]: TableState(**dict(row)) for row in self._all("SELECT * FROM tables ORDER BY name")}

    def add_table(self, name: str, source: str, *, hold: int) -> None:
        """A table that waits for its backfill."""
        self._do(("INSERT INTO tables (name, source, phase, hold) VALUES (?, ?, ?, ?)", (name, source, WAITING, hold)))

    def change_table(self, name: str, **values: Any) -> None:
        names = ", ".join(f"{column} = ?" for column in values)
        self._do((f"UPDATE tables SET {names} WHERE name = ?", (*values.values(), name)))

    def add_losses(self, name: str, values: int) -> None:
        self._do(("UPDATE tables SET losses = losses + ? WHERE name = ?", (values, name)))

    def remove_table(self, name: str) -> None:
        self._do(
            *((f"DELETE FROM {table} WHERE name = ?", (name,)) for table in ("tables", "chunks", "large")),
            ("DELETE FROM facts WHERE name = ?", (f"columns {name}",)),
        )

    def columns(self, name: str) -> set[str] | None:
        """The last known columns of the table."""
        known = self.fact(f"columns {name}")
        return None if known is None else set(json.loads(known))

    def know_columns(self, name: str, columns: Iterable[str]) -> None:
        self.remember(**{f"columns {name}": json.dumps(list(columns))})

    # Chunks

    def plan_chunks(self, name: str, chunks: Iterable[BackfillChunk], rows_estimated: int) -> None:
        """Store the chunks of a new backfill."""
        insert = "INSERT INTO chunks (name, number, low, high) VALUES (?, ?, ?, ?)"
        self._do(
            ("DELETE FROM chunks WHERE name = ?", (name,)),
            *((insert, (name, chunk.number, chunk.low, chunk.high)) for chunk in chunks),
            (
                "UPDATE tables SET phase = ?, rows_done = 0, rows_estimated = ? WHERE name = ?",
                (BACKFILL, rows_estimated, name),
            ),
        )

    def chunks(self, name: str) -> list[ChunkState]:
        rows = self._all("SELECT * FROM chunks WHERE name = ? ORDER BY number", (name,))
        return [
            ChunkState(
                BackfillChunk(row["number"], row["low"], row["high"]), row["sequence"], row["snapshot"], row["reach"]
            )
            for row in rows
        ]

    def intend_chunk(self, name: str, number: int, sequence: int, snapshot: str, reach: int) -> None:
        """Store the sequence under which a chunk's rows will be appended."""
        self._do(
            (
                "UPDATE chunks SET sequence = ?, snapshot = ?, reach = ? WHERE name = ? AND number = ?",
                (sequence, snapshot, reach, name, number),
            ),
            ("UPDATE tables SET appends = ? WHERE name = ?", (sequence, name)),
        )

    def forget_chunks(self, name: str) -> None:
        """Delete the chunks, after the stream has passed them all."""
        self._do(("DELETE FROM chunks WHERE name = ?", (name,)))

    # Large values

    def large_value(self, name: str, key: bytes, column: str) -> str | None:
        rows = self._all("SELECT value FROM large WHERE name = ? AND key = ? AND column_name = ?", (name, key, column))
        return rows[0]["value"] if rows else None

    def save_large_values(self, name: str, values: Mapping[tuple[bytes, str], str | None]) -> None:
        insert = "INSERT OR REPLACE INTO large VALUES (?, ?, ?, ?)"
        self._do(*((insert, (name, key, column, value)) for (key, column), value in values.items()))

    def forget_large_values(self, name: str) -> None:
        """Forget the values of a table."""
        self._do(("DELETE FROM large WHERE name = ?", (name,)))

    # Truncates

    def emptied(self, name: str, place: int, stop: int) -> int:
        """The end of a table when the transaction at ``place`` truncated it; the first noted value counts."""
        rows = self._all("SELECT stop FROM emptied WHERE name = ? AND place = ?", (name, place))
        if rows:
            return int(rows[0]["stop"])
        self._do(("INSERT OR REPLACE INTO emptied VALUES (?, ?, ?)", (name, place, stop)))
        return stop

    def close(self) -> None:
        with self._lock:
            self._db.close()
