"""Netting: equal rows of a weighted table become one row with the sum of their weights.

What it is: ``net``, on the driver, for tables that are there anyway: a lookup's answer, small runs to be merged; and
``latest``, the same for all changes of a table with a key.
Invariants: the content stays what it was; in the answer each row stands once, with a weight other than 0, in the
order of first appearance.
Not here: which rows are equal (``log/schema/row_identity.py``); netting by Spark (``multisets.py``).
Read next: ``delta.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.row_identity import comparable
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.row_equality import last_of_each, weights


def net(table: pa.Table) -> pa.Table:
    """The table with equal rows added up, without those that come to nothing.

    >>> table = pa.table({"country": ["DE", "FR", "DE"], "_weight": [1, 1, -1]})
    >>> net(table).to_pylist()
    [{'country': 'FR', '_weight': 1}]
    """
    if table.num_rows == 0:
        return table
    place = table.schema.get_field_index(WEIGHT)
    columns = [column for at, column in enumerate(table.columns) if at != place]
    names = [str(at) for at in range(len(columns))]
    rows = pa.array(np.arange(table.num_rows))
    keys = [_grouped_by(column) for column in columns]
    grouping = pa.Table.from_arrays([*keys, table.column(place), rows], [*names, "weight", "row"])
    sums = grouping.group_by(names, use_threads=False).aggregate([("weight", "sum"), ("row", "min")])
    sums = sums.filter(pc.not_equal(sums.column("weight_sum"), 0))
    if sums.num_rows == table.num_rows:  # no two rows are equal
        return table
    # Arrow promises no order of the groups, and with nulls among the keys it is not that of their first rows.
    sums = sums.sort_by("row_min")
    kept = table.take(sums.column("row_min"))
    return kept.set_column(place, table.schema.field(place), sums.column("weight_sum"))


def latest(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """What ``net`` gives for all of them, where each key has at most one row at any time: in half of the time.

    The tables are changes in the order in which they happened, from the beginning: of each key the row counts that
    the last table with this key adds, if it adds one.

    >>> before = pa.table({"id": [1, 2], "country": ["DE", "FR"], "_weight": [1, 1]})
    >>> after = pa.table({"id": [1, 1, 2], "country": ["DE", "IT", "FR"], "_weight": [-1, 1, -1]})
    >>> latest([before, after], ["id"]).to_pylist()
    [{'id': 1, 'country': 'IT', '_weight': 1}]
    """
    together = pa.concat_tables(map(_leaving_first, tables))
    return together.filter(pa.array(last_of_each(together, key) & (weights(together) > 0)))


def _leaving_first(table: pa.Table) -> pa.Table:
    """The rows of negative weight before the others."""
    weight = weights(table)
    if (weight[1:] >= weight[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(weight > 0, kind="stable")))


def distinct(table: pa.Table) -> pa.Table:
    """Each row once.

    >>> distinct(pa.table({"id": [1, 1, None]})).to_pylist()
    [{'id': 1}, {'id': None}]
    """
    ones = pa.array(np.ones(table.num_rows, np.int64))
    return net(table.append_column(WEIGHT, ones)).drop_columns([WEIGHT])


def _grouped_by(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """What to group by. An accumulator keeps a list that is empty as a rule: then its length says it all."""
    if kinds.is_list(column.type) and not len(pc.list_flatten(column)):
        return pc.list_value_length(column)
    return comparable(column)
