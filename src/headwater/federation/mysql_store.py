"""MySQL store: MariaDB and MySQL as attached stores.

What it is: ``MySQLStore``: one pymysql connection, one read-only transaction with a consistent snapshot, tables and
views, fetched in batches and converted to Arrow.
Invariants: types and values are those of a capture of the same table (``capture/mysql/mysql_types.py``). Texts are
pushed down for equality and LIKE only: most collations take more texts for equal than Spark does, and none takes fewer.
Not here: capturing (``capture/mysql/mysql_database.py``). Read next: ``store.py``; ``docs/federation.md``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from sqlglot import exp

from headwater.capture.database import Losses
from headwater.capture.mysql.mysql_types import (
    UNSIGNED_LARGE,
    WHOLE,
    Described,
    arrow_of_text,
    quoted,
    selected,
    to_arrow,
)
from headwater.errors import HeadwaterError, MissingExtra, StoreRefused
from headwater.federation.attachments import Attachment
from headwater.federation.literals import Value
from headwater.federation.rendering import StatementRenderer, moment_text
from headwater.federation.store import (
    CORRECT_ADDRESS,
    EQUAL,
    LIKE,
    NULL,
    NUMBERED,
    ORDERED,
    Answered,
    Store,
    StoreColumn,
    StoreRequest,
    StoreStatement,
    StoreTable,
)

CONNECT_SECONDS = 10
FETCH_ROWS = 20_000
PORT = 3306
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
TIMES = {"date", "datetime", "timestamp"}
# A TIMESTAMP has seconds since 1970 in 32 bits; other years are compared differently.
TIMESTAMP_YEARS = range(1971, 2038)
YEARS = range(1000, 10000)
SESSION = ("SET SESSION time_zone = '+00:00'", "SET SESSION sql_mode = ''")
# The first that the server knows: MariaDB's in seconds, MySQL's in milliseconds.
TIMEOUTS = ("SET SESSION max_statement_time = {seconds}", "SET SESSION max_execution_time = {milliseconds}")
INTERRUPTED = {1969, 3024, 1317}
NOT_LET_IN = {1044, 1045, 1049, 1698}
LACKS_RIGHT = {1142, 1143}
COLUMNS = """
SELECT column_name, data_type, column_type, coalesce(numeric_precision, 0), coalesce(numeric_scale, 0), extra
  FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1 LIMIT 500"


