"""A relation in one tick: its changes, its content before the tick, and its content after it.

What it is: ``TickRelation``, which stages ask for the content of their leaves, and ``BoundRows``, that content: an
Arrow table on the driver, or a frame that Spark reads.
Invariants: readers see visible columns and shown rows only; *after* is the union of *before* and *changes*; a lookup
gives at least the rows asked for.
Not here: state (``views/state/state_trace.py``), the stages (``stage_run.py``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.plans.arrow_leaves import LeafRows
from headwater.views.spark.scans import fitted, local_frame, nullable
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.algebra import (
    SHOWN,
    consolidate,
    distinct,
    expand,
    negate,
    select,
    union,
    visible,
    weighted_schema,
)
from headwater.views.state.delta import Delta
from headwater.views.state.log_trace import LogTrace
from headwater.views.state.row_equality import matching
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class BoundRows:
    """Rows bound to a leaf. ``count`` is exact for a local table and an upper bound otherwise."""

    schema: pa.Schema
    count: int
    local: pa.Table | None
    build: Callable[[SparkSession], DataFrame] | None = None
    some_bytes: int | None = None  # in memory, where that is known of rows that are not here
    changes: Delta | None = None  # where these rows are some columns of it, and not here
    made: dict[int, DataFrame] = field(default_factory=dict)  # by session: making one takes some 20 ms
    _leaf: LeafRows | None = None  # views that read the same rows share it

    @staticmethod
    def of(table: pa.Table) -> BoundRows:
        """Rows that are here."""
        return BoundRows(table.schema, table.num_rows, table)

    @property
    def bytes(self) -> int | None:
        """The size in memory, where it is known."""
        return self.some_bytes if self.local is None else self.local.nbytes

    @property
    def leaf(self) -> LeafRows:
        """The rows for a kept plan; they are here."""
        if self._leaf is None:
            assert self.local is not None
            self._leaf = LeafRows(self.local)
        return self._leaf

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows for Spark."""
        frame = self.made.get(id(spark))
        if frame is None:
            assert self.local is not None or self.build is not None
            frame = local_frame(spark, self.local) if self.local is not None else self.build(spark)  # type: ignore[misc]
            self.made[id(spark)] = frame
        return frame

    @property
    def files(self) -> tuple[Path, ...]:
        """The Parquet files that hold the rows, among other columns; none where they are elsewhere."""
        return () if self.changes is None or self.changes.table is not None else self.changes.files

    def fetched(self) -> pa.Table | None:
        """The rows on the driver, read if need be; None when only Spark can get at them."""
        if self.local is not None or self.changes is None or self.changes.is_lazy or self.changes.stored is not None:
            return self.local
        return self.changes.columns(self.schema)

    def and_also(self, other: BoundRows) -> BoundRows:
        """Both, one below the other."""
        if other.count == 0:
            return self
        if self.count == 0:
            return other
        total = self.count + other.count
        if self.local is not None and other.local is not None and total <= thresholds.TASK_ROWS_MAX:
            return BoundRows.of(union(self.local, other.local))
        return BoundRows(self.schema, total, None, lambda spark: union(self.frame(spark), other.frame(spark)))


