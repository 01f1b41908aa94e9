"""Serving from PostgreSQL: all views of an app as tables of a server, which several processes read.

What it is: ``PostgresServing``, what ``hw.App(serve="postgresql://…")`` declares; ``ServingTask`` brings each committed
tick there, as a sink of all served views together.
Invariants: the changes of all views, and the row that says which tick they are of, are one transaction: a reader
in one snapshot sees one whole tick. That row is locked first, so of two processes the second waits, and sees the
first one's epoch. A view that is new, was rebuilt, or lags beyond what is kept is copied within the same transaction.
Not here: one view's table (``postgres_sink.py``); reading (``postgres_served_rows.py``); threads and errors
(``sinks/runner/sink_task.py``).
Read next: ``postgres_served_rows.py``; ``docs/serving.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Corruption, MissingExtra
from headwater.log.schema.ddl import spark_type
from headwater.sinks.postgres.postgres_sink import PostgresTarget, connected, mapped_error, without_password
from headwater.sinks.postgres.postgres_table import PostgresTable, quoted
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import PROGRESS_TABLE, Sink, SinkContext, StoredProgress, Target, check_fence
from headwater.views.serving.view_reader import ViewReader

if TYPE_CHECKING:
    from psycopg import Connection

    from headwater.log.contract import EventLog
    from headwater.views.runtime import AppRuntime
    from headwater.views.serving.committed_changes import CommittedChanges
    from headwater.views.state.manifest import Manifest

ALL_VIEWS = "*"
NAME = "serving"
TICK_TABLE = "_headwater_tick"
EVERYTHING = 1 << 62  # all changes up to a tick, since all views are to be of that one
SCHEMA_PREFIX = "headwater_"
NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class PostgresServing(Sink):
    """The views of an app in a schema of a PostgreSQL server, by default ``headwater_<app>``.

    >>> PostgresServing("postgresql://app:secret@db.example/shop", "shop")
    PostgresServing('postgresql://app:***@db.example/shop', schema='headwater_shop')
    """

    dsn: str = field(repr=False)
    app: str

    kind = "postgres"

    @property
    def schema(self) -> str:
        """The schema that has the tables."""
        return f"{SCHEMA_PREFIX}{self.app}"

    def task(self, name: str, runtime: AppRuntime, log: EventLog) -> SinkTask:
        """What brings the views of a running app there."""
        views = [declared.name for declared in runtime.declared if declared.serve]
        return ServingTask(name, self.app, self, runtime.committed, log, views=views, epoch=lambda: runtime.epoch)

    def open(self, context: SinkContext, log: EventLog) -> Target:
        """Not called: a ``ServingTask`` brings all views together."""
        raise NotImplementedError

    def __str__(self) -> str:
        return without_password(self.dsn)

    def __repr__(self) -> str:
        return f"PostgresServing({str(self)!r}, schema={self.schema!r})"


class SharedTarget(PostgresTarget):
    """One view's table in a transaction of the caller, which has all views."""

    def close(self) -> None:
        """The connection is not its own."""


