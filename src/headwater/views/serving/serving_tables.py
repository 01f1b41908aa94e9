"""One view's table in the serving store: its SQL, and how changes are put into it.

What it is: ``ServedTable``, the description of one SQLite table that holds one view, and what can be done with it in
the caller's transaction: make it, fill it, change it, show it under the view's name.
Invariants: a change of weight -1 takes exactly one row away that is equal in every column, or is a ``Corruption``; with
a key no two rows have the same one. Readers never see this table but a SQL view of the view's name over it, so that
they see the declared columns only, and another table can take its place in one step.
Not here: transactions, progress and fencing (``serving_store.py``), how values are kept (``serving_columns.py``).
Read next: ``serving_store.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa

from headwater.errors import Corruption, Misuse
from headwater.log.schema.columns import shorten
from headwater.log.schema.normalization import WEIGHT
from headwater.views.privacy.row_rules import RowsShown
from headwater.views.serving.serving_columns import (
    TRUTH_VALUES,
    ServedColumn,
    quoted,
    row_hashes,
    shown_name,
    text_literal,
)

HASH = "_hash"
HOW_TO_REFILL = "Stop the app and delete its serving.sqlite: the next start refills it from the views' state."

Rows = list[tuple[Any, ...]]  # ready to be bound


class ServedTableState(StrEnum):
    """The role of a table for its view."""

    LIVE = "live"  # read under the view's name
    NEXT = "next"  # another query's rows, waiting for the swap
    FILLING = "filling"  # a bulk load in progress, or one that was interrupted


@dataclass(frozen=True)
class ServedTable:
    """A table that holds one view's rows."""

    view: str
    number: int  # never used again
    columns: tuple[ServedColumn, ...]
    key: tuple[str, ...]
    fingerprint: str
    state: ServedTableState
    as_of_tick: int  # what it held when it was made; changes up to this tick are in it already

    @property
    def name(self) -> str:
        """The table's name in SQLite."""
        return f"{self.view}@{self.number}"

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([pa.field(column.name, column.arrow) for column in self.columns])

    def schema_of(self, names: tuple[str, ...]) -> pa.Schema:
        """Some of the columns; the same object each time, because rows are converted by it
        (``log/schema/row_conversion.py``)."""
        if names not in self._schemas:
            self._schemas[names] = pa.schema([self.schema.field(name) for name in names])
        return self._schemas[names]

    @cached_property
    def _schemas(self) -> dict[tuple[str, ...], pa.Schema]:
        return {}

    @cached_property
    def by_name(self) -> dict[str, ServedColumn]:
        """The columns by their names."""
        return {column.name: column for column in self.columns}

    @cached_property
    def has_truth_values(self) -> bool:
        """Whether a column is named ``true`` or ``false``."""
        return any(column.name.lower() in TRUTH_VALUES for column in self.columns)

    @cached_property
    def _names(self) -> str:
        return ", ".join(f"{quoted(column.name)} AS {quoted(shown_name(column.name))}" for column in self.columns)

    @property
    def _hashed(self) -> bool:
        return not self.key

    # Its life

    def create(self, db: sqlite3.Connection) -> None:
        """Make the table, without its index."""
        declarations = [column.declaration for column in self.columns]
        if self._hashed:
            declarations.append(f"{HASH} INTEGER NOT NULL")
        db.execute(f"CREATE TABLE {quoted(self.name)} ({', '.join(declarations)})")

    def create_index(self, db: sqlite3.Connection) -> None:
        """Make the index by which rows are found: of the key, else of the hash of the whole row."""
        columns = ", ".join(map(quoted, self.key)) or HASH
        unique = "UNIQUE " if self.key else ""
        try:
            db.execute(f"CREATE {unique}INDEX {quoted(self.name + ' index')} ON {quoted(self.name)} ({columns})")
        except sqlite3.IntegrityError as error:
            raise self._key_twice() from error

    def show(self, db: sqlite3.Connection) -> None:
        """Let readers see this table under the view's name."""
        db.execute(f"DROP VIEW IF EXISTS {quoted(self.view)}")
        db.execute(f"CREATE VIEW {quoted(self.view)} AS SELECT {self._names} FROM {quoted(self.name)}")

    def select_of(self, rows: RowsShown) -> str:
        """The query of some of its rows."""
        return f"SELECT {self._names} FROM main.{quoted(self.name)} WHERE {self.condition_of(rows)}"

    def condition_of(self, rows: RowsShown) -> str:
        """The condition of some of its rows."""
        rows.check(self.schema)
        return " AND ".join(
            f"CAST({quoted(column)} AS TEXT) IN ({', '.join(map(text_literal, values))})"
            for column, values in rows.values
        )

    def drop(self, db: sqlite3.Connection) -> None:
        """Remove the table."""
        db.execute(f"DROP TABLE IF EXISTS {quoted(self.name)}")

    # Rows

    def insert(self, db: sqlite3.Connection, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows, each once."""
        self._insert(db, self._encoded(rows))

    def change(self, db: sqlite3.Connection, changes: pa.Table) -> None:
        """Take rows away and add rows, by their ``_weight``."""
        missing = [name for name in (*self.schema.names, WEIGHT) if name not in changes.schema.names]
        if missing:
            raise Misuse(
                f'the changes of view "{self.view}" have no column "{missing[0]}"',
                hint="Declare the view again when its columns change.",
            )
        rows, weights = self._encoded(changes), changes.column(WEIGHT).to_pylist()
        taken, added = self._updated(db, rows, weights) or _by_sign(rows, weights)
        self._take(db, taken)
        self._insert(db, added)

    def _encoded(self, rows: pa.Table | pa.RecordBatch) -> Rows:
        if not rows.num_rows:
            return []
        stored = [column.stored(rows.column(column.name)) for column in self.columns]
        values = [listed for _, listed in stored]
        if self._hashed:
            values.append(row_hashes([array for array, _ in stored]))
        return list(zip(*values, strict=True))

    def _updated(self, db: sqlite3.Connection, rows: Rows, weights: list[int]) -> tuple[Rows, Rows] | None:
        """Change rows that leave and come again with the same key where they stand; returns the others.

        A third of the pages that deleting and inserting would touch, and the key's index is left alone. None when it
        cannot be done: a key comes or leaves twice, or a row that leaves is not there. The plain way tells what is so.
        """
        if not self.key:
            return None
        places = [self.schema.names.index(name) for name in self.key]
        keys = [row[places[0]] for row in rows] if len(places) == 1 else list(map(itemgetter(*places), rows))
        went = {key: row for key, row, weight in zip(keys, rows, weights, strict=True) if weight == -1}
        came = {key: row for key, row, weight in zip(keys, rows, weights, strict=True) if weight == 1}
        if len(went) + len(came) != len(rows):
            return None
        both = [key for key in went if key in came]
        if both:
            db.execute("SAVEPOINT before_updating")
            changed = [came[key] + went[key] for key in both if came[key] != went[key]]
            if changed and db.executemany(self._change, changed).rowcount != len(changed):
                db.execute("ROLLBACK TO before_updating")
                return None
            db.execute("RELEASE before_updating")
        return [went[key] for key in went if key not in came], [came[key] for key in came if key not in went]

    @cached_property
    def _change(self) -> str:
        others = [column.name for column in self.columns if column.name not in self.key] or list(self.key)
        changes = ", ".join(f"{quoted(name)} = ?{self.schema.names.index(name) + 1}" for name in others)
        return f"UPDATE {quoted(self.name)} SET {changes} WHERE {self._equal(len(self.columns))}"

    def _equal(self, before: int) -> str:
        """Every column equals its parameter, of which ``before`` stand before the first."""
        return " AND ".join(
            f"{quoted(column.name)} IS ?{place}" for place, column in enumerate(self.columns, start=before + 1)
        )

    def _insert(self, db: sqlite3.Connection, rows: Rows) -> None:
        if not rows:
            return
        marks = ", ".join("?" * (len(self.columns) + self._hashed))
        try:
            db.executemany(f"INSERT INTO {quoted(self.name)} VALUES ({marks})", rows)
        except sqlite3.IntegrityError as error:
            raise self._key_twice() from error

    def _take(self, db: sqlite3.Connection, rows: Rows) -> None:
        if not rows:
            return
        db.execute("SAVEPOINT before_taking")
        if db.executemany(self._delete, rows).rowcount == len(rows):
            db.execute("RELEASE before_taking")
            return
        # Rare and fatal, so it may be slow: do it again, one by one, to name the row. The caller rolls back.
        db.execute("ROLLBACK TO before_taking")
        for row in rows:
            if db.execute(self._delete, row).rowcount != 1:
                values = {column.name: value for column, value in zip(self.columns, row, strict=False)}
                raise Corruption(
                    f'a row that leaves view "{self.view}" is not in the serving store: {shorten(values)}',
                    detail="Nothing of this tick was applied. The store and the view's state have come apart.",
                    hint=HOW_TO_REFILL,
                    view=self.view,
                )

    @cached_property
    def _delete(self) -> str:
        equal = self._equal(0)
        if not self._hashed:
            return f"DELETE FROM {quoted(self.name)} WHERE {equal}"
        found = f"SELECT rowid FROM {quoted(self.name)} WHERE {HASH} = ?{len(self.columns) + 1} AND {equal} LIMIT 1"
        return f"DELETE FROM {quoted(self.name)} WHERE rowid = ({found})"

    def _key_twice(self) -> Corruption:
        return Corruption(
            f'two rows of view "{self.view}" have the same key ({", ".join(self.key)})',
            detail="Nothing of this change was applied. The view's key is not unique, which it was declared to be.",
            hint=HOW_TO_REFILL,
            view=self.view,
        )

    # As a row of the store's list

    def to_row(self) -> tuple[Any, ...]:
        """The values of the store's own table of tables."""
        columns = json.dumps([(column.name, column.type) for column in self.columns])
        return (self.view, self.number, columns, json.dumps(self.key), self.fingerprint, self.state, self.as_of_tick)

    @staticmethod
    @lru_cache(maxsize=1024)  # each tick asks for the same ones
    def of_row(row: tuple[Any, ...]) -> ServedTable:
        """The table that ``to_row`` described."""
        view, number, columns, key, fingerprint, state, as_of_tick = row
        made = tuple(ServedColumn.of(name, type) for name, type in json.loads(columns))
        return ServedTable(view, number, made, tuple(json.loads(key)), fingerprint, ServedTableState(state), as_of_tick)


def _by_sign(rows: Rows, weights: list[int]) -> tuple[Rows, Rows]:
    """The rows that leave and those that come, each as often as it does."""
    weighted: Iterable[tuple[tuple[Any, ...], int]] = zip(rows, weights, strict=True)
    if len({weight > 0 for weight in weights}) > 1:
        # A row that comes and goes in one tick need not be there before.
        sums: dict[tuple[Any, ...], int] = {}
        for row, weight in weighted:
            sums[row] = sums.get(row, 0) + weight
        weighted = sums.items()
    taken, added = Rows(), Rows()
    for row, weight in weighted:
        (taken if weight < 0 else added).extend([row] * abs(weight))
    return taken, added
