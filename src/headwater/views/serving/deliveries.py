"""Deliveries: the net changes between two ticks, and how targets look at them.

What it is: ``Delivery`` is what a target applies; ``upserts`` and ``deletes`` are how a system with keys sees it,
``row_names`` how one without keys finds a row again.
Invariants: changes are consolidated: no row both comes and leaves. With a key, a row that leaves while another comes
with the same key is an update, and appears among the upserts only.
Not here: the algebra of weighted rows (``views/state/algebra.py``); equality (``log/schema/row_identity.py``).
Read next: ``sink.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_identity import comparable, row_identities

NAME_BYTES = 16
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Delivery:
    """The net changes after one tick up to another one: the view's columns and ``_weight``.

    >>> Delivery(pa.table({"id": [1], "_weight": [1]}), after=4, tick=6, epoch=1).ticks
    2
    """

    changes: pa.Table
    after: int
    tick: int
    epoch: int

    @property
    def ticks(self) -> int:
        """How many ticks it brings."""
        return self.tick - self.after


def upserts(changes: pa.Table) -> pa.Table:
    """The rows that come, without their weights: each key once.

    >>> upserts(pa.table({"id": [1, 1], "n": [5, 6], "_weight": [-1, 1]})).to_pylist()
    [{'id': 1, 'n': 6}]
    """
    return changes.filter(pc.greater(changes.column(WEIGHT), 0)).drop_columns([WEIGHT])


def deletes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that leave and have no successor with their key, without their weights.

    >>> changes = pa.table({"id": [1, 1, 2], "n": [5, 6, 7], "_weight": [-1, 1, -1]})
    >>> deletes(changes, ["id"]).to_pylist()
    [{'id': 2, 'n': 7}]
    """
    weights = changes.column(WEIGHT)
    leaving = changes.filter(pc.less(weights, 0))
    if leaving.num_rows and leaving.num_rows < changes.num_rows:
        names = [str(place) for place in range(len(key))]
        columns = [comparable(changes.column(name)) for name in key]
        rows = pa.array(np.arange(changes.num_rows))
        grouping = pa.Table.from_arrays([*columns, weights, rows], [*names, "weight", "row"])
        groups = grouping.group_by(names, use_threads=False).aggregate([("weight", "max"), ("row", "min")])
        groups = groups.filter(pc.less(groups.column("weight_max"), 0)).sort_by("row_min")
        leaving = changes.take(groups.column("row_min"))
    return leaving.drop_columns([WEIGHT])


def row_names(rows: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Sixteen bytes for each row, the same for equal rows. They are for one installed version.

    >>> one, other, third = row_names(pa.table({"x": [0.0, -0.0, None]}))
    >>> one == other, one == third, len(one)
    (True, False, 16)
    """
    return [blake2b(identity, digest_size=NAME_BYTES).digest() for identity in row_identities(rows)]


def counted(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Table, list[bytes], list[int]]:
    """The rows of a multiset, each once, with its name and how often it is there: all in memory.

    >>> batch = pa.record_batch({"x": ["a", "b", "a"]})
    >>> table, names, counts = counted([batch], batch.schema)
    >>> table.to_pylist(), counts
    ([{'x': 'a'}, {'x': 'b'}], [2, 1])
    """
    table = pa.Table.from_batches(list(rows), schema=schema)
    places: dict[bytes, int] = {}
    counts: dict[bytes, int] = {}
    for place, name in enumerate(row_names(table)):
        places.setdefault(name, place)
        counts[name] = counts.get(name, 0) + 1
    return table.take(pa.array(places.values(), pa.int64())), list(places), list(counts.values())


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table in pieces of a size that is good to work with."""
    yield from table.to_batches(max_chunksize=BATCH_ROWS)
