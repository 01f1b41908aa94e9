"""A workload's tables and what changes in them.

What it is: frozen descriptions of a keyed table (or a stream of events, which has no key) and of one tick's changes.
Invariants: ``upserts`` hold whole rows of the table's schema, ``deletes`` at least the key; a key stands in one of
the two, once.
Not here: what the tables mean (``tpch/``, ``nexmark/``).
Read next: ``oracle.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headwater.log.schema.ddl import parse_ddl


@dataclass(frozen=True)
class Table:
    """A table as Headwater is told about it; without a key it is a stream of events."""

    name: str
    ddl: str
    key: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        return parse_ddl(self.ddl)

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Dicts as an Arrow table of this table's columns."""
        return pa.Table.from_pylist(list(rows), schema=self.schema)

    def keys(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The keys of these dicts as an Arrow table."""
        schema = pa.schema([self.schema.field(name) for name in self.key])
        return pa.Table.from_pylist([{name: row[name] for name in self.key} for row in rows], schema=schema)


@dataclass(frozen=True)
class Changes:
    """What one tick does to one table."""

    upserts: pa.Table
    deletes: pa.Table

    @property
    def count(self) -> int:
        return self.upserts.num_rows + self.deletes.num_rows


Row = dict[str, Any]
Tick = Mapping[str, Changes]  # by table name


class Draft:
    """A table's changes while a tick is being made up: the last word on a key is the one that counts."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: dict[tuple[Any, ...], tuple[Row, bool]] = {}  # the row, and whether it stays

    def put(self, row: Row) -> None:
        self.rows[self._key(row)] = (row, True)

    def put_unless_taken(self, row: Row) -> None:
        self.rows.setdefault(self._key(row), (row, True))

    def drop(self, row: Row) -> None:
        self.rows[self._key(row)] = (row, False)

    def changes(self) -> Changes:
        kept = [row for row, stays in self.rows.values() if stays]
        gone = [row for row, stays in self.rows.values() if not stays]
        return Changes(self.table.rows(kept), self.table.keys(gone))

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.key)
