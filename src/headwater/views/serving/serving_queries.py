"""Reading the serving store: one SELECT with its types restored, and rows by key.

What it is: ``select`` and ``point_read``, over a connection opened for reading; ``Bounds``, what an answer
may be.
Invariants: a result's column that is a view's column, through any joins and subqueries, has its Spark type; only a
single SELECT is ever run. Rows are taken a few at a time, so that an answer beyond its bounds is never held whole.
The caller rolls the transaction back.
Not here: connections (``serving_file.py``), what may be named (``sql_authorizer.py``), what SQLite's values mean
(``serving_columns.py``).
Read next: ``serving_store.py``.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import AnswerTooLarge, Misuse, TimedOut
from headwater.hints import suggestion
from headwater.log.schema.far_times import far_rows
from headwater.log.schema.row_conversion import to_batches
from headwater.views.privacy.hidden_columns import Hidden
from headwater.views.serving.serving_columns import column_of_declaration, declared_name, inferred, quoted, shown_name
from headwater.views.serving.serving_tables import ServedTable
from headwater.views.serving.sql_authorizer import PROBE, SqlAuthorizer

KNOWN_MAX = 256
# A user's mistake in a query, as against an unhappy disk.
SELECT_ERRORS = (
    sqlite3.OperationalError,
    sqlite3.ProgrammingError,
    sqlite3.Warning,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    OverflowError,
    UnicodeError,
    RecursionError,
)
STEPS = 10_000  # of SQLite's machine, between two looks at the clock: some 0.1 ms
VALUE_BYTES_MAX = 64 << 20  # of one value in a query that has bounds
FETCHED_MAX = 1_000  # rows that are taken at once
CELL_BYTES = 8

# What may stand for a parameter in SQL text; strings, quoted names and comments are passed over.
PARAMETER = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|$))|\?\d*|[:@$][A-Za-z_]\w*""",
    re.DOTALL,
)
# The names ``true`` and ``false`` in quotes; strings, other quoted names and comments are passed over.
TRUTH_VALUE = re.compile(
    r"""'(?:[^']|'')*'|["`\[](true|false)["`\]]|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|$)""",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class Bounds:
    """The bounds of an answer; None is no bound. Of ``hidden`` columns a query of SQL gets null.

    Rows that are hidden are in no answer.
    """

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    hidden: Hidden = field(default_factory=dict)


def with_shown_names(sql: str, views: Iterable[ServedTable]) -> str:
    """A query with the names that columns have in SQLite's views, where it mentions a view with odd ones.

    Only there: in other queries ``"true"`` is a text to SQLite, as every name in double quotes that is no column's.
    """
    odd = [view.view for view in views if view.has_truth_values]
    if not any(name.lower() in sql.lower() for name in odd):
        return sql
    return TRUTH_VALUE.sub(lambda match: quoted(shown_name(match[1])) if match[1] else match[0], sql)


def select(
    db: sqlite3.Connection,
    gate: SqlAuthorizer,
    views: Mapping[str, ServedTable],
    sql: str,
    params: Sequence[Any] | Mapping[str, Any],
    known: dict[str, list[str]],
    bounds: Bounds,
) -> pa.Table:
    """The answer of one SELECT. ``known`` remembers the types of queries, until a table is made or dropped."""
    sql = with_shown_names(sql, views.values())
    about = sql if not bounds.hidden else f"{sql}\0{sorted(bounds.hidden.items(), key=str)}"
    if about not in known:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[about] = _declared_types(db, gate, sql)
    declared = known[about]
    cursor = db.execute(sql, params)
    rows = fetched(cursor, bounds)
    names = [declared_name(name) for name, *_ in cursor.description]
    values = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    arrays = []
    for place, (name, listed) in enumerate(zip(names, values, strict=True)):
        column = column_of_declaration(name, declared[place]) if place < len(declared) else None
        arrays.append(inferred(listed) if column is None else column.loaded(listed))
    return pa.Table.from_arrays(arrays, names=names)


def fetched(cursor: sqlite3.Cursor, bounds: Bounds) -> list[tuple[Any, ...]]:
    """The rows, as many as there may be; ``AnswerTooLarge`` as soon as they have more bytes than they may."""
    if bounds.bytes is None:
        return cursor.fetchall() if bounds.rows is None else cursor.fetchmany(bounds.rows)
    rows: list[tuple[Any, ...]] = []
    held, largest = 0, bounds.bytes  # nothing is known of the first row: it comes alone
    while bounds.rows is None or len(rows) < bounds.rows:
        wanted = max(1, min(FETCHED_MAX, (bounds.bytes - held) // largest))
        came = cursor.fetchmany(wanted if bounds.rows is None else min(wanted, bounds.rows - len(rows)))
        if not came:
            break
        sizes = [_row_bytes(row) for row in came]
        held += sum(sizes)
        largest = max(max(sizes), 1 if largest == bounds.bytes else largest)
        if held > bounds.bytes:
            raise answer_too_large(bounds.bytes)
        rows += came
    return rows


def answer_too_large(bytes_max: int) -> AnswerTooLarge:
    """The error for an answer of more bytes than it may have."""
    return AnswerTooLarge(
        f"the answer has more than {_mib(bytes_max)}",
        hint="Ask for fewer rows (LIMIT), or fewer and shorter columns. The server's limit is --query-mib.",
        bytes_max=bytes_max,
    )


def _row_bytes(row: tuple[Any, ...]) -> int:
    return CELL_BYTES * len(row) + sum(len(value) for value in row if type(value) in (str, bytes))


def _mib(count: int) -> str:
    return f"{count / (1 << 20):g} MiB"


@contextmanager
def in_bounds(db: sqlite3.Connection, bounds: Bounds) -> Iterator[None]:
    """End the queries of the block when their time is up, and keep them from making values beyond all bounds."""
    if bounds.seconds is None:
        yield
        return
    deadline = time.monotonic() + bounds.seconds
    value_bytes = min(VALUE_BYTES_MAX, bounds.bytes or VALUE_BYTES_MAX)
    before = db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
    db.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_INTERRUPT":
            raise out_of_time(bounds.seconds) from error
        if name == "SQLITE_TOOBIG":
            raise AnswerTooLarge(
                f"the query makes a value of more than {_mib(value_bytes)}",
                hint="Make shorter ones. The server's limit is --query-mib.",
                bytes_max=value_bytes,
            ) from error
        raise
    finally:
        db.set_progress_handler(None, 0)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def out_of_time(seconds: float) -> TimedOut:
    """The error for a query that took longer than it may."""
    return TimedOut(f"the query was ended after {seconds:g} s", hint="Ask for less, or give it more time.")


def point_read(
    db: sqlite3.Connection,
    table: ServedTable,
    key: Sequence[Any],
    columns: Mapping[str, Any],
    bounds: Bounds = Bounds(),  # noqa: B008 (frozen)
) -> pa.RecordBatch:
    """The rows with this key, or with these values in some columns."""
    wanted = _wanted(table, key, columns)
    schema = table.schema_of(tuple(wanted))
    far = any(type(value) is int and kinds.is_temporal(schema.field(name).type) for name, value in wanted.items())
    given = far_rows([wanted], schema) if far else to_batches([wanted], schema)
    bound = [table.by_name[name].stored(given.column(name))[1][0] for name in wanted]
    where = " AND ".join(f"{quoted(shown_name(name))} IS ?" for name in wanted)
    limit = "" if bounds.rows is None else f" LIMIT {bounds.rows}"
    source, seen = quoted(table.view), bounds.hidden.get(table.view.lower())
    if seen is not None and seen.rows is not None:
        source = f"({table.select_of(seen.rows)})"
    rows = fetched(db.execute(f"SELECT * FROM {source} WHERE {where}{limit}", bound), bounds)
    values = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    arrays = [column.loaded(list(listed)) for column, listed in zip(table.columns, values, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def wrong_key(table: ServedTable, key: Sequence[Any], *, instead: str) -> Misuse:
    """The error for too many values, or too few."""
    given = "1 value was given" if len(key) == 1 else f"{len(key)} values were given"
    if not table.key:
        return Misuse(f'view "{table.view}" has no key, and {given}', hint=f"Ask by columns: {instead}.")
    return Misuse(
        f'the key of view "{table.view}" is ({", ".join(table.key)}), and {given}',
        hint=f"Give a value for each column of the key, or ask by columns: {instead}.",
    )


def _wanted(table: ServedTable, key: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a point read compares, with their values."""
    names = [column.name for column in table.columns]
    if key and len(key) != len(table.key):
        raise wrong_key(table, key, instead="get(column=value)")
    wanted = {**dict(zip(table.key, key, strict=True)), **columns} if key else dict(columns)
    for name in wanted:
        if name not in names:
            raise Misuse(f'view "{table.view}" has no column "{name}"', hint=suggestion(name, names))
    if not wanted:
        raise Misuse("a point read needs a key", hint="For all rows: query('SELECT * FROM …').")
    return wanted


def _declared_types(db: sqlite3.Connection, gate: SqlAuthorizer, sql: str) -> list[str]:
    """The declared type of each column of the answer; empty text for expressions.

    Asked of a temporary view of the same query, which only a single SELECT can be: so this also keeps everything out
    that is none. The caller's rollback takes it away. A view has no parameters, so they are nulls here.
    """
    bare = PARAMETER.sub(lambda match: match.group(1) or "NULL", sql)
    with gate.probing():
        db.execute(f"CREATE TEMP VIEW {PROBE} AS {bare}")
        with suppress(sqlite3.OperationalError):  # the query itself will say it better
            return [declared for _, _, declared, *_ in db.execute(f"PRAGMA temp.table_info({PROBE})")]
    return []
