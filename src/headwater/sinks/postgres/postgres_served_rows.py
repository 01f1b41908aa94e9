"""Served rows in PostgreSQL: what a server that runs no engine reads.

What it is: ``PostgresServedRows``, the views that ``postgres_serving.py`` brings to a PostgreSQL server, with the
reading half of ``ServingStore``: which views there are, the first rows of one, rows by some columns, the tick.
Invariants: each answer is of one snapshot (REPEATABLE READ, read only), with the tick that the snapshot is of. Values
are those of the view's Spark types. Nothing is ever written.
Not here: writing (``postgres_serving.py``); the store on a machine's own disk (``views/serving/serving_store.py``).
Read next: ``postgres_serving.py``; ``docs/serving.md``.
"""

from __future__ import annotations

import csv
import io
import json
import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import MissingExtra, Misuse, Unavailable
from headwater.hints import suggestion
from headwater.log.schema.far_times import far_json_lines
from headwater.log.token import Token
from headwater.sinks.postgres.postgres_columns import column_type, copy_text
from headwater.sinks.postgres.postgres_serving import TICK_TABLE, PostgresServing
from headwater.sinks.postgres.postgres_sink import connected, without_password
from headwater.sinks.postgres.postgres_table import quoted
from headwater.views.serving.serving_columns import ServedColumn
from headwater.views.serving.serving_queries import Bounds, answer_too_large, out_of_time
from headwater.views.serving.serving_tables import ServedTable, ServedTableState

if TYPE_CHECKING:
    from psycopg import Connection

NO_TICK = -1
CONNECTIONS_MAX = 16
UTC = "-c timezone=UTC -c default_transaction_read_only=on"


@dataclass(frozen=True)
class ServedTick:
    """What the tables hold: a tick, its frontier, and the views."""

    tick: int
    frontier: Token
    views: Mapping[str, ServedTable]


NOTHING = ServedTick(NO_TICK, Token({}), {})


