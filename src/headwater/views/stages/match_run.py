"""Running a stage of matches: the partitions that a tick touched, from their last clean bucket on.

What it is: ``MatchRun``, which is to ``MatchStage`` what ``StageRun`` is to the other kinds.
Invariants: rows are read from the resume bucket to the end of their partition, and ``PREV`` more before it; what began
earlier stays as it is. Conditions and measures are computed by Spark, matches by ``headwater/patterns``.
Not here: the plan (``views/compiler/match_compiler.py``), the rows of a match as a table (``match_rows.py``).
Read next: ``match_rows.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.views import thresholds
from headwater.views.compiler.match_compiler import PLACE
from headwater.views.compiler.plan import MatchStage
from headwater.views.stages.match_rows import END, MatchedRows, match_frame
from headwater.views.stages.relation import BoundRows, TickRelation
from headwater.views.stages.stage_schemas import StageSchema, arrow_of
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, distinct, expand, union, weighted_schema, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.remote.executor_files import on_cluster
from headwater.views.state.row_equality import matching, numbers_together
from headwater.views.state.state_trace import StateTrace

BEGINS = {"_from": "resume", "_skip": "skip", "_whole": "whole", "_before": "matches", "_first": "first"}


@dataclass(frozen=True)
class PartitionEntries:
    """What is remembered of one partition: its buckets in order, and its end."""

    buckets: np.ndarray
    rows: np.ndarray
    resume: np.ndarray  # the bucket of the resume row
    skip: np.ndarray
    matches: np.ndarray

    def region(self, touched: np.ndarray, prev_rows: int) -> PartitionRegion:
        """What to read and to compute when rows of the buckets ``touched`` change.

        >>> buckets, zeros = np.array([1, 2, 5, END]), np.zeros(4, int)
        >>> entries = PartitionEntries(buckets, np.array([9, 9, 9, 0]), np.array([1, 1, 2, 5]), zeros, zeros)
        >>> entries.region(np.array([7]), 0).buckets.tolist(), entries.region(np.array([5]), 2).buckets.tolist()
        ([5, 7], [1, 2, 5])
        """
        first = int(touched[0])
        if not len(self.buckets):
            return PartitionRegion(touched, first, 0, True, 0, first)
        at = int(np.searchsorted(self.buckets, first))  # of the end, where the changes are behind all rows
        resume, skip, matches = int(self.resume[at]), int(self.skip[at]), int(self.matches[at])
        if resume > first:  # nothing looked so far
            resume, skip = first, 0
        place = int(np.searchsorted(self.buckets, resume))
        whole = skip == 0 and resume <= int(self.buckets[0])
        needed = max(0, prev_rows - skip)
        while needed > 0 and place > 0:
            place -= 1
            needed -= int(self.rows[place])
        known = self.buckets[place:]
        return PartitionRegion(np.union1d(known[known != END], touched), resume, skip, whole, matches, first)


@dataclass(frozen=True)
class PartitionRegion:
    """The part of a partition that is computed anew."""

    buckets: np.ndarray  # to be read
    resume: int
    skip: int
    whole: bool  # whether it begins with the first row
    matches: int
    first: int  # the first bucket that changed


class MatchRun:
    """One stage of matches in one tick."""

    def __init__(
        self,
        stage: MatchStage,
        shape: StageSchema,
        source: TickRelation,
        own: StateTrace | None,
        sessions: ViewSessions,
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.source = source
        self.own = own
        self.sessions = sessions
        self.hidden_keys = [f"_k{place}" for place in range(len(stage.keys))]
        self.matched = MatchedRows(stage)

    def changes(self, recompute: Callable[[], Delta], initial: bool) -> Delta:
        """What the tick changes. ``recompute``: from everything, the difference from the state."""
        if initial:
            return self.fill()
        found = self.run()
        if found is not None:
            return found
        # Where rows have left, what began before them cannot be computed again, and stays.
        return self.run_in_batches() if self.stage.lets_go else recompute()

    def fill(self) -> Delta:
        """Everything, for a stage that has no state."""
        rows = self.source.bag(self.stage.source.columns)
        if rows.local is not None and rows.count <= thresholds.TASK_ROWS_MAX:
            new = self._computed(rows, None)
            return Delta.local(consolidate(with_weight(new, 1)))
        changes = self.source.changes
        # Everything has just come, and Spark wrote it where its executors see it: every weight is 1.
        seen = self.source.trace is None and changes.plain and self.sessions.place is None
        files = changes.files if seen and not on_cluster(self.sessions.large) else ()
        frame = match_frame(self.stage, rows.frame(self.sessions.large), rows.count, files)
        self.sessions.rows_read += rows.count
        weighted = with_weight(frame, 1)
        if self.matched.program.clause.rows_per_match == "all":  # otherwise each match begins at a row of its own
            weighted = consolidate(weighted, self.shape.state.names)
        return self.sessions.write(weighted, weighted_schema(self.shape.state))

    def run(self) -> Delta | None:
        """The changes of the partitions that were touched; None when they are too many to be looked up."""
        changes = self.source.changes.table
        if changes is None or self.own is None or (self.stage.lets_go and changes.num_rows > thresholds.TASK_ROWS_MAX):
            return None
        stage = self.stage
        changed = distinct(changes.select([*stage.keys, stage.bucket]))
        region = self._region(changed) if changed.num_rows <= thresholds.LOOKUP_KEYS_MAX else None
        if region is None:
            return None
        read, begins = region
        rows = self.source.bag_of(stage.source.columns, read.column_names, read)
        if rows is None or rows.local is None or rows.count > thresholds.TASK_ROWS_MAX:
            return None
        return self._changed(rows, read, begins)

    def run_in_batches(self) -> Delta:
        """The same, however many they are: some partitions after the others."""
        if self.own is None:
            return self.fill()
        stage, names = self.stage, [*self.stage.keys, self.stage.bucket]
        every, changed = self.source.here(stage.source.columns), distinct(self.source.changes.read().select(names))
        numbers = numbers_together(stage.keys, changed, every)
        of_change, of_row = numbers[: changed.num_rows], numbers[changed.num_rows :]
        sizes = np.bincount(of_row, minlength=int(numbers.max(initial=0)) + 1)
        sizes[np.setdiff1d(np.arange(len(sizes)), of_change)] = 0
        batch = np.cumsum(sizes) // max(1, thresholds.TASK_ROWS_MAX)
        found = []
        for number in np.unique(batch[of_change]):
            region = self._region(changed.filter(pa.array(batch[of_change] == number)), bounded=False)
            assert region is not None
            read, begins = region
            rows = every.filter(pa.array(batch[of_row] == number))
            found.append(self._changed(BoundRows.of(matching(rows, names, read)), read, begins).read())
        return Delta.local(pa.concat_tables(found)) if found else Delta.nothing(weighted_schema(self.shape.state))

    def _changed(self, rows: BoundRows, read: pa.Table, begins: pa.Table) -> Delta:
        """What changes in the partitions whose rows were read."""
        stage = self.stage
        pairs = read.rename_columns([*self.hidden_keys, stage.bucket])
        old = self._own_of(pairs.column_names, _with_ends(pairs, stage.bucket))
        return self._replaced(self._computed(rows, begins), old, begins)

    def _own_of(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        assert self.own is not None
        found = self.own.lookup(list(columns), keys, self.shape.state.names)
        return expand(consolidate(matching(found, columns, keys), self.shape.state.names), self.shape.state.names)

    # What is read

    def _region(self, changed: pa.Table, *, bounded: bool = True) -> tuple[pa.Table, pa.Table] | None:
        """The partitions and buckets to read, and where each partition begins; None when they are too many."""
        stage, names = self.stage, list(self.stage.keys)
        entries = self._entries(changed)
        numbers = numbers_together(names, changed, entries)
        of_change, of_entry = numbers[: changed.num_rows], numbers[changed.num_rows :]
        known = [entries.column(name).to_numpy() for name in (stage.bucket, "_rows", "_from", "_skip", "_matches")]
        order = np.lexsort((known[0], of_entry))
        of_entry, known = of_entry[order], [values[order] for values in known]
        by_change = np.lexsort((changed.column(stage.bucket).to_numpy(), of_change))
        of_change, touched = of_change[by_change], changed.column(stage.bucket).to_numpy()[by_change]
        partitions, places = np.unique(of_change, return_index=True)
        regions: list[PartitionRegion] = []
        for number, place, until in zip(partitions, places, np.append(places[1:], len(touched)), strict=True):
            low, high = np.searchsorted(of_entry, [number, number + 1])
            here = PartitionEntries(*(values[low:high] for values in known))
            regions.append(here.region(touched[place:until], self.matched.program.prev_rows))
        lengths = [len(region.buckets) for region in regions]
        if bounded and sum(lengths) > thresholds.LOOKUP_KEYS_MAX:
            return None
        heads = changed.select(names).take(pa.array(by_change[places]))
        told = {name: [getattr(region, field) for region in regions] for name, field in BEGINS.items()}
        begins = pa.table([*heads.columns, *map(pa.array, told.values())], names=[*names, *told])
        keys = heads.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))
        every = pa.array(np.concatenate([region.buckets for region in regions]))
        return pa.table([*keys.columns, every], names=[*names, stage.bucket]), begins

    def _entries(self, changed: pa.Table) -> pa.Table:
        """What is remembered of the buckets of the partitions that changed."""
        stage, names = self.stage, list(self.stage.keys)
        keys = distinct(changed.select(names)) if names else None
        count = 1 if keys is None else keys.num_rows
        asked = pa.table(
            [*([] if keys is None else keys.columns), pa.array(np.ones(count, bool))],
            names=[*self.hidden_keys, "_entry"],
        )
        found = self._own_of(asked.column_names, asked)
        wanted = [stage.bucket, "_rows", "_from", "_skip", "_matches"]
        return found.select([*self.hidden_keys, *wanted]).rename_columns([*names, *wanted])

    # What is computed

    def _computed(self, rows: BoundRows, begins: pa.Table | None) -> pa.Table:
        """The state rows that begin at or behind each partition's place."""
        stage, matched = self.stage, self.matched
        by = ", ".join([*stage.keys, PLACE])
        given = self.sessions.collect(
            f"SELECT * FROM ({stage.rows}) ORDER BY {by}", {"_rows": rows}, arrow_of(stage.row_columns)
        )
        outputs = matched.of(given, begins)
        plain = matched.plain_columns
        if plain is not None:
            return pa.table([outputs.column(name) for name in plain], names=self.shape.state.names).cast(
                self.shape.state
            )
        steps = (("_matched", matched.matched_sql),)
        return self.sessions.collect(stage.measures, {"_outputs": BoundRows.of(outputs)}, self.shape.state, steps)

    def _replaced(self, new: pa.Table, old: pa.Table, begins: pa.Table) -> Delta:
        """The new state rows in the place of the old ones, from each partition's resume row on."""
        stage, keys = self.stage, self.hidden_keys
        begins = begins.rename_columns([*keys, *BEGINS])
        numbers = numbers_together(keys, begins, new, old)
        place_of = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
        place_of[numbers[: begins.num_rows]] = np.arange(begins.num_rows)
        places = place_of[numbers[begins.num_rows :]]
        of_new, of_old = places[: new.num_rows], places[new.num_rows :]
        resume, skip, first = (begins.column(name).to_numpy() for name in ("_from", "_skip", "_first"))
        resume, skip, first = resume[of_old], skip[of_old], first[of_old]
        bucket, index, looks, skips = (_integers(old, name) for name in (stage.bucket, "_index", "_from", "_skip"))
        is_entry = old.column("_entry").to_numpy()
        before = (bucket < resume) | ((bucket == resume) & (index < skip))
        earlier = (bucket <= resume) | (looks < resume) | ((looks == resume) & (skips < skip))
        kept = np.where(is_entry, (bucket < first) & earlier, before)
        # An entry that stays is not told anew: of a bucket that was read in part only the old one is right.
        both = numbers_together(
            ["place", "bucket"],
            pa.table({"place": of_old[kept & is_entry], "bucket": bucket[kept & is_entry]}),
            pa.table({"place": of_new, "bucket": _integers(new, stage.bucket)}),
        )
        stays = int((kept & is_entry).sum())
        told = ~(new.column("_entry").to_numpy() & np.isin(both[stays:], both[:stays]))
        rows = pa.concat_tables([new.filter(pa.array(told)), self._missing_ends(of_new, begins)])
        return Delta.local(consolidate(union(with_weight(rows, 1), with_weight(old.filter(pa.array(~kept)), -1))))

    def _missing_ends(self, of_new: np.ndarray, begins: pa.Table) -> pa.Table:
        """The ends of partitions that have rows, and none from the resume row on: nothing has looked behind them."""
        without = np.ones(begins.num_rows, bool)
        without[of_new] = False
        some = begins.filter(pa.array(without & ~begins.column("_whole").to_numpy()))
        count = some.num_rows
        known: dict[str, pa.Array | pa.ChunkedArray] = {name: some.column(name) for name in self.hidden_keys}
        for name, value in ((self.stage.bucket, END), ("_rows", 0), ("_from", END), ("_skip", 0)):
            known[name] = pa.array(np.full(count, value, np.int64))
        known |= {"_entry": pa.array(np.ones(count, bool)), "_shown": pa.array(np.zeros(count, bool))}
        known["_matches"] = some.column("_before")
        columns = [known.get(field.name, pa.nulls(count, field.type)) for field in self.shape.state]
        return pa.table(columns, schema=self.shape.state)


def _with_ends(pairs: pa.Table, bucket: str) -> pa.Table:
    """Partitions and buckets, with the end of each partition."""
    names = [name for name in pairs.column_names if name != bucket]
    heads = distinct(pairs.select(names)) if names else None
    count = 1 if heads is None else heads.num_rows
    ends = pa.array(np.full(count, END, np.int64))
    return pa.concat_tables(
        [pairs, pa.table([*([] if heads is None else heads.columns), ends], names=pairs.column_names)]
    )


def _integers(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(pc.fill_null(table.column(name), 0).to_numpy())
