"""Matched rows: the matches in some sorted rows, as the tables that Spark computes the measures from.

What it is: ``MatchedRows.of``: rows in, state rows of a ``MatchStage`` out, but for the measures; ``match_frame``, the
same for all rows of a relation on Spark's executors.
Invariants: pure. What comes out for a partition depends on its rows alone, and on where it was resumed.
Not here: which rows are read (``match_run.py``), matching (``headwater/patterns``).
Read next: ``match_run.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.patterns import TIMED_OUT, MatchResult
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.match_compiler import PLACE
from headwater.views.compiler.plan import MatchStage, SortColumn
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.stage_schemas import arrow_of
from headwater.views.state.row_equality import row_numbers
from headwater.views.state.row_hash import comparisons, hash_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECIDED_US = 2**62  # every deadline has passed: what may still change is told by ``closes__``
END = 2**63 - 1  # in place of a bucket: behind the last row of a partition
NEVER = -(2**63)  # in place of a time
TASK_ROWS = 2_500_000  # about so many rows a task holds and sorts
FILE_ROWS_MAX = 20_000_000  # of more rows each task would read too many that are not its own
CHUNK_ROWS = 200_000  # that an executor matches at once: whole partitions, until there are so many
ROW = "_row"  # the number of an output row, where aggregates are computed by Spark
MEMBERS = "_members"


class MatchedRows:
    """The matches of one stage."""

    def __init__(self, stage: MatchStage) -> None:
        assert stage.program is not None
        self.stage = stage
        self.program = stage.program
        self.keys = [f"_k{place}" for place in range(len(stage.keys))]
        self.needs_members = any(not each.shortcut for each in self.program.aggregates)
        visible = arrow_of((*stage.slots, *stage.hidden))
        members = [pa.field(ROW, pa.int64()), pa.field(MEMBERS, self._member_type())] if self.needs_members else []
        self.schema = pa.schema([*visible, *members])

    def _member_type(self) -> pa.DataType:
        empty = arrow_of(self.stage.row_columns).empty_table()
        found = self.program.match(empty, np.zeros(1, np.int64), watermark_us=None).member_table(empty)
        return pa.list_(pa.struct([field for field in found.schema if field.name != ROW]))

    @cached_property
    def plain_columns(self) -> list[str] | None:
        """For each column of the state that of ``schema`` which it is; None when Spark has to compute some of them."""
        if self.program.measures_need_spark:
            return None
        plain = {alias.lower(): slot for alias, slot in self.program.plain_measures.items()}
        names = [column.name for column in (*self.stage.columns, *self.stage.hidden)]
        keys = dict(zip(self.stage.partition_names, self.keys, strict=True))
        return [keys.get(name) or plain.get(name.lower(), name) for name in names]

    @property
    def matched_sql(self) -> str:
        """``_matched`` as a query over ``_outputs``, which has the rows of ``schema``."""
        if not self.needs_members:
            return "SELECT * FROM _outputs"
        aggregates = [each.name for each in self.program.aggregates if not each.shortcut]
        return (
            f"WITH members__ AS (SELECT {ROW}, inline({MEMBERS}) FROM _outputs WHERE {ROW} IS NOT NULL), "
            f"aggregated__ AS ({self.program.aggregate_sql(outputs='_outputs', members='members__')}) "
            f"SELECT _outputs.*, {', '.join(f'aggregated__.{name}' for name in aggregates)} "
            f"FROM _outputs LEFT JOIN aggregated__ ON _outputs.{ROW} = aggregated__.{ROW}"
        )

    def of(self, rows: pa.Table, begins: pa.Table | None = None, first_number: int = 0) -> pa.Table:
        """The state rows of sorted rows, entries among them.

        ``begins``: of partitions that are not computed from their first row the ``keys``; ``_from`` and ``_skip``, the
        bucket and the number in it of the row where they begin; ``_whole``, whether it is their first one; and
        ``_before``, how many matches began before it.
        """
        starts = np.flatnonzero(rows.column(PLACE).to_numpy() == 1)
        index = _number_in_bucket(rows.column(self.stage.bucket).to_numpy(), starts)
        whole = np.ones(len(starts), bool)
        before = np.zeros(len(starts), np.int64)
        if begins is not None:
            rows, index, starts, whole, before = self._resumed(rows, index, starts, begins)
        bounds = np.append(starts, rows.num_rows).astype(np.int64)
        result = self.program.match(
            rows,
            bounds,
            watermark_us=DECIDED_US,
            matches_before=dict(enumerate(before.tolist())),
            first_of_partition=whole,
            keys=self._name(rows, bounds),
        )
        furthest = np.maximum.accumulate(result.reach) if rows.num_rows else result.reach
        outputs = self._outputs(rows, bounds, result, furthest, index, first_number)
        return pa.concat_tables([outputs, self._entries(rows, bounds, result, furthest, index, before)])

    def _resumed(
        self, rows: pa.Table, index: np.ndarray, starts: np.ndarray, begins: pa.Table
    ) -> tuple[pa.Table, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows from each partition's place on."""
        names = list(self.stage.keys)
        heads = rows.select(names).take(pa.array(starts))
        numbers = (
            row_numbers(pa.concat_tables([begins.select(names), heads]), names)
            if names
            else np.zeros(begins.num_rows + len(starts), np.int64)
        )
        place_of = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
        place_of[numbers[: begins.num_rows]] = np.arange(begins.num_rows)
        places = place_of[numbers[begins.num_rows :]]
        lengths = np.diff(np.append(starts, rows.num_rows))
        first, skip, whole, before = (
            begins.column(name).to_numpy()[places] for name in ("_from", "_skip", "_whole", "_before")
        )
        bucket, first = rows.column(self.stage.bucket).to_numpy(), np.repeat(first, lengths)
        kept = (bucket > first) | ((bucket == first) & (index >= np.repeat(skip, lengths)))
        counts = np.add.reduceat(kept, starts) if len(starts) else np.zeros(0, np.int64)
        some = counts > 0
        ends = np.cumsum(counts[some])
        return rows.filter(pa.array(kept)), index[kept], ends - counts[some], whole[some], before[some]

    def _name(self, rows: pa.Table, bounds: np.ndarray) -> Callable[[int], str]:
        names = self.stage.keys

        def name(partition: int) -> str:
            at = int(bounds[partition])
            return ", ".join(str(rows.column(name)[at].as_py()) for name in names) or "all rows"

        return name

    # Tables

    def _outputs(
        self,
        rows: pa.Table,
        bounds: np.ndarray,
        result: MatchResult,
        furthest: np.ndarray,
        index: np.ndarray,
        first_number: int,
    ) -> pa.Table:
        count = len(result.row)
        slots = result.slot_table(rows)
        at, began = pa.array(result.row), pa.array(result.first_row)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {name: slots.column(name) for name in slots.column_names}
        columns.pop(ROW)
        for field in self.schema:
            if field.name not in columns and field.name in rows.column_names and field.name != self.stage.bucket:
                columns[field.name] = rows.column(field.name).take(at)
        for key, name in zip(self.keys, self.stage.keys, strict=True):
            columns[key] = rows.column(name).take(at)
        columns[self.stage.bucket] = rows.column(self.stage.bucket).take(began)
        columns["_index"] = pa.array(index[result.first_row])
        columns["_entry"] = pa.array(np.zeros(count, bool))
        columns["_shown"] = pa.array(np.ones(count, bool))
        if CLOSES in self.schema.names:
            columns[CLOSES] = self._closes(rows, bounds, result, furthest)
        if self.needs_members:
            columns[ROW] = pa.array(np.arange(first_number, first_number + count))
            columns[MEMBERS] = self._members(rows, result)
        return self._table(columns, count)

    def _members(self, rows: pa.Table, result: MatchResult) -> pa.Array:
        found = result.member_table(rows)
        owner = found.column(ROW).to_numpy()
        order = np.argsort(owner, kind="stable")
        offsets = np.searchsorted(owner[order], np.arange(len(result.row) + 1))
        fields = [name for name in found.column_names if name != ROW]
        parts = found.select(fields).take(pa.array(order)).combine_chunks()
        flat = pa.StructArray.from_arrays([parts.column(name).combine_chunks() for name in fields], names=fields)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)

    def _entries(
        self,
        rows: pa.Table,
        bounds: np.ndarray,
        result: MatchResult,
        furthest: np.ndarray,
        index: np.ndarray,
        before: np.ndarray,
    ) -> pa.Table:
        """What is remembered of each bucket, and of the end of each partition."""
        buckets = np.append(rows.column(self.stage.bucket).to_numpy(), END)
        index = np.append(index, 0)
        begins = np.zeros(rows.num_rows + 1, bool)
        begins[bounds[:-1]] = True
        begins[1:] |= buckets[1:] != buckets[:-1]
        at = np.flatnonzero(begins[:-1])
        ends = bounds[1:]
        partition = np.concatenate([np.searchsorted(bounds, at, side="right") - 1, np.arange(len(ends))])
        first = bounds[:-1][partition]
        asked = np.concatenate([at, ends])  # the first row of each bucket, and the row behind each partition
        # A partition before reaches one row into this one at most, and nothing is looked at before its first row.
        resume = np.minimum(np.searchsorted(furthest, asked, side="right"), asked)
        if self.program.clause.unmatched_rows:
            resume = _uncovered(resume, result)
        resume = np.where(asked == first, first, resume)
        counted = result.matches.start[result.matches.number > 0]
        begun = np.searchsorted(counted, resume) - np.searchsorted(counted, first)
        behind = resume == bounds[1:][partition]  # nothing has looked for a row behind the last one
        some = pa.array(np.minimum(first, max(0, rows.num_rows - 1)))
        columns = {key: rows.column(name).take(some) for key, name in zip(self.keys, self.stage.keys, strict=True)}
        count = len(asked)
        own = np.concatenate([buckets[at], np.full(len(ends), END)])
        columns[self.stage.bucket] = pa.array(own)
        columns["_entry"] = pa.array(np.ones(count, bool))
        columns["_shown"] = pa.array(np.zeros(count, bool))
        columns["_rows"] = pa.array(
            np.concatenate([np.diff(np.append(at, rows.num_rows)), np.zeros(len(ends), np.int64)])
        )
        columns["_from"] = pa.array(np.where(behind, END, buckets[resume]))
        columns["_skip"] = pa.array(np.where(behind, 0, index[resume]))
        columns["_matches"] = pa.array(begun + before[partition])
        return self._table(columns, count)

    def _table(self, columns: dict[str, pa.Array | pa.ChunkedArray], count: int) -> pa.Table:
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in self.schema
        ]
        return pa.table(arrays, schema=self.schema)

    def _closes(self, rows: pa.Table, bounds: np.ndarray, result: MatchResult, furthest: np.ndarray) -> pa.Array:
        """When each output row is final: the time of the last row that it and what began before it depend on."""
        kind = pa.timestamp("us", "UTC")
        if not self.stage.time or not rows.num_rows:
            return pa.nulls(len(result.row), kind)
        moments = rows.column(self.stage.time).cast(pa.int64())
        times = pc.fill_null(moments, NEVER).to_numpy()
        looked = np.maximum(furthest[result.first_row], result.row + 1)  # an empty match has looked at no row
        ends = bounds[1:][result.partition]
        closes = np.where(looked <= ends, times[np.maximum(np.minimum(looked, ends), 1) - 1], NEVER)
        clause = self.program.clause
        if clause.within_us is not None:
            deadline = times[result.first_row] + clause.within_us
            waits = (clause.absent is not None) | (result.kind == TIMED_OUT)
            if self.program.looks_behind_deadline:
                closes = np.where(waits & (closes != NEVER), np.maximum(closes, deadline), closes)
            else:
                closes = np.where(waits | (closes == NEVER), deadline, np.minimum(closes, deadline))
        return pa.array(closes, mask=(closes == NEVER) | (times[result.first_row] == NEVER)).cast(kind)


