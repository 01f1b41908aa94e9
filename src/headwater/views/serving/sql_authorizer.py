"""The gate of the serving store: what a query of a stranger may name.

What it is: ``SqlAuthorizer``, SQLite's authorizer over one connection: lists of what is allowed, and nothing else.
Invariants: a query selects, from the views that are read and from ``json_each`` and ``json_tree``, with functions of
``FUNCTIONS``. It sees no other table, not SQLite's own nor ours, attaches nothing, sets nothing, writes nothing. What
SQLite was built with beyond that (``fts3_tokenizer``, ``load_extension``, tables of its inside) cannot be called.
Not here: time, rows, bytes (``serving_queries.py``), memory (``server/queries/store_worker.py``).
Read next: ``serving_file.py``; the list for users in ``docs/serving.md``.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headwater.errors import Forbidden, InvalidQuery
from headwater.views.privacy.hidden_columns import Hidden
from headwater.views.serving.serving_columns import quoted, shown_name
from headwater.views.serving.serving_tables import ServedTable

# By what they do. None of them reaches out of the query, and what they make is bounded by SQLITE_LIMIT_LENGTH.
FUNCTIONS = frozenset(
    [
        "->",
        "->>",
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "avg",
        "ceil",
        "ceiling",
        "char",
        "coalesce",
        "concat",
        "concat_ws",
        "cos",
        "cosh",
        "count",
        "cume_dist",
        "current_date",
        "current_time",
        "current_timestamp",
        "date",
        "datetime",
        "degrees",
        "dense_rank",
        "exp",
        "first_value",
        "floor",
        "format",
        "glob",
        "group_concat",
        "hex",
        "if",
        "ifnull",
        "iif",
        "instr",
        "json",
        "json_array",
        "json_array_length",
        "json_error_position",
        "json_extract",
        "json_group_array",
        "json_group_object",
        "json_insert",
        "json_object",
        "json_patch",
        "json_pretty",
        "json_quote",
        "json_remove",
        "json_replace",
        "json_set",
        "json_type",
        "json_valid",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "like",
        "likelihood",
        "likely",
        "ln",
        "log",
        "log10",
        "log2",
        "lower",
        "ltrim",
        "max",
        "median",
        "min",
        "mod",
        "nth_value",
        "ntile",
        "nullif",
        "octet_length",
        "percent_rank",
        "percentile",
        "percentile_cont",
        "percentile_disc",
        "pi",
        "pow",
        "power",
        "printf",
        "quote",
        "radians",
        "random",
        "rank",
        "replace",
        "round",
        "row_number",
        "rtrim",
        "sign",
        "sin",
        "sinh",
        "soundex",
        "sqrt",
        "strftime",
        "string_agg",
        "substr",
        "substring",
        "subtype",
        "sum",
        "tan",
        "tanh",
        "time",
        "timediff",
        "total",
        "trim",
        "trunc",
        "typeof",
        "unhex",
        "unicode",
        "unistr",
        "unistr_quote",
        "unixepoch",
        "unlikely",
        "upper",
        "zeroblob",
    ]
)
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
PROBE = "_headwater_probe"
INNER = "_headwater_rows_"
WRITES_REFUSED, WRITES_LET_THROUGH = "PRAGMA query_only = ON", "PRAGMA query_only = OFF"

# Named here, because Python's module has not all of them in every version.
SELECT, READ, FUNCTION, RECURSIVE = 21, 20, 31, 33
# What making the probe, a view of this connection alone, takes; see serving_queries.py.
PROBING = {
    (sqlite3.SQLITE_CREATE_TEMP_VIEW, PROBE),
    (sqlite3.SQLITE_INSERT, "sqlite_temp_master"),
    (sqlite3.SQLITE_UPDATE, "sqlite_temp_master"),
    (sqlite3.SQLITE_READ, "sqlite_temp_master"),
    (sqlite3.SQLITE_PRAGMA, "table_info"),
}


class SqlAuthorizer:
    """The authorizer of one connection. Closed, but for the blocks of ``trusting`` and ``probing``."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._trusts = False
        self._probes = False
        self._refused: str | None = None
        self._columns: dict[str, frozenset[str]] = {}
        self._hidden: dict[str, frozenset[str]] = {}
        self._only_in: dict[str, str] = {}  # tables whose rows are read through one view alone
        self._closed: dict[str, str] = {}
        for name in TABLE_FUNCTIONS:  # their first use registers them, which is refused later
            db.execute(f"SELECT 1 FROM {name}('[]')").fetchall()
        db.set_authorizer(self._decide)
        with self.trusting():
            db.execute(WRITES_REFUSED)

    def show(self, tables: Mapping[str, ServedTable], hidden: Hidden | None = None) -> None:
        """Let queries read these views, and nothing else; of ``hidden`` columns they read null, and of rows that are
        told apart their own: until the transaction ends, the view's name is then that of a view of those rows.
        """
        self._only_in, self._closed = {}, {}
        for table in tables.values():
            columns = (hidden or {}).get(table.view.lower())
            if columns is not None and columns.closed is not None:
                self._closed |= dict.fromkeys((table.view, table.name), columns.closed)
            elif columns is not None and columns.rows is not None:
                try:
                    self._only_in[table.name] = self._view_of(table, table.select_of(columns.rows))
                except Forbidden as error:  # its rows cannot be told apart: other views can still be asked
                    self._closed |= dict.fromkeys((table.view, table.name), error.message)
        self._hidden = {
            name: frozenset(
                each for column in table.by_name if columns.hides(column) for each in (column, shown_name(column))
            )
            for table in tables.values()
            if (columns := (hidden or {}).get(table.view.lower())) is not None
            # The inner view compares hidden columns, too: they are null from there on.
            for name in (table.view, self._only_in.get(table.name, table.name))
        }
        self._columns = {
            name: frozenset({"", *table.by_name, *map(shown_name, table.by_name)})
            for table in tables.values()
            for name in (table.view, table.name)
            if name not in self._closed
        }

    def _view_of(self, table: ServedTable, select: str) -> str:
        """A view of some of a table's rows, which stands before the view for everybody.

        It is two: the table is read in the inner one alone, whose name cannot be guessed, so neither the other view
        nor the table helps to read the other rows. A LIMIT keeps conditions of the query behind its own: one that
        fails would tell of rows that are not shown.
        """
        inner = f"{INNER}{secrets.token_hex(16)}"
        with self.trusting():
            self._db.execute(WRITES_LET_THROUGH)
            try:
                self._db.execute(f"CREATE TEMP VIEW {inner} AS {select} LIMIT -1")
                self._db.execute(f"CREATE TEMP VIEW {quoted(table.view)} AS SELECT * FROM temp.{inner}")
            finally:
                self._db.execute(WRITES_REFUSED)
        return inner

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Let statements of our own pass. A connection with a gate keeps none: they could be asked for by others."""
        self._trusts = True
        try:
            yield
        finally:
            self._trusts = False

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Let one temporary view be made of a query, and described."""
        with self.trusting():
            self._db.execute(WRITES_LET_THROUGH)
        self._probes = True
        try:
            yield
        finally:
            self._probes = False
            with self.trusting():
                self._db.execute(WRITES_REFUSED)

    @contextmanager
    def refusals_named(self) -> Iterator[None]:
        """Raise ``InvalidQuery``, naming the refused action, for a refusal in this block."""
        self._refused = None
        try:
            yield
        except sqlite3.Error as error:
            if self._refused is None:
                raise
            raise InvalidQuery(
                f"a query cannot {self._refused}", hint="It reads views, with functions of SQL; see docs/serving.md."
            ) from error

    def _decide(self, action: int, one: str | None, two: str | None, database: str | None, inside: str | None) -> int:
        del database
        if self._trusts or action in (SELECT, RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == READ and one is not None and self._readable(one, two, inside):
            return sqlite3.SQLITE_IGNORE if two in self._hidden.get(one, ()) else sqlite3.SQLITE_OK
        if action == FUNCTION and two is not None and two.lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        if self._probes and (action, one) in PROBING:
            return sqlite3.SQLITE_OK
        if self._refused is None:
            self._refused = _said(action, one, two)
            if action == READ and one in self._closed:
                self._refused += f": {self._closed[one]}"
        return sqlite3.SQLITE_DENY

    def _readable(self, table: str, column: str | None, inside: str | None) -> bool:
        if table in TABLE_FUNCTIONS:
            return True
        if table in self._only_in:
            return inside == self._only_in[table]
        if table.startswith(INNER):  # its own columns, which the view before it names
            return True
        if column in self._columns.get(table, ()):
            # The table behind a view is read in the view's name alone.
            return not column or not _internal(table) or inside is not None
        # No column is read, as by count(*): SQLite then asks for what a query names itself too (WITH).
        return not column and not _internal(table)


def _internal(table: str) -> bool:
    return table.lower().startswith(("sqlite_", "pragma_", "_headwater_")) or "@" in table


def _said(action: int, one: str | None, two: str | None) -> str:
    if action == READ:
        return f'read "{one}"'
    if action == FUNCTION:
        return f"call {two}"
    return "do anything but read"
