"""Replaced groups: rows by a key that take the place of those with the same key.

What it is: ``replaced``, what changes when groups get new rows, and all rows afterwards. One look at the keys tells
which row goes for which: consolidating the changes, and the content with the changes, would each compare whole rows.
Invariants: each key has one row at most, before and after. A row that is equal in every column stays the one that it
was, and is no change; the others leave as they stood there.
Not here: changes without a key, large ones (``views/state/algebra.py``); how new rows are computed (``stage_run.py``).
Read next: ``stage_run.py``, ``views/state/row_equality.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import rows_at
from headwater.views.state.row_equality import equal_rows, places_of


def replaced(
    content: pa.Table, groups: pa.Table, key: Sequence[str], there: np.ndarray | None = None
) -> tuple[pa.Table, pa.Table]:
    """The changes when ``groups`` (without weights) take their places in the content, and the content afterwards.

    Both have the same types; ``_weight`` is the last column of the content. ``there``: whether a group has a row at
    all; the old row of one without leaves. None: all have.

    >>> before = pa.table({"country": ["DE", "FR", "IT"], "orders": [1, 2, 3], "_weight": [1, 1, 1]})
    >>> groups = pa.table({"country": ["IT", "DE", "ES", "FR"], "orders": [4, 1, 5, 0]})
    >>> changes, after = replaced(before, groups, ["country"], np.array([True, True, True, False]))
    >>> [(row["country"], row["orders"], row["_weight"]) for row in changes.to_pylist()]
    [('IT', 4, 1), ('ES', 5, 1), ('FR', 2, -1), ('IT', 3, -1)]
    >>> [(row["country"], row["orders"]) for row in after.to_pylist()]
    [('DE', 1), ('IT', 4), ('ES', 5)]
    """
    places = places_of(content, key, groups)
    comes, leaves = np.ones(groups.num_rows, dtype=bool) if there is None else there.copy(), places >= 0
    same = _unchanged(content, places, groups, np.flatnonzero(comes & leaves), [*key, WEIGHT])
    comes[same] = leaves[same] = False
    new = _weighted(_rows(groups, np.flatnonzero(comes)), 1, content.schema)
    left = np.sort(places[leaves])
    old = _weighted(_rows(content, left), -1, content.schema)
    staying = _rows(content, np.delete(np.arange(content.num_rows), left))
    return _together(new, old), _together(staying, new)


def _weighted(rows: pa.Table, weight: int, schema: pa.Schema) -> pa.Table:
    """The rows with this weight, in columns that have the schema's types."""
    columns = [rows.column(name) for name in schema.names if name != WEIGHT]
    weights = pa.array(np.full(rows.num_rows, weight, dtype=np.int64))
    return pa.Table.from_arrays([*columns, weights], schema=schema)


def _unchanged(
    content: pa.Table, places: np.ndarray, groups: pa.Table, compared: np.ndarray, without: Sequence[str]
) -> np.ndarray:
    """Those of some groups whose rows are as before. Numbers first: a group that changed differs in one, as a rule."""
    fields = [field for field in content.schema if field.name not in without]
    for field in sorted(fields, key=lambda field: not _is_number(field.type)):
        if not len(compared):
            break
        old, new = content.column(field.name), groups.column(field.name)
        if _is_number(field.type) and not old.null_count and not new.null_count:
            before, after = old.to_numpy()[places[compared]], new.to_numpy()[compared]
            equal = (before == after) | ((before != before) & (after != after))  # NaN equals NaN
        else:
            columns = [pa.table([column], [field.name]) for column in (old, new)]
            equal = equal_rows(columns[0], places[compared], columns[1], compared)
        compared = compared[equal]
    return compared


def _is_number(arrow: pa.DataType) -> bool:
    return bool(kinds.is_integer(arrow) or kinds.is_floating(arrow))


def _rows(table: pa.Table, places: np.ndarray) -> pa.Table:
    if len(places) == table.num_rows:
        return table
    if not len(places):
        return table.slice(0, 0)
    few = len(places) <= thresholds.FEW_ROWS_MAX
    return rows_at(table, places.tolist()) if few else table.take(pa.array(places))


def _together(one: pa.Table, other: pa.Table) -> pa.Table:
    if not one.num_rows or not other.num_rows:
        return one if one.num_rows else other
    return pa.concat_tables([one, other]).combine_chunks()
