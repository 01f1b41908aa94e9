"""PostgreSQL store: PostgreSQL as an attached store.

What it is: ``PostgresStore``: one ADBC connection, one read-only transaction, tables and views, fetched as Arrow.
Invariants: types and values are those of a capture of the same table (``capture/postgres/postgres_types.py``). Texts
are compared by their bytes, as in Spark, whatever their collation (``COLLATE "C"``); equality is sent without a
collation, so an index can serve it.
Not here: capturing (``capture/postgres/postgres_database.py``). Read next: ``store.py``; ``docs/federation.md``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headwater.capture.database import Losses
from headwater.capture.postgres.postgres_types import TEXT_SETTINGS, arrow_of, to_arrow
from headwater.errors import HeadwaterError, MissingExtra, StoreRefused
from headwater.federation.attachments import Attachment
from headwater.federation.literals import Value
from headwater.federation.rendering import StatementRenderer, moment_text
from headwater.federation.store import (
    CORRECT_ADDRESS,
    EQUAL,
    LIKE,
    NULL,
    ORDERED,
    Answered,
    Store,
    StoreColumn,
    StoreRequest,
    StoreStatement,
    StoreTable,
)

SESSION = {
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "repeatable\\ read",
    **TEXT_SETTINGS,
    "standard_conforming_strings": "on",
}
CONNECT_SECONDS = 10
BOOLEAN, TEXT, VARCHAR, BLANK_PADDED, UUID, NUMERIC = 16, 25, 1043, 1042, 2950, 1700
WHOLE = {20, 21, 23}
DOUBLE = 701
TIMES = {1082, 1114, 1184}
# Read natively; all else as text, which is converted as in a capture.
PLAIN = {16, 20, 21, 23, 25, 700, 701, 1043}
ARRAY = "A"
NOT_NOW = ("starting up", "shutting down", "too many", "remaining connection slots")

COLUMNS = """
SELECT a.attname::text, (CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE a.atttypid END)::bigint,
       (CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END)::bigint, t.typcategory::text
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass({table}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
TABLES = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
 ORDER BY 1 LIMIT 500"""


class PostgresStore(Store):
    """A PostgreSQL database, for one query."""

    dialect = "postgres"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        driver, conninfo = _drivers()
        given = self._read_address(conninfo)
        settings = {**SESSION, "statement_timeout": str(round(attachment.timeout * 1000))}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        given |= {"options": f"{given.get('options') or ''} {options}".strip(), "client_encoding": "UTF8"}
        given.setdefault("connect_timeout", str(CONNECT_SECONDS))
        given.setdefault("application_name", "headwater")
        self._connection: Any = None
        self._connection = self._with_mapped_errors(lambda: driver.connect(conninfo.make_conninfo(**given)), None)
        try:
            self._encoding = self._ask("SELECT current_setting('server_encoding')")[0][0]
        except HeadwaterError:
            self.close()
            raise

    def _read_address(self, conninfo: Any) -> dict[str, Any]:
        try:
            return dict(conninfo.conninfo_to_dict(self.attachment.address.filled))
        except HeadwaterError:
            raise
        except Exception:  # its text quotes the address with the password
            raise StoreRefused(
                f'the address of store "{self.name}" is not a URL that PostgreSQL reads',
                hint="Give a password with special characters as ${VARIABLE}.",
                store=self.name,
            ) from None

    def describe(self, parts: Sequence[str]) -> StoreTable:
        if not 1 <= len(parts) <= 2:
            raise self.misnamed(parts, "SCHEMA.TABLE")
        # A name without a schema is looked up along the search path, as in psql.
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
        rows = self._ask(COLUMNS.format(table=_literal(quoted)))
        if not rows:
            raise self.unknown(parts, [row[0] for row in self._ask(TABLES)])
        return self.shaped(parts, [self._column(*row) for row in rows])

    def _column(self, name: str, number: int, modifier: int, category: str) -> StoreColumn:
        arrow = arrow_of(number, modifier)
        if category == ARRAY and not pa.types.is_list(arrow):
            arrow = pa.list_(pa.string())
        quoted = '"' + name.replace('"', '""') + '"'
        read_as = None if number in PLAIN else f"CAST({quoted} AS TEXT)"
        if number == BLANK_PADDED:  # a cast to text would drop its blanks
            read_as = f"CASE WHEN {quoted} IS NOT NULL THEN concat({quoted}) END"
        return StoreColumn(name, arrow, self._operators(number, arrow), self._admits(number), read_as, number)

    def _operators(self, number: int, arrow: pa.DataType) -> frozenset[str]:
        if number in WHOLE or number in (DOUBLE, BOOLEAN):
            return ORDERED | NULL
        if number in TIMES or (number == NUMERIC and pa.types.is_decimal(arrow)):
            return ORDERED  # not IS NULL: infinity and NaN are null here
        if number in (TEXT, VARCHAR):
            return ORDERED | LIKE | NULL if self._encoding == "UTF8" else EQUAL | NULL
        return EQUAL | NULL if number == BLANK_PADDED else NULL if number == UUID else frozenset()

    def _admits(self, number: int) -> Callable[[Value], bool]:
        if number not in (TEXT, VARCHAR, BLANK_PADDED) or self._encoding == "UTF8":
            return lambda _: True
        # Another encoding may have no such character, and refuse the statement.
        return lambda value: isinstance(value, str) and value.isascii() and self._encoding != "SQL_ASCII"

    def statement(self, request: StoreRequest) -> StoreStatement:
        return _Postgres().select(request)

    def fetch(self, request: StoreRequest) -> Answered:
        statement = self.statement(request)

        def read() -> pa.Table:
            with self._connection.cursor() as cursor:
                cursor.execute(statement.text)
                return cursor.fetch_arrow_table()

        rows = self._with_mapped_errors(read, statement.text)
        losses = Losses()
        arrays = []
        for column, chunks in zip(request.columns, rows.columns, strict=False):
            wanted = column.arrow if column.read_as is None else pa.string()
            texts = chunks.combine_chunks() if chunks.num_chunks != 1 else chunks.chunk(0)
            arrays.append(to_arrow(texts.cast(wanted), column.arrow, losses))
        schema = pa.schema([(each.name, each.arrow) for each in request.columns])
        table = pa.Table.from_arrays(arrays, schema=schema) if arrays else rows
        return Answered(table, statement, losses.values)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        def run() -> list[tuple[Any, ...]]:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())

        found: list[tuple[Any, ...]] = self._with_mapped_errors(run, sql)
        return found

    def _with_mapped_errors(self, call: Callable[[], Any], statement: str | None) -> Any:
        try:
            return call()
        except HeadwaterError:
            raise
        except Exception as error:
            raise self._mapped(error, statement) from error

    def _mapped(self, error: Exception, statement: str | None) -> HeadwaterError:
        state = getattr(error, "sqlstate", None) or ""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # The driver puts its own text before the database's.
        message = re.sub(r"^.*?(ERROR|FATAL): +", "", lines[0]) if lines else type(error).__name__
        if state == "57014" or "statement timeout" in message:
            return self.timed_out(statement, message)
        if statement is None and ("FATAL" not in str(error) or any(sign in message for sign in NOT_NOW)):
            return self.unavailable(statement, message)
        if statement is None:
            return self.refuses(statement, message, CORRECT_ADDRESS)
        if state == "42501":
            return self.refuses(statement, message, "Give the user of its address the right: GRANT SELECT ON … TO …;")
        return self.refuses(statement, message)


class _Postgres(StatementRenderer):
    dialect = "postgres"

    def operand(self, column: StoreColumn, operator: str) -> exp.Expr:
        plain = super().operand(column, operator)
        if operator == "=" or not pa.types.is_string(column.arrow):
            return plain
        return exp.Collate(this=plain, expression=exp.to_identifier("C", quoted=True))

    def floating(self, value: float) -> exp.Expr:
        return exp.cast(exp.Literal.string(repr(value)), "double")

    def moment(self, column: StoreColumn, value: dt.datetime) -> exp.Expr:
        zone = column.arrow.tz is not None
        text = exp.Literal.string(moment_text(value) + ("+00" if zone else ""))
        return exp.cast(text, exp.DataType.build("timestamptz" if zone else "timestamp", dialect="postgres"))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _drivers() -> tuple[Any, Any]:
    with MissingExtra.raised_for("an attached PostgreSQL", "postgres"):
        import adbc_driver_postgresql.dbapi
        import psycopg.conninfo
    return adbc_driver_postgresql.dbapi, psycopg.conninfo