class MySQLStore(Store):
    """A MariaDB or MySQL database, for one query."""

    dialect = "mysql"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        self._driver = _driver()
        parts = urlsplit(attachment.address.filled)
        self.database = unquote(parts.path.strip("/"))
        self._connection: Any = None
        self._connection = self._with_mapped_errors(
            lambda: self._driver.connect(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or PORT,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=self.database,
                charset="utf8mb4",
                connect_timeout=CONNECT_SECONDS,
                read_timeout=attachment.timeout + CONNECT_SECONDS,
                autocommit=True,
                use_unicode=False,
                conv={},
                cursorclass=self._driver.cursors.SSCursor,
            ),
            None,
        )
        try:
            self._prepare()
        except HeadwaterError:
            self.close()
            raise

    def _prepare(self) -> None:
        for statement in SESSION:
            self._ask(statement)
        for statement in TIMEOUTS:
            try:
                seconds = self.attachment.timeout
                self._ask(statement.format(seconds=seconds, milliseconds=round(seconds * 1000)))
                break
            except StoreRefused:  # the other server's name of it
                continue
        self._ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def describe(self, parts: Sequence[str]) -> StoreTable:
        if not 1 <= len(parts) <= 2:
            raise self.misnamed(parts, "TABLE, or DATABASE.TABLE")
        database, table = (self.database, *parts) if len(parts) == 1 else parts
        rows = self._ask(COLUMNS, (database, table))
        if not rows:
            raise self.unknown(parts, [row[0] for row in self._ask(TABLES, (database,))])
        described = [
            Described(name, kind.lower(), full.lower(), int(precision), int(scale), extra)
            for name, kind, full, precision, scale, extra in rows
        ]
        return self.shaped(parts, [_column(each) for each in described])

    def statement(self, request: StoreRequest) -> StoreStatement:
        return _MySQL().select(request)

    def fetch(self, request: StoreRequest) -> Answered:
        statement = self.statement(request)
        losses = Losses()
        schema = pa.schema([(each.name, each.arrow) for each in request.columns] or [(NUMBERED, pa.int64())])
        batches: list[pa.RecordBatch] = []

        def read() -> None:
            with self._connection.cursor() as cursor:
                cursor.execute(statement.text)
                while rows := cursor.fetchmany(FETCH_ROWS):
                    arrays = [
                        to_arrow(pa.array(values, pa.binary()), arrow, losses)
                        for values, arrow in zip(zip(*rows, strict=True), schema.types, strict=True)
                    ]
                    batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))

        self._with_mapped_errors(read, statement.text)
        return Answered(pa.Table.from_batches(batches, schema), statement, losses.values)

    def close(self) -> None:
        if self._connection is not None:
            self._connection._force_close()  # no waiting for rows that are not needed any more

    def _ask(self, sql: str, values: Sequence[str] = ()) -> list[tuple[str, ...]]:
        def run() -> list[tuple[str, ...]]:
            with self._connection.cursor() as cursor:
                given = tuple(value.replace("\\", "\\\\") for value in values)
                cursor.execute(sql % tuple(map(_literal, given)) if values else sql)
                return [tuple("" if each is None else each.decode() for each in row) for row in cursor.fetchall()]

        found: list[tuple[str, ...]] = self._with_mapped_errors(run, sql)
        return found

    def _with_mapped_errors(self, call: Callable[[], Any], statement: str | None) -> Any:
        try:
            return call()
        except (self._driver.Error, OSError, RuntimeError) as error:
            raise self._mapped(error, statement) from error

    def _mapped(self, error: Exception, statement: str | None) -> HeadwaterError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
        if code in INTERRUPTED or "timed out" in message:
            return self.timed_out(statement, message)
        if code in NOT_LET_IN:
            return self.refuses(statement, message, CORRECT_ADDRESS)
        if statement is None or code == 0 or 2000 <= code < 3000:
            return self.unavailable(statement, message)
        return self.refuses(statement, message, "GRANT SELECT ON … TO …;" if code in LACKS_RIGHT else "See the detail.")


def _column(column: Described) -> StoreColumn:
    arrow = arrow_of_text(column)
    if arrow is None:  # types that only one of the two has: json, uuid, inet6
        return StoreColumn(column.name, pa.string(), frozenset(), read_as=f"CAST({quoted(column.name)} AS CHAR)")
    read_as = selected(column)
    plain = None if read_as == quoted(column.name) else read_as
    return StoreColumn(column.name, arrow, _operators(column), _admits(column, arrow), plain, column.kind)


def _operators(column: Described) -> frozenset[str]:
    if column.kind in WHOLE or column.kind in ("decimal", "double"):
        return ORDERED | NULL
    if column.kind in TIMES:
        return ORDERED  # not IS NULL: the zero date is null here
    return EQUAL | LIKE | NULL if column.kind in TEXTS else frozenset()


def _admits(column: Described, arrow: pa.DataType) -> Callable[[Value], bool]:
    if column.kind in TIMES:
        years = TIMESTAMP_YEARS if column.kind == "timestamp" else YEARS
        return lambda value: isinstance(value, dt.date) and value.year in years
    if arrow == UNSIGNED_LARGE or "unsigned" in column.full:
        return lambda value: not isinstance(value, str) and value >= 0  # type: ignore[operator]
    return lambda _: True


class _MySQL(StatementRenderer):
    dialect = "mysql"

    def floating(self, value: float) -> exp.Expr:
        text = repr(abs(value))
        digits = exp.Literal.number(text if "e" in text else f"{text}e0")
        return exp.Neg(this=digits) if value < 0 else digits

    def moment(self, column: StoreColumn, value: dt.datetime) -> exp.Expr:  # noqa: ARG002
        return exp.cast(exp.Literal.string(moment_text(value)), exp.DataType.build("datetime(6)", dialect="mysql"))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _driver() -> Any:
    with MissingExtra.raised_for("an attached MariaDB or MySQL", "mysql"):
        import pymysql
        import pymysql.cursors
    return pymysql