class ServingTask(SinkTask):
    """Brings committed ticks to PostgreSQL, all views of a tick at once."""

    def __init__(
        self,
        name: str,
        app: str,
        serving: PostgresServing,
        committed: CommittedChanges,
        log: EventLog,
        *,
        views: Sequence[str],
        epoch: Callable[[], int],
    ) -> None:
        super().__init__(
            name, ALL_VIEWS, app, serving, ViewReader(ALL_VIEWS, committed, epoch=epoch, clock=log.clock), log
        )
        self.serving = serving
        self._committed = committed
        self._views = views  # those that are served
        self._epoch = epoch
        self._connection: Connection[Any] | None = None
        self._targets: dict[str, SharedTarget] = {}

    def _step(self) -> bool:
        """Bring everything up to the current tick; False when it is there."""
        self._advanced = False
        manifest = self._committed.manifests.current()
        if not manifest.tick:
            return False
        if self._progress is not None and self._is_there(self._progress, manifest):
            self._went_well(self._progress, 0)
            return False
        before = self._progress
        with self._transaction() as db:
            self._make(db)
            stored = self._stored(db)
            self._check_fence(stored)
            if stored is not None and self._is_there(stored, manifest):
                self._progress = stored
                return True
            rows = sum(self._bring(db, view, manifest) for view in self._views if view in manifest.views)
            self._drop_others(db, manifest)
            self._progress = self._remember(db, manifest)
        self._advanced = before is None or self._progress.tick != before.tick
        self._went_well(self._progress, rows)
        return True

    def _is_there(self, progress: StoredProgress, manifest: Manifest) -> bool:
        return progress == StoredProgress(manifest.tick, progress.epoch, self._served_version(manifest))

    def _served_version(self, manifest: Manifest) -> str:
        """Changes with the state, and with the views that are served."""
        views = ",".join(sorted(view for view in self._views if view in manifest.views))
        return f"{self._committed.manifests.state_id()}/{views}"

    # One view

    def _bring(self, db: Connection[Any], view: str, manifest: Manifest) -> int:
        """Bring a view to the manifest's tick; returns how many rows were moved."""
        reader = ViewReader(view, self._committed, epoch=self._epoch, clock=self.log.clock)
        head = reader.head_at(manifest)
        target = self._target_of(db, SinkContext(self.app, view, NAME, head.schema, head.key, head.version))
        progress = target.progress()
        if progress is not None and progress.version == head.version and progress.tick <= head.tick:
            if progress.tick == head.tick:
                return 0
            delivery = reader.changes(progress.tick, head, rows_max=EVERYTHING, ticks_max=EVERYTHING)
            if delivery is not None:
                try:
                    target.apply(delivery)
                    return int(delivery.changes.num_rows)
                except Corruption:
                    pass  # the table was changed by somebody else: copied below
        copied = 0

        def counted(batches: Iterator[Any]) -> Iterator[Any]:
            nonlocal copied
            for batch in batches:
                copied += batch.num_rows
                yield batch

        with reader.rows_at(manifest) as (_, batches):
            target.fill(counted(batches), head.tick, self._epoch())
        return copied

    def _target_of(self, db: Connection[Any], context: SinkContext) -> SharedTarget:
        known = self._targets.get(context.view)
        if known is None or known.context != context or known._connection is not db:
            table = PostgresTable(context, self.serving.schema, context.view)
            known = self._targets[context.view] = SharedTarget(context, self.serving.dsn, table, None)
            known._connection = db
        return known

    def _drop_others(self, db: Connection[Any], manifest: Manifest) -> None:
        """Drop the tables of views that are served no more."""
        progress = f"{quoted(self.serving.schema)}.{PROGRESS_TABLE}"
        there = db.execute("SELECT to_regclass(%s)", (progress,)).fetchone() != (None,)
        for (table,) in db.execute(f"SELECT target FROM {progress}").fetchall() if there else ():
            if table not in manifest.views or table not in self._views:
                db.execute(f"DROP TABLE IF EXISTS {quoted(self.serving.schema)}.{quoted(table)}")
                db.execute(f"DELETE FROM {progress} WHERE target = %s", (table,))

    # The tick

    def _make(self, db: Connection[Any]) -> None:
        table = self._tick_table
        if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,):
            return
        db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (table,))
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.serving.schema)}")
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (one integer PRIMARY KEY CHECK (one = 1), tick bigint NOT NULL,"
            " epoch bigint NOT NULL, version text NOT NULL, token text NOT NULL, views text NOT NULL,"
            " committed_at timestamptz NOT NULL, applied_at timestamptz NOT NULL)"
        )

    @property
    def _tick_table(self) -> str:
        return f"{quoted(self.serving.schema)}.{TICK_TABLE}"

    def _stored(self, db: Connection[Any]) -> StoredProgress | None:
        row = db.execute(f"SELECT tick, epoch, version FROM {self._tick_table} FOR UPDATE").fetchone()
        return None if row is None else StoredProgress(*row)

    def _check_fence(self, stored: StoredProgress | None) -> None:
        version = f"{self._committed.manifests.state_id()}/"
        context = SinkContext(self.app, ALL_VIEWS, self.name, NO_COLUMNS, (), version)
        check_fence(stored, context, self._epoch(), filling=True)

    def _remember(self, db: Connection[Any], manifest: Manifest) -> StoredProgress:
        about = {}
        for view in (view for view in self._views if view in manifest.views):
            context = self._targets[view].context
            about[view] = {
                "columns": [[column.name, spark_type(column.type)] for column in context.schema],
                "key": list(context.key),
            }
        made = StoredProgress(manifest.tick, self._epoch(), self._served_version(manifest))
        committed_s = manifest.committed_us / 1_000_000
        db.execute(
            f"INSERT INTO {self._tick_table} VALUES (1, %s, %s, %s, %s, %s, to_timestamp(%s), now())"
            " ON CONFLICT (one) DO UPDATE SET tick = excluded.tick, epoch = excluded.epoch,"
            " version = excluded.version, token = excluded.token, views = excluded.views,"
            " committed_at = excluded.committed_at, applied_at = excluded.applied_at",
            (made.tick, made.epoch, made.version, str(manifest.token), json.dumps(about), committed_s),
        )
        return made

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        with MissingExtra.raised_for('App(serve="postgresql://…")', "postgres"):
            import psycopg
        try:
            if self._connection is None:
                self._connection = connected(self.serving.dsn, self.app)
            with self._connection.transaction():
                yield self._connection
        except BaseException as error:
            self._targets, self._progress = {}, None  # what was rolled back may have been made in it
            if isinstance(error, psycopg.Error):
                raise mapped_error(error, self.serving.dsn, self.name, self.serving.schema) from error
            raise

    def _close(self) -> None:
        connection, self._connection, self._targets, self._progress = self._connection, None, {}, None
        if connection is not None:
            connection.close()