class TickRelation:
    """One relation in one tick."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        changes: Delta,
        trace: StateTrace | None,
        merged: Delta | None = None,
        *,
        known: bool = True,
    ) -> None:
        self.name = name
        self.schema = schema  # the visible columns
        self.changes = changes  # visible columns and _weight
        self.trace = trace  # before the tick; None when there was nothing, or nothing is kept
        self.merged = merged  # after the tick, where it was merged at once
        self.known = known  # whether the whole content is known: not of a stage without state
        self.marks = [SHOWN] if trace is not None and SHOWN in trace.schema.names else []
        # A join of many tables mentions the same content many times, and so do views, which run side by side.
        self._lock = threading.Lock()
        self._known: dict[tuple[str, tuple[str, ...]], BoundRows] = {}
        self._keys: dict[tuple[str, ...], pa.Table] = {}
        self._found: dict[tuple[int, tuple[str, ...], tuple[str, ...]], tuple[pa.Table, BoundRows]] = {}

    def as_initial(self, *, consolidated: bool = False) -> TickRelation:
        """The same relation for an initial stage: its whole content is its delta.

        ``consolidated``: without rows that came and went, however many rows there are.
        """
        if self.trace is None:
            return self
        if self.merged is not None:
            return TickRelation(self.name, self.schema, self.merged, None)
        names = self.schema.names
        # What only ever came is as it is: nothing of it could be added up.
        most = thresholds.TASK_ROWS_MAX if isinstance(self.trace, LogTrace) else thresholds.CONSOLIDATED_ROWS_MAX
        if self.changes.table is not None and self.rows_before + self.changes.rows <= most:
            # A row that came and went and came again stands there three times, and would be joined three times.
            before = self._once("here", names, self._here) if self.rows_before else self.before(names)
            now = Delta.local(consolidate(union(before.local, self.changes.table)))
            return TickRelation(self.name, self.schema, now, None)
        after = self.after(names)
        build = (lambda spark: consolidate(after.frame(spark))) if consolidated else after.frame
        plain = isinstance(self.trace, LogTrace) and self.changes.plain
        return TickRelation(self.name, self.schema, Delta.lazy(after.schema, after.count, build, plain=plain), None)

    @property
    def touched(self) -> bool:
        """Whether anything changed."""
        return self.changes.rows > 0

    @property
    def rows_before(self) -> int:
        """An upper bound of the rows before."""
        return 0 if self.trace is None else self.trace.rows

    def weighted_schema(self, columns: Sequence[str]) -> pa.Schema:
        """The schema of weighted rows of these columns."""
        return weighted_schema(pa.schema([self.schema.field(name) for name in columns]))

    def changed(self, columns: Sequence[str]) -> BoundRows:
        """The changes."""
        return self._once("changed", columns, self._changed)

    def _once(self, what: str, columns: Sequence[str], make: Callable[[Sequence[str]], BoundRows]) -> BoundRows:
        key = (what, tuple(columns))
        if key not in self._known:
            self._known[key] = make(columns)
        return self._known[key]

    def _changed(self, columns: Sequence[str]) -> BoundRows:
        names = [*columns, WEIGHT]
        shape = self.weighted_schema(columns)
        table = self.changes.table
        if table is not None and table.num_rows <= thresholds.TASK_ROWS_MAX:
            return BoundRows.of(fitted(table, shape))
        size = None if table is None else table.select(names).nbytes

        def build(spark: SparkSession) -> DataFrame:
            return select(self.changes.frame(spark), columns)

        return BoundRows(shape, self.changes.rows, None, build, size, self.changes)

    def changed_keys(self, columns: Sequence[str]) -> pa.Table:
        """The distinct values of some columns in what changed, which is here. A column may be wanted twice."""
        wanted = tuple(columns)
        with self._lock:
            if wanted not in self._keys:
                assert self.changes.table is not None
                self._keys[wanted] = distinct(by_place(self.changes.table.select(list(wanted))))
            return self._keys[wanted]

    def before(
        self, columns: Sequence[str], lookup: Sequence[str] | None = None, keys: pa.Table | None = None
    ) -> BoundRows:
        """What was there. With ``lookup``, at least the rows whose ``lookup`` columns equal a row of ``keys``."""
        shape = self.weighted_schema(columns)
        if self.trace is None or self.trace.rows == 0:
            return BoundRows.of(shape.empty_table())
        if lookup and keys is not None:
            if self.worth_looking_up(keys.num_rows):
                return self._looked_up_once(lookup, keys, columns, shape)
            if self.trace.rows <= thresholds.TASK_ROWS_MAX:
                return self._once("here", columns, self._here)
        return self._once("before", columns, self._before)

    def _here(self, columns: Sequence[str]) -> BoundRows:
        return BoundRows.of(fitted(visible(self._state.content(), columns), self.weighted_schema(columns)))

    def _before(self, columns: Sequence[str]) -> BoundRows:
        if self.rows_before <= thresholds.LOCAL_ROWS_MAX:
            return self._once("here", columns, self._here)
        shape = self.weighted_schema(columns)
        return BoundRows(shape, self.rows_before, None, lambda spark: self._frame(spark, columns))

    def worth_looking_up(self, keys: int) -> bool:
        """Whether so many keys are better looked up here than joined by Spark."""
        return keys <= thresholds.LOOKUP_KEYS_MAX and (
            keys <= thresholds.LOOKUP_PART * self.rows_before or self.rows_before <= thresholds.LOCAL_ROWS_MAX
        )

    def after(
        self, columns: Sequence[str], lookup: Sequence[str] | None = None, keys: pa.Table | None = None
    ) -> BoundRows:
        """The content after the tick, as weighted rows, not consolidated."""
        before = self.before(columns, lookup, keys)
        for what in ("here", "before"):
            if before is self._known.get((what, tuple(columns))):
                return self._once(f"after {what}", columns, lambda names: before.and_also(self.changed(names)))
        return before.and_also(self.changed(columns))

    def bag(self, columns: Sequence[str]) -> BoundRows:
        """The content after the tick as a multiset: each row as often as it is there."""
        shape = nullable(pa.schema([self.schema.field(name) for name in columns]))
        before = self.before(self.schema.names)
        changed = self.changed(self.schema.names)
        both = before.and_also(changed)
        if both.local is not None:
            return BoundRows.of(expand(consolidate(both.local), columns))
        if self.trace is None:
            return BoundRows(shape, self.changes.rows, None, lambda spark: self._changes_as_bag(spark, columns))
        return BoundRows(shape, before.count + changed.count, None, lambda spark: self._bag_frame(spark, columns))

    def here(self, columns: Sequence[str]) -> pa.Table:
        """The same on the driver, however many rows there are."""
        names = self.schema.names
        before = self._once("here", names, self._here).local if self.rows_before else None
        changed = fitted(self.changes.read(), self.weighted_schema(names))
        return expand(consolidate(changed if before is None else union(before, changed)), columns)

    def _changes_as_bag(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        frame, every = self.changes.frame(spark), self.schema.names
        if self.changes.plain:  # in one pass: what was never taken back need not be added up, nor repeated
            return frame.select(*map(quoted, columns))
        return expand(select(frame, every) if not self.changes.has_negative else consolidate(frame, every), columns)

    def bag_of(self, columns: Sequence[str], key: Sequence[str], keys: pa.Table) -> BoundRows | None:
        """The bag of exactly the rows whose ``key`` columns equal a row of ``keys``; None when Spark must look."""
        if not self.worth_looking_up(keys.num_rows) and self.rows_before > 0:
            return None
        # Consolidating needs all columns: without some, rows that differ only there would seem equal.
        both = self.before(self.schema.names, key, keys).and_also(self.changed(self.schema.names))
        if both.local is None:
            return None
        return BoundRows.of(expand(consolidate(matching(both.local, key, keys)), columns))

    # The state before the tick, as readers see it

    @property
    def _state(self) -> StateTrace:
        assert self.trace is not None
        return self.trace

    def _looked_up_once(
        self, lookup: Sequence[str], keys: pa.Table, columns: Sequence[str], shape: pa.Schema
    ) -> BoundRows:
        asked = (id(keys), tuple(lookup), tuple(columns))
        with self._lock:
            if asked not in self._found:
                # The keys are kept beside their answer: no other table can have their id.
                found = self._state.lookup(list(lookup), keys, [*columns, *self.marks])
                self._found[asked] = keys, BoundRows.of(fitted(visible(found, columns), shape))
            return self._found[asked][1]

    def _frame(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        frame = self._state.frame(spark, [*columns, *self.marks])
        return visible(frame, columns) if self.marks else frame

    def _bag_frame(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        names = self.schema.names
        if not self.changes.is_lazy and self._state.schema.names == [*names, WEIGHT]:
            frame = self._state.bag(spark, None, self.changes if self.changes.rows else None)
            return frame.select(*map(quoted, columns))
        return expand(consolidate(union(self._frame(spark, names), self.changes.frame(spark))), columns)


def by_place(table: pa.Table) -> pa.Table:
    """The table with numbers for names.

    >>> by_place(pa.table({"id": [1], "country": ["DE"]})).column_names
    ['0', '1']
    """
    return table.rename_columns([str(place) for place in range(table.num_columns)])


def signed(frame: DataFrame, sign: int) -> DataFrame:
    """The rows of positive or of negative weight, with the absolute weight."""
    some = frame.where(f"{WEIGHT} * {sign} > 0")
    return some if sign > 0 else negate(some)
