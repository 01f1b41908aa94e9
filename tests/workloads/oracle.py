"""The oracle: the current tables in DuckDB, and what a query gives over them.

What it is: an in-memory DuckDB that is told the same changes as the app, and asked the same questions.
Invariants: a question is Spark SQL; sqlglot turns it into DuckDB's dialect, nothing is rewritten by hand. Times are
kept without a zone and mean UTC, as in the app's session.
Not here: comparing its answer with a view (``views/state/multisets.py``).
Read next: ``views/state/multisets.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
import sqlglot

from tests.workloads.tables import Table, Tick


class Oracle:
    """Current tables and answers.

    >>> from tests.workloads.tables import Changes
    >>> people = Table("people", "id BIGINT, name STRING", key=("id",))
    >>> oracle = Oracle([people])
    >>> oracle.load("people", people.rows([{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]))
    >>> oracle.apply({"people": Changes(people.rows([{"id": 1, "name": "Eve"}]), people.keys([{"id": 2}]))})
    >>> oracle.answer("SELECT name FROM people").to_pylist()
    [{'name': 'Eve'}]
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = {table.name: table for table in tables}
        self.connection = duckdb.connect()
        for table in self.tables.values():
            self._register("_empty", table.schema.empty_table())
            self.connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM _empty")

    def load(self, name: str, rows: pa.Table) -> None:
        """Add rows, which must be new."""
        self._register("_rows", rows)
        self.connection.execute(f"INSERT INTO {name} SELECT * FROM _rows")

    def apply(self, tick: Tick) -> None:
        """Make the changes of a tick."""
        for name, changes in tick.items():
            for gone in (changes.deletes, changes.upserts):
                self._delete(self.tables[name], gone)
            self.load(name, changes.upserts)

    def answer(self, sql: str) -> pa.Table:
        """What this Spark SQL gives now."""
        return self.ask(sqlglot.transpile(sql, read="spark", write="duckdb")[0])

    def ask(self, sql: str) -> pa.Table:
        """What this SQL in DuckDB's own dialect gives now."""
        return self.connection.sql(sql).to_arrow_table()

    def answers(self, queries: Mapping[str, str]) -> dict[str, pa.Table]:
        """Every query's answer, by name."""
        return {name: self.answer(sql) for name, sql in queries.items()}

    def _delete(self, table: Table, rows: pa.Table) -> None:
        if not table.key or not rows.num_rows:
            return
        self._register("_gone", rows.select(list(table.key)))
        same = " AND ".join(f"{table.name}.{column} = _gone.{column}" for column in table.key)
        self.connection.execute(f"DELETE FROM {table.name} USING _gone WHERE {same}")

    def _register(self, name: str, rows: pa.Table) -> None:
        # DuckDB needs an extension to calculate with zoned times; all of ours are UTC.
        plain = pa.schema(
            [
                pa.field(field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type)
                for field in rows.schema
            ]
        )
        self.connection.register(name, rows.cast(plain))
