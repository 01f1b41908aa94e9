"""The databases that the torture test writes to: one class each, with the same few verbs.

What it is: how to start one, connect, tell a broken connection, and say in its own words what differs between them.
Invariants: connections have psycopg's verbs, also where the driver is another one.
Not here: what is written (``capture_torture.py``).
Read next: ``capture_torture.py``.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import psycopg
import pymysql
from psycopg.rows import dict_row

import headwater as hw
from headwater.capture.mysql import mysql_database
from headwater.capture.postgres import postgres_database
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer

CHUNK_ROWS = 150
TEXT_CHUNK_ROWS = 50
RESERVED = re.compile(r"\b(change|lines)\b")  # words of MariaDB's own


class Postgresql:
    """PostgreSQL."""

    broken: tuple[type[Exception], ...] = (psycopg.OperationalError, psycopg.errors.AdminShutdown)
    error: type[Exception] = psycopg.Error
    start = PostgresServer
    numbers = "generate_series(1, {count}) g"
    number = "g"
    text = "'line ' || g % 7"
    after_create = "ALTER TABLE lines REPLICA IDENTITY FULL"
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'"

    @staticmethod
    def connect(dsn: str) -> Any:
        return psycopg.connect(dsn, connect_timeout=2)

    @staticmethod
    def source(dsn: str, table: str) -> Any:
        postgres_database.CHUNK_ROWS, postgres_database.TEXT_CHUNK_ROWS = CHUNK_ROWS, TEXT_CHUNK_ROWS
        return hw.capture.Postgres(dsn, table=table, slot="torture")

    @staticmethod
    def upsert(table: str, columns: str, changed: dict[str, str]) -> str:
        values = ", ".join(["%s"] * len(columns.split(",")))
        sets = ", ".join(
            f"{name} = {how.format(old=f'{table}.{name}', new=f'excluded.{name}')}" for name, how in changed.items()
        )
        return f"INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {sets}"

    @staticmethod
    def rows(dsn: str, table: str) -> list[dict[str, Any]]:
        with psycopg.connect(dsn, row_factory=dict_row) as connection:
            return list(connection.execute(f"SELECT * FROM {table}").fetchall())

    @staticmethod
    def cut_stream(server: Any) -> None:
        server.execute(Postgresql.cut)

    @staticmethod
    def change(server: Any, statement: str) -> None:
        for _ in range(200):
            try:
                server.execute(f"SET lock_timeout = '2s'; {statement}")
                return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.OperationalError):
                continue


class _Connection:
    """A connection of pymysql's with psycopg's verbs."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @property
    def closed(self) -> bool:
        return not self.connection.open

    def execute(self, sql: str, values: Any = None) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(RESERVED.sub(r"`\1`", sql), values or None)
        return cursor

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        if self.connection.open:
            self.connection.close()


class Mariadb:
    """MariaDB."""

    positions: str | None = None
    broken: tuple[type[Exception], ...] = (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError)
    error: type[Exception] = pymysql.err.MySQLError
    start = MariadbServer
    numbers = "seq_1_to_{count}"
    number = "seq"
    text = "concat('line ', seq % 7)"
    after_create = None

    @staticmethod
    def connect(dsn: str) -> Any:
        made = pymysql.connect(
            **mysql_database.settings_of(dsn),
            ssl_disabled=True,
            connect_timeout=2,
            charset="utf8mb4",
            init_command="SET tx_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 2",
        )
        return _Connection(made)

    @classmethod
    def source(cls, dsn: str, table: str) -> Any:
        mysql_database.CHUNK_ROWS, mysql_database.TEXT_CHUNK_ROWS = CHUNK_ROWS, TEXT_CHUNK_ROWS
        return hw.capture.MySQL(dsn, table=table, name="torture", positions=cls.positions)

    @staticmethod
    def upsert(table: str, columns: str, changed: dict[str, str]) -> str:
        values = ", ".join(["%s"] * len(columns.split(",")))
        sets = ", ".join(f"{name} = {how.format(old=name, new=f'VALUES({name})')}" for name, how in changed.items())
        return f"INSERT INTO {table} ({columns}) VALUES ({values}) ON DUPLICATE KEY UPDATE {sets}"

    @staticmethod
    def rows(dsn: str, table: str) -> list[dict[str, Any]]:
        settings = mysql_database.settings_of(dsn)
        with (
            pymysql.connect(**settings, cursorclass=pymysql.cursors.DictCursor) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT * FROM `{table}`")
            return list(cursor.fetchall())

    @staticmethod
    def cut_stream(server: Any) -> None:
        for (number,) in server.execute("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'"):
            with contextlib.suppress(pymysql.err.OperationalError):  # it has gone by itself
                server.execute(f"KILL {number}")

    @staticmethod
    def change(server: Any, statement: str) -> None:
        for _ in range(200):
            try:
                with server.connect(database="mysql") as connection, connection.cursor() as cursor:
                    cursor.execute("SET STATEMENT lock_wait_timeout = 2 FOR " + RESERVED.sub(r"`\1`", statement))
                return
            except pymysql.err.OperationalError:
                continue


class MariadbByFile(Mariadb):
    """MariaDB, captured as MySQL is: positions by file and byte, and the short lock."""

    positions = "file"


DATABASES: dict[str, Any] = {"postgres": Postgresql, "mariadb": Mariadb, "mariadb by file": MariadbByFile}