def _number_in_bucket(buckets: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The number of each row in its bucket.

    >>> _number_in_bucket(np.array([5, 5, 7, 7, 7]), np.array([0, 3])).tolist()
    [0, 1, 0, 0, 1]
    """
    begins = np.zeros(len(buckets), bool)
    begins[starts] = True
    begins[1:] |= buckets[1:] != buckets[:-1]
    at = np.flatnonzero(begins)
    return np.arange(len(buckets)) - np.repeat(at, np.diff(np.append(at, len(buckets))))


def _uncovered(rows: np.ndarray, result: MatchResult) -> np.ndarray:
    """The last row before each, or itself, that no match which began earlier has a part of: it could not be told from
    an unmatched one."""
    stops = np.zeros(len(result.reach) + 1, np.int64)
    np.maximum.at(stops, result.matches.start, result.matches.stop)
    covered = np.maximum.accumulate(stops)
    while True:
        earlier = np.minimum(np.searchsorted(covered, rows, side="right"), rows)
        if (earlier == rows).all():
            return rows
        rows = earlier


def match_frame(stage: MatchStage, rows: DataFrame, count: int = 0, files: Sequence[Path] = ()) -> DataFrame:
    """The state rows of all rows of a relation, as ``MatchStage.source`` has them; computed by executors.

    ``count``: about how many rows there are. ``files``: where executors can read them, each as often as it is there. A
    task then reads all of them and keeps the partitions that are its own: Spark takes longer to hand rows over.
    """
    spark = rows.sparkSession
    matched = MatchedRows(stage)
    wanted = arrow_of(stage.row_columns)
    tasks = max(spark.sparkContext.defaultParallelism, count // TASK_ROWS + 1)
    by_files = files if stage.unsorted and count <= FILE_ROWS_MAX else ()

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Whole partitions, sorted; as many at once as are worth it."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        number = task << 33
        given = (row for batch in batches for row in _own_rows(stage, by_files, task, tasks)) if by_files else batches
        for table in _chunks(_sorted_batches(stage, given) if stage.unsorted else given):
            found = matched.of(table.select(wanted.names).cast(wanted), first_number=number)
            number += found.num_rows
            yield from found.combine_chunks().to_batches(max_chunksize=1 << 16)

    if by_files:
        unmatched = spark.range(0, tasks, 1, tasks)
    elif stage.unsorted:
        picked = rows.selectExpr(*(f"{quoted(source)} AS {quoted(name)}" for name, source in stage.unsorted))
        unmatched = picked.repartition(tasks, *stage.keys)
    else:
        rows.createOrReplaceTempView("_rows")
        unmatched = spark.sql(stage.rows)
    outputs = unmatched.mapInArrow(match, _spark_schema(matched.schema))
    outputs.createOrReplaceTempView("_outputs")
    spark.sql(matched.matched_sql).createOrReplaceTempView("_matched")
    names = [column.name for column in (*stage.columns, *stage.hidden)]
    return spark.sql(stage.measures).select(*map(quoted, names))


def _own_rows(stage: MatchStage, files: Sequence[Path], task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    """The rows of some files whose partition is this task's."""
    sources = list(dict.fromkeys(source for _, source in stage.unsorted))
    for path in files:
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=sources, use_threads=False)
            keys = table.select(list(stage.keys))
            hashes = hash_rows(keys.columns, comparisons(stage.keys, keys.schema, keys.schema))
            own = table.filter(pa.array(hashes % np.uint64(tasks) == task))
            columns = [own.column(source) for _, source in stage.unsorted]
            yield from pa.table(columns, [name for name, _ in stage.unsorted]).combine_chunks().to_batches()


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Sorted batches as tables of whole partitions."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        begins = np.flatnonzero(batch.column(PLACE).to_numpy() == 1)
        if held >= CHUNK_ROWS and len(begins):
            cut = int(begins[0])
            if cut:
                waiting.append(batch.slice(0, cut))
            yield pa.Table.from_batches(waiting)
            waiting, held = [], 0
            batch = batch.slice(cut)
        waiting.append(batch)
        held += batch.num_rows
    if held:
        yield pa.Table.from_batches(waiting)


