"""Stores: the fetches of one query from all attached stores.

What it is: ``Stores`` opens each referenced store once, describes its tables and fetches the needed rows; ``Fetched``
is the report about one table: rows, statement and duration.
Invariants: every store is closed at the end of the block. Equal requests are fetched once. More rows than the
attachment allows is an error before Spark sees any.
Not here: which rows are needed (``table_references.py``). Read next: ``store.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import TooManyRows
from headwater.federation.attachments import Attachment
from headwater.federation.store import Answered, Store, StoreRequest, StoreTable
from headwater.federation.table_references import ForeignTable, Need


@dataclass(frozen=True)
class Fetched:
    """The report about one reference to a foreign table."""

    table: str  # crm.public.customers
    store: str
    kind: str
    statement: str
    parameters: tuple[Any, ...]
    columns: tuple[str, ...]
    asked: tuple[str, ...]  # conjuncts that were pushed down
    kept: tuple[tuple[str, str], ...]  # conjuncts that only Spark applies, each with the reason
    rows: int
    bytes: int
    lost: int  # values that do not fit their column's type and are null
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "store": self.store,
            "kind": self.kind,
            "statement": self.statement,
            "parameters": [str(each) for each in self.parameters],
            "columns": list(self.columns),
            "asked": list(self.asked),
            "kept": [{"condition": text, "reason": why} for text, why in self.kept],
            "rows": self.rows,
            "bytes": self.bytes,
            "lost": self.lost,
            "seconds": round(self.seconds, 4),
        }


class Stores:
    """The stores of one query."""

    def __init__(self, attachments: Mapping[str, Attachment]) -> None:
        self._attachments = attachments
        self._open: dict[str, Store] = {}
        self._answers: dict[tuple[str, str, tuple[Any, ...]], tuple[Answered, float]] = {}
        self._ending = ExitStack()

    def shape(self, mention: ForeignTable) -> StoreTable:
        return self._store(mention.store).describe(mention.parts)

    def fetch(self, mention: ForeignTable, shape: StoreTable, need: Need) -> tuple[pa.Table, Fetched]:
        """The rows that a query needs of a reference, and the report."""
        store = self._store(mention.store)
        rows_max = store.attachment.rows_max
        limit = rows_max + 1 if need.limit is None else min(rows_max + 1, need.limit)
        request = StoreRequest(shape, need.columns, need.condition, limit)
        statement = store.statement(request)
        key = mention.store, statement.text, statement.parameters
        if key not in self._answers:
            began = time.monotonic()
            self._answers[key] = store.fetch(request), time.monotonic() - began
        answered, seconds = self._answers[key]
        if answered.table.num_rows > rows_max:
            raise TooManyRows(
                f"the query needs more than {rows_max:,} rows of {shape.title}",
                detail=f"It was asked: {statement.text}",
                hint=f"Filter it by a condition that is pushed down (headwater query --explain shows which), "
                f"or raise the limit: headwater attach {store.name} … --rows-max {10 * rows_max}.",
                store=store.name,
                rows_max=rows_max,
            )
        return answered.table, Fetched(
            shape.title,
            store.name,
            store.attachment.address.kind,
            statement.text,
            statement.parameters,
            tuple(each.name for each in need.columns),
            tuple(need.asked),
            tuple(need.kept),
            answered.table.num_rows,
            answered.table.nbytes,
            answered.lost,
            seconds,
        )

    def _store(self, name: str) -> Store:
        if name not in self._open:
            self._open[name] = self._ending.enter_context(opened(self._attachments[name]))
        return self._open[name]

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()


def opened(attachment: Attachment) -> Store:
    kind = attachment.address.kind
    if kind == "postgres":
        from headwater.federation.postgres_store import PostgresStore

        return PostgresStore(attachment)
    if kind == "mysql":
        from headwater.federation.mysql_store import MySQLStore

        return MySQLStore(attachment)
    if kind == "sqlite":
        from headwater.federation.sqlite_store import SQLiteStore

        return SQLiteStore(attachment)
    from headwater.federation.file_store import FileStore

    return FileStore(attachment)


def described(stores: Stores, mentions: Sequence[ForeignTable]) -> list[StoreTable]:
    known: dict[tuple[str, tuple[str, ...]], StoreTable] = {}
    for each in mentions:
        if (each.store, each.parts) not in known:
            known[each.store, each.parts] = stores.shape(each)
    return [known[each.store, each.parts] for each in mentions]
