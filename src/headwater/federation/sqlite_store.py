"""SQLite store: a SQLite file as an attached store.

What it is: ``SQLiteStore``: a file opened for reading, one transaction, tables and views. Types come from declarations,
since SQLite keeps any value in any column.
Invariants: a value that does not fit the declared type is an error that names the column, never another value. Texts
are compared by their bytes (``COLLATE BINARY``). Values are sent as parameters, so a double is exact.
Not here: sinks to SQLite (``sinks/sqlite_sink.py``). Read next: ``store.py``; ``docs/federation.md``.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headwater.errors import HeadwaterError, StoreRefused, StoreUnavailable
from headwater.federation.attachments import Attachment
from headwater.federation.literals import Value
from headwater.federation.rendering import StatementRenderer
from headwater.federation.store import (
    EQUAL,
    NULL,
    NUMBERED,
    ORDERED,
    PREFIX,
    UNEQUAL,
    Answered,
    Store,
    StoreColumn,
    StoreRequest,
    StoreStatement,
    StoreTable,
)
from headwater.log.schema.ddl import TIMESTAMP_NTZ

STEPS = 10_000  # between two checks of the time limit
BUSY_SECONDS = 5.0
WHOLE_MAX = (1 << 63) - 1
TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY 1 LIMIT 500"
# Declared types in the order of matching: exact names first, then SQLite's rules of affinity.
EXACT: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "DATETIME": TIMESTAMP_NTZ,
    "TIMESTAMP": TIMESTAMP_NTZ,
}
CONTAINED: list[tuple[str, pa.DataType]] = [
    ("INT", pa.int64()),
    ("CHAR", pa.string()),
    ("CLOB", pa.string()),
    ("TEXT", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL", pa.float64()),
    ("FLOA", pa.float64()),
    ("DOUB", pa.float64()),
    ("NUM", pa.float64()),
    ("DEC", pa.float64()),
]
CLASSES: dict[pa.DataType, tuple[type, ...]] = {
    pa.int64(): (int,),
    pa.float64(): (int, float),
    pa.string(): (str,),
    pa.binary(): (bytes,),
}


class SQLiteStore(Store):
    """A SQLite file, for one query."""

    dialect = "sqlite"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        path = attachment.address.path
        self._connection: Any = None
        self._until = float("inf")
        if not path.is_file():
            raise StoreUnavailable(
                f'store "{self.name}" does not exist: no file {path}',
                hint=f"Attach it again at its new place: headwater attach {self.name} sqlite:FILE",
                store=self.name,
            )
        self._connection = self._with_mapped_errors(lambda: self._opened(path.as_uri()), None)
        self._utf8 = self._ask("PRAGMA encoding")[0][0] == "UTF-8"

    def _opened(self, uri: str) -> Any:
        db = sqlite3.connect(
            f"{uri}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        db.set_progress_handler(lambda: time.monotonic() > self._until, STEPS)
        db.execute("BEGIN")
        return db

    def describe(self, parts: Sequence[str]) -> StoreTable:
        if len(parts) != 1:
            raise self.misnamed(parts, "TABLE")
        rows = self._ask("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1", parts)
        if not rows:
            raise self.unknown(parts, [row[0] for row in self._ask(TABLES)])
        return self.shaped(parts, [self._column(name, declared) for name, declared in rows])

    def _column(self, name: str, declared: str) -> StoreColumn:
        word = declared.upper().partition("(")[0].strip()
        arrow = EXACT.get(word) or next((arrow for part, arrow in CONTAINED if part in word), None)
        if arrow is None:  # no declared type: read as SQLite's text
            quoted = '"' + name.replace('"', '""') + '"'
            return StoreColumn(name, pa.string(), NULL, read_as=f"CAST({quoted} AS TEXT)")
        operators: frozenset[str] = NULL
        if word not in EXACT and (pa.types.is_integer(arrow) or any(part in word for part in ("REAL", "FLOA", "DOUB"))):
            operators = ORDERED | NULL
        elif pa.types.is_string(arrow):
            operators = (ORDERED if self._utf8 else EQUAL | UNEQUAL) | PREFIX | NULL
        return StoreColumn(name, arrow, operators, _admits(arrow), origin=declared)

    def statement(self, request: StoreRequest) -> StoreStatement:
        return _SQLite().select(request)

    def fetch(self, request: StoreRequest) -> Answered:
        statement = self.statement(request)
        self._until = time.monotonic() + self.attachment.timeout
        rows = self._with_mapped_errors(
            lambda: self._connection.execute(statement.text, statement.parameters).fetchall(), statement.text
        )
        if not request.columns:
            return Answered(pa.table({NUMBERED: pa.array([1] * len(rows), pa.int64())}), statement)
        values = zip(*rows, strict=True) if rows else [()] * len(request.columns)
        arrays = [
            self._array(request.shape, column, each) for column, each in zip(request.columns, values, strict=True)
        ]
        return Answered(pa.Table.from_arrays(arrays, names=[each.name for each in request.columns]), statement)

    def _array(self, shape: StoreTable, column: StoreColumn, values: Sequence[Any]) -> pa.Array:
        read = _readers().get(column.arrow)
        try:
            if read is not None:
                return pa.array([None if value is None else read(value) for value in values], column.arrow)
            classes = CLASSES[column.arrow]
            for value in values:
                if value is not None and not isinstance(value, classes):
                    raise ValueError(f"{value!r:.80}")
            return pa.array(values, column.arrow)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise StoreRefused(
                f'{shape.title} holds a value in column "{column.name}" that is no {column.origin}',
                detail=str(error),
                hint="Correct it, or make a view in the store that casts the column, and query that.",
                store=self.name,
                column=column.name,
            ) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._with_mapped_errors(
            lambda: self._connection.execute(sql, tuple(values)).fetchall(), sql
        )
        return found

    def _with_mapped_errors(self, call: Callable[[], Any], statement: str | None) -> Any:
        try:
            return call()
        except sqlite3.Error as error:
            raise self._mapped(error, statement) from error

    def _mapped(self, error: sqlite3.Error, statement: str | None) -> HeadwaterError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name == "SQLITE_INTERRUPT":
            return self.timed_out(statement, str(error))
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_IOERR")):
            return self.unavailable(statement, str(error), reached=True)
        return self.refuses(statement, str(error))


def _admits(arrow: pa.DataType) -> Callable[[Value], bool]:
    if not pa.types.is_integer(arrow):
        return lambda _: True
    return lambda value: isinstance(value, int) and abs(value) <= WHOLE_MAX


def _readers() -> dict[pa.DataType, Callable[[Any], Any]]:
    return {pa.bool_(): _truth, pa.date32(): _day, TIMESTAMP_NTZ: _moment}


def _truth(value: Any) -> bool:
    if value not in (0, 1) or isinstance(value, str | bytes):
        raise ValueError(f"{value!r:.80}")
    return bool(value)


def _day(value: Any) -> dt.date:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80}")
    return dt.date.fromisoformat(value)


def _moment(value: Any) -> dt.datetime:
    """ISO 8601 without a zone, or in UTC, or whole seconds since 1970."""
    if isinstance(value, int):
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80}")
    found = dt.datetime.fromisoformat(value)
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


class _SQLite(StatementRenderer):
    dialect = "sqlite"

    def operand(self, column: StoreColumn, operator: str) -> exp.Expr:
        plain = super().operand(column, operator)
        if operator == "like" or not pa.types.is_string(column.arrow):
            return plain
        return exp.Collate(this=plain, expression=exp.Var(this="BINARY"))

    def value(self, column: StoreColumn, value: Value) -> exp.Expr:  # noqa: ARG002
        self.parameters.append(value)
        return exp.Placeholder()
