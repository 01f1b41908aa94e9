"""Running a stage: the deltas of its inputs become its own delta, on Spark.

What it is: one method for each kind of ``compiler/plan.py``. Small inputs go to a cached plan, whose result comes back
as Arrow; large ones are scanned by Spark, which writes the result as Parquet.
Invariants: the delta depends on the stage's inputs and its own state alone, not on the way that was taken. Rows that
leave are taken from the stage's own state, never computed again, so that float noise and arbitrary choices cancel.
A row that is in no content of the inputs, as a new order beside an old version, does not fail the stage.
Not here: the order of stages, committing (``views/tick/engine.py``); the content of leaves (``relation.py``); the
operations on weighted rows (``views/state/algebra.py``).
Read next: ``relation.py``, ``views/tick/engine.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.views import thresholds
from headwater.views.compiler.plan import (
    AccumulateStage,
    FlowStage,
    KeyedStage,
    LeadingStage,
    Leaf,
    LeafContent,
    MatchStage,
    Stage,
    Term,
    WholeStage,
)
from headwater.views.spark.scans import fitted
from headwater.views.spark.spark_errors import row_failures
from headwater.views.spark.topic_scan import quoted
from headwater.views.spark.worker_errors import told_by_worker
from headwater.views.stages.bucket_runs import bucket_runs
from headwater.views.stages.groups.flow_slices import BoundTerm, touched_groups
from headwater.views.stages.groups.large_groups import OUT_OF_RANGE, LargeGroups
from headwater.views.stages.groups.replaced_groups import replaced
from headwater.views.stages.leading_run import LeadingRun
from headwater.views.stages.match_run import MatchRun
from headwater.views.stages.python_views import RowFunctionStage
from headwater.views.stages.relation import BoundRows, TickRelation, by_place, signed
from headwater.views.stages.search_run import search_changes
from headwater.views.stages.search_views import SearchStage
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.stages.top_k_rows import leading_rows
from headwater.views.stages.touched_rows import rows_of
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, distinct, expand, negate, union, weighted_schema, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.row_equality import matching
from headwater.views.state.sql_equality import groups_compared, same_value
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("headwater.views")


class StageRun:
    """One stage in one tick. A ``initial`` stage sees its inputs for the first time: all of their rows are new."""

    def __init__(
        self,
        stage: Stage,
        shape: StageSchema,
        sources: Mapping[str, TickRelation],
        own: StateTrace | None,
        sessions: ViewSessions,
        *,
        initial: bool,
        keeps_all: bool = False,
        had: int | None = None,
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.sources = {name: source.as_initial() for name, source in sources.items()} if initial else dict(sources)
        self.own = None if initial or own is None or not own.rows else own  # the state before, if it has rows
        self.sessions = sessions
        self.initial = initial
        self.had = had  # rows, before it is computed anew
        self.keeps_all = keeps_all  # whether its state and its inputs' are whole: nothing is left out or let go

    def run(self) -> Delta:
        """The stage's changes: its state's columns and ``_weight``, consolidated."""
        try:
            return self._changes()
        except row_failures() as error:
            if told_by_worker(error) is not None or not self._may_meet_passing_rows():
                raise
            logger.info("stage %s is recomputed, since its changes cannot be: %s", self.stage.name, error)
            settled = {name: source.as_initial(consolidated=True) for name, source in self.sources.items()}
            return self._recompute(settled)

    def _may_meet_passing_rows(self) -> bool:
        """Whether the failure may be that of a joined row which is there neither before nor after the tick.

        The terms of a join have such rows, once with +1 and once with -1: a row that came beside one that left.
        """
        terms = self.stage.terms if isinstance(self.stage, FlowStage | AccumulateStage) else ()
        joins = any(len(term.leaves) > 1 for term in terms)
        return joins and not self.initial and self.keeps_all and all(source.known for source in self.sources.values())

    def _changes(self) -> Delta:
        if not self.initial and not any(source.touched for source in self.sources.values()):
            return Delta.nothing(self._weighted_state())
        if self._can_compare and self._many_changes():
            return self._recompute()
        stage = self.stage
        if isinstance(stage, FlowStage):
            return self._flow(stage)
        if isinstance(stage, AccumulateStage):
            return self._accumulate(stage)
        if isinstance(stage, KeyedStage):
            return self._keyed(stage)
        if isinstance(stage, RowFunctionStage):
            return self._row_function(stage)
        if isinstance(stage, LeadingStage):
            source = self.sources[stage.everything.relation]
            return LeadingRun(stage, self.shape, source, self.own, self.sessions, initial=self.initial).run()
        if isinstance(stage, MatchStage):
            run = MatchRun(stage, self.shape, self.sources[stage.source.relation], self.own, self.sessions)
            return run.changes(self._recompute, self.initial)
        if isinstance(stage, SearchStage):
            return search_changes(self) or self._recompute()
        assert isinstance(stage, WholeStage)
        return self._whole(stage.sql, [(leaf, self.sources[leaf.relation].bag(leaf.columns)) for leaf in stage.inputs])

    def _weighted_state(self) -> pa.Schema:
        return weighted_schema(self.shape.state)

    # The crossover

    @property
    def _can_compare(self) -> bool:
        """Whether the stage has a state that a recomputation from the inputs' content can be compared with."""
        whole = self.own is not None and not getattr(self.stage, "lets_go", False)
        return whole and all(source.known for source in self.sources.values())

    def _many_changes(self) -> bool:
        changed = sum(source.changes.rows for source in self.sources.values())
        before = sum(source.rows_before for source in self.sources.values())
        return changed > thresholds.TASK_ROWS_MAX and changed > thresholds.RECOMPUTE_PART * before

    def _reads_more_than_everything(self, bound: Mapping[str, BoundRows]) -> bool:
        """Whether these leaves are more rows than all inputs and the stage itself: few changes may meet many rows.

        A change of a nation's name meets every order of its customers, once in each term of a join of eight tables.
        """
        everything = sum(source.rows_before + source.changes.rows for source in self.sources.values())
        most = everything + (0 if self.own is None else self.own.rows)
        return self._can_compare and sum(rows.count for rows in bound.values()) > most

    def _recompute(self, settled: Mapping[str, TickRelation] | None = None) -> Delta:
        """Recompute the stage from its inputs' whole content; the delta is the difference from its state."""
        had = None if self.own is None else self.own.rows
        sources = settled or self.sources
        now = StageRun(self.stage, self.shape, sources, self.own, self.sessions, initial=True, had=had).run()
        return now if self.own is None else self._difference(now)

    def _difference(self, now: Delta) -> Delta:
        """``now``, the whole new content, less the old state."""
        assert self.own is not None
        if now.table is not None and self.own.rows <= thresholds.SETTLED_ROWS_MAX:
            return Delta.local(consolidate(union(now.table, negate(self.own.content()))))
        spark = self.sessions.large
        return self._write(union(now.frame(spark), negate(self.own.frame(spark))))

    def _write(self, frame: DataFrame) -> Delta:
        """A large query's weighted rows, consolidated and written."""
        return self.sessions.write(consolidate(frame, self.shape.state.names), self._weighted_state())

    # Linear and bilinear

    def _flow(self, stage: FlowStage) -> Delta:
        sql, bound = self._terms(self._bound(stage.terms), stage.constant)
        if not sql:
            return Delta.nothing(self._weighted_state())
        if _small(bound):
            return Delta.local(consolidate(self.sessions.collect(sql, bound, self._weighted_state())))
        if self._reads_more_than_everything(bound):
            return self._recompute()
        frame = self.sessions.frame(sql, bound, large=True)
        only_came = stage.as_bag and len(bound) == 1 and all(each.changes.plain for each in self.sources.values())
        return self.sessions.write(frame, self._weighted_state()) if only_came else self._write(frame)

    def _bound(self, terms: Sequence[Term]) -> list[BoundTerm]:
        """The terms that are not zero, and what their leaves are."""
        return [(term, leaves) for term in terms if (leaves := self._bind(term)) is not None]

    def _terms(self, terms: Sequence[BoundTerm], constant: str | None) -> tuple[str, dict[str, BoundRows]]:
        """Terms as one query, and what its leaves are."""
        parts = [term.sql for term, _ in terms]
        bound = {name: rows for _, leaves in terms for name, rows in leaves.items()}
        if constant is not None and self.initial:
            parts.append(constant)
        return "\nUNION ALL\n".join(f"({part})" for part in parts), bound

    def _bind(self, term: Term) -> dict[str, BoundRows] | None:
        """What the term's leaves are; None when so many of them are empty that the term is zero."""
        bound: dict[str, BoundRows] = {}
        empty: set[str] = set()
        # The changes first: they are few, and their keys tell what is needed of the others.
        changed = {
            leaf.name: self.sources[leaf.relation] for leaf in term.leaves if leaf.content is LeafContent.CHANGES
        }
        for leaf in term.sources_first:
            source = self.sources[leaf.relation]
            if leaf.content is LeafContent.CHANGES:
                rows = source.changed(leaf.columns)
            else:
                lookup, keys = self._keys(leaf, bound, changed)
                read = source.after if leaf.content is LeafContent.AFTER else source.before
                rows = read(leaf.columns, lookup, keys)
            bound[leaf.name] = rows
            if rows.count == 0:
                empty.add(leaf.name)
                if term.is_zero(empty):
                    return None
        return bound

    def _keys(
        self, leaf: Leaf, bound: Mapping[str, BoundRows], changed: Mapping[str, TickRelation]
    ) -> tuple[Sequence[str] | None, pa.Table | None]:
        if leaf.lookup is None or leaf.lookup.source not in bound:
            return None, None
        given = bound[leaf.lookup.source].local
        if given is None or given.num_rows > 4 * thresholds.LOOKUP_KEYS_MAX:
            return None, None
        columns = list(leaf.lookup.source_columns)
        if leaf.lookup.source in changed:  # other views may ask for the same
            return leaf.lookup.columns, changed[leaf.lookup.source].changed_keys(columns)
        return leaf.lookup.columns, distinct(by_place(given.select(columns)))

    def _row_function(self, stage: RowFunctionStage) -> Delta:
        """The user's function over the rows that came, less the same over the rows that left."""
        assert stage.function is not None
        inputs = [self.sources[leaf.relation].changed(leaf.columns) for leaf in stage.inputs]
        large = not _small({str(place): rows for place, rows in enumerate(inputs)})
        spark = self.sessions.large if large else self.sessions.small
        names = self._weighted_state().names
        parts = []
        for sign in (1, -1):
            frames = [expand(signed(rows.frame(spark), sign)) for rows in inputs]
            parts.append(with_weight(stage.function(*frames), sign).select(*map(quoted, names)))
        both = union(*parts)
        if large:
            return self._write(both)
        self.sessions.rows_read += sum(rows.count for rows in inputs)
        return Delta.local(consolidate(self.sessions.collect_frame(both, self._weighted_state())))

    # Accumulating

    def _accumulate(self, stage: AccumulateStage) -> Delta:
        terms = self._bound(stage.terms)
        sql, bound = self._terms(terms, stage.constant)
        assert self.shape.flow is not None
        assert self.shape.partial is not None
        if not sql:
            if not (self.initial and stage.one_row):
                return Delta.nothing(self._weighted_state())
            flow = BoundRows.of(self.shape.flow.empty_table())
            bound, sql = {"_nothing": flow}, "SELECT * FROM _nothing"
        if not _small(bound) and self._reads_more_than_everything(bound):
            return self._recompute()
        cut = terms if len(bound) == sum(len(leaves) for _, leaves in terms) and stage.constant is None else []
        if stage.in_range_partial:
            changes = self._accumulate_by(stage, cut, sql, bound, stage.in_range_partial, stage.in_range_combine)
            if changes is not None:
                return changes
        changes = self._accumulate_by(stage, cut, sql, bound, stage.partial, stage.combine)
        assert changes is not None
        return changes

    def _accumulate_by(
        self,
        stage: AccumulateStage,
        cut: Sequence[BoundTerm],
        sql: str,
        bound: Mapping[str, BoundRows],
        partial_sql: str,
        combine_sql: str,
    ) -> Delta | None:
        """The flow's rows added to the groups; None when an in-range form met a value out of range.

        ``cut``: the terms, where they are all of the flow.
        """
        result = self._result(combine_sql is stage.in_range_combine)
        combine_sql = groups_compared(combine_sql, self.shape.flow)
        sliced = self._sliced(stage, cut, partial_sql)
        if sliced is not None:
            return self._combined(stage, sliced, combine_sql, result)
        if _small(bound) and (self.own is None or self.own.rows <= thresholds.LOCAL_ROWS_MAX):
            # One action for everything, as all groups there are fit into the plan.
            content = self._weighted_state().empty_table() if self.own is None else self.own.content()
            before = BoundRows.of(fitted(content, self.shape.state))
            steps = (("_flow", sql), ("_partial", partial_sql))
            combined = self.sessions.collect(combine_sql, {**bound, "_before": before}, result, steps)
            return None if _out_of_range(combined) else self._accumulated(stage, combined, content, whole=True)
        if self.own is None:
            first = LargeGroups(stage, self.shape, self.sessions).first(sql, bound, partial_sql, combine_sql, result)
            if first.local is None:
                return LargeGroups(stage, self.shape, self.sessions).written(first.frame(self.sessions.large))
            nothing = self._weighted_state().empty_table()
            return None if _out_of_range(first.local) else self._accumulated(stage, first.local, nothing)
        return self._combined(stage, self._partial(stage, sql, bound, partial_sql), combine_sql, result)

    def _sliced(self, stage: AccumulateStage, cut: Sequence[BoundTerm], partial_sql: str) -> BoundRows | None:
        """The differences of the touched groups by all cores, where the groups are known to be few."""
        had = self.had if self.initial else None if self.own is None else self.own.rows
        if not cut or had is None or had > thresholds.LOOKUP_KEYS_MAX:
            return None
        touched = touched_groups(cut, partial_sql, self._partial_schema(stage, partial_sql), self.sessions)
        return None if touched is None or touched.count > thresholds.LOOKUP_KEYS_MAX else touched

    def _combined(
        self, stage: AccumulateStage, partial: BoundRows, combine_sql: str, result: pa.Schema
    ) -> Delta | None:
        """The differences of the touched groups added to the groups."""
        groups = [column.name for column in stage.groups]
        few = not groups or partial.count <= thresholds.LOOKUP_KEYS_MAX
        if partial.local is not None and few:
            touched = partial.local.select(groups)
            before = self._own_of(groups, touched)
            combined = self.sessions.collect(
                combine_sql, {"_partial": partial, "_before": BoundRows.of(before)}, result
            )
            return None if _out_of_range(combined) else self._accumulated(stage, combined, with_weight(before, 1))
        assert self.own is not None
        return LargeGroups(stage, self.shape, self.sessions).added(partial, combine_sql, self.own)

    def _result(self, in_range: bool) -> pa.Schema:
        out_of_range = [pa.field(OUT_OF_RANGE, pa.bool_())] if in_range else []
        return pa.schema([*self.shape.state, *out_of_range])

    def _partial(self, stage: AccumulateStage, sql: str, bound: Mapping[str, BoundRows], partial_sql: str) -> BoundRows:
        """The differences of the touched groups."""
        schema = self._partial_schema(stage, partial_sql)
        if _small(bound):
            return BoundRows.of(self.sessions.collect(partial_sql, bound, schema, (("_flow", sql),)))
        return LargeGroups(stage, self.shape, self.sessions).partial(sql, bound, partial_sql, schema)

    def _partial_schema(self, stage: AccumulateStage, partial_sql: str) -> pa.Schema:
        schema = self.shape.in_range_partial if partial_sql is stage.in_range_partial else self.shape.partial
        assert schema is not None
        return schema

    def _accumulated(
        self, stage: AccumulateStage, combined: pa.Table, before: pa.Table, *, whole: bool = False
    ) -> Delta:
        """New rows of the touched groups less their old ones, which are among these; ``whole``: these are all."""
        there = None if stage.one_row else combined.column("_n").to_numpy() != 0
        changes, content = replaced(before, combined, [column.name for column in stage.groups], there)
        return Delta.local(changes, content=content if whole else None)

    # Keyed

    def _keyed(self, stage: KeyedStage) -> Delta:
        if self.initial:
            return self._whole(
                stage.sql, [(i.leaf, self.sources[i.leaf.relation].bag(i.leaf.columns)) for i in stage.inputs]
            )
        touched = self._touched(stage)
        if stage.in_runs:
            runs = self._runs(stage, touched)
            if runs is None:
                return self._recompute()
            touched = runs
        if touched.count == 0:
            return Delta.nothing(self._weighted_state())
        keys = [column.name for column in stage.keys]
        few = touched.local is not None and touched.count <= thresholds.LOOKUP_KEYS_MAX
        old = self._own_of(keys, touched.local) if few else None
        bound = {
            given.leaf.name: self._top_k_input(stage, old) or rows_of(given, self.sources, touched)
            for given in stage.inputs
        }
        if old is not None:
            if _small(bound):
                new = self.sessions.collect(stage.sql, bound, self.shape.state)
                return self._replaced(new, old)
            new_rows = self.sessions.materialize(self.sessions.frame(stage.sql, bound, large=True), self.shape.state)
            if new_rows.local is not None:
                return self._replaced(new_rows.local, old)
            return self._replaced_in_spark(
                new_rows.frame(self.sessions.large), BoundRows.of(old).frame(self.sessions.large)
            )
        on = " AND ".join(same_value(f"b.{name}", f"t.{name}", self.shape.state.field(name).type) for name in keys)
        new_frame = self.sessions.frame(stage.sql, bound, large=True)
        spark = self.sessions.large
        touched.frame(spark).createOrReplaceTempView("_touched")
        before = self.sessions.empty(spark, self.shape.state) if self.own is None else self.own.bag(spark)
        before.createOrReplaceTempView("_every")
        old_frame = spark.sql(f"SELECT b.* FROM _every b LEFT SEMI JOIN _touched t ON {on}")
        return self._replaced_in_spark(new_frame, old_frame)

    def _top_k_input(self, stage: KeyedStage, old: pa.Table | None) -> BoundRows | None:
        """What a stage of leading rows needs of its input; None when that is all rows of the touched keys."""
        given = stage.inputs[0]
        source = self.sources[given.leaf.relation]
        changes = source.changed(given.leaf.columns).local if stage.leading else None
        if old is None or changes is None or given.plain is None or source.changes.table is None:
            return None
        rows, bare = leading_rows(old, changes, held=stage.leading, keys=given.plain)
        kept = BoundRows.of(rows)
        return rows_of(given, self.sources, BoundRows.of(bare)).and_also(kept) if bare.num_rows else kept

    def _touched(self, stage: KeyedStage) -> BoundRows:
        """The distinct keys of everything that changed."""
        names = [column.name for column in stage.keys]
        shape = pa.schema([self.shape.state.field(name) for name in names])
        here: list[pa.Table] = []
        elsewhere: dict[str, BoundRows] = {}
        parts: list[str] = []
        for place, given in enumerate(stage.inputs):
            source = self.sources[given.leaf.relation]
            if not source.touched:
                continue
            table = source.changes.table
            if given.plain is not None and table is not None:
                here.append(table.select(list(given.plain)).rename_columns(names).cast(shape))
                continue
            name = f"_changed{place}"
            elsewhere[name] = source.changed(source.schema.names)
            keys = ", ".join(f"{key} AS {column}" for key, column in zip(given.keys, names, strict=True))
            parts.append(f"SELECT {keys} FROM {name}")
        if parts:
            sql = "SELECT DISTINCT * FROM (" + " UNION ALL ".join(parts) + ")"
            if _small(elsewhere):
                here.append(self.sessions.collect(sql, elsewhere, shape))
            else:
                many = self.sessions.materialize(self.sessions.frame(sql, elsewhere, large=True), shape)
                if many.local is None:
                    for table in here:
                        many = many.and_also(BoundRows.of(table))
                    return many
                here.append(many.local)
        return BoundRows.of(distinct(pa.concat_tables(here)) if here else shape.empty_table())

    def _runs(self, stage: KeyedStage, touched: BoundRows) -> BoundRows | None:
        """The runs that the touched keys are in; None when they are too many to be looked up."""
        if touched.local is None:
            return None
        (given,), (key,) = stage.inputs, touched.schema.names
        assert given.plain is not None
        changed = touched.local.column(key).drop_null().to_pylist()
        runs = bucket_runs(self.sources[given.leaf.relation], given.plain[0], changed)
        return None if runs is None else BoundRows.of(pa.table([pa.array(runs, pa.int64())], touched.schema))

    # Whole

    def _whole(self, sql: str, inputs: Sequence[tuple[Leaf, BoundRows]]) -> Delta:
        bound = {leaf.name: rows for leaf, rows in inputs}
        if _small(bound):
            new = BoundRows.of(self.sessions.collect(sql, bound, self.shape.state))
        else:
            new = self.sessions.materialize(self.sessions.frame(sql, bound, large=True), self.shape.state)
        if new.local is not None:
            now = Delta.local(consolidate(with_weight(new.local, 1)))
        else:
            now = self._write(with_weight(new.frame(self.sessions.large), 1))
        return now if self.own is None else self._difference(now)

    # The stage's own state

    def _own_of(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The state rows of exactly these keys, without weights (each as often as it is there)."""
        state = self.shape.state
        if self.own is None:
            return state.empty_table()
        found = self.own.lookup(list(columns), keys, state.names) if columns else self.own.content()
        return fitted(expand(consolidate(matching(found, columns, keys), state.names)), state)

    def _replaced(self, new: pa.Table, old: pa.Table) -> Delta:
        """``new`` rows in the place of ``old`` ones, both without weights."""
        return Delta.local(consolidate(union(with_weight(new, 1), with_weight(old, -1))))

    def _replaced_in_spark(self, new: DataFrame, old: DataFrame) -> Delta:
        return self._write(
            union(with_weight(new.select(*map(quoted, self.shape.state.names)), 1), with_weight(old, -1))
        )


def _out_of_range(combined: pa.Table) -> bool:
    return OUT_OF_RANGE in combined.column_names and bool(pc.any(combined.column(OUT_OF_RANGE)).as_py())


def _small(bound: Mapping[str, BoundRows]) -> bool:
    return all(rows.local is not None for rows in bound.values()) and (
        sum(rows.count for rows in bound.values()) <= thresholds.TASK_ROWS_MAX
    )