class PostgresServedRows:
    """The served views of one app. Safe to share between threads."""

    look_s = 0.05  # who waits for a tick asks so often: nothing wakes this process

    def __init__(self, serving: PostgresServing) -> None:
        self.serving = serving
        self._idle: queue.LifoQueue[Connection[Any]] = queue.LifoQueue(CONNECTIONS_MAX)
        self._parsed: tuple[str, dict[str, ServedTable]] = ("", {})

    @property
    def tick(self) -> int:
        """The tick that the tables hold; -1 when there is none."""
        return self._now().tick

    @property
    def frontier(self) -> Token:
        """The frontier of the log that they contain."""
        return self._now().frontier

    def views(self) -> Mapping[str, ServedTable]:
        """The views that can be read, by name."""
        return self._now().views

    def first(self, view: str, bounds: Bounds) -> tuple[int, pa.Table]:
        """The tick, and the first rows of a view."""
        return self._read(view, {}, bounds)

    def found(self, view: str, columns: Mapping[str, Any], bounds: Bounds) -> tuple[int, pa.Table]:
        """The tick, and the rows of a view with these values in some columns."""
        return self._read(view, columns, bounds)

    def _now(self) -> ServedTick:
        with self._snapshot(Bounds()) as db:
            return self._tick(db)

    def _tick(self, db: Connection[Any]) -> ServedTick:
        table = f"{quoted(self.serving.schema)}.{TICK_TABLE}"
        if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
            return NOTHING
        row = db.execute(f"SELECT tick, token, views FROM {table}").fetchone()
        if row is None:
            return NOTHING
        tick, token, views = row
        if self._parsed[0] != views:
            self._parsed = (views, {view: _described(view, about) for view, about in json.loads(views).items()})
        return ServedTick(tick, Token.parse(token) if token else Token({}), self._parsed[1])

    def _read(self, view: str, wanted: Mapping[str, Any], bounds: Bounds) -> tuple[int, pa.Table]:
        with self._snapshot(bounds) as db:
            now = self._tick(db)
            table = now.views.get(view)
            if table is None:
                raise Misuse(f'view "{view}" is not served', hint=suggestion(view, list(now.views)), view=view)
            for name in wanted:
                if name not in table.by_name:
                    raise Misuse(f'view "{view}" has no column "{name}"', hint=suggestion(name, list(table.by_name)))
            names = tuple(wanted)
            types = {name: column_type(table.by_name[name].arrow) for name in names}
            conditions = [f"{quoted(n)} IS NOT DISTINCT FROM CAST(%s AS {types[n]})" for n in names]
            given: list[Any] = [_text(wanted[name], table.by_name[name]) for name in names]
            seen = bounds.hidden.get(view.lower())
            if seen is not None and seen.rows is not None:
                seen.rows.check(table.schema)
                conditions += [f"CAST({quoted(column)} AS text) = ANY(%s)" for column, _ in seen.rows.values]
                given += [list(values) for _, values in seen.rows.values]
            where = " AND ".join(conditions)
            shown = ", ".join(map(_selected, table.columns))
            limit = "" if bounds.rows is None else f" LIMIT {bounds.rows}"
            sql = f"SELECT {shown} FROM {quoted(self.serving.schema)}.{quoted(view)}"
            sql += (f" WHERE {where}" if where else "") + limit
            rows = db.execute(sql, given).fetchall()
        listed = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
        arrays = [_loaded(column, values) for column, values in zip(table.columns, listed, strict=True)]
        answer = pa.Table.from_arrays(arrays, schema=table.schema)
        if bounds.bytes is not None and answer.nbytes > bounds.bytes:
            raise answer_too_large(bounds.bytes)
        return now.tick, answer

    @contextmanager
    def _snapshot(self, bounds: Bounds) -> Iterator[Connection[Any]]:
        """One state of the tables, for all that the block reads."""
        with MissingExtra.raised_for('App(serve="postgresql://…")', "postgres"):
            import psycopg
        db = None
        try:
            db = self._taken()
            with db.transaction():
                db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                if bounds.seconds is not None:
                    db.execute(f"SET LOCAL statement_timeout = {max(1, round(bounds.seconds * 1000))}")
                yield db
        except psycopg.errors.QueryCanceled as error:
            raise out_of_time(bounds.seconds or 0.0) from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.UndefinedTable) as error:
            if db is not None:
                db.close()
                db = None
            raise Unavailable(
                f"PostgreSQL at {without_password(self.serving.dsn)} does not answer: {str(error).splitlines()[0]}",
                hint="Rows are served from there: check that it runs. Try again.",
            ) from error
        finally:
            if db is not None:
                self._give_back(db)

    def _taken(self) -> Connection[Any]:
        with suppress(queue.Empty):
            while True:
                db = self._idle.get_nowait()
                if not db.closed:
                    return db
        return connected(self.serving.dsn, self.serving.app, options=UTC)

    def _give_back(self, db: Connection[Any]) -> None:
        try:
            self._idle.put_nowait(db)
        except queue.Full:
            db.close()

    def close(self) -> None:
        """Close the connections."""
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


def _described(view: str, about: Mapping[str, Any]) -> ServedTable:
    columns = tuple(ServedColumn.of(name, type) for name, type in about["columns"])
    return ServedTable(view, 0, columns, tuple(about["key"]), "", ServedTableState.LIVE, NO_TICK)


def _selected(column: ServedColumn) -> str:
    """A nested column is read as the text of its JSON: psycopg would make floats of its decimals."""
    return f"{quoted(column.name)}::text" if kinds.is_nested(column.arrow) else quoted(column.name)


def _text(value: Any, column: ServedColumn) -> str | None:
    """A value as PostgreSQL reads it: as the writer writes it for COPY, without CSV's quotes."""
    if value is None:
        return None
    text = bytes(copy_text(pa.table({column.name: pa.array([value], column.arrow)}), None)).decode()
    return next(csv.reader(io.StringIO(text, newline="")))[0]


def _loaded(column: ServedColumn, values: Any) -> pa.Array:
    if kinds.is_nested(column.arrow):
        name = json.dumps(column.name)
        lines = [f"{{{name}:{'null' if value is None else value}}}" for value in values]
        return far_json_lines(lines, pa.schema([pa.field(column.name, column.arrow)])).column(0)
    if kinds.is_null(column.arrow):
        return pa.nulls(len(values))
    return pa.array(values, column.arrow)
