"""Relation rows: what the relations that stages read hold at one tick, each row with what tells it apart.

What it is: ``RelationRows``: the weighted rows of topics, tables, views and stages at a manifest, and their *identity*:
the place in the log of a topic's row, the key of a table's, all columns of a multiset's and of a stage's.
Invariants: everything is of one tick. Weights are not consolidated: a row is there as often as its weights add up to.
A stage that keeps no state, or lets some of it go, is computed from what it reads, by the text of its terms.
Not here: which rows are wanted (``stage_lineage.py``); the records behind them (``input_events.py``).
Read next: ``views/serving/snapshot.py``, ``stage_lineage.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds

from headwater.log.event_time import capture_markers
from headwater.views import thresholds
from headwater.views.compiler.plan import (
    WEIGHT,
    AccumulateStage,
    FinalStage,
    FlowStage,
    KeyedStage,
    Leaf,
    Stage,
    Term,
    TimedStage,
    WholeStage,
)
from headwater.views.provenance.carried_rows import ROW
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.spark.scans import local_frame
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.python_views import RowFunctionStage
from headwater.views.state.algebra import consolidate, expand, negate, select, union, visible, with_weight
from headwater.views.state.omissions import frame_without
from headwater.views.tick.inputs import InputKind, InputRelation
from headwater.views.tick.prepare import PreparedView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = ("_partition", "_offset")


def covering(terms: Sequence[Term]) -> list[Term]:
    """The terms that together have every row of the flow; one where it mentions all that the others do.

    A term goes through one branch of each union above its changes. One that has all leaves of those that share a leaf
    with it goes through all branches, so the others give nothing more.
    """
    width = len(terms)
    places = {id(term): {int(leaf.name[2:]) % width for leaf in term.leaves} for term in terms}
    chosen: list[Term] = []
    done: set[int] = set()
    for term in terms:
        own = places[id(term)]
        whole = all(places[id(other)] <= own for other in terms if places[id(other)] & own)
        if whole and not own <= done:
            chosen.append(term)
            done |= own
    return [*chosen, *(term for term in terms if not places[id(term)] <= done)]


class RelationRows:
    """The relations of some views at one tick."""

    def __init__(self, contents: RelationSnapshot, views: Mapping[str, PreparedView]) -> None:
        self.contents = contents
        self.views = views
        self.stages: dict[str, tuple[PreparedView, Stage]] = {
            stage.name: (view, stage) for view in views.values() for stage in view.plan.stages
        }
        self._held: dict[str, pa.Table | None] = {}
        # Of these views a part of the state is let go: what is left of it is not what their stages hold.
        self._letting_go = {
            name
            for name, view in views.items()
            if view.plan.lets_go_groups or any(isinstance(stage, TimedStage) for stage in view.plan.stages)
        }

    @property
    def spark(self) -> SparkSession:
        """The session of the snapshot."""
        return self.contents.spark

    # What a relation is

    def input_of(self, relation: str) -> InputRelation | None:
        """The topic or table that a relation is, or whose rows in time it has; None: it is a view or a stage."""
        view_and_stage = self.stages.get(relation)
        if view_and_stage is None:
            return self.contents.inputs[relation]
        stage = view_and_stage[1]
        return self.contents.inputs.get(stage.source.relation) if isinstance(stage, TimedStage) else None

    def schema(self, relation: str) -> pa.Schema:
        """The columns that readers of a relation see."""
        if relation in self.stages:
            view, stage = self.stages[relation]
            return view.shapes[stage.name].visible
        return self.contents.inputs[relation].schema

    def by_place(self, base: InputRelation) -> bool:
        """Whether the rows of an input are records of the log that are all there: these are known by their place."""
        return base.kind in (InputKind.LOG, InputKind.VERSIONS) and not base.lost_rows

    def identity(self, relation: str, used: Sequence[str]) -> tuple[str, ...]:
        """The columns that tell a relation's rows apart for a reader that uses some of them."""
        base = self.input_of(relation)
        if base is None:
            return comparable(self.schema(relation), used)
        if self.by_place(base):
            return PLACE
        return base.key or comparable(base.schema, base.schema.names)

    # Its rows

    def held(self, relation: str) -> pa.Table | None:
        """All that is kept of a small view or stage, hidden columns too, consolidated; None for a large one."""
        entry = self.contents.manifest.relations.get(relation)
        if relation not in self._held:
            rows = sum(run["rows"] for run in entry["runs"]) if entry is not None else None
            small = rows is not None and rows <= thresholds.LOCAL_ROWS_MAX
            self._held[relation] = consolidate(self.contents.trace(relation).content()) if small else None
        return self._held[relation]

    def lets_go(self, relation: str) -> bool:
        """Whether a stage may lack rows that it gave once."""
        view, stage = self.stages[relation]
        return view.name in self._letting_go and stage is not view.plan.stages[-1]

    def bound(self, leaf: Leaf) -> DataFrame:
        """The rows of a leaf with their weights, and ``_row``, a struct of what tells each apart."""
        identity = self.identity(leaf.relation, leaf.columns)
        frame = self.weighted(leaf.relation, list(dict.fromkeys([*leaf.columns, *identity])))
        return with_row(frame, identity)

    def weighted(self, relation: str, columns: Sequence[str]) -> DataFrame:
        """Some columns of a relation's rows, with weights that are not consolidated."""
        if relation not in self.stages:
            return self._input(self.contents.inputs[relation], columns)
        view, stage = self.stages[relation]
        if isinstance(stage, TimedStage) and not stage.late:
            return self._in_time(stage, columns)
        if relation in self.contents.manifest.relations and not self.lets_go(relation):
            return visible(self.contents.weighted(relation), columns)
        return select(self.computed(stage, view), columns)

    def _input(self, base: InputRelation, columns: Sequence[str]) -> DataFrame:
        if self.by_place(base):
            start, stop = self.span(base)
            return with_weight(frame_without(self.spark, base.topic, start, stop, list(columns), base.omitted), 1)
        if base.name in self.contents.manifest.relations:
            return select(self.contents.weighted(base.name), columns)
        return select(with_weight(self.contents.from_log(base.name), 1), columns)

    def span(self, base: InputRelation) -> tuple[dict[int, int], dict[int, int]]:
        """The offsets of a topic that the tick has, as far as the log still has them."""
        start, known = base.topic.start_offsets(), self.contents.manifest.frontier.get(base.topic.name)
        stop = dict(known or capture_markers.bound([base.topic], self.contents.log.cut([base.topic]))[base.topic.name])
        return {number: min(start[number], stop[number]) for number in stop}, stop

    def _in_time(self, stage: TimedStage, columns: Sequence[str]) -> DataFrame:
        """The rows of an input without those that came too late."""
        base = self.contents.inputs[stage.source.relation]
        late = next(
            (
                each.name
                for each in self.stages[stage.name][0].plan.stages
                if isinstance(each, TimedStage) and each.late and each.source.relation == base.name
            ),
            None,
        )
        if late is None or not self.contents.manifest.runs_of(late):
            return self._input(base, columns)
        names = base.schema.names
        left_out = consolidate(select(self.contents.weighted(late), names))
        if not self.by_place(base):
            return select(union(self._input(base, names), negate(left_out)), columns)
        every = self._input(base, list(dict.fromkeys([*names, *PLACE, "_appended_at"])))
        return select(without_latest(every, left_out, comparable(base.schema, names)), columns)

    # What a stage gives, computed from what it reads

    def computed(self, stage: Stage, view: PreparedView) -> DataFrame:
        """All rows of a stage with weights, its hidden columns too."""
        if isinstance(stage, FlowStage):
            return self.flow(stage.terms, stage.constant)
        if isinstance(stage, AccumulateStage):
            return self._accumulated(stage, view)
        if isinstance(stage, FinalStage):
            return self.weighted(stage.source.relation, [column.name for column in stage.columns])
        if isinstance(stage, RowFunctionStage) and stage.function is not None:
            given: DataFrame = stage.function(*(self.bag(leaf) for leaf in stage.inputs))
            return with_weight(given, 1)
        if isinstance(stage, KeyedStage | WholeStage):
            bags = [self.bag(leaf) for leaf in stage.leaves]
            if callable(stage.sql):
                found: DataFrame = stage.sql(*bags)
                return with_weight(found, 1)
            self.show(zip((leaf.name for leaf in stage.leaves), bags, strict=True))
            return with_weight(self.spark.sql(stage.sql), 1)
        return self.contents.weighted(stage.name)

    def flow(self, terms: Sequence[Term], constant: str | None) -> DataFrame:
        """All rows that some terms give, and the constant ones."""
        parts = []
        for term in covering(terms):
            self.show((leaf.name, self.bound(leaf)) for leaf in term.leaves)
            parts.append(self.spark.sql(term.sql))
        if constant:
            parts.append(self.spark.sql(constant))
        return reduce(lambda one, other: one.union(other), parts)

    def _accumulated(self, stage: AccumulateStage, view: PreparedView) -> DataFrame:
        shape = view.shapes[stage.name]
        self.flow(stage.terms, stage.constant).createOrReplaceTempView("_flow")
        self.spark.sql(stage.partial).createOrReplaceTempView("_partial")
        local_frame(self.spark, shape.state.empty_table()).createOrReplaceTempView("_before")
        combined = self.spark.sql(stage.combine)
        shown = combined if stage.one_row else combined.where("_n > 0")
        return visible(with_weight(shown, 1), shape.state.names)

    def bag(self, leaf: Leaf) -> DataFrame:
        """The rows of a leaf, each as often as it is there."""
        return expand(consolidate(self.weighted(leaf.relation, leaf.columns)))

    def show(self, frames: Iterable[tuple[str, DataFrame]]) -> None:
        """Let the next texts find tables by these names."""
        for name, frame in frames:
            frame.createOrReplaceTempView(quoted(name))


