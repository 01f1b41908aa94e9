"""A workload in an app: its tables declared, its rows and its ticks given to them.

What it is: ``Loaded``, which holds an app's tables and the oracle side by side.
Invariants: whatever the app is given, the oracle is given too. Rows of a table with a key are upserted and deleted;
rows of a stream are appended.
Not here: declaring views and ticking, which is what tests and benchmarks do with it.
Read next: ``tests/spark/test_tpch.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import headwater as hw
from tests.workloads.bags import difference
from tests.workloads.oracle import Oracle
from tests.workloads.tables import Table, Tick


class Loaded:
    """An app whose tables hold what the oracle holds."""

    def __init__(self, app: hw.App, tables: Iterable[Table], oracle: Oracle | None = None) -> None:
        self.app = app
        self.oracle = oracle or Oracle(tables)
        self.inputs: dict[str, Any] = {
            table.name: app.table(table.name, table.ddl, key=list(table.key))
            if table.key
            else app.topic(table.name, table.ddl)
            for table in tables
        }

    def load(self, data: Mapping[str, pa.Table]) -> None:
        """Give both of them rows that are new."""
        for name, rows in data.items():
            self.oracle.load(name, rows)
            self.give(name, rows)

    def give(self, name: str, rows: pa.Table) -> None:
        """Give the app alone these rows."""
        put = self.inputs[name].upsert if self.oracle.tables[name].key else self.inputs[name].append
        if rows.num_rows:
            put(rows)

    def follow(self, tick: Tick) -> None:
        """Give the app a tick that the oracle was told already."""
        for name, changes in tick.items():
            if changes.deletes.num_rows:
                self.inputs[name].delete(changes.deletes.to_pylist())
            self.give(name, changes.upserts)

    def differences(self, queries: Mapping[str, str], *, seen: dict[str, pa.Table] | None = None) -> dict[str, str]:
        """Which views differ from the query of the same name over the current tables, and how.

        The oracle's answers are put into ``seen``, for whoever wants to know what was compared.
        """
        found = {}
        for name, sql in queries.items():
            expected = self.oracle.answer(sql)
            if seen is not None:
                seen[name] = expected
            if (told := difference(expected, self.app.query(f"SELECT * FROM {name}"))) is not None:
                found[name] = told
        return found
