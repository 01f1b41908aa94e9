"""The algebra of weighted rows (Z-sets): consolidate, negate, union, expand, visible, distinct.

What it is: each operation on weighted rows once. An operation takes an Arrow table, which is on the driver, or a
Spark DataFrame, and returns the same kind; its two bodies stand side by side.
Invariants: both bodies give the same rows (``tests/spark/test_algebra.py`` compares them). Rows are equal as in SQL's
GROUP BY: null equals null, NaN equals NaN, -0.0 equals 0.0. A weighted schema has one form: nullable columns, then
``_weight BIGINT NOT NULL``.
Not here: the rows of one tick (``delta.py``); consolidating runs without grouping all of their rows
(``multisets.py``); which Arrow values are equal (``log/schema/row_identity.py``).
Read next: ``delta.py``, ``trace.py``.
"""

# A body returns the kind of rows that it was given, which mypy cannot see: pyarrow has no types.
# mypy: disable-error-code="no-any-return, return-value"

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.row_identity import comparable, hashable_values
from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import fitted, gathered, nullable, rows_at
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.row_equality import last_of_each
from headwater.views.state.sql_equality import entries, holds_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = "_shown"  # a state's mark of the rows that readers see; without it they see all
WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)

Rows = TypeVar("Rows", bound="DataFrame | pa.Table")


# Schemas and columns


