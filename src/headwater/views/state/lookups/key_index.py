"""A key index: where each of many keys stands in a table, asked batch by batch.

What it is: ``KeyIndex``, made once from keys on the driver and asked for the keys of one batch after another.
Invariants: exact, never by hash alone: two keys that meet by their hashes are compared. Keys are equal as
``row_equality.py`` has it: null equals null, -0.0 equals 0.0.
Not here: rows sorted by hash, which are searched for few keys (``sorted_blocks.py``).
Read next: ``views/tick/exchange.py``, which uses it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.views import thresholds
from headwater.views.state.row_equality import equal_rows, row_numbers
from headwater.views.state.row_hash import comparisons, hash_rows

NOT_FOUND = -1


class KeyIndex:
    """The keys of a table, each there once.

    >>> index = KeyIndex(pa.table({"id": [7, 40, 9]}))
    >>> index.find(pa.table({"id": [9, 8, 7]})).tolist()
    [2, -1, 0]
    """

    def __init__(self, keys: pa.Table) -> None:
        self.keys = keys = keys.combine_chunks()  # Arrow takes single rows from one chunk faster than from many
        self._low = 0
        self._places = _dense_places(keys)
        if self._places is not None:
            self._low = int(_numbers(keys.column(0)).min())
        else:
            hashes = self._hash(keys)
            self._order = np.argsort(hashes)
            self._hashes = hashes[self._order]

    def find(self, rows: pa.Table) -> np.ndarray:
        """For each row of a table of the same columns the place of its key, or ``NOT_FOUND``."""
        if not self.keys.num_rows or not rows.num_rows:
            return np.full(rows.num_rows, NOT_FOUND)
        return self._by_hash(rows) if self._places is None else self._by_number(rows, self._places)

    def _by_number(self, rows: pa.Table, places: np.ndarray) -> np.ndarray:
        column = rows.column(0)
        numbers = _numbers(column.fill_null(self._low)) - self._low
        within = (numbers >= 0) & (numbers < len(places))
        if column.null_count:
            within &= ~column.is_null().to_numpy()
        found = places[np.where(within, numbers, 0)]
        found[~within] = NOT_FOUND
        return found

    def _by_hash(self, rows: pa.Table) -> np.ndarray:
        hashes = self._hash(rows)
        order = np.argsort(hashes)  # a search in ascending order stays in the processor's caches
        ranked = hashes[order]
        starts = np.searchsorted(self._hashes, ranked)
        meets = self._hashes[np.minimum(starts, len(self._hashes) - 1)] == ranked
        asked, places = order[meets], self._order[starts[meets]]
        equal = equal_rows(rows, asked, self.keys, places)
        found = np.full(rows.num_rows, NOT_FOUND)
        found[asked[equal]] = places[equal]
        if not equal.all():  # of millions of keys a few meet by their hashes alone
            self._among_equal_hashes(rows, hashes, asked[~equal], found)
        return found

    def _among_equal_hashes(self, rows: pa.Table, hashes: np.ndarray, asked: np.ndarray, found: np.ndarray) -> None:
        starts, stops = (self._hashes.searchsorted(hashes[asked], side) for side in ("left", "right"))
        places = np.unique(np.concatenate([self._order[a:b] for a, b in zip(starts, stops, strict=True)]))
        together = [self.keys.take(pa.array(places)), rows.select(self.keys.column_names).take(pa.array(asked))]
        numbers = row_numbers(pa.concat_tables(together))
        place_of = dict(zip(numbers[: len(places)].tolist(), places.tolist(), strict=True))
        found[asked] = [place_of.get(number, NOT_FOUND) for number in numbers[len(places) :].tolist()]

    def _hash(self, rows: pa.Table) -> np.ndarray:
        names, schema = self.keys.column_names, self.keys.schema
        return hash_rows([rows.column(name) for name in names], comparisons(names, schema, schema))


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy()).astype(np.int64, copy=False)


def _dense_places(keys: pa.Table) -> np.ndarray | None:
    """For each number from the least to the greatest the place of its key; None unless keys are such numbers."""
    (column, *others) = keys.columns
    if others or not keys.num_rows or not kinds.is_signed_integer(column.type) or column.null_count:
        return None
    numbers = _numbers(column)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= thresholds.DENSE_PART * len(numbers):
        return None
    places = np.full(high - low + 1, NOT_FOUND, dtype=np.int32 if len(numbers) < 1 << 31 else np.int64)
    places[numbers - low] = np.arange(len(numbers), dtype=places.dtype)
    return places
