"""PostgreSQL: a view as a table of a server.

What it is: ``PostgresSink``, a sink that copies a tick into a temporary table and applies it with one upsert and one
delete.
Invariants: a tick's rows and its row of ``_headwater_progress`` are one transaction, which locks that row first: of two
processes the second waits and sees the first one's epoch. A full copy is one transaction too; when columns were only
added it keeps the table with the users' grants, views and indexes. Foreign tables are never touched.
Not here: types and COPY's text (``postgres_columns.py``); the SQL (``postgres_table.py``).
Read next: ``postgres_table.py``; ``docs/sinks.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Corruption, HeadwaterError, MissingExtra, SinkRefused, Unavailable
from headwater.log.schema.columns import shorten
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.postgres.postgres_columns import copy_text
from headwater.sinks.postgres.postgres_table import PostgresTable, quoted
from headwater.sinks.sink import (
    PROGRESS_TABLE,
    ROW_NAME,
    Sink,
    SinkContext,
    StoredProgress,
    Target,
    check_fence,
    is_next,
    reached,
)
from headwater.views.serving.deliveries import Delivery, deletes, row_names, upserts

if TYPE_CHECKING:
    from psycopg import Connection

    from headwater.log.contract import EventLog

CONNECT_SECONDS_MAX = 10
# A server that has gone without a word is noticed after about half a minute.
KEEPALIVE: dict[str, Any] = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
COPY_ROWS = 65_536  # as much text as this many rows make is in memory at once


@dataclass(frozen=True)
class PostgresSink(Sink):
    """A table in PostgreSQL 12 or newer. ``table`` defaults to the view's name.

    ``nul`` replaces NUL characters in texts, which PostgreSQL cannot hold; without it they stop the sink.

    >>> PostgresSink("postgresql://app:secret@db.example.com/shop", table="revenue", schema="reports")
    Postgres(dsn='postgresql://app:***@db.example.com/shop', table='revenue', schema='reports', nul=None)
    """

    dsn: str = field(repr=False)
    table: str | None = None
    schema: str = "public"
    nul: str | None = None

    kind = "postgres"
    by_key = True

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        with MissingExtra.raised_for("hw.sinks.Postgres", "postgres"):
            import psycopg  # noqa: F401
        table = PostgresTable(context, self.schema, self.table or context.view)
        return PostgresTarget(context, self.dsn, table, self.nul)

    def __str__(self) -> str:
        return without_password(self.dsn)

    def __repr__(self) -> str:
        rest = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("table", "schema", "nul"))
        return f"Postgres(dsn={str(self)!r}, {rest})"


def without_password(dsn: str) -> str:
    """A connection string that may be shown.

    >>> without_password("host=db password='it''s secret' user=app")
    'host=db password=*** user=app'
    """
    dsn = re.sub(r"(//[^/@:]*:)[^@]*@", r"\1***@", dsn)
    return re.sub(r"(password\s*=\s*)('(?:[^']|'')*'|\S+)", r"\1***", dsn)


def connected(dsn: str, app: str, **more: Any) -> Connection[Any]:
    """A connection to a server, for an app."""
    import psycopg

    name = f"headwater {app}"
    return psycopg.connect(
        dsn, connect_timeout=CONNECT_SECONDS_MAX, application_name=name, autocommit=True, **KEEPALIVE, **more
    )


def mapped_error(error: Any, dsn: str, sink: str, table: str) -> HeadwaterError:
    """An error of psycopg as ours."""
    import psycopg

    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(
            f"PostgreSQL at {without_password(dsn)} does not answer: {said}",
            hint="Check that it runs, and the name, user and password. It is retried.",
        )
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return Corruption(
            f"the table {table} is not as it was made: {said}",
            detail="Nothing of this tick was applied.",
            hint="The sink takes a full copy.",
        )
    return SinkRefused(
        f'PostgreSQL refused the rows of sink "{sink}" for {table}: {said}',
        detail=shorten(getattr(error.diag, "message_detail", None) or getattr(error.diag, "context", None) or ""),
        hint="Change the view's SQL or the table, and start the app again.",
        sqlstate=error.sqlstate,
    )


class PostgresTarget(Target):
    """One table of the server."""

    def __init__(self, context: SinkContext, dsn: str, table: PostgresTable, nul: str | None) -> None:
        super().__init__(context)
        self.dsn = dsn
        self.table = table
        self.nul = nul
        self._connection: Connection[Any] | None = None
        self._staged = False

    # The contract

    def progress(self) -> StoredProgress | None:
        with self._transaction() as db:
            return self._progress(db)

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        with self._transaction() as db:
            self.table.create_progress(db)
            # So that two processes that begin at once do not both make the table.
            db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.table.name,))
            check_fence(self._progress(db, whole=False), self.context, epoch, filling=True)
            empty = self.table.prepare(db)
            if empty:
                self._copy(db, rows, self.table.name)
                self.table.create_key(db)
            else:
                self._stage(db)
                for batch in rows:
                    self._load(db, self._weighted(pa.Table.from_batches([batch])))
                self._loosen_for_nulls(db)
                db.execute(self.table.clear_others if self.context.key else self.table.clear)
                db.execute(self.table.upsert)
            return self._remember(db, tick, epoch)

    def apply(self, delivery: Delivery) -> StoredProgress:
        with self._transaction() as db:
            progress = self._progress(db)
            if not is_next(progress, self.context, delivery):
                return reached(progress, self.context)
            if delivery.changes.num_rows:
                self._stage(db)
                if self.context.key:
                    self._change(db, delivery.changes)
                else:
                    self._change_multiset(db, delivery.changes)
            return self._remember(db, delivery.tick, delivery.epoch)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection, self._staged = None, False

    # Rows

    def _change(self, db: Connection[Any], changes: pa.Table) -> None:
        key = self.context.key
        gone, come = deletes(changes, key), upserts(changes)
        if gone.num_rows:
            self._load(db, self._weighted(gone, -1))
        if come.num_rows:
            self._load(db, self._weighted(come))
            self._loosen_for_nulls(db)
        if gone.num_rows:
            db.execute(self.table.delete)
            if any(gone.column(name).null_count for name in key):
                db.execute(self.table.delete_nulls)
        if come.num_rows:
            db.execute(self.table.upsert)

    def _change_multiset(self, db: Connection[Any], changes: pa.Table) -> None:
        self._load(db, self._weighted(changes.drop_columns([WEIGHT]), changes.column(WEIGHT)))
        weights = changes.column(WEIGHT)
        leaving = -(pc.sum(weights.filter(pc.less(weights, 0))).as_py() or 0)
        if leaving and db.execute(self.table.delete_copies).rowcount != leaving:
            raise Corruption(
                f'a row that leaves view "{self.context.view}" is not in the table {self.table.name}',
                detail="Nothing of this tick was applied. The table was changed elsewhere, or Headwater was upgraded.",
                hint="The sink takes a full copy.",
            )
        db.execute(self.table.upsert)

    def _weighted(self, rows: pa.Table, weight: Any = 1) -> pa.Table:
        """Rows as the temporary table has them."""
        if not self.context.key:
            rows = self._named(rows)
        if isinstance(weight, int):
            weight = pa.array(np.full(rows.num_rows, weight, np.int64))
        return rows.append_column(WEIGHT, weight)

    def _named(self, rows: pa.Table) -> pa.Table:
        return rows.append_column(ROW_NAME, pa.array([name.hex() for name in row_names(rows)], pa.string()))

    def _stage(self, db: Connection[Any]) -> None:
        # Once for each connection: a table made for each tick would leave its traces in the server's own tables.
        if not self._staged:
            db.execute(self.table.create_stage)
            self._staged = True

    def _load(self, db: Connection[Any], rows: pa.Table) -> None:
        self._copy(db, rows.to_batches(), self.table.stage)

    def _copy(self, db: Connection[Any], rows: Iterable[pa.RecordBatch], into: str) -> None:
        cursor, names = db.cursor(), self.table.names
        staged = into == self.table.stage
        columns = ", ".join(map(quoted, [*names, WEIGHT] if staged else names))
        with cursor.copy(f"COPY {into} ({columns}) FROM STDIN (FORMAT csv)".encode()) as copy:
            for batch in rows:
                for start in range(0, batch.num_rows, COPY_ROWS):
                    piece = pa.Table.from_batches([batch.slice(start, COPY_ROWS)])
                    piece = piece if staged or self.context.key else self._named(piece)
                    copy.write(copy_text(piece, self.nul))

    def _loosen_for_nulls(self, db: Connection[Any]) -> None:
        """A view's key may be null, a primary key may not: let a unique index take its place, once it is needed."""
        if not self.context.key or not db.execute(self.table.has_staged_nulls).fetchone():
            return
        self.table.loosen(db)

    # Transactions and progress

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        with self._translated():
            if self._connection is None:
                self._connection = connected(self.dsn, self.context.app)
            try:
                with self._connection.transaction():
                    yield self._connection
            except BaseException:
                self._staged = False  # it may have been made in what was rolled back
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self._mapped(error) from error

    def _mapped(self, error: Any) -> HeadwaterError:
        mapped = mapped_error(error, self.dsn, self.context.sink, self.table.name)
        if isinstance(mapped, Unavailable):
            with suppress(Exception):
                self.close()
        return mapped

    def _progress(self, db: Connection[Any], *, whole: bool = True) -> StoredProgress | None:
        """How far the table is, locked; with ``whole``, None also when it was removed."""
        (known, there) = db.execute(self.table.exist).fetchone() or (None, None)
        if known is None or (whole and there is None):
            return None
        row = db.execute(
            f"SELECT tick, epoch, version FROM {self.table.progress} WHERE sink = %s AND target = %s FOR UPDATE",
            (self.context.identity, self.table.table),
        ).fetchone()
        return None if row is None else StoredProgress(*row)

    def _remember(self, db: Connection[Any], tick: int, epoch: int) -> StoredProgress:
        self.table.remember(db, tick, epoch)
        return StoredProgress(tick, epoch, self.context.version)


__all__ = ["PROGRESS_TABLE", "PostgresSink", "PostgresTarget", "without_password"]
