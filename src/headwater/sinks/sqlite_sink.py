"""SQLite: a view as a table in a user's file.

What it is: ``SQLiteSink``; its tables can be read by any SQLite, and have the serving store's types.
Invariants: a tick's rows and its row of ``_headwater_progress`` are one transaction; so is a full copy with its
migration. Foreign tables are never touched. A view without a key has a column ``_hw_row`` that identifies its rows;
equal rows are stored as often as in the view.
Not here: the encoding of values (``views/serving/serving_columns.py``).
Read next: ``sinks/postgres/postgres_sink.py``, the same with a server; ``docs/sinks.md``.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Corruption, SinkRefused
from headwater.log.catalog.sqlite_file import BUSY_TIMEOUT_S, DatabaseFile, immediate, rewritten
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.sink import (
    PROGRESS_TABLE,
    ROW_NAME,
    Leftover,
    Sink,
    SinkContext,
    StoredProgress,
    Target,
    check_fence,
    is_next,
    reached,
)
from headwater.views.serving.deliveries import Delivery, deletes, row_names, upserts
from headwater.views.serving.serving_columns import ServedColumn, quoted
from headwater.views.state.algebra import expand

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

PROGRESS_DDL = f"""CREATE TABLE IF NOT EXISTS {PROGRESS_TABLE} (
    sink TEXT PRIMARY KEY,           -- app/view/sink
    target TEXT NOT NULL UNIQUE,     -- the table that is its
    columns TEXT NOT NULL,           -- JSON: [[name, Spark type], ...]
    key TEXT NOT NULL,               -- JSON: [name, ...]
    tick INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    version TEXT NOT NULL
)"""

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class SQLiteSink(Sink):
    """A table in a SQLite file. ``table`` defaults to the view's name.

    >>> SQLiteSink("copy.db", table="revenue")
    SQLiteSink(path='copy.db', table='revenue')
    """

    path: str | os.PathLike[str]
    table: str | None = None

    kind = "sqlite"
    by_key = True

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        return SQLiteTarget(context, Path(self.path), self.table or context.view)

    def __str__(self) -> str:
        return f"sqlite:{os.fspath(self.path)}"


class SQLiteTarget(Target):
    """One table of the file."""

    def __init__(self, context: SinkContext, path: Path, table: str) -> None:
        super().__init__(context)
        self.path = path
        self.table = table
        self.columns = [ServedColumn.of(field.name, spark_type(field.type)) for field in context.schema]
        self._file = DatabaseFile(
            f"the SQLite file {path}",
            SinkRefused,
            "It is a copy of the view.",
            "Restore or remove it: the sink then takes a full copy.",
        )
        self._connection: sqlite3.Connection | None = None

    # The contract

    def progress(self) -> StoredProgress | None:
        if not self.path.exists():
            return None
        with self._transaction() as db:
            return self._progress(db)

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        with self._transaction() as db:
            db.execute(PROGRESS_DDL)
            check_fence(self._progress(db, whole=False), self.context, epoch, filling=True)
            self._migrate(db)
            for batch in rows:
                self._insert(db, pa.Table.from_batches([batch]))
            self._create_index(db)
            return self._remember(db, tick, epoch)

    def apply(self, delivery: Delivery) -> StoredProgress:
        with self._transaction() as db:
            progress = self._progress(db)
            if not is_next(progress, self.context, delivery):
                return reached(progress, self.context)
            if self.context.key:
                self._change(db, delivery.changes)
            else:
                self._change_multiset(db, delivery.changes)
            return self._remember(db, delivery.tick, delivery.epoch)

    def forget(self) -> Leftover | None:
        with self._transaction():
            pass  # which opens it
        with self._refusals():
            assert self._connection is not None
            if rewritten(self._connection):
                return None
        return Leftover("a reader keeps the file's log: erase again when it has ended")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Transactions and progress

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            with self._file.translated():
                yield
        except sqlite3.Error as error:
            raise SinkRefused(
                f'SQLite refused the changes of sink "{self.context.sink}": {error}',
                hint=f'Check the table "{self.table}" of {self.path}; if you drop it, the sink makes it again.',
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._refusals():
            if self._connection is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(
                    self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
                )
                self._connection.execute("PRAGMA journal_mode = WAL")  # the user's readers never wait
            with immediate(self._connection) as db:
                yield db

    def _progress(self, db: sqlite3.Connection, *, whole: bool = True) -> StoredProgress | None:
        """How far the table is; with ``whole``, None also when it was removed or its columns were changed."""
        if not _exists(db, PROGRESS_TABLE):
            return None
        row = db.execute(
            f"SELECT tick, epoch, version FROM {PROGRESS_TABLE} WHERE sink = ? AND target = ?",
            (self.context.identity, self.table),
        ).fetchone()
        if row is None or (whole and not set(self._names) <= set(_column_names(db, self.table))):
            return None
        return StoredProgress(*row)

    def _remember(self, db: sqlite3.Connection, tick: int, epoch: int) -> StoredProgress:
        context = self.context
        columns = json.dumps([(column.name, column.type) for column in self.columns])
        row = (context.identity, self.table, columns, json.dumps(context.key), tick, epoch, context.version)
        db.execute(f"INSERT OR REPLACE INTO {PROGRESS_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return StoredProgress(tick, epoch, context.version)

    # The table

    @cached_property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns] + ([] if self.context.key else [ROW_NAME])

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Make an empty table with these columns; the existing one is kept when columns were only added."""
        row = db.execute(f"SELECT sink, columns, key FROM {PROGRESS_TABLE} WHERE target = ?", (self.table,)).fetchone()
        there = _exists(db, self.table)
        if there and (row is None or row[0] != self.context.identity):
            whose = f"it belongs to sink {row[0]}" if row else "Headwater did not make it"
            raise SinkRefused(
                f'table "{self.table}" exists in {self.path}, and {whose}',
                hint='Give the sink another one: SQLite(path, table="…"), or remove that one.',
                table=self.table,
            )
        db.execute(f"DELETE FROM {PROGRESS_TABLE} WHERE sink = ?", (self.context.identity,))
        wanted = [(column.name, column.type) for column in self.columns]
        if there and row is not None:
            known = [tuple(column) for column in json.loads(row[1])]
            if known == wanted[: len(known)] and tuple(json.loads(row[2])) == self.context.key:
                db.execute(f"DELETE FROM {quoted(self.table)}")
                for column in self.columns[len(known) :]:
                    db.execute(f"ALTER TABLE {quoted(self.table)} ADD COLUMN {_declaration(column)}")
                return
            db.execute(f"DROP TABLE {quoted(self.table)}")
        declarations = [_declaration(column) for column in self.columns]
        if not self.context.key:
            declarations.append(f"{ROW_NAME} BLOB NOT NULL")
        db.execute(f"CREATE TABLE {quoted(self.table)} ({', '.join(declarations)})")

    def _create_index(self, db: sqlite3.Connection) -> None:
        columns = ", ".join(map(quoted, self.context.key)) or ROW_NAME
        unique = "UNIQUE " if self.context.key else ""
        name = quoted(f"{self.table} by {'key' if self.context.key else ROW_NAME}")
        db.execute(f"CREATE {unique}INDEX IF NOT EXISTS {name} ON {quoted(self.table)} ({columns})")

    # Rows

    def _change(self, db: sqlite3.Connection, changes: pa.Table) -> None:
        key = self.context.key
        gone, come = deletes(changes, key), upserts(changes)
        # Nulls are distinct in an index of SQLite: delete rows with a null in the key by IS first.
        nulls = _with_null(come, key)
        equal = " AND ".join(f"{quoted(name)} IS ?" for name in key)
        for leaving in (gone, come.filter(nulls)):
            db.executemany(f"DELETE FROM {quoted(self.table)} WHERE {equal}", self._encoded(leaving, key))
        others = [name for name in self._names if name not in key]
        updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        conflict = f"({', '.join(map(quoted, key))}) DO " + (f"UPDATE SET {updates}" if updates else "NOTHING")
        self._insert(db, come, f" ON CONFLICT {conflict}")

    def _change_multiset(self, db: sqlite3.Connection, changes: pa.Table) -> None:
        gone = changes.filter(pc.less(changes.column(WEIGHT), 0))
        pairs = zip(row_names(gone.drop_columns([WEIGHT])), gone.column(WEIGHT).to_pylist(), strict=True)
        found = f"SELECT rowid FROM {quoted(self.table)} WHERE {ROW_NAME} = ? LIMIT ?"
        for name, weight in pairs:
            done = db.execute(f"DELETE FROM {quoted(self.table)} WHERE rowid IN ({found})", (name, -weight))
            if done.rowcount != -weight:
                raise Corruption(
                    f'a row that leaves view "{self.context.view}" is not in the table "{self.table}" of {self.path}',
                    detail="Nothing of this tick was applied. The table was changed, or Headwater was upgraded.",
                    hint="The sink takes a full copy.",
                )
        self._insert(db, expand(changes))

    def _insert(self, db: sqlite3.Connection, rows: pa.Table, otherwise: str = "") -> None:
        names = ", ".join(map(quoted, self._names))
        marks = ", ".join("?" * len(self._names))
        statement = f"INSERT INTO {quoted(self.table)} ({names}) VALUES ({marks}){otherwise}"
        db.executemany(statement, self._encoded(rows, self._names))

    def _encoded(self, rows: pa.Table, names: Sequence[str]) -> Rows:
        if not rows.num_rows:
            return []
        by_name = {column.name: column for column in self.columns}
        values = [row_names(rows) if name == ROW_NAME else by_name[name].stored(rows.column(name))[1] for name in names]
        return list(zip(*values, strict=True))


def _declaration(column: ServedColumn) -> str:
    # Without the serving store's collation, which other programs lack.
    return f"{quoted(column.name)} {quoted(f'{column.affinity}: {column.type}')}"


def _with_null(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    found = pa.array([False] * rows.num_rows, pa.bool_())
    for name in key:
        found = pc.or_(found, pc.is_null(rows.column(name)))
    return found


def _exists(db: sqlite3.Connection, table: str) -> bool:
    found = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(?)"
    return db.execute(found, (table,)).fetchone() is not None


def _column_names(db: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in db.execute(f"PRAGMA table_info({quoted(table)})")]
