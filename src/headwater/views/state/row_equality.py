"""Equal rows: which rows of an Arrow table are the same, and which are among others.

What it is: ``row_numbers`` and ``numbers_together`` give equal rows equal numbers; ``matching`` stands on them.
``last_of_each`` finds the last row of each key.
Invariants: exact, never by hash alone.
Not here: which values are equal (``log/schema/row_identity.py``); weights (``algebra.py``); rows in
Parquet files (``trace.py``); SQL.
Read next: ``views/stages/stage_run.py``, which uses it on small ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.row_identity import comparable, hashable_values
from headwater.views import thresholds
from headwater.views.spark.scans import rows_at
from headwater.views.state.row_hash import comparisons, hash_rows


def row_numbers(table: pa.Table, columns: Sequence[str] | None = None) -> np.ndarray:
    """For each row a number; two rows have the same one exactly when they are equal in ``columns``.

    >>> one, other, third, fourth = row_numbers(pa.table({"a": [1, None, 1, None], "b": [0.0, 1.0, -0.0, 1.0]}))
    >>> bool(one == third), bool(other == fourth), bool(one == other)
    (True, True, False)
    """
    names = table.column_names if columns is None else list(columns)
    numbers: np.ndarray | None = None
    for name in names:
        codes = _codes(table.column(name))
        if numbers is None:
            numbers = codes
        else:
            # Two numbers become one: at most rows² combinations, which fit into 63 bits.
            joined = numbers * (int(codes.max(initial=0)) + 1) + codes
            _, numbers = np.unique(joined, return_inverse=True)
    return np.zeros(table.num_rows, dtype=np.int64) if numbers is None else numbers


def numbers_together(columns: Sequence[str], *tables: pa.Table) -> np.ndarray:
    """Row numbers over some tables, one after the other, as of ``row_numbers``; without columns all rows are equal.

    >>> numbers_together(["a"], pa.table({"a": [1, 2]}), pa.table({"a": [2]})).tolist()
    [1, 2, 2]
    """
    if not columns:
        return np.zeros(sum(table.num_rows for table in tables), np.int64)
    return row_numbers(pa.concat_tables([table.select(columns) for table in tables]), columns)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers for the values of one column; 0 is NULL."""
    values = comparable(column)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # more than 2 GB of text stay in chunks
        values = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in values.chunks])
    codes = values.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes.astype(np.int64) + 1)


