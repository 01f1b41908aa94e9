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

from headwater.log.ddl import parse_ddl


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


Tick = Mapping[str, Changes]  # by table name
