"""MariaDB and MySQL as captured databases.

What it is: ``MySQL``, the user's declaration, and ``MySQLDatabase``, the contract of ``capture/database.py`` for it:
settings, tables, chunks and their positions.
Invariants: nothing is created in the database, and nothing there waits for a capture. A chunk is read at a snapshot
with an exactly known binlog position: MariaDB reports it; on MySQL the table is locked meanwhile.
Not here: the stream (``binlog_stream.py``), positions (``binlog_position.py``).
Read next: ``binlog_position.py``, ``docs/mysql.md``.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
import pyarrow as pa

from headwater.capture.change_writer import ChangeWriter
from headwater.capture.database import BackfillChunk, CaptureLag, ChunkRead, SourceColumn, SourceTable
from headwater.capture.door import Door, OpenDoor
from headwater.capture.mysql import mysql_errors
from headwater.capture.mysql.binlog_position import Binlog, place_of
from headwater.capture.mysql.mysql_types import WHOLE, Described, arrow_of_text, quoted, selected, to_arrow
from headwater.capture.position import Prefix
from headwater.capture.text_rows import TextRows
from headwater.errors import InvalidDeclaration, SourceRefused
from headwater.log.contract import EventLog
from headwater.log.schema.personal_columns import Mask

if TYPE_CHECKING:
    from headwater.capture.mysql.binlog_stream import MySQLStream

CHUNK_ROWS = 100_000
CHUNKS_MAX = 10_000
TEXT = {"char", "varchar"}
TEXT_CHUNK_ROWS = 4 * CHUNK_ROWS  # each is a walk over the whole table
FETCH_ROWS = 20_000
CONNECT_SECONDS = 10
LOCK_SECONDS = 10
SETTINGS = {"log_bin": "1", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
ENGINES = {"InnoDB", "RocksDB", "ROCKSDB", "TokuDB"}
NAME = re.compile(r"[a-z0-9_]{1,63}")
OPTIONS = {"ssl_ca", "ssl_cert", "ssl_key"}

COLUMNS = """
SELECT column_name, data_type, column_type, coalesce(numeric_precision, 0), coalesce(numeric_scale, 0), extra
  FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
KEY = """
SELECT column_name FROM information_schema.statistics
 WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index"""


@dataclass(frozen=True)
class MySQL:
    """A table of MariaDB or MySQL as the source of one of ours.

    Tables of one server with one ``name`` are captured together; without it the app's name makes one. ``positions``
    says how the binlog is counted: ``"gtid"`` (MariaDB's default) or ``"file"`` (all others).

    ``columns``, ``mask`` and ``hash`` say what of it is taken, before anything is stored: see ``docs/privacy.md``.

    >>> import headwater as hw
    >>> hw.capture.MySQL("mysql://localhost/shop", table="users")
    MySQL(table='shop.users', name=None)
    """

    dsn: str
    table: str
    name: str | None = None
    positions: str | None = None

    columns: Sequence[str] | None = None  # these are taken; None: all
    mask: Mapping[str, Mask] | None = None
    hash: Sequence[str] = ()
    hash_key: str | None = None  # "env:NAME" or "file:PATH": the secret

    def __post_init__(self) -> None:
        Door.declared(self.columns, self.mask, self.hash, self.hash_key)  # refuses what makes no sense
        settings = settings_of(self.dsn)
        if "." not in self.table:
            object.__setattr__(self, "table", f"{settings['database']}.{self.table}")
        if self.name is not None and not NAME.fullmatch(self.name):
            raise InvalidDeclaration(
                f"name {self.name!r} is not allowed", hint="Use lower-case letters, digits and '_', at most 63 of them."
            )
        if self.positions not in (None, "gtid", "file"):
            raise InvalidDeclaration(
                f"positions cannot be {self.positions!r}", hint='Use positions="gtid" or positions="file".'
            )

    @property
    def door(self) -> Door | None:
        """What of the table is taken, if not all of it as it is."""
        return Door.declared(self.columns, self.mask, self.hash, self.hash_key)

    def capture_name(self, app: str) -> str:
        if self.name is not None:
            return self.name
        digest = hashlib.sha256(self.dsn.encode()).hexdigest()[:6]
        return f"headwater_{re.sub('[^a-z0-9_]', '_', app.lower())[:40]}_{digest}"

    def server(self, app: str, log: EventLog | None = None) -> MySQLDatabase:  # noqa: ARG002
        return MySQLDatabase(self.dsn, self.capture_name(app), self.positions)

    def __repr__(self) -> str:  # without the dsn, which may hold a password
        return f"MySQL(table={self.table!r}, name={self.name!r})"