def _sorted_batches(stage: MatchStage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a task in order."""
    given = list(batches)
    if not given:
        return
    table = pa.Table.from_batches(given).combine_chunks()
    del given
    code = row_numbers(table, list(stage.keys))
    order = sorted_places(table, code, stage.sort_by)
    code = code[order]
    begins = np.append(True, code[1:] != code[:-1])
    place = pa.array(np.where(begins, 1, 2).astype(np.int32))
    for start in range(0, len(order), CHUNK_ROWS):
        some = slice(start, start + CHUNK_ROWS)
        chunk = table.take(pa.array(order[some])).append_column(PLACE, place[some])
        yield from chunk.combine_chunks().to_batches()


def sorted_places(table: pa.Table, code: np.ndarray, by: Sequence[SortColumn]) -> np.ndarray:
    """The places of the rows in the order of their numbers ``code``, then of some columns, as Spark orders them.

    >>> rows = pa.table({"at": [7, 7, None, 5], "name": ["b", "a", "z", "c"]})
    >>> sorted_places(rows, np.array([0, 0, 0, 0]), [SortColumn("at"), SortColumn("name")]).tolist()
    [2, 3, 1, 0]
    """
    first, *others = by
    values = _whole_numbers(table.column(first.name), first)
    order = np.lexsort((values, code))
    same = (code[order][1:] == code[order][:-1]) & (values[order][1:] == values[order][:-1])
    if not others or not same.any():
        return order
    tied = np.zeros(len(order), bool)
    tied[1:] |= same
    tied[:-1] |= same
    group = np.cumsum(np.append(True, ~same))[tied]  # ties are few as a rule: only they are compared further
    places = order[tied]
    some = table.select([column.name for column in others]).take(pa.array(places))
    keys: list[tuple[str, str]] = [("group__", "ascending")]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"group__": pa.array(group)}
    for column in others:
        direction = "descending" if column.descending else "ascending"
        missing = pc.is_null(some.column(column.name))
        columns[f"{column.name}null__"] = pc.invert(missing) if column.nulls_first else missing
        columns[column.name] = some.column(column.name)
        keys += [(f"{column.name}null__", "ascending"), (column.name, direction)]
    columns = {name: each.cast(pa.int8()) if name.endswith("null__") else each for name, each in columns.items()}
    order[tied] = places[pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy()]
    return order


def _whole_numbers(column: pa.ChunkedArray, by: SortColumn) -> np.ndarray:
    """Values of a numbered type as whole numbers that are sorted like them."""
    if pa.types.is_boolean(column.type) or pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values = column.cast(pa.int64())
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    if by.descending:
        values = pc.bit_wise_not(values)  # turns the order round, and cannot overflow
    return np.asarray(pc.fill_null(values, low if by.nulls_first else high).to_numpy())


def _spark_schema(schema: pa.Schema) -> str:
    from headwater.log.schema.ddl import to_ddl

    return to_ddl(schema)
