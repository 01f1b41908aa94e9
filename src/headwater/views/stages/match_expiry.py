"""Match expiry: the rows of a pattern that no later row can need leave, and what is remembered of them.

What it is: ``MatchExpiry``, which finds them: rows of the source of a ``MatchStage``, and rows of its own state.
Invariants: later changes are at or behind the cutoff, in the order of the rows. Of each partition the rows from the
resume row on of the cutoff's bucket stay, and ``PREV`` more before it, so that a tick reads what it would have read.
With WITHIN a partition whose rows all have their deadlines before the cutoff has nothing open, and keeps what ``PREV``
asks for. A match leaves the state when it is final; the view keeps what it has shown (``FinalStage``).
Not here: the cutoff (``views/event_time/progress.py``), the tick (``match_run.py``).
Read next: ``match_run.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.views import thresholds
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.plan import WEIGHT, MatchStage
from headwater.views.spark.scans import local_frame
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.match_rows import END
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, negate, union
from headwater.views.state.delta import Delta
from headwater.views.state.row_equality import numbers_together, row_numbers
from headwater.views.state.sql_equality import same_value
from headwater.views.state.state_trace import StateTrace

Mask = Callable[[pa.Table, pa.Table], np.ndarray]  # of rows, each beside the limits of its partition

KEEP, RESUME, SKIP = "keep__", "resume__", "skip__"


@dataclass(frozen=True)
class PartitionLimits:
    """Where each partition's rows begin to stay: the keys ``_k…``; ``keep__``, the first bucket whose rows do; and
    ``resume__`` and ``skip__``, the bucket and the number in it of the row where a tick begins at the earliest."""

    table: pa.Table
    entries: pa.Table  # weighted: those that leave, and what takes the place of one


class MatchExpiry:
    """What leaves in one tick. ``own`` is the stage's state before it; ``touched`` are the changes of its source."""

    def __init__(self, stage: MatchStage, own: StateTrace, cutoff_us: int, touched: pa.Table) -> None:
        assert stage.program is not None
        self.stage = stage
        self.program = stage.program
        self.own = own
        self.cutoff_us = cutoff_us
        self.names = [f"_k{place}" for place in range(len(stage.keys))]
        self.limits = self._limits(self._entries(), touched.select(list(stage.keys)).rename_columns(self.names))

    def bucket(self, at_us: int) -> int:
        """The bucket of a moment: the whole number that Spark's DIV gives."""
        return int(at_us // self.stage.bucket_us) if at_us >= 0 else -int(-at_us // self.stage.bucket_us)

    def rows(self, source: StateTrace, sessions: ViewSessions) -> Delta:
        """The rows of the source that leave, to be taken away."""
        found = _Restricted(self.limits.table, list(self.stage.keys), self.names)
        return found.leaving(source, sessions, f"s.{quoted(self.stage.bucket)} < l.{KEEP}", self._before_kept)

    def state(self, sessions: ViewSessions) -> Delta:
        """The rows of the stage's own state that leave, to be taken away."""
        bucket, moment = f"s.{quoted(self.stage.bucket)}", f"CAST(s.{CLOSES} AS TIMESTAMP)"
        before = f"({bucket} < l.{RESUME} OR ({bucket} = l.{RESUME} AND s._index < l.{SKIP}))"
        sql = f"NOT s._entry AND {before} AND {moment} < timestamp_micros({self.cutoff_us})"
        found = _Restricted(self.limits.table, self.names, self.names).leaving(self.own, sessions, sql, self._is_over)
        entries = self.limits.entries
        if not entries.num_rows:
            return found
        if found.table is not None:
            return Delta.local(consolidate(union(found.table, entries)))
        both = union(found.frame(sessions.large), Delta.local(entries).frame(sessions.large))
        return sessions.write(both, self.own.schema)

    # In this process

    def _before_kept(self, rows: pa.Table, limits: pa.Table) -> np.ndarray:
        return np.asarray(rows.column(self.stage.bucket).to_numpy() < limits.column(KEEP).to_numpy())

    def _is_over(self, rows: pa.Table, limits: pa.Table) -> np.ndarray:
        bucket, resume = rows.column(self.stage.bucket).to_numpy(), limits.column(RESUME).to_numpy()
        index = pc.fill_null(rows.column("_index"), 0).to_numpy()
        before = (bucket < resume) | ((bucket == resume) & (index < limits.column(SKIP).to_numpy()))
        closed = pc.less(rows.column(CLOSES).cast(pa.int64()), self.cutoff_us).fill_null(False).to_numpy()
        return np.asarray(before & closed & ~rows.column("_entry").to_numpy())

    def _entries(self) -> pa.Table:
        """What is remembered of all partitions, with weights, added up."""
        if self.own.rows <= thresholds.SETTLED_ROWS_MAX:
            content = self.own.content()
            return content.filter(content.column("_entry"))
        some = (batch.filter(batch.column("_entry")) for batch in self.own.read())
        return consolidate(pa.Table.from_batches(some, schema=self.own.schema))

    def _limits(self, entries: pa.Table, touched: pa.Table) -> PartitionLimits:
        if not entries.num_rows:
            nothing = pa.array([], pa.int64())
            heads = entries.select(self.names)
            return PartitionLimits(
                pa.table([*heads.columns, *[nothing] * 3], [*self.names, KEEP, RESUME, SKIP]), entries
            )
        numbers = numbers_together(self.names, entries, touched)
        moving = np.isin(numbers[: entries.num_rows], numbers[entries.num_rows :])
        buckets = entries.column(self.stage.bucket).to_numpy()
        order = np.lexsort((buckets, numbers[: entries.num_rows]))
        entries, moving, buckets = entries.take(pa.array(order)), moving[order], buckets[order]
        number = numbers[: entries.num_rows][order]
        first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        sizes = np.diff(np.append(first, len(number)))
        end = first + sizes - 1
        rows, looks, skips = (pc.fill_null(entries.column(n), 0).to_numpy() for n in ("_rows", "_from", "_skip"))
        here = self.bucket(self.cutoff_us)
        at = first + np.add.reduceat(buckets < here, first)  # its end at the latest
        resume, skip = looks[at], skips[at]
        skip = np.where(resume > here, 0, skip)  # nothing that began before has looked so far
        resume = np.minimum(resume, here)
        place = first + np.add.reduceat(buckets < np.repeat(resume, sizes), first)
        silent = self._silent(buckets, first, end) & ~moving[first]
        place, resume, skip = np.where(silent, end, place), np.where(silent, END, resume), np.where(silent, 0, skip)
        needed = np.maximum(0, self.program.prev_rows - skip)
        while (back := (needed > 0) & (place > first)).any():
            place = place - back
            needed = needed - np.where(back, rows[place], 0)
        leaves = np.arange(len(number)) < np.repeat(place, sizes)
        ends = np.zeros(len(number), bool)
        if self.program.asks_for_the_past:
            leaves[first] = False  # the mark that there were rows before
        else:
            leaves[end] = (place == end) & ~moving[first]
            ends[end] = silent & ~leaves[end] & (looks[end] != END)
        some = np.add.reduceat(leaves | ends, first) > 0
        heads = entries.select(self.names).take(pa.array(first[some]))
        told = [pa.array(values[some]) for values in (buckets[place], resume, skip)]
        return PartitionLimits(
            pa.table([*heads.columns, *told], [*self.names, KEEP, RESUME, SKIP]), self._replaced(entries, leaves, ends)
        )

    def _silent(self, buckets: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The partitions in which nothing is open: the deadline of every row is before the cutoff."""
        within = self.program.clause.within_us
        if within is None or self.program.looks_behind_deadline or self.program.asks_for_the_past:
            return np.zeros(len(first), bool)
        last = buckets[np.maximum(end - 1, first)]
        return np.asarray((end == first) | (last < self.bucket(self.cutoff_us - within)))

    def _replaced(self, entries: pa.Table, leaves: np.ndarray, ends: np.ndarray) -> pa.Table:
        """The entries that leave, and ends behind which nothing is open in the place of others."""
        gone = negate(entries.filter(pa.array(leaves | ends)))
        new = entries.filter(pa.array(ends))
        for name, value in (("_from", END), ("_skip", 0)):
            at = new.schema.get_field_index(name)
            new = new.set_column(at, new.schema.field(at), pa.array(np.full(new.num_rows, value, np.int64)))
        return union(gone, new)


@dataclass(frozen=True)
class _Restricted:
    """The rows of a state that meet a condition about the limits of their partition."""

    limits: pa.Table
    columns: list[str]  # of the state: the partition's
    names: list[str]  # the same, of the limits

    def leaving(self, own: StateTrace, sessions: ViewSessions, sql: str, mask: Mask) -> Delta:
        """These rows, consolidated, to be taken away."""
        if not self.limits.num_rows or not own.rows:
            return Delta.nothing(own.schema)
        if own.rows <= thresholds.SETTLED_ROWS_MAX:
            return Delta.local(negate(self._here(own.content(), mask)))
        spark = sessions.large
        fields = {name: own.schema.field(name).type for name in self.columns}
        pairs = zip(self.columns, self.names, strict=True)
        on = [same_value(f"s.{quoted(one)}", f"l.{quoted(other)}", fields[one]) for one, other in pairs]
        own.frame(spark).createOrReplaceTempView("_expiring")
        local_frame(spark, self.limits).createOrReplaceTempView("_limits")
        every = ", ".join(f"s.{quoted(name)}" for name in own.schema.names)
        frame = spark.sql(
            f"SELECT /*+ BROADCAST(l) */ {every} FROM _expiring s JOIN _limits l ON {' AND '.join([*on, sql])}"
        )
        return sessions.write(negate(consolidate(frame)), own.schema)

    def _here(self, content: pa.Table, mask: Mask) -> pa.Table:
        heads = self.limits.select(self.names).rename_columns(self.columns)
        numbers = numbers_together(self.columns, heads, content)
        place_of = np.full(int(numbers.max(initial=0)) + 1, -1, np.int64)
        place_of[numbers[: heads.num_rows]] = np.arange(heads.num_rows)
        places = place_of[numbers[heads.num_rows :]]
        known = places >= 0
        content, limits = content.filter(pa.array(known)), self.limits.take(pa.array(places[known]))
        return content.filter(pa.array(mask(content, limits)))


def with_steady_closes(changes: pa.Table, cutoff_us: int) -> pa.Table:
    """A stage's changes in which no match that was final closes anew, and none closes before the cutoff.

    How far an attempt has looked is told more or less closely, as more rows are there. So a match may be computed
    again as it was, but for the moment at which it closes: to its readers it would seem to go, or to come twice.

    >>> closes = pa.array([5, 3, None, 2], pa.timestamp("us", "UTC"))
    >>> rows = pa.table({"id": [1, 1, 2, 2], "closes__": closes, "_shown": [True] * 4, "_weight": [1, -1, -1, 1]})
    >>> steady = with_steady_closes(rows, 4)
    >>> steady.column("id").to_pylist(), steady.column("closes__").cast(pa.int64()).to_pylist()
    ([2, 2], [None, 4])
    """
    names = [name for name in changes.column_names if name not in (CLOSES, WEIGHT)]
    shown, weight = changes.column("_shown").to_numpy(), changes.column(WEIGHT).to_numpy()
    never = np.iinfo(np.int64).max
    closes = pc.fill_null(changes.column(CLOSES).cast(pa.int64()), never).to_numpy()
    came, went = shown & (weight > 0), shown & (weight < 0)
    early = came & (closes < cutoff_us)
    if not early.any() and not (went & (closes < cutoff_us)).any():
        return changes
    numbers = row_numbers(changes, names)
    before = np.full(int(numbers.max(initial=0)) + 1, never)
    before[numbers[went]] = closes[went]
    again = np.zeros(len(before), bool)
    again[numbers[came]] = True
    was_final = (before < cutoff_us) & again
    moved = np.where(early, cutoff_us, closes)
    at = changes.schema.get_field_index(CLOSES)
    told = pa.array(moved, mask=moved == never).cast(changes.schema.field(at).type)
    changes = changes.set_column(at, changes.schema.field(at), told)
    return changes.filter(pa.array(~(was_final[numbers] & shown)))