@functools.lru_cache(maxsize=4096)
def weighted_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of weighted rows with these columns: nullable at every depth, then ``_weight``.

    >>> weighted_schema(pa.schema([("id", pa.int64())])).names
    ['id', '_weight']
    """
    columns = pa.schema([field for field in schema if field.name != WEIGHT])
    return pa.schema([*nullable(columns), WEIGHT_FIELD])


def with_weight(rows: Rows, weight: int) -> Rows:
    """Rows without weights as weighted rows of one weight.

    >>> with_weight(pa.table({"id": [7]}), -1).to_pylist()
    [{'id': 7, '_weight': -1}]
    """
    if isinstance(rows, pa.Table):
        return rows.append_column(WEIGHT_FIELD, pa.array(np.full(rows.num_rows, weight, dtype=np.int64)))
    return rows.selectExpr("*", f"{weight}L AS {WEIGHT}")


def select(rows: Rows, columns: Sequence[str]) -> Rows:
    """Some columns, and ``_weight`` behind them."""
    names = [*(name for name in columns if name != WEIGHT), WEIGHT]
    if isinstance(rows, pa.Table):
        return rows.select(names)
    return rows.selectExpr(*map(quoted, names))  # Java is asked once for a name, and four times for a column


def weights(table: pa.Table) -> np.ndarray:
    """The column ``_weight`` as numbers."""
    return np.asarray(table.column(WEIGHT).to_numpy(zero_copy_only=False))


# Operations


def consolidate(rows: Rows, columns: Sequence[str] | None = None) -> Rows:
    """Equal rows become one with the sum of their weights; a sum of 0 leaves none. With ``columns``: of these.

    The Arrow body keeps the order in which rows first appear.

    >>> table = pa.table({"country": ["DE", "FR", "DE"], "_weight": [1, 1, -1]})
    >>> consolidate(table).to_pylist()
    [{'country': 'FR', '_weight': 1}]
    """
    if isinstance(rows, pa.Table):
        return _consolidate_table(rows if columns is None else select(rows, columns))
    return _consolidate_frame(rows if columns is None else select(rows, columns))


def _consolidate_table(table: pa.Table) -> pa.Table:
    if table.num_rows == 0:
        return table
    table = gathered(table)
    place = table.schema.get_field_index(WEIGHT)
    columns = [column for at, column in enumerate(table.columns) if at != place]
    if table.num_rows <= thresholds.FEW_ROWS_MAX:
        return _kept(table, place, *_sums_of_few(columns, table.column(place).to_pylist()))
    alone = _alone(columns)
    if not alone.any():
        return _kept(table, place, *_sums(columns, table.column(place)))
    # Only rows that meet another one in every column looked at need be compared: few, as a rule, and often none.
    others, sums = np.flatnonzero(~alone), weights(table).copy()
    if len(others):
        some = table.take(pa.array(others))
        compared = [column for at, column in enumerate(some.columns) if at != place]
        few = len(others) <= thresholds.FEW_ROWS_MAX
        counts = some.column(place)
        first, found = _sums_of_few(compared, counts.to_pylist()) if few else _sums(compared, counts)
        sums[others] = 0
        sums[others[first]] = found
    places = np.flatnonzero(sums)
    return _kept(table, place, places, sums[places])


def _kept(
    table: pa.Table, place: int, places: np.ndarray | Sequence[int], sums: np.ndarray | Sequence[int]
) -> pa.Table:
    """These rows of a table, with these weights. As many as there are: no two are equal, and all is as it was."""
    if len(places) == table.num_rows:
        return table
    few = len(places) <= thresholds.FEW_ROWS_MAX
    kept = rows_at(table, list(map(int, places))) if few else table.take(pa.array(places))
    return kept.set_column(place, table.schema.field(place), pa.array(sums, pa.int64()))


def _alone(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """For each row whether a column of numbers tells that no other row equals it. The columns are not empty.

    Grouping some hundred rows takes Arrow 1 ms, sorting their ids numpy 0.02 ms.
    """
    alone = np.zeros(len(columns[0]) if columns else 0, dtype=bool)
    for column in columns:
        if column.null_count or not (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
            continue
        values = column.to_numpy()
        if kinds.is_floating(column.type) and np.isnan(values).any():  # they equal one another, but not to numpy
            continue
        order = np.argsort(values)
        ranked = values[order]
        differs = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]])
        alone[order[differs[1:] & differs[:-1]]] = True
        if 2 * np.count_nonzero(alone) >= len(alone):
            break
    return alone


def _sums(columns: Sequence[pa.ChunkedArray], counts: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the first of equal rows whose weights do not add up to 0, in rising order; and the sums."""
    names = [str(at) for at in range(len(columns))]
    keys = [_grouping_key(column) for column in columns]
    grouping = pa.Table.from_arrays([*keys, counts, pa.array(np.arange(len(counts)))], [*names, "weight", "row"])
    sums = grouping.group_by(names, use_threads=False).aggregate([("weight", "sum"), ("row", "min")])
    # Arrow promises no order of the groups, and with nulls among the keys it is not that of their first rows.
    sums = sums.filter(pc.not_equal(sums.column("weight_sum"), 0)).sort_by("row_min")
    return sums.column("row_min").to_numpy(), sums.column("weight_sum").to_numpy()


