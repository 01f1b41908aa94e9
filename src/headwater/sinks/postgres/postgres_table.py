"""A sink's table in PostgreSQL: its SQL, creation and migration.

What it is: ``PostgresTable``, the statements for one view's table, its temporary table, and its row in
``_headwater_progress``.
Invariants: a view's key is the primary key; once a key is null, a unique index in which nulls are equal replaces it
(PostgreSQL 15 or newer). A view without a key has a column ``_hw_row`` that identifies its rows; equal rows are stored
as often as in the view. Every method runs inside the caller's transaction.
Not here: connections and rows (``postgres_sink.py``).
Read next: ``postgres_sink.py``.
"""

from __future__ import annotations

import json
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import SinkRefused
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.postgres.postgres_columns import column_type
from headwater.sinks.sink import PROGRESS_TABLE, ROW_NAME, SinkContext

if TYPE_CHECKING:
    from psycopg import Connection

NULLS_EQUAL_VERSION = 150_000  # the first server that can take nulls for equal in an index
NAME_BYTES_MAX = 63


def quoted(name: str) -> str:
    """A name as SQL text.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL."""
    return "'" + value.replace("'", "''") + "'"


class PostgresTable:
    """One view's table."""

    def __init__(self, context: SinkContext, schema: str, table: str) -> None:
        self.context = context
        self.schema = schema
        self.table = table
        self.name = f"{quoted(schema)}.{quoted(table)}"
        self.progress = f"{quoted(schema)}.{PROGRESS_TABLE}"
        # Several views may be changed in one transaction, each with a temporary table of its own.
        self.stage = f"pg_temp._headwater_stage_{zlib.crc32(table.encode()):08x}"
        self.types = {field.name: column_type(field.type) for field in context.schema}
        if not context.key:
            self.types[ROW_NAME] = "uuid"
        self.names = list(self.types)
        for name in [table, *self.names]:
            if len(name.encode()) > NAME_BYTES_MAX:
                raise SinkRefused(
                    f'PostgreSQL cuts names after {NAME_BYTES_MAX} bytes, and "{name}" is longer',
                    hint="Give it another name: Postgres(dsn, table=…), or an AS in the view's SQL.",
                )

    # Statements

    @cached_property
    def exist(self) -> str:
        """Tells whether the progress table and the table are there."""
        return f"SELECT to_regclass({text(self.progress)}), to_regclass({text(self.name)})"

    @cached_property
    def create_stage(self) -> str:
        """The temporary table, emptied at the end of each transaction."""
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.types.items())
        name = self.stage.removeprefix("pg_temp.")
        return f"CREATE TEMP TABLE IF NOT EXISTS {name} ({columns}, {WEIGHT} bigint) ON COMMIT DELETE ROWS"

    @cached_property
    def _columns(self) -> str:
        return ", ".join(map(quoted, self.names))

    def _same(self, how: str = "=") -> str:
        return " AND ".join(f"t.{quoted(name)} {how} s.{quoted(name)}" for name in self.context.key)

    @cached_property
    def upsert(self) -> str:
        """Bring what came: with a key over what is there, without one as often as its weight says."""
        into = f"INSERT INTO {self.name} ({self._columns})"
        if not self.context.key:
            return f"{into} SELECT {self._columns} FROM {self.stage}, generate_series(1, {WEIGHT}) WHERE {WEIGHT} > 0"
        key = ", ".join(map(quoted, self.context.key))
        others = [name for name in self.names if name not in self.context.key]
        updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        do = f"UPDATE SET {updates}" if updates else "NOTHING"
        return f"{into} SELECT {self._columns} FROM {self.stage} WHERE {WEIGHT} > 0 ON CONFLICT ({key}) DO {do}"

    @cached_property
    def delete(self) -> str:
        """Take away what left, found by its key."""
        return f"DELETE FROM {self.name} t USING {self.stage} s WHERE s.{WEIGHT} < 0 AND {self._same()}"

    @cached_property
    def delete_nulls(self) -> str:
        """The same for keys with a null, which an index does not find."""
        null = " OR ".join(f"s.{quoted(name)} IS NULL" for name in self.context.key)
        same = self._same("IS NOT DISTINCT FROM")
        return f"DELETE FROM {self.name} t USING {self.stage} s WHERE s.{WEIGHT} < 0 AND ({null}) AND {same}"

    @cached_property
    def delete_copies(self) -> str:
        """Take away as many copies of a row without a key as its weight says."""
        numbered = (
            f"SELECT t.ctid AS place, row_number() OVER (PARTITION BY t.{ROW_NAME}) AS copy, s.{WEIGHT} AS weight"
            f" FROM {self.name} t JOIN {self.stage} s ON t.{ROW_NAME} = s.{ROW_NAME} WHERE s.{WEIGHT} < 0"
        )
        return f"DELETE FROM {self.name} t USING ({numbered}) n WHERE t.ctid = n.place AND n.copy <= -n.weight"

    @cached_property
    def clear_others(self) -> str:
        """Take away every row whose key the temporary table does not have."""
        same = self._same("IS NOT DISTINCT FROM")
        return f"DELETE FROM {self.name} t WHERE NOT EXISTS (SELECT 1 FROM {self.stage} s WHERE {same})"

    @cached_property
    def clear(self) -> str:
        """Take away every row."""
        return f"DELETE FROM {self.name}"

    @cached_property
    def has_staged_nulls(self) -> str:
        """Gives a row when a key that comes has a null."""
        null = " OR ".join(f"{quoted(name)} IS NULL" for name in self.context.key)
        return f"SELECT 1 FROM {self.stage} WHERE {WEIGHT} > 0 AND ({null}) LIMIT 1"

    # Making and changing

    def create_progress(self, db: Connection[Any]) -> None:
        """Make the schema and the table of progress, where they are missing."""
        if db.execute("SELECT to_regnamespace(%s)", (quoted(self.schema),)).fetchone() == (None,):
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        if db.execute("SELECT to_regclass(%s)", (self.progress,)).fetchone() != (None,):
            return
        # Two processes may make it at once; IF NOT EXISTS alone lets one of them fail.
        db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.progress,))
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self.progress} (sink text PRIMARY KEY, target text NOT NULL UNIQUE,"
            " columns text NOT NULL, key text NOT NULL, tick bigint NOT NULL, epoch bigint NOT NULL,"
            " version text NOT NULL, applied_at timestamptz NOT NULL)"
        )

    def prepare(self, db: Connection[Any]) -> bool:
        """Make the table, or give it these columns; True when it is new and has no key yet.

        The existing table is kept when columns were only added; otherwise it is made again.
        """
        row = db.execute(
            f"SELECT sink, columns, key FROM {self.progress} WHERE target = %s FOR UPDATE", (self.table,)
        ).fetchone()
        there = db.execute("SELECT to_regclass(%s)", (self.name,)).fetchone() != (None,)
        if there and (row is None or row[0] != self.context.identity):
            whose = f"it belongs to sink {row[0]}" if row else "Headwater did not make it"
            raise SinkRefused(
                f"table {self.name} exists, and {whose}",
                hint='Give the sink another one: Postgres(dsn, table="…"), or drop that one.',
                table=self.table,
            )
        if there and row is not None and self._follows(json.loads(row[1]), json.loads(row[2])):
            known = len(json.loads(row[1]))
            for name in self.names[known:]:
                db.execute(f"ALTER TABLE {self.name} ADD COLUMN IF NOT EXISTS {quoted(name)} {self.types[name]}")
            return False
        if there:
            db.execute(f"DROP TABLE {self.name}")
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.types.items())
        db.execute(f"CREATE TABLE {self.name} ({columns})")
        return True

    def _follows(self, columns: list[list[str]], key: list[str]) -> bool:
        """Whether these columns are those before and perhaps more."""
        if not self.context.key and len(columns) != len(self.names):
            return False  # the row's name is among them, and stands at the end
        now = [[name, kind] for name, kind in self.types.items()]
        return columns == now[: len(columns)] and tuple(key) == self.context.key

    def create_key(self, db: Connection[Any]) -> None:
        """Give a new table its primary key, or the index of its rows' names."""
        if not self.context.key:
            db.execute(f"CREATE INDEX ON {self.name} ({ROW_NAME})")
            return
        null = " OR ".join(f"{quoted(name)} IS NULL" for name in self.context.key)
        if db.execute(f"SELECT 1 FROM {self.name} WHERE {null} LIMIT 1").fetchone():
            self._create_index(db)
        else:
            key = ", ".join(map(quoted, self.context.key))
            db.execute(f"ALTER TABLE {self.name} ADD PRIMARY KEY ({key})")

    def loosen(self, db: Connection[Any]) -> None:
        """Let a unique index take the place of the primary key."""
        found = db.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'", (self.name,)
        ).fetchone()
        if found is None:
            return
        db.execute(f"ALTER TABLE {self.name} DROP CONSTRAINT {quoted(found[0])}")
        for name in self.context.key:
            db.execute(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} DROP NOT NULL")
        self._create_index(db)

    def _create_index(self, db: Connection[Any]) -> None:
        if db.info.server_version < NULLS_EQUAL_VERSION:
            raise SinkRefused(
                f'a key of view "{self.context.view}" is null, which PostgreSQL takes for a key since version 15',
                hint="Leave such rows out in the view's SQL (WHERE … IS NOT NULL), or use a newer server.",
            )
        key = ", ".join(map(quoted, self.context.key))
        db.execute(f"CREATE UNIQUE INDEX ON {self.name} ({key}) NULLS NOT DISTINCT")

    def remember(self, db: Connection[Any], tick: int, epoch: int) -> None:
        """Store the progress."""
        context = self.context
        columns = json.dumps([[name, kind] for name, kind in self.types.items()])
        values = (context.identity, self.table, columns, json.dumps(context.key), tick, epoch, context.version)
        db.execute(
            f"INSERT INTO {self.progress} VALUES (%s, %s, %s, %s, %s, %s, %s, now()) ON CONFLICT (sink) DO UPDATE SET"
            " target = excluded.target, columns = excluded.columns, key = excluded.key, tick = excluded.tick,"
            " epoch = excluded.epoch, version = excluded.version, applied_at = excluded.applied_at",
            values,
        )
