"""PostgreSQL as a captured database.

What it is: ``Postgres``, the user's declaration, and ``PostgresDatabase``, the contract of ``capture/database.py`` for
it: a slot, a publication, chunks and their snapshots.
Invariants: the slot and the publication have the capture's name and are the only objects created in the database. A
table is in the publication, and every earlier transaction has ended, before its first chunk is read. No writer waits.
Not here: the stream (``replication.py``), conversion of values (``postgres_types.py``), errors
(``postgres_errors.py``). Read next: ``capture/database.py``, ``docs/capture.md``.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.change_writer import ChangeWriter
from headwater.capture.database import BackfillChunk, CaptureLag, ChunkRead, SourceColumn, SourceTable
from headwater.capture.door import Door, OpenDoor
from headwater.capture.position import LSN_UNIT, to_number, to_text
from headwater.capture.postgres import postgres_errors
from headwater.capture.postgres.pgoutput import RelationMessage
from headwater.capture.postgres.postgres_types import BEYOND, FIXED, PLAIN_TEXT, TEXT_SETTINGS, arrow_of, to_arrow
from headwater.capture.postgres.replication import PostgresStream
from headwater.capture.text_rows import TextRows
from headwater.errors import CaptureLost, HeadwaterError, InvalidDeclaration, SourceRefused
from headwater.log.contract import EventLog
from headwater.log.schema.personal_columns import Mask

CHUNK_ROWS = 200_000
CHUNKS_MAX = 10_000
# Types with the same order in Python and PostgreSQL: whole numbers, and types that sort as their text.
WHOLE = {20, 21, 23, 26}
AS_TEXT = {2950, 1082}
# And texts, when they are compared by their bytes; in these encodings that is the order of their characters.
TEXT = {25, 1043}
ENCODINGS = {"UTF8", "LATIN1", "SQL_ASCII"}
TEXT_CHUNK_ROWS = 4 * CHUNK_ROWS  # each is a walk over the whole table, unless its index is in this order
BLANK_PADDED = 1042
# Types that the driver reads exactly as to_arrow reads their texts. Dates and times have infinities.
PLAIN = {16, 20, 21, 23, 700, 701}
MOMENTS = {1114: "timestamp", 1184: "timestamptz"}  # and these, once their infinities are marked
SLOT = re.compile(r"[a-z0-9_]{1,63}")

COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, c.relreplident::text, c.reltuples::bigint, c.relkind::text,
       coalesce(a.attnum = ANY (i.indkey::int2[]), false), a.attgenerated::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_index i ON i.indrelid = c.oid
       AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END
 WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum"""


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL table as the source of one of ours.

    ``slot`` names the replication slot and the publication; tables of one database and one slot are captured together.
    Without it the app's name makes one.

    ``columns``, ``mask`` and ``hash`` say what of it is taken, before anything is stored: see ``docs/privacy.md``.

    >>> import headwater as hw
    >>> hw.capture.Postgres("postgresql://localhost/shop", table="public.users")
    Postgres(table='public.users', slot=None)
    """

    dsn: str
    table: str
    slot: str | None = None

    columns: Sequence[str] | None = None  # these are taken; None: all
    mask: Mapping[str, Mask] | None = None
    hash: Sequence[str] = ()
    hash_key: str | None = None  # "env:NAME" or "file:PATH": the secret

    def __post_init__(self) -> None:
        Door.declared(self.columns, self.mask, self.hash, self.hash_key)  # refuses what makes no sense
        if "." not in self.table:
            object.__setattr__(self, "table", f"public.{self.table}")
        if self.slot is not None and not SLOT.fullmatch(self.slot):
            raise InvalidDeclaration(
                f"slot {self.slot!r} is not allowed", hint="Use lower-case letters, digits and '_', at most 63 of them."
            )

    @property
    def door(self) -> Door | None:
        """What of the table is taken, if not all of it as it is."""
        return Door.declared(self.columns, self.mask, self.hash, self.hash_key)

    def capture_name(self, app: str) -> str:
        if self.slot is not None:
            return self.slot
        digest = hashlib.sha256(self.dsn.encode()).hexdigest()[:6]
        return f"headwater_{re.sub('[^a-z0-9_]', '_', app.lower())[:40]}_{digest}"

    def server(self, app: str, log: EventLog | None = None) -> PostgresDatabase:  # noqa: ARG002
        return PostgresDatabase(self.dsn, self.capture_name(app))

    def __repr__(self) -> str:  # without the dsn, which may hold a password
        return f"Postgres(table={self.table!r}, slot={self.slot!r})"


class PostgresDatabase:
    """One database and one slot of it."""

    def __init__(self, dsn: str, name: str) -> None:
        self.dsn = dsn
        self.name = name
        self.doors: Mapping[str, OpenDoor] = {}
        self.base = 0  # places are counted from here: where the slot began
        self._types: dict[int, tuple[int, int, str]] = {}
        self._local = threading.local()
        self._open: list[Any] = []

    # Connections

    def connect(self, **options: Any) -> Any:
        psycopg = postgres_errors.driver()
        try:
            return psycopg.connect(**{**self._settings(), **options}, autocommit=True)
        except psycopg.Error as error:
            raise postgres_errors.map_error(error, self.name) from error

    def _settings(self) -> dict[str, Any]:
        given = postgres_errors.driver().conninfo.conninfo_to_dict(self.dsn)
        settings = " ".join(f"-c {name}={value}" for name, value in TEXT_SETTINGS.items())
        settings = f"{given.get('options', '')} {settings}".strip()
        given |= {"options": settings, "client_encoding": "UTF8", "application_name": self.name}
        given.setdefault("connect_timeout", 10)
        return dict(given)

    def _reader(self) -> Any:
        """This thread's connection for reading tables into Arrow."""
        reader = getattr(self._local, "reader", None)
        if reader is None:
            dsn = postgres_errors.driver().conninfo.make_conninfo(**self._settings())
            reader = self._local.reader = postgres_errors.arrow_driver().connect(dsn, autocommit=True)
            self._open.append(reader)
        return reader

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        psycopg = postgres_errors.driver()
        connection = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            connection = self._local.connection = self.connect()
            self._open.append(connection)
        try:
            cursor = connection.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []
        except psycopg.Error as error:
            raise postgres_errors.map_error(error, self.name) from error

    def unavailable(self, error: Exception) -> HeadwaterError:
        """The error for a broken connection."""
        return postgres_errors.map_error(error, self.name)

    def refused(self, message: str) -> HeadwaterError:
        """The error for a server that does not start to stream."""
        return postgres_errors.not_started(message, self.name)

    # Tables

    def tables(self) -> list[str]:
        found = self.ask(
            "SELECT schemaname || '.' || tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        )
        return [row[0] for row in found]

    def describe(self, table: str) -> SourceTable:
        schema, _, name = table.partition(".")
        rows = self.ask(COLUMNS, (schema, name))
        if not rows:
            raise postgres_errors.unknown_table(table, self.tables())
        identity, estimated, kind = rows[0][3], rows[0][4], rows[0][5]
        if kind != "r":
            raise SourceRefused(
                f"{table} is not an ordinary table", hint="Capture its underlying tables, each by its name."
            )
        rows = [row for row in rows if not row[7]]  # generated columns are not streamed
        key = tuple(row[0] for row in rows if row[6])
        if identity == "n" or (not key and identity != "f"):
            raise postgres_errors.no_key(table)
        columns = tuple(self._column(row[0], row[1], row[2]) for row in rows)
        return self._at_door(SourceTable(table, columns, key, max(0, estimated)))

    def _at_door(self, shape: SourceTable) -> SourceTable:
        door = self.doors.get(shape.table)
        return shape if door is None else door.applied(shape)

    def shape_of(self, relation: RelationMessage, known: SourceTable) -> SourceTable:
        """A table as the stream names it."""
        key = known.key
        if relation.identity != "f" and known.key:
            key = tuple(column.name for column in relation.columns if column.in_key)
        columns = tuple(self._column(each.name, each.type_number, each.modifier) for each in relation.columns)
        return self._at_door(SourceTable(known.table, columns, key, known.rows_estimated))

    def _column(self, name: str, type_number: int, modifier: int) -> SourceColumn:
        number, modifier, category = self._resolved(type_number, modifier)
        arrow = pa.list_(pa.string()) if category == "A" else arrow_of(number, modifier)
        weight = 0 if number in FIXED or category == "E" else 1 if number in PLAIN_TEXT else 8
        return SourceColumn(name, arrow, to_arrow, weight, number == BLANK_PADDED, number in PLAIN or number in MOMENTS)

    def _resolved(self, number: int, modifier: int) -> tuple[int, int, str]:
        """The base type of a domain; user types are mapped by their category."""
        if number < 16384:
            return number, modifier, ""
        if number not in self._types:
            rows = self.ask(
                "SELECT typtype::text, typbasetype, typtypmod, typcategory::text FROM pg_type WHERE oid = %s", (number,)
            )
            kind, below, below_modifier, category = rows[0] if rows else ("b", 0, -1, "U")
            if kind == "d":
                self._types[number] = self._resolved(below, below_modifier)
            else:
                self._types[number] = (number, -1, category)
        return self._types[number]

    # Position in the log

    def identity(self) -> str:
        ((system, database),) = self.ask("SELECT system_identifier::text, current_database() FROM pg_control_system()")
        return f"{system}/{database}"

    def remove_leftovers(self, *, ours: bool) -> None:
        """Remove the slot of an interrupted attempt; refuse one of another owner, or one in use."""
        rows = self.ask(
            "SELECT reader.pid FROM pg_replication_slots AS slot LEFT JOIN pg_stat_replication AS reader"
            " ON reader.pid = slot.active_pid WHERE slot_name = %s",
            (self.name,),
        )
        if not rows:
            return
        if rows[0][0] is not None or not ours:
            raise postgres_errors.slot_taken(self.name)
        self._drop_slot()

    def create(self, tables: Sequence[str]) -> int:
        ((level,),) = self.ask("SHOW wal_level")
        if level != "logical":
            raise postgres_errors.wal_level(level)
        if not self.ask("SELECT 1 FROM pg_publication WHERE pubname = %s", (self.name,)):
            self.ask(f'CREATE PUBLICATION "{self.name}"')
        self._publish(tables)
        ((position,),) = self.ask(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", (self.name,)
        )
        return to_number(position)

    def check(self, confirmed: Callable[[], int | None]) -> None:
        """Raise ``CaptureLost`` when the slot is gone, or beyond the confirmed position."""
        rows = self.ask(
            "SELECT wal_status, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (self.name,)
        )
        if not rows:
            raise postgres_errors.slot_gone(self.name)
        if rows[0][0] == "lost":
            raise postgres_errors.slot_lost(self.name)
        known = confirmed()  # read after the slot: another process of this home may just be confirming more
        if known is not None and to_number(rows[0][1]) > known:
            raise postgres_errors.slot_ahead(self.name)

    def claim(self) -> None:
        active = self.ask(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL", (self.name,)
        )
        if active:
            raise postgres_errors.slot_read(self.name, f"It is active for the server's process {active[0][0]}.")

    def _publish(self, tables: Sequence[str]) -> None:
        known = {
            f"{schema}.{name}"
            for schema, name in self.ask(
                "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (self.name,)
            )
        }
        for table in tables:
            if table not in known:
                self.ask(f'ALTER PUBLICATION "{self.name}" ADD TABLE {_quoted(table)}')

    def include(self, tables: Sequence[str], stopping: Callable[[], bool]) -> None:
        """Publish tables, and wait until no transaction runs that began before."""
        self._publish(tables)
        ((until,),) = self.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        while not stopping():
            ((first,),) = self.ask("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            if first >= until:
                return
            time.sleep(0.05)

    def reach(self) -> int:
        """A position after everything committed so far. The message makes sure that the log reaches it."""
        ((position,),) = self.ask("SELECT pg_logical_emit_message(true, 'headwater', '')::text")
        return to_number(position)

    def lag(self) -> CaptureLag:
        rows = self.ask(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, active, coalesce(wal_status, 'unknown')"
            " FROM pg_replication_slots WHERE slot_name = %s",
            (self.name,),
        )
        return CaptureLag(*rows[0]) if rows else CaptureLag(None, False, "missing")

    def drop(self) -> None:
        self._drop_slot()
        self.ask(f'DROP PUBLICATION IF EXISTS "{self.name}"')

    def _drop_slot(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            rows = self.ask("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (self.name,))
            if not rows:
                break
            try:
                self.ask("SELECT pg_drop_replication_slot(%s)", (self.name,))
            except CaptureLost:
                if time.monotonic() > deadline:
                    raise
                self.ask("SELECT pg_terminate_backend(%s)", (rows[0][0],))
                time.sleep(0.05)

    # Backfill

    def chunks(self, shape: SourceTable) -> list[BackfillChunk]:
        """Ranges of the first key column, when Python and PostgreSQL sort it alike; otherwise the whole table."""
        schema, _, name = shape.table.partition(".")
        column = shape.key[0] if shape.key and not shape.hides_key else None  # bounds are stored
        kinds = {row[0]: self._resolved(row[1], row[2])[0] for row in self.ask(COLUMNS, (schema, name))}
        if column is not None and kinds[column] in TEXT and self.ask("SHOW server_encoding")[0][0] in ENCODINGS:
            bounds = self._text_bounds(shape, column)
        elif column is None or kinds[column] not in WHOLE | AS_TEXT:
            return [BackfillChunk(0, None, None)]
        else:
            bounds = self._known_bounds(shape, column) or self._walked_bounds(shape, column, _type_name(kinds[column]))
        edges = [None, *bounds, None]
        return [BackfillChunk(number, edges[number], edges[number + 1]) for number in range(len(edges) - 1)]

    def _known_bounds(self, shape: SourceTable, column: str) -> list[str]:
        """Bounds from the planner's statistics, which split the table into equal parts; none when there are too few."""
        schema, _, name = shape.table.partition(".")
        found = self.ask(
            "SELECT histogram_bounds::text::text[] FROM pg_stats WHERE schemaname = %s AND tablename = %s"
            " AND attname = %s",
            (schema, name, column),
        )
        bounds: list[str] = list(found[0][0] or ()) if found else []
        wanted = shape.rows_estimated // CHUNK_ROWS
        if wanted < 2 or wanted > len(bounds) - 1:
            return []
        return [bounds[number * (len(bounds) - 1) // wanted] for number in range(1, wanted)]

    def _walked_bounds(self, shape: SourceTable, column: str, kind: str) -> list[str]:
        """Bounds from a walk along the index of the key."""
        sql = (
            f"SELECT t.{_name(column)}::text FROM {_quoted(shape.table)} AS t"
            f" WHERE (%s::text IS NULL OR t.{_name(column)} > %s::text::{kind})"
            f" ORDER BY t.{_name(column)} OFFSET {CHUNK_ROWS - 1} LIMIT 1"
        )
        bounds: list[str] = []
        while len(bounds) < CHUNKS_MAX:
            last = bounds[-1] if bounds else None
            found = self.ask(sql, (last, last))
            if not found or found[0][0] == last:
                break
            bounds.append(found[0][0])
        return bounds

    def _text_bounds(self, shape: SourceTable, column: str) -> list[str]:
        """Bounds from the whole table, sorted by the bytes of the key."""
        key = f'{_name(column)}::text COLLATE "C"'
        found = self.ask(
            f"SELECT k FROM (SELECT {key} AS k, row_number() OVER (ORDER BY {key}) AS n FROM {_quoted(shape.table)}) t"
            f" WHERE mod(n, {TEXT_CHUNK_ROWS}) = 0 GROUP BY k ORDER BY k"
        )
        return [row[0] for row in found]

    def in_chunk(self, shape: SourceTable, chunk: BackfillChunk, key: str) -> bool:
        """Whether a key is in the range of a chunk."""
        whole = any(pa.types.is_integer(each.arrow) for each in shape.columns if each.name == shape.key[0])
        ordered: Callable[[str], Any] = int if whole else str
        return (chunk.low is None or ordered(key) > ordered(chunk.low)) and (
            chunk.high is None or ordered(key) <= ordered(chunk.high)
        )

    def filled(self, table: str, columns: Sequence[str]) -> bool:
        """Whether one of these columns has a default, or had one when it was added."""
        schema, _, name = table.partition(".")
        found = self.ask(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = c.oid WHERE n.nspname = %s AND c.relname = %s"
            " AND a.attname = ANY (%s) AND (a.atthasmissing OR a.atthasdef OR a.attidentity <> '')",
            (schema, name, list(columns)),
        )
        return bool(found)

    def read(self, shape: SourceTable, chunk: BackfillChunk) -> ChunkRead:
        cursor = self._with_mapped_errors(lambda: self._reader().cursor())
        self._with_mapped_errors(cursor.execute, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # Before the snapshot: a table that was rewritten since (ALTER TABLE, TRUNCATE) would look empty to it.
        self._with_mapped_errors(cursor.execute, f"LOCK TABLE {_quoted(shape.table)} IN ACCESS SHARE MODE")
        self._with_mapped_errors(cursor.execute, "SELECT pg_current_snapshot()::text")
        ((snapshot,),) = cursor.fetchall()
        # After the snapshot: every transaction that it saw has its commit record before this position.
        return ChunkRead(snapshot, self.reach(), self._batches(cursor, shape, chunk))

    def _with_mapped_errors(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call the Arrow driver; after an error, which is mapped, its connection is not used again."""
        try:
            return call(*arguments)
        except StopIteration:
            raise
        except Exception as error:
            self._local.reader = None
            raise postgres_errors.map_error(error, self.name) from error

    def _batches(self, cursor: Any, shape: SourceTable, chunk: BackfillChunk) -> Iterator[TextRows]:
        wanted = ", ".join(_read_as(column) for column in shape.columns)
        limits = []
        for sign, bound in ((">", chunk.low), ("<=", chunk.high)):
            if bound is not None:
                key = next(each for each in shape.columns if each.name == shape.key[0])
                by_bytes = '::text COLLATE "C"' if key.weight == 1 else ""
                text = bound.replace("'", "''")
                limits.append(f"{_name(key.name)}{by_bytes} {sign} '{text}'")
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        self._with_mapped_errors(cursor.execute, f"SELECT {wanted} FROM {_quoted(shape.table)}{where}")
        reader = cursor.fetch_record_batch()
        while True:
            try:
                batch = self._with_mapped_errors(reader.read_next_batch)
            except StopIteration:
                break
            columns = [
                array.cast(column.arrow if column.plain and column.taken else pa.string())
                for column, array in zip(shape.columns, batch.columns, strict=True)
            ]
            yield TextRows(columns, np.zeros(batch.num_rows, np.bool_))
        self._with_mapped_errors(cursor.execute, "COMMIT")
        cursor.close()

    # Streaming

    def stream(self, changes: ChangeWriter, position: int) -> PostgresStream:
        return PostgresStream(self, changes, position)

    def text(self, position: int) -> str:
        return to_text(position)

    def place(self, position: int) -> int:
        return max(0, position - self.base) // LSN_UNIT

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._local = threading.local()


def _read_as(column: SourceColumn) -> str:
    """The backfill's expression for a column: numbers natively, all else as the text that the stream would send."""
    name = _name(column.name)
    if not column.taken:
        return "NULL::text"
    if pa.types.is_timestamp(column.arrow):
        kind = MOMENTS[1114 if column.arrow.tz is None else 1184]
        first, beyond = f"'0001-01-01'::{kind}", f"'{BEYOND}'::{kind}"
        return (
            f"CASE WHEN {name} >= {first} AND {name} < {beyond} THEN {name}::{kind}"
            f" WHEN {name} IS NOT NULL THEN {beyond} END"
        )
    if column.plain:
        return name
    # A cast to text is what the stream sends, except for this type, which would lose its blanks.
    return f"CASE WHEN {name} IS NOT NULL THEN concat({name}) END" if column.padded else f"{name}::text"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(table: str) -> str:
    return ".".join(map(_name, table.split(".", 1)))


def _type_name(number: int) -> str:
    return {20: "bigint", 21: "bigint", 23: "bigint", 26: "oid", 2950: "uuid", 1082: "date"}[number]