def _sums_of_few(columns: Sequence[pa.ChunkedArray], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same for few rows, by a dictionary; rows that differ in their first columns are not looked at further."""
    rows: list[Any] = [()] * len(counts)
    for number, column in enumerate(columns):
        values = hashable_values(_grouping_key(column) if kinds.is_list(column.type) else column)
        rows = list(zip(rows, values, strict=True)) if number else values
        if len(set(rows)) == len(rows) and all(counts):
            return list(range(len(rows))), list(counts)
    sums: dict[Any, list[int]] = {}  # the first place and the sum of the weights
    for at, (row, weight) in enumerate(zip(rows, counts, strict=True)):
        sums.setdefault(row, [at, 0])[1] += weight
    kept = [found for found in sums.values() if found[1]]
    return [at for at, _ in kept], [weight for _, weight in kept]


def _grouping_key(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column that groups like this one. Lists that are all empty (an accumulator's, as a rule) group by length."""
    if kinds.is_list(column.type) and not len(pc.list_flatten(column)):
        return pc.list_value_length(column)
    return comparable(column)


def _consolidate_frame(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    # Spark 4.3 groups by maps, but makes 0 of a null in a map of numbers. So they are grouped by as sorted entries.
    types = {field.name: field.dataType for field in frame.schema.fields if field.name != WEIGHT}
    maps = {name: spark_type for name, spark_type in types.items() if holds_map(spark_type)}
    groups = [functions.col(quoted(name)) for name in types if name not in maps]
    groups += [functions.expr(entries(quoted(name), maps[name])).alias(f"_entries_{name}") for name in maps]
    one_of_each = [functions.first(quoted(name)).alias(name) for name in maps]
    sums = frame.groupBy(*groups).agg(functions.sum(WEIGHT).alias(WEIGHT), *one_of_each)
    return sums.where(f"{WEIGHT} <> 0").select(*map(quoted, frame.columns))


def latest(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Consolidate all changes of a table with a key, of which each value has at most one row: in half of the time.

    The tables are in the order in which they happened, from the first. The row of a key is the one that the last
    table with this key adds, if it adds one.

    >>> before = pa.table({"id": [1, 2], "country": ["DE", "FR"], "_weight": [1, 1]})
    >>> after = pa.table({"id": [1, 1, 2], "country": ["DE", "IT", "FR"], "_weight": [-1, 1, -1]})
    >>> latest([before, after], ["id"]).to_pylist()
    [{'id': 1, 'country': 'IT', '_weight': 1}]
    """
    if sum(table.num_rows for table in tables) <= thresholds.FEW_ROWS_MAX:
        return _latest_of_few(gathered(pa.concat_tables(tables)), [table.num_rows for table in tables], key)
    together = gathered(pa.concat_tables(map(_negative_first, tables)))
    return together.filter(pa.array(last_of_each(together, key) & (weights(together) > 0)))


def _latest_of_few(together: pa.Table, lengths: Sequence[int], key: Sequence[str]) -> pa.Table:
    """The same for few rows, by a dictionary."""
    keys = list(zip(*(hashable_values(together.column(name)) for name in key), strict=True))
    counts, places, start = together.column(WEIGHT).to_pylist(), dict[tuple[Any, ...], int](), 0
    for length in lengths:
        for at in range(start, start + length):
            if counts[at] < 0:
                places.pop(keys[at], None)
        places |= {keys[at]: at for at in range(start, start + length) if counts[at] > 0}
        start += length
    return rows_at(together, sorted(places.values()))


def _negative_first(table: pa.Table) -> pa.Table:
    weight = weights(table)
    if (weight[1:] >= weight[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(weight > 0, kind="stable")))


def negate(rows: Rows) -> Rows:
    """The rows with the opposite weights: added to the same rows they cancel out.

    >>> negate(pa.table({"id": [1], "_weight": [2]})).to_pylist()
    [{'id': 1, '_weight': -2}]
    """
    if isinstance(rows, pa.Table):
        place = rows.schema.get_field_index(WEIGHT)
        return rows.set_column(place, rows.schema.field(place), pc.negate(rows.column(place)))
    return rows.selectExpr(*(f"-{WEIGHT} AS {WEIGHT}" if name == WEIGHT else quoted(name) for name in rows.columns))


def union(first: Rows, *others: Rows) -> Rows:
    """The sum: the rows of all, with the columns and types of the first. Not consolidated.

    >>> union(pa.table({"id": [1], "_weight": [2]}), pa.table({"_weight": [1], "id": [7]})).to_pylist()
    [{'id': 1, '_weight': 2}, {'id': 7, '_weight': 1}]
    """
    if isinstance(first, pa.Table):
        return pa.concat_tables([first, *(fitted(other, first.schema) for other in others if other.num_rows)])
    return _union_frames(first, others)


def _union_frames(first: DataFrame, others: Sequence[DataFrame]) -> DataFrame:
    names = list(map(quoted, first.columns))
    return functools.reduce(lambda one, other: one.unionByName(other.select(*names)), others, first)


def expand(rows: Rows, columns: Sequence[str] | None = None) -> Rows:
    """Consolidated rows as a multiset: each as often as its weight says, without ``_weight``.

    Rows of negative weight are left out. With ``columns``: only these, of consolidated whole rows.

    >>> expand(pa.table({"x": ["a", "b"], "_weight": [2, 1]})).to_pylist()
    [{'x': 'a'}, {'x': 'a'}, {'x': 'b'}]
    """
    if isinstance(rows, pa.Table):
        return _expand_table(rows, columns)
    return _expand_frame(rows, columns)


def _expand_table(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    counts = weights(table)
    plain = table.select([name for name in table.column_names if name != WEIGHT])
    if not (counts == 1).all():
        plain = plain.take(pa.array(np.repeat(np.arange(table.num_rows), np.maximum(counts, 0))))
    return plain if columns is None else plain.select(list(columns))


def expand_in_batches(table: pa.Table, rows_max: int) -> Iterator[pa.RecordBatch]:
    """The same in batches of at most so many rows, each made when it is asked for: a weight may be 10⁸.

    >>> [batch.num_rows for batch in expand_in_batches(pa.table({"x": ["a", "b"], "_weight": [3, 2]}), 4)]
    [4, 1]
    """
    counts = np.maximum(weights(table), 0)
    plain = table.select([name for name in table.column_names if name != WEIGHT])
    if (counts == 1).all():
        yield from plain.to_batches(max_chunksize=rows_max)
        return
    plain, ends = plain.combine_chunks(), np.cumsum(counts)
    for start in range(0, int(ends[-1]), rows_max):
        places = np.searchsorted(ends, np.arange(start, min(start + rows_max, int(ends[-1]))), side="right")
        yield from plain.take(pa.array(places)).to_batches()


def _expand_frame(frame: DataFrame, columns: Sequence[str] | None) -> DataFrame:
    names = [quoted(name) for name in (frame.columns if columns is None else columns) if name != WEIGHT]
    # ``explode`` makes its whole array first. Two steps keep both arrays short: the chunks of a row, then their rows.
    most = thresholds.EXPLODED_ROWS_MAX
    chunks = frame.where(f"{WEIGHT} > 0").selectExpr(
        *names, WEIGHT, f"explode(sequence(0L, ({WEIGHT} - 1) div {most})) AS _chunk"
    )
    left = f"least({WEIGHT} - _chunk * {most}, {most}L)"
    return chunks.selectExpr(*names, f"explode(sequence(1L, {left})) AS _copy").select(*names)


def visible(rows: Rows, columns: Sequence[str]) -> Rows:
    """State rows as readers see them: these columns of the shown rows, with ``_weight``. Not consolidated.

    >>> state = pa.table({"id": [1, 2], "_n": [3, 4], "_shown": [True, False], "_weight": [1, 1]})
    >>> visible(state, ["id"]).to_pylist()
    [{'id': 1, '_weight': 1}]
    """
    if isinstance(rows, pa.Table):
        return select(marked(rows, SHOWN) if SHOWN in rows.column_names else rows, columns)
    return select(rows.where(SHOWN) if SHOWN in rows.columns else rows, columns)


def marked(table: pa.Table, mark: str) -> pa.Table:
    """The rows whose ``mark`` is true, or a number that is not 0. On the driver only.

    >>> marked(pa.table({"id": [1, 2], "_n": [3, 0]}), "_n").to_pylist()
    [{'id': 1, '_n': 3}]
    """
    column = table.column(mark)
    if table.num_rows <= thresholds.FEW_ROWS_MAX and all(column.to_pylist()):  # as a rule; a filter takes 0.1 ms
        return table
    return table.filter(column.cast(pa.bool_()))


def distinct(table: pa.Table) -> pa.Table:
    """Rows without weights, each once. On the driver only: keys are looked up there.

    >>> distinct(pa.table({"id": [1, 1, None]})).to_pylist()
    [{'id': 1}, {'id': None}]
    """
    return consolidate(with_weight(table, 1)).drop_columns([WEIGHT])
