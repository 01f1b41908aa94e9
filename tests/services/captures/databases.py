"""Databases that captures are tested with: one class each, with the same few verbs.

What it is: a real server of each kind, and how tests speak to it. Another database joins the conformance suite with
one class here and one line in ``conftest.py``.
Invariants: each test has a database of its own; nothing of it is left.
Not here: what is tested (``test_*.py``).
Read next: ``conftest.py``.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pymysql.cursors
from psycopg.rows import dict_row

import headwater as hw
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer
from tests.waiting import eventually


class PostgresDatabase:
    """A database of its own on a PostgreSQL that the session shares."""

    kind = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE DATABASE {self.name}")
        self.dsn = server.dsn.rpartition("/")[0] + f"/{self.name}"
        self._connection: Any = None

    def connect(self, **options: Any) -> Any:
        return psycopg.connect(self.dsn, autocommit=True, **options)

    def execute(self, *statements: str) -> None:
        """Each statement is a transaction of its own; several in one text, split by ; are one."""
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        for statement in statements:
            self._connection.execute(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.connect(row_factory=dict_row) as connection:
            return list(connection.execute(f"SELECT * FROM {table}").fetchall())

    def source(self, table: str, **options: Any) -> Any:
        return hw.capture.Postgres(self.dsn, table=table, **options)

    def slots(self) -> int:
        return int(
            self.server.execute("SELECT count(*) FROM pg_replication_slots WHERE database = %s", (self.name,))[0][0]
        )

    def left_behind(self) -> int:
        with self.connect() as connection:
            return self.slots() + connection.execute("SELECT count(*) FROM pg_publication").fetchone()[0]

    def widen(self, table: str, column: str, kind: str) -> str:
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind}"

    def cut_connections(self) -> None:
        """Cut the stream's connection, as a network would."""
        self.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = %s",
            (self.name,),
        )

    def restart(self, *, immediate: bool = False) -> None:
        if self._connection is not None:
            self._connection.close()
        self.server.restart(immediate=immediate)

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        for (slot,) in self.server.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = %s", (self.name,)
        ):
            self.server.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (slot,)
            )
            drop_slot(self.server, slot)
        self.server.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


def drop_slot(server: PostgresServer, slot: str) -> None:
    """Drop a replication slot as soon as it is free, which is a moment after its client has left."""

    def dropped() -> bool:
        try:
            server.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        except psycopg.errors.ObjectInUse:
            return False
        return True

    eventually(dropped, f"slot {slot} is in use")


class MariadbConnection:
    """A connection of pymysql's with the verbs of psycopg's that the tests use."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def close(self) -> None:
        self.connection.close()


class MariadbDatabase:
    """A database of its own on a MariaDB that the session shares."""

    kind = "mariadb"
    positions: str | None = None

    def __init__(self, server: MariadbServer) -> None:
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
        self.dsn = server.dsn.rpartition("/")[0] + f"/{self.name}"
        self._connection: Any = None

    def connect(self, **options: Any) -> Any:
        return MariadbConnection(self.server.connect(database=self.name, **options))

    def execute(self, *statements: str) -> None:
        """Each statement is a transaction of its own, but for those between BEGIN and COMMIT."""
        if self._connection is None or not self._connection.connection.open:
            self._connection = self.connect()
        for statement in statements:
            self._connection.execute(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        options = {"database": self.name, "cursorclass": pymysql.cursors.DictCursor}
        with self.server.connect(**options) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return list(cursor.fetchall())

    def source(self, table: str, **options: Any) -> Any:
        return hw.capture.MySQL(self.dsn, table=table, positions=self.positions, **options)

    def left_behind(self) -> int:
        return 0  # nothing is ever made there

    def widen(self, table: str, column: str, kind: str) -> str:
        return f"ALTER TABLE {table} MODIFY COLUMN {column} {kind}"

    def cut_connections(self) -> None:
        """Cut the stream's connection, as a network would."""
        for (number,) in self.server.execute(
            "SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'"
        ):
            self.server.execute(f"KILL {number}")

    def restart(self, *, immediate: bool = False) -> None:
        if self._connection is not None:
            self._connection.close()
        self.server.restart(immediate=immediate)

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self.server.execute(f"DROP DATABASE {self.name}")


class FileDatabase(MariadbDatabase):
    """The same, with positions by file and byte and with the short lock: as MySQL is captured."""

    kind = "mariadb by file"
    positions = "file"