def last_of_each(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """For each row whether it is the last one of its key.

    >>> last_of_each(pa.table({"id": [7, 8, 7], "country": ["DE", "FR", "IT"]}), ["id"]).tolist()
    [False, True, True]
    """
    there = np.zeros(table.num_rows, dtype=bool)
    if not table.num_rows:
        return there
    keys = table.select(list(columns))
    if table.num_rows <= thresholds.FEW_ROWS_MAX:
        values = zip(*map(hashable_values, keys.columns), strict=True)
        there[list({value: at for at, value in enumerate(values)}.values())] = True
        return there
    schema = keys.schema
    # A hash and a place in one number: sorting those takes a tenth of the time of numbering the keys.
    bits = np.uint64(table.num_rows.bit_length())
    # In place: each of these arrays is a tenth of the memory of a tick of millions of rows.
    packed = hash_rows([table.column(name) for name in columns], comparisons(columns, schema, schema))
    packed >>= bits
    packed <<= bits
    packed |= np.arange(table.num_rows, dtype=np.uint64)
    packed.sort()
    hashes = packed >> bits
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    places = packed.view(np.int64)
    meets = hashes[1:] == hashes[:-1]  # the hash of the next row
    there[places[:-1][~meets]] = there[places[-1]] = True
    pairs = np.flatnonzero(meets)
    unequal = hashes[pairs[~equal_rows(keys, places[pairs], keys, places[pairs + 1])]]
    if len(unequal):  # of millions of rows a few meet by their hashes alone
        spans = set(zip(hashes.searchsorted(unequal), hashes.searchsorted(unequal, side="right"), strict=True))
        some = np.sort(np.concatenate([places[start:stop] for start, stop in spans]))
        numbers = row_numbers(keys.take(pa.array(some)))
        last = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
        last[numbers] = some  # of several the last assignment stays
        there[some] = False
        there[last[last >= 0]] = True
    return there


@dataclass(frozen=True)
class DenseIntegers:
    """Whole numbers as places of a table that is not much longer than they are many."""

    places: tuple[np.ndarray, ...]
    size: int


def _dense(*columns: pa.ChunkedArray) -> DenseIntegers | None:
    """The columns as places in one table; None unless they hold whole numbers that lie close together, as ids do."""
    if not all(kinds.is_signed_integer(column.type) and column.null_count == 0 for column in columns):
        return None
    values = [column.to_numpy().astype(np.int64, copy=False) for column in columns]
    filled = [some for some in values if len(some)]
    low = min((int(some.min()) for some in filled), default=0)
    size = max((int(some.max()) for some in filled), default=-1) - low + 1
    if size > thresholds.DENSE_PART * sum(map(len, values)):
        return None
    return DenseIntegers(tuple(some - low for some in values), size)


def equal_rows(one: pa.Table, some: np.ndarray, other: pa.Table, others: np.ndarray) -> np.ndarray:
    """Whether these rows of one table equal those of the other, pair by pair, in the columns that the other has.

    >>> equal_rows(pa.table({"id": [7, 8]}), np.array([0, 1]), pa.table({"id": [9, 8]}), np.array([1, 1])).tolist()
    [False, True]
    """
    equal = np.ones(len(some), dtype=bool)
    for name in other.column_names if len(some) else ():
        left, right = one.column(name).take(pa.array(some)), other.column(name).take(pa.array(others))
        left, right = comparable(left), comparable(right)
        # As a null NaN equals itself, which ``pc.equal`` does not say.
        neither = pc.and_(pc.is_null(left, nan_is_null=True), pc.is_null(right, nan_is_null=True))
        if kinds.is_floating(left.type):
            neither = pc.and_(neither, pc.equal(pc.is_valid(left), pc.is_valid(right)))
        same = pc.or_(pc.equal(left, right).fill_null(False), neither)
        equal &= same.to_numpy(zero_copy_only=False) if isinstance(same, pa.Array) else same.to_numpy()
    return equal


def places_of(table: pa.Table, columns: Sequence[str], keys: pa.Table) -> np.ndarray:
    """For each row of ``keys`` the place of the table's row that equals it in ``columns``, which both have; -1: none.

    No two rows of the table are equal there; without columns it has one row at most.

    >>> places_of(pa.table({"id": [7, 8]}), ["id"], pa.table({"id": [8, 9]})).tolist()
    [1, -1]
    """
    if not table.num_rows or not columns:
        return np.full(keys.num_rows, table.num_rows - 1)
    theirs, mine = keys.select(list(columns)), table.select(list(columns))
    if table.num_rows <= thresholds.FEW_ROWS_MAX and keys.num_rows <= thresholds.FEW_ROWS_MAX:
        rows = zip(*map(hashable_values, mine.columns), strict=True)
        places = {row: at for at, row in enumerate(rows)}
        asked = zip(*map(hashable_values, theirs.columns), strict=True)
        return np.array([places.get(row, -1) for row in asked], dtype=np.int64)
    if len(columns) == 1:
        found = pc.index_in(comparable(theirs.column(0)), value_set=comparable(mine.column(0)))
        return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)
    numbers = row_numbers(pa.concat_tables([mine, theirs]))
    at = np.full(int(numbers.max()) + 1, -1)
    at[numbers[: table.num_rows]] = np.arange(table.num_rows)
    return np.asarray(at[numbers[table.num_rows :]])


def matching(table: pa.Table, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """The rows whose ``columns`` equal some row of ``keys`` (whose columns stand in the same order)."""
    if table.num_rows == 0 or keys.num_rows == 0:
        return table.slice(0, 0)
    if columns and table.num_rows <= thresholds.FEW_ROWS_MAX and keys.num_rows <= thresholds.FEW_ROWS_MAX:
        mine = [table.column(name) for name in columns]
        if [column.type for column in mine] == keys.schema.types:
            return _matching_few(table, mine, keys)
    return table.filter(matches(table, columns, keys)) if columns else table


def _matching_few(table: pa.Table, columns: Sequence[pa.ChunkedArray], keys: pa.Table) -> pa.Table:
    """The same for few rows and columns of the keys' types, by a set."""
    wanted = set(zip(*map(hashable_values, keys.columns), strict=True))
    rows = zip(*map(hashable_values, columns), strict=True)
    places = [at for at, row in enumerate(rows) if row in wanted]
    return table if len(places) == table.num_rows else rows_at(table, places)


def lacking(table: pa.Table, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """The other rows: those whose ``columns`` equal no row of ``keys``."""
    if table.num_rows == 0 or keys.num_rows == 0:
        return table
    return table.filter(pc.invert(matches(table, columns, keys))) if columns else table.slice(0, 0)


def matches(table: pa.Table, columns: Sequence[str], keys: pa.Table) -> pa.Array | pa.ChunkedArray:
    """For each row whether it is one of those.

    >>> matches(pa.table({"id": [7, 8, 7]}), ["id"], pa.table({"key": [7]})).to_pylist()
    [True, False, True]
    """
    names = [f"_{place}" for place in range(len(columns))]
    wanted = keys.rename_columns(names)
    mine = table.select(list(columns)).rename_columns(names).cast(wanted.schema)
    if len(names) == 1:
        numbered = _dense(wanted.column(0), mine.column(0))
        if numbered is not None:
            asked = np.zeros(numbered.size, dtype=bool)
            asked[numbered.places[0]] = True
            return pa.array(asked[numbered.places[1]])
        return pc.is_in(comparable(mine.column(0)), value_set=comparable(wanted.column(0)))
    numbers = row_numbers(pa.concat_tables([wanted, mine]))
    return pa.array(np.isin(numbers[keys.num_rows :], numbers[: keys.num_rows]))
