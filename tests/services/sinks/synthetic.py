"""A view without Spark: what sinks are fed with.

What it is: ``SyntheticView``, which commits ticks of changes by hand and gives a follower what ``Upstream`` gives.
Invariants: its rows are the sum of its changes; it can be sent to another process.
Not here: the sinks (``server/http/query_places.py``), the tests (``test_conformance.py``).
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.schema.far_times import far_rows
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.log.schema.row_identity import row_identities
from headwater.views.serving.deliveries import Delivery, batches
from headwater.views.serving.view_reader import ViewHead, ViewLag
from headwater.views.state.algebra import consolidate, expand

Row = dict[str, Any]


class SyntheticView:
    """A view whose ticks are committed by the test."""

    def __init__(self, schema: str, key: Sequence[str] = ("id",), *, home_id: str = "aaaa", epoch: int = 1) -> None:
        self.home_id = home_id
        self.number = epoch
        self.tick = 0
        self.deliveries: list[tuple[int, pa.Table]] = []
        self.first_kept = 1
        self.reset(schema, key)

    def reset(self, schema: str, key: Sequence[str] = ("id",)) -> None:
        """Another query: other columns perhaps, and no rows yet."""
        self.schema = pa.schema([field.with_nullable(True) for field in parse_view_ddl(schema)])
        self.key = tuple(key)
        self.tick += 1
        self.born = self.tick
        self.state = self._weighted([], 1)

    # Committing

    def commit(self, changes: pa.Table | None = None) -> int:
        """One tick with these changes."""
        self.tick += 1
        changes = self._weighted([], 1) if changes is None else changes
        self.deliveries.append((self.tick, changes))
        self.state = consolidate(pa.concat_tables([self.state, changes]))
        return self.tick

    def change(self, add: Sequence[Row] = (), remove: Sequence[Row] = ()) -> int:
        """One tick: with a key, ``add`` replaces rows of the same key, and ``remove`` needs the key alone."""
        if self.key:
            gone = {self._key(row) for row in (*add, *remove)}
            remove = [row for row in self.rows_now() if self._key(row) in gone]
        return self.commit(consolidate(pa.concat_tables([self._weighted(remove, -1), self._weighted(add, 1)])))

    def _key(self, row: Row) -> str:
        return repr([row.get(name) for name in self.key])

    def _weighted(self, rows: Sequence[Row], weight: int) -> pa.Table:
        table = pa.Table.from_batches([far_rows(list(rows), self.schema)])
        return table.append_column(WEIGHT, pa.array(np.full(len(rows), weight, np.int64)))

    def rows_now(self) -> list[Row]:
        """The rows as Python objects."""
        return [row for batch in batches(expand(self.state)) for row in to_rows(batch)]

    def bag(self) -> Counter[bytes]:
        """The rows, comparable."""
        return bag_of(expand(self.state))

    def forget(self) -> None:
        """The ticks so far are no longer kept."""
        self.first_kept = self.tick + 1

    # What a follower asks

    def epoch(self) -> int:
        return self.number

    def head(self) -> ViewHead | None:
        return ViewHead(self.tick, f"{self.home_id}/{self.born}/t", self.schema, self.key)

    def changes(self, after: int, head: ViewHead, *, rows_max: int, ticks_max: int) -> Delivery | None:
        if after + 1 < max(self.first_kept, self.born + 1):
            return None
        tables, tick, rows = [self._weighted([], 1)], after, 0
        for number, changes in self.deliveries:
            if after < number <= head.tick and number - after <= ticks_max and rows < rows_max:
                tables.append(changes)
                tick, rows = number, rows + changes.num_rows
        return Delivery(consolidate(pa.concat_tables(tables)), after, tick, self.number)

    @contextmanager
    def rows(self) -> Iterator[tuple[ViewHead, Iterator[pa.RecordBatch]]]:
        head = self.head()
        assert head is not None
        yield head, batches(expand(self.state))

    def lag(self, after: int) -> ViewLag:
        waiting = [changes.num_rows for tick, changes in self.deliveries if tick > after]
        return ViewLag(self.tick - after, 0.0, sum(waiting))


def bag_of(table: pa.Table) -> Counter[bytes]:
    """A table's rows, each with how often it is there; equal as SQL has it."""
    return Counter(row_identities(table))