def settings_of(dsn: str) -> dict[str, Any]:
    """pymysql's connection settings.

    >>> settings_of("mysql://me:p%40ss@db.example.com/shop")["password"]
    'p@ss'
    """
    parts = urlsplit(dsn)
    database = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("mysql", "mariadb") or not database:
        raise InvalidDeclaration(
            "the address of a MariaDB or MySQL has the form mysql://user:password@host:port/database"
        )
    options = dict(parse_qsl(parts.query))
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise InvalidDeclaration(f"unknown option {unknown[0]!r} in the dsn", hint=f"Known: {', '.join(OPTIONS)}")
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "database": database,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        **options,
    }


class MySQLDatabase:
    """One server, and one database of it."""

    def __init__(self, dsn: str, name: str, positions: str | None = None) -> None:
        self.settings = settings_of(dsn)
        self.database = self.settings["database"]
        self.name = name
        self.doors: Mapping[str, OpenDoor] = {}
        self.base = 0
        self.binlog = Binlog(self, positions)
        self._described: dict[str, tuple[Described, ...]] = {}
        self._charsets: dict[int, str] = {}
        self._local = threading.local()
        self._open: list[Any] = []

    # Connections

    def connect(self, **options: Any) -> Any:
        pymysql = mysql_errors.driver()
        try:
            return pymysql.connect(
                **self.settings,
                **options,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                init_command="SET time_zone = '+00:00', sql_mode = ''",
            )
        except (pymysql.Error, OSError) as error:
            raise mysql_errors.map_error(error) from error

    def _mine(self, kind: str, **options: Any) -> Any:
        """This thread's connection of one kind."""
        connection = getattr(self._local, kind, None)
        if connection is None or not connection.open:
            connection = self.connect(**options)
            setattr(self._local, kind, connection)
            self._open.append(connection)
        return connection

    def ask(self, sql: str, values: Sequence[Any] = (), *, on: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement on this thread's connection, or on another one."""
        pymysql = mysql_errors.driver()
        connection = on if on is not None else self._mine("connection")
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, tuple(values) or None)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:
            raise mysql_errors.map_error(error) from error

    # Tables

    def tables(self, database: str | None = None) -> list[str]:
        """The tables of a database, with its name."""
        wanted = database or self.database
        found = self.ask(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = %s AND table_type = 'BASE TABLE' ORDER BY 1",
            (wanted,),
        )
        return [f"{wanted}.{row[0]}" for row in found]

    def describe(self, table: str) -> SourceTable:
        database, _, name = table.partition(".")
        known = self.ask(
            "SELECT engine, coalesce(table_rows, 0), table_type FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s",
            (database, name),
        )
        if not known:
            raise mysql_errors.unknown_table(table, self.tables(database))
        engine, estimated, _ = known[0]
        if engine not in ENGINES:
            raise mysql_errors.engine(table, engine or "a view")
        described = tuple(Described(*row) for row in self.ask(COLUMNS, (database, name)))
        self._described[table] = described
        columns = []
        for each in described:
            if not each.generated:
                arrow = arrow_of_text(each)
                if arrow is None:
                    raise mysql_errors.unknown_type(table, each.name, each.kind)
                columns.append(SourceColumn(each.name, arrow, to_arrow))
        key = tuple(row[0] for row in self.ask(KEY, (database, name)))
        return self.at_door(SourceTable(table, tuple(columns), key, int(estimated)))

    def at_door(self, shape: SourceTable) -> SourceTable:
        """A table with what becomes of its columns."""
        door = self.doors.get(shape.table)
        return shape if door is None else door.applied(shape)

    def generated(self, table: str) -> set[str]:
        """The columns that the database computes, as far as is known now."""
        return {each.name for each in self._described.get(table, ()) if each.generated}

    def charset(self, collation: int) -> str:
        """Python's name of the charset of a collation."""
        if not self._charsets:
            columns = "SELECT id, character_set_name FROM information_schema."
            try:  # this view has the numbers of collations with several charsets
                pairs = self.ask(f"{columns}collation_character_set_applicability")
            except SourceRefused:
                pairs = self.ask(f"{columns}collations")
            self._charsets = {int(number): _encoding(name) for number, name in pairs if number}
        return self._charsets.get(collation, "utf-8")

    # Our place in the binlog

    def identity(self) -> str:
        return f"{self.binlog.identity()}/{self.database}"

    def remove_leftovers(self, *, ours: bool) -> None:
        """Nothing to remove: nothing is created in the database."""

    def create(self, tables: Sequence[str]) -> int:  # noqa: ARG002
        """The present end of the binlog. Nothing is created in the database."""
        self.check(lambda: None)
        connection = self.connect()
        try:
            return self._snapshot(connection, None)
        finally:
            connection.close()

    def check(self, confirmed: Callable[[], int | None]) -> None:  # noqa: ARG002
        """Check that the server still writes what a capture needs."""
        for name, wanted in SETTINGS.items():
            rows = self.ask("SHOW GLOBAL VARIABLES LIKE %s", (name,))
            value = str(rows[0][1]) if rows else "not there"
            if value.upper() not in (wanted, {"1": "ON"}.get(wanted)):
                raise mysql_errors.setting(name, value, "ON" if wanted == "1" else wanted)

    def claim(self) -> None:
        """Nothing: the process that holds the producers follows, and the other one is fenced."""

    def include(self, tables: Sequence[str], stopping: Callable[[], bool]) -> None:
        """Nothing: the binlog has every table."""

    def reach(self) -> int:
        return self.binlog.end()

    def lag(self) -> CaptureLag:
        """The part of the binlog that the stream has not read. The server retains nothing for the capture."""
        behind = self.binlog.bytes_behind()
        return CaptureLag(behind, behind is not None, "binlog")

    def drop(self) -> None:
        """Nothing to remove."""

    # Backfill

    def chunks(self, shape: SourceTable) -> list[BackfillChunk]:
        """Ranges of the first key column when it is a whole number or a text; otherwise the whole table."""
        kinds = {each.name: each.kind for each in self._described[shape.table]}
        kind = kinds[shape.key[0]] if shape.key and not shape.hides_key else None  # bounds are stored
        if kind not in WHOLE and kind not in TEXT:
            return [BackfillChunk(0, None, None)]
        bounds = self._text_bounds(shape) if kind in TEXT else self._walked_bounds(shape)
        edges = [None, *bounds, None]
        return [BackfillChunk(number, edges[number], edges[number + 1]) for number in range(len(edges) - 1)]

    def _text_bounds(self, shape: SourceTable) -> list[str]:
        """Bounds from the whole table, sorted by the bytes of the key."""
        key, rows = _by_bytes(shape.key[0]), TEXT_CHUNK_ROWS
        found = self.ask(
            f"SELECT CONVERT(k USING utf8mb4) FROM (SELECT {key} AS k, row_number() OVER (ORDER BY {key}) AS n"
            f" FROM {_table(shape.table)}) t WHERE n MOD {rows} = 0 GROUP BY k ORDER BY k"
        )
        return [row[0] for row in found]

    def _walked_bounds(self, shape: SourceTable) -> list[str]:
        """Bounds from a walk along the index of the key."""
        column, table = quoted(shape.key[0]), _table(shape.table)
        bounds: list[int] = []
        while len(bounds) < CHUNKS_MAX:
            limit = f" WHERE {column} > {bounds[-1]}" if bounds else ""
            found = self.ask(f"SELECT {column} FROM {table}{limit} ORDER BY {column} LIMIT 1 OFFSET {CHUNK_ROWS - 1}")
            if not found:
                break
            bounds.append(int(found[0][0]))
        return list(map(str, bounds))

    def in_chunk(self, shape: SourceTable, chunk: BackfillChunk, key: str) -> bool:
        """Whether a key is in the range of a chunk."""
        ordered: Callable[[str], Any] = str if _has_text_key(shape) else int
        return (chunk.low is None or ordered(key) > ordered(chunk.low)) and (
            chunk.high is None or ordered(key) <= ordered(chunk.high)
        )

    def filled(self, table: str, columns: Sequence[str]) -> bool:
        """Whether one of these columns has a default, also the implicit one of NOT NULL."""
        database, _, name = table.partition(".")
        found = self.ask(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " AND (is_nullable = 'NO' OR coalesce(column_default, 'NULL') <> 'NULL')",
            (database, name),
        )
        return any(row[0] in columns for row in found)

    def read(self, shape: SourceTable, chunk: BackfillChunk) -> ChunkRead:
        pymysql = mysql_errors.driver()
        reader = self._mine("reader", use_unicode=False, conv={}, cursorclass=pymysql.cursors.SSCursor)
        position = self._snapshot(reader, shape.table)
        return ChunkRead(str(Prefix(position)), position, self._batches(reader, shape, chunk))

    def _snapshot(self, reader: Any, table: str | None) -> int:
        """Begin a snapshot; the position of the first transaction that it does not see."""
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        self.ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", on=reader)
        if self.binlog.is_gtid:
            self.ask(begin, on=reader)
            return self.binlog.of_snapshot(reader)
        if table is None:  # a table is read after this, so that its snapshot reaches at least to here
            return self.binlog.end()
        self.ask(f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}")
        self.ask(f"LOCK TABLES {_table(table)} READ")
        try:
            self.ask(begin, on=reader)
            return self.binlog.end()
        finally:
            self.ask("UNLOCK TABLES")

    def _batches(self, reader: Any, shape: SourceTable, chunk: BackfillChunk) -> Iterator[TextRows]:
        pymysql = mysql_errors.driver()
        described = [each for each in self._described[shape.table] if not each.generated]
        taken = {column.name for column in shape.taken}
        columns = ", ".join(selected(each) if each.name in taken else "NULL" for each in described)
        limits = []
        for sign, bound in ((">", chunk.low), ("<=", chunk.high)):
            if bound is not None and _has_text_key(shape):
                limits.append(f"{_by_bytes(shape.key[0])} {sign} X'{bound.encode().hex()}'")
            elif bound is not None:
                limits.append(f"{quoted(shape.key[0])} {sign} {int(bound)}")
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        try:
            with reader.cursor() as cursor:
                cursor.execute(f"SELECT {columns} FROM {_table(shape.table)}{where}")
                while rows := cursor.fetchmany(FETCH_ROWS):
                    arrays = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
                    yield TextRows(arrays, np.zeros(len(rows), np.bool_))
            reader.commit()
        except (pymysql.Error, OSError) as error:
            raise mysql_errors.map_error(error) from error

    # Streaming

    def stream(self, changes: ChangeWriter, position: int) -> MySQLStream:
        from headwater.capture.mysql.binlog_stream import MySQLStream

        return MySQLStream(self, changes, position)

    def text(self, position: int) -> str:
        return self.binlog.text(position)

    def place(self, position: int) -> int:
        return place_of(position, self.base, self.binlog.is_gtid)

    def close(self) -> None:
        for connection in self._open:
            if connection.open:
                connection.close()
        self._open.clear()
        self._local = threading.local()


def _table(table: str) -> str:
    return ".".join(map(quoted, table.split(".", 1)))


def _encoding(charset: str) -> str:
    from pymysql.charset import charset_by_name

    if charset.startswith("utf8"):
        return "utf-8"
    wide = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
    found = wide.get(charset)
    return found or charset_by_name(charset).encoding or "utf-8"


def _has_text_key(shape: SourceTable) -> bool:
    return any(pa.types.is_string(each.arrow) for each in shape.columns if each.name == shape.key[0])


def _by_bytes(column: str) -> str:
    """A text as its bytes in UTF-8, which sort as its characters do."""
    return f"CAST(CONVERT({quoted(column)} USING utf8mb4) AS BINARY)"
