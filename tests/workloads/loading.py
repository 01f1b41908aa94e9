"""A workload in an app: its tables declared, its rows and its ticks given to them.

What it is: ``Loaded``, which gives an app what the oracle was told, and compares its views with the oracle.
Invariants: rows of a table with a key are upserted and deleted;
rows of a stream are appended.
Not here: the oracle (``oracle.py``), comparing (``views/state/multisets.py``).
Read next: ``tests/spark/test_tpch.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import headwater as hw
from tests.workloads.bags import difference
from tests.workloads.oracle import Oracle
from tests.workloads.tables import Tick


class Loaded:
    """An app with the oracle's tables."""

    def __init__(self, app: hw.App, oracle: Oracle) -> None:
        self.app = app
        self.oracle = oracle
        self.inputs: dict[str, Any] = {
            table.name: app.table(table.name, table.ddl, key=list(table.key))
            if table.key
            else app.topic(table.name, table.ddl)
            for table in oracle.tables.values()
        }

    def give(self, name: str, rows: pa.Table) -> None:
        """Give the app these rows."""
        put = self.inputs[name].upsert if self.oracle.tables[name].key else self.inputs[name].append
        if rows.num_rows:
            put(rows)

    def follow(self, tick: Tick) -> None:
        """Give the app a tick that the oracle was told already."""
        for name, changes in tick.items():
            if changes.deletes.num_rows:
                self.inputs[name].delete(changes.deletes.to_pylist())
            self.give(name, changes.upserts)

    def play(self, queries: Mapping[str, str], ticks: Iterable[Tick], *, for_duckdb: Mapping[str, str] = {}) -> History:
        """Declare every query as a view, then give tick after tick and compare each view with the oracle after it.

        What is compared is what the serving store has, and after the last tick also what the state holds: both come
        from the same changes, and asking Spark for some twenty views takes longer than the tick.
        """
        history = History()
        for name, sql in queries.items():
            self.app.view(name, sql)
        for number, tick in enumerate(ticks):
            self.follow(tick)
            self.app.tick()
            for name, sql in queries.items():
                expected = self.oracle.ask(for_duckdb[name]) if name in for_duckdb else self.oracle.answer(sql)
                history.note(name, number, expected, found=self.app._runtime.serving.query(f"SELECT * FROM {name}"))
        for name in queries:
            history.note_last(name, found=self.app.sql(f"SELECT * FROM {name}"))
        return history


class History:
    """What was compared, view by view: where they differed, and how often the answer moved."""

    def __init__(self) -> None:
        self.differences: dict[str, list[str]] = {}
        self.moves: dict[str, int] = {}
        self._last: dict[str, pa.Table] = {}

    def note(self, name: str, tick: int, expected: pa.Table, *, found: pa.Table) -> None:
        """Compare one view after one tick."""
        if (told := difference(expected, found)) is not None:
            self.differences.setdefault(name, []).append(f"after tick {tick}: {told}")
        if name in self._last and difference(self._last[name], expected) is not None:
            self.moves[name] = self.moves.get(name, 0) + 1
        self._last[name] = expected

    def note_last(self, name: str, *, found: pa.Table) -> None:
        """Compare the state of one view after the last tick."""
        if (told := difference(self._last[name], found)) is not None:
            self.differences.setdefault(name, []).append(f"in the state: {told}")