def comparable(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """The columns by which rows can be compared: Spark compares no maps."""
    return tuple(name for name in names if not _holds_map(schema.field(name).type))


def _holds_map(kind: pa.DataType) -> bool:
    if kinds.is_map(kind):
        return True
    if kinds.is_struct(kind):
        return any(_holds_map(kind.field(place).type) for place in range(kind.num_fields))
    return kinds.is_list(kind) and _holds_map(kind.value_type)


def with_row(frame: DataFrame, identity: Sequence[str]) -> DataFrame:
    """The rows with ``_row``, a struct of these columns."""
    parts = ", ".join(map(quoted, identity)) or "true AS _there"
    return frame.selectExpr("*", f"struct({parts}) AS {ROW}")


def without_latest(every: DataFrame, left_out: DataFrame, names: Sequence[str]) -> DataFrame:
    """Weighted records of a log without as many as ``left_out`` says; of equal rows the ones that came last."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    columns = [quoted(name) for name in names]
    renamed = left_out.select(
        *(f.col(name).alias(f"_o{place}") for place, name in enumerate(columns)), f.col(WEIGHT).alias("_late")
    )
    same = reduce(
        lambda one, other: one & other,
        (f.col(name).eqNullSafe(f.col(f"_o{place}")) for place, name in enumerate(columns)),
        f.lit(True),
    )
    met = every.join(renamed, same, "left")
    alike = Window.partitionBy(*columns).orderBy(f.desc("_appended_at"), f.desc("_partition"), f.desc("_offset"))
    few = met.where("_late IS NOT NULL").withColumn("_nth", f.row_number().over(alike)).where("_nth > _late")
    return met.where("_late IS NULL").select(*every.columns).union(few.select(*every.columns))
