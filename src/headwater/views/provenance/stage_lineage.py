"""Stage lineage: from wanted rows of a stage to the rows of its inputs that are behind them.

What it is: one step down, for each kind of stage. ``Demand`` says which rows of a relation are wanted.
Invariants: a step never leaves out a row that is behind a wanted one; where it cannot be exact, it takes all rows with
the same key, or all rows, and says so (``Precision``). Expressions are the stage's own text: what a row's group or
partner is, Spark tells. Rows whose weights cancel out are not there.
Not here: the order of the steps (``why.py``), rewriting texts (``carried_rows.py``), the events (``input_events.py``).
Read next: ``why.py``, ``views/compiler/plan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.ddl import spark_type
from headwater.views.compiler.plan import (
    NUMBER,
    WEIGHT,
    AccumulateStage,
    FinalStage,
    FlowStage,
    KeyedInput,
    KeyedStage,
    LeadingStage,
    Leaf,
    MatchStage,
    Stage,
    Term,
    TimedStage,
    WholeStage,
)
from headwater.views.provenance.carried_rows import SESSION, CarriedQuery, NotCarried, carried, row_column
from headwater.views.provenance.provenance import Precision
from headwater.views.provenance.relation_rows import RelationRows, comparable, covering, with_row
from headwater.views.provenance.whole_text import read_text
from headwater.views.spark.scans import local_frame
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.search_views import SearchStage
from headwater.views.state.algebra import SHOWN, consolidate, expand, visible
from headwater.views.state.row_equality import matching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NOT_IN_COLUMNS = (
    "rows",
    "nulls",
)  # of the stage that counts what NOT IN compares with (``compiler/operators/subqueries.py``)
TOLD_ROWS_MAX = 500_000  # so many rows that stand beside an answer are looked at here
HELD_ROWS_MAX = 20_000  # so many wanted rows are held here; more stay in Spark


@dataclass(frozen=True)
class Demand:
    """Rows of a relation that are wanted: those that equal one of ``rows`` in ``columns``; without columns all."""

    columns: tuple[str, ...] = ()
    rows: pa.Table | DataFrame | None = None

    @property
    def none(self) -> bool:
        """Whether nothing is wanted."""
        return isinstance(self.rows, pa.Table) and self.rows.num_rows == 0


EVERYTHING = Demand()


@dataclass
class LineageStep:
    """Where a stage's wanted rows come from."""

    rule: str
    precision: Precision
    demands: list[tuple[str, Demand]] = field(default_factory=list)  # of each relation
    absent: tuple[str, ...] = ()


def restricted(frame: DataFrame, demand: Demand, names: Mapping[str, str] | None = None) -> DataFrame:
    """The rows of a frame that are wanted. ``names``: the frame's name for a wanted column, where it has another."""
    from pyspark.sql import functions as f

    if not demand.columns:
        return frame
    pairs = [(name, (names or {}).get(name, name)) for name in demand.columns]
    rows = demand.rows
    if isinstance(rows, pa.Table):
        if rows.num_rows == 0:
            return frame.where("false")
        if rows.num_rows == 1:  # conditions on values reach the files
            literals = {wanted: _literal(rows.column(wanted)) for wanted, _ in pairs}
            for wanted, own in pairs:
                if (literal := literals[wanted]) is not None:
                    frame = frame.where(f.col(quoted(own)).eqNullSafe(literal))
            pairs = [pair for pair in pairs if literals[pair[0]] is None]
            if not pairs:
                return frame
        few = rows.num_rows <= HELD_ROWS_MAX
        rows = local_frame(frame.sparkSession, rows.select([wanted for wanted, _ in pairs]))
        rows = f.broadcast(rows) if few else rows
    assert rows is not None
    renamed = rows.select(*(f.col(quoted(wanted)).alias(f"_w{n}") for n, (wanted, _) in enumerate(pairs)))
    equal = [f.col(quoted(own)).eqNullSafe(f.col(f"_w{n}")) for n, (_, own) in enumerate(pairs)]
    return frame.join(renamed, reduce(lambda one, other: one & other, equal), "left_semi")


def _literal(column: pa.ChunkedArray) -> Column | None:
    """A value as Spark has it; None for a type whose values are compared as a table."""
    from pyspark.sql import functions as f

    kind = column.type
    plain = kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)
    return f.lit(column[0].as_py()).cast(spark_type(kind)) if plain else None


class StageLineage:
    """The steps down from the stages of some views."""

    def __init__(self, rows: RelationRows) -> None:
        self.rows = rows
        self._held: list[DataFrame] = []

    @property
    def spark(self) -> SparkSession:
        """The session of the snapshot."""
        return self.rows.spark

    def close(self) -> None:
        """Let go of what Spark holds for it."""
        for frame in self._held:
            frame.unpersist()
        self._held = []

    def step(self, stage: Stage, demands: Sequence[Demand]) -> LineageStep:
        """From wanted rows of a stage to those of what it reads."""
        if isinstance(stage, FinalStage):
            return LineageStep("the same row", Precision.EXACT, [(stage.source.relation, demand) for demand in demands])
        if isinstance(stage, TimedStage):
            return LineageStep("the records", Precision.EXACT, [(stage.source.relation, demand) for demand in demands])
        if isinstance(stage, FlowStage):
            joined = any(len(term.leaves) > 1 for term in stage.terms)
            rule = "the rows that meet in it" if joined else "the rows that give it"
            return LineageStep(rule, Precision.EXACT, self._through(stage.terms, demands))
        if isinstance(stage, AccumulateStage):
            return self._of_group(stage, demands)
        if isinstance(stage, LeadingStage):
            return self._leading(stage, demands)
        if isinstance(stage, KeyedStage):
            return self._of_key(stage, demands)
        if isinstance(stage, MatchStage):
            return self._of_match(stage, demands)
        if isinstance(stage, WholeStage):
            return self._whole(stage, demands)
        if isinstance(stage, SearchStage):
            return self._of_search(stage, self.state(stage, demands))
        return _everything(stage)

    def _of_search(self, stage: SearchStage, state: pa.Table) -> LineageStep:
        """The search and, of a match, the document."""
        assert stage.function is not None
        search = Demand(("id",), state.select(["search"]).rename_columns(["id"]))
        if stage.function.status:
            return LineageStep("the search", Precision.EXACT, [self._wanted(stage.searches, search)])
        columns, names = zip(*stage.function.documents, strict=True)
        document = Demand(columns, state.select(list(names)).rename_columns(list(columns)))
        found = [self._wanted(stage.documents, document), self._wanted(stage.searches, search)]
        return LineageStep("the document and the search", Precision.EXACT, found)

    def _wanted(self, leaf: Leaf, wanted: Demand) -> tuple[str, Demand]:
        """The rows of a leaf that are wanted, by what tells them apart."""
        identity = self.rows.identity(leaf.relation, leaf.columns)
        frame = self.rows.weighted(leaf.relation, list(dict.fromkeys([*wanted.columns, *identity])))
        few = restricted(frame, wanted).select(*map(quoted, identity)).distinct()
        return leaf.relation, self._demand(leaf, few, identity)

    # Whole queries

    def _whole(self, stage: WholeStage, demands: Sequence[Demand]) -> LineageStep:
        """What stands beside the row in our reading of the text, if the text itself gives the row over these alone."""
        view, _ = self.rows.stages[stage.name]
        try:
            text, leaves = read_text(view.plan, stage, self.rows)
            state = self.state(stage, demands)
            step = self._beside(text, state, {leaf.name: self._bag(leaf) for leaf in leaves}, leaves)
        except NotCarried:
            return _everything(stage)
        return step if self._suffices(stage, state, step) else _everything(stage)

    def _suffices(self, stage: WholeStage, state: pa.Table, step: LineageStep) -> bool:
        """Whether the text gives the wanted rows over nothing but the rows of a step."""
        for leaf in stage.inputs:
            identity = self.rows.identity(leaf.relation, leaf.columns)
            told = [demand.rows for relation, demand in step.demands if relation == leaf.relation]
            frames = [local_frame(self.spark, rows) if isinstance(rows, pa.Table) else rows for rows in told]
            few = self._bag(leaf)
            if frames:
                few = restricted(few, Demand(identity, _either([frame for frame in frames if frame is not None])))
            self.rows.show([(leaf.name, few.select(*map(quoted, leaf.columns)) if frames else few.where("false"))])
        names = tuple(name for name in comparable(state.schema, state.schema.names) if name != WEIGHT)
        again = restricted(self.spark.sql(stage.sql), Demand(names, state.select(names)))
        given = state.select(names).group_by(names).aggregate([])
        return bool(again.select(*map(quoted, names)).distinct().count() == given.num_rows)

    def _bag(self, leaf: Leaf) -> DataFrame:
        identity = self.rows.identity(leaf.relation, leaf.columns)
        columns = list(dict.fromkeys([*leaf.columns, *identity]))
        return with_row(expand(consolidate(self.rows.weighted(leaf.relation, columns))), identity)

    # Linear and bilinear

    def _through(self, terms: Sequence[Term], demands: Sequence[Demand]) -> list[tuple[str, Demand]]:
        """The rows of the leaves that give wanted rows of a flow."""
        found: list[tuple[str, Demand]] = []
        for term in covering(terms):
            query = carried(term.sql)
            self.rows.show((leaf.name, self.rows.bound(leaf)) for leaf in term.leaves)
            answer = self.spark.sql(query.sql)
            wanted = _either([restricted(answer, demand) for demand in demands])
            found += self._told(wanted, term.leaves, query, weighted=True)
        return found

    def _told(
        self, answer: DataFrame, leaves: Sequence[Leaf], query: CarriedQuery, *, weighted: bool
    ) -> list[tuple[str, Demand]]:
        """The rows that stand beside an answer, of each leaf."""
        from pyspark.sql import functions as f

        told = [leaf for leaf in leaves if leaf.name in query.leaves and not self._guards(leaf)]
        rows = answer.select(*(row_column(leaf.name) for leaf in told), *([WEIGHT] if weighted else []))
        few = rows.limit(TOLD_ROWS_MAX + 1).toArrow()
        if few.num_rows <= TOLD_ROWS_MAX:  # one job, and the rest is done here
            return [(leaf.relation, self._here(leaf, few)) for leaf in told]
        if len(told) > 1:
            rows = rows.persist()
            self._held.append(rows)
        found = []
        for leaf in told:
            name = row_column(leaf.name)
            identity = self.rows.identity(leaf.relation, leaf.columns)
            one = rows.where(f.col(name).isNotNull())
            fields = [f.col(f"{name}.{quoted(column)}").alias(column) for column in identity]
            if not weighted:
                found.append((leaf.relation, self._demand(leaf, one.select(*fields).distinct(), identity)))
                continue
            there = one.groupBy(*fields).agg(f.sum(WEIGHT).alias("_times")).where("_times <> 0")
            found.append((leaf.relation, self._demand(leaf, there.select(*map(quoted, identity)), identity)))
        return found

    def _here(self, leaf: Leaf, few: pa.Table) -> Demand:
        """The rows of a leaf among a few that stand beside an answer."""
        identity = self.rows.identity(leaf.relation, leaf.columns)
        if not identity:
            return EVERYTHING
        column = few.column(row_column(leaf.name)).combine_chunks()
        parts = [pc.struct_field(column, name) for name in identity]
        weights = few.column(WEIGHT) if WEIGHT in few.column_names else pa.array(np.ones(few.num_rows, np.int64))
        rows = pa.table([*parts, weights], names=[*identity, WEIGHT]).filter(pc.is_valid(column))
        return Demand(identity, consolidate(rows).drop_columns([WEIGHT]))

    def _guards(self, leaf: Leaf) -> bool:
        """Whether a leaf only says that NOT IN met no null: that is told by what is not there."""
        if leaf.columns or leaf.relation not in self.rows.stages:
            return False
        _, stage = self.rows.stages[leaf.relation]
        return tuple(column.name for column in stage.columns) == NOT_IN_COLUMNS

    def _demand(self, leaf: Leaf, frame: DataFrame, identity: tuple[str, ...]) -> Demand:
        """Rows that were told. Those of a stage are looked at next, so they are computed now, if they are few."""
        if self.rows.input_of(leaf.relation) is not None:
            return Demand(identity, frame)
        if not identity:  # nothing of its rows is used but their number
            return EVERYTHING
        table = frame.limit(HELD_ROWS_MAX + 1).toArrow()
        if table.num_rows <= HELD_ROWS_MAX:
            return Demand(identity, table)
        kept = frame.persist()
        self._held.append(kept)
        return Demand(identity, kept)

    # Groups

    def _of_group(self, stage: AccumulateStage, demands: Sequence[Demand]) -> LineageStep:
        groups = [column.name for column in stage.groups]
        if not groups:
            rule = "all rows that it counts"
            return LineageStep(rule, Precision.EXACT, self._through(stage.terms, [EVERYTHING]))
        state = self.state(stage, demands)
        wanted = Demand(comparable(state.schema, groups), state.select(groups))
        return LineageStep("the rows of its group", Precision.EXACT, self._through(stage.terms, [wanted]))

    def state(self, stage: Stage, demands: Sequence[Demand]) -> pa.Table:
        """The wanted rows of a stage as it keeps them, with its hidden columns."""
        view, _ = self.rows.stages[stage.name]
        names = view.shapes[stage.name].state.names
        found = None
        if self.rows.contents.manifest.relations.get(stage.name) is not None:
            found = self._kept(stage.name, demands, names)
        if found is None or (found.num_rows == 0 and self.rows.lets_go(stage.name)):
            found = self._matching(self.rows.computed(stage, view), demands, names)
        return found

    def _kept(self, relation: str, demands: Sequence[Demand], names: Sequence[str]) -> pa.Table:
        """The wanted rows among those that are kept of a relation; of a small one they are found here."""
        held = self.rows.held(relation)
        if held is None or any(demand.columns and not isinstance(demand.rows, pa.Table) for demand in demands):
            every = self.rows.contents.weighted(relation)
            return self._matching(every.where(SHOWN) if SHOWN in every.columns else every, demands, names)
        shown = visible(held, names)
        return pa.concat_tables(_found(shown, demand) for demand in demands)

    def wanted_rows(self, view: str, asked: Demand, limit: int) -> pa.Table:
        """The rows of a view that were asked for, with weights; at most about so many."""
        names = self.rows.schema(view).names
        if self.rows.held(view) is not None:
            return consolidate(self._kept(view, [asked], names))
        return consolidate(restricted(self.rows.weighted(view, names), asked).limit(limit).toArrow())

    def _matching(self, frame: DataFrame, demands: Sequence[Demand], names: Sequence[str]) -> pa.Table:
        wanted = _either([restricted(frame, demand) for demand in demands])
        return consolidate(visible(wanted, names).toArrow())

    # Keys

    def _of_key(self, stage: KeyedStage, demands: Sequence[Demand]) -> LineageStep:
        state = self.state(stage, demands)
        keys = [column.name for column in stage.keys]
        # The key of a session by itself is where it begins: its rows may be further.
        wanted = EVERYTHING if stage.in_runs else Demand(comparable(state.schema, keys), state.select(keys))
        frames = {given.leaf.name: self._with_key(given, wanted) for given in stage.inputs}
        try:
            if callable(stage.sql):
                raise NotCarried("it is a function")
            return self._beside(stage.sql, state, frames, [given.leaf for given in stage.inputs])
        except NotCarried:
            return _everything(stage) if stage.in_runs else self._by_key(stage, frames)

    def _of_match(self, stage: MatchStage, demands: Sequence[Demand]) -> LineageStep:
        """The rows of the partition: any of them may have had a part in where a match begins."""
        if not stage.keys:
            return _everything(stage)
        keys = tuple(column for column in stage.hidden if column.name.startswith("_k"))
        given = KeyedInput(stage.source, stage.keys, stage.keys)
        by_key = KeyedStage(stage.name, stage.kind, stage.columns, stage.hidden, stage.what, (given,), keys)
        state = self.state(stage, demands)
        names = [column.name for column in keys]
        wanted = Demand(comparable(state.schema, names), state.select(names))
        return self._by_key(by_key, {stage.source.name: self._with_key(given, wanted)})

    def _beside(
        self, sql: str, state: pa.Table, frames: Mapping[str, DataFrame], leaves: Sequence[Leaf]
    ) -> LineageStep:
        """What stands beside wanted rows of a text's answer."""
        query = carried(sql)
        self.rows.show(frames.items())
        answer = self.spark.sql(query.sql)
        names = [name for name in comparable(state.schema, state.schema.names) if name in query.outputs]
        names = [name for name in names if name != WEIGHT]
        if query.sessions:
            # Spark would push a condition on a session to rows that are not joined to sessions yet.
            self._held.append(answer.persist())
            own = _told_apart(answer, state.select(names))
        else:
            own = restricted(answer, Demand(tuple(names), state.select(names)))
        absent = tuple(dict.fromkeys(leaf.relation for leaf in leaves if leaf.name in query.absent))
        if not query.windowed:
            return LineageStep(_rule(query), Precision.EXACT, self._told(own, leaves, query, weighted=False), absent)
        everybody = self.spark.sql(carried(sql, partitions=True).sql)
        ranked = query.rank and query.rank in query.outputs
        reached = own.groupBy(*query.parts).agg({query.rank: "max"}) if ranked else own.select(*query.parts).distinct()
        reached = reached.toDF(*(f"_of{name}" for name in query.parts), *(["_reached"] if ranked else []))
        mates = everybody.join(broadcast(reached), _same(query.parts, "_of"), "inner")
        if ranked:
            mates = mates.where(f"{quoted(query.rank)} <= _reached")
        told = self._told(mates, leaves, query, weighted=False)
        if ranked:
            return LineageStep("the row, and those before it in its partition", Precision.EXACT, told, absent)
        if not query.parts:
            return LineageStep("all rows, by a window function", Precision.ALL, told, absent)
        return LineageStep("the rows of its partition", Precision.KEY, told, absent)

    def _by_key(self, stage: KeyedStage, frames: Mapping[str, DataFrame]) -> LineageStep:
        told = []
        for given in stage.inputs:
            leaf = given.leaf
            identity = self.rows.identity(leaf.relation, leaf.columns)
            frame = frames[leaf.name].select(*map(quoted, identity)).distinct()
            told.append((leaf.relation, self._demand(leaf, frame, identity)))
        by = ", ".join(given for given in stage.inputs[0].plain or stage.inputs[0].keys)
        return LineageStep(f"all rows with the same {by}", Precision.KEY, told)

    def _with_key(self, given: KeyedInput, wanted: Demand) -> DataFrame:
        """The rows of an input that have a wanted key, as a bag with ``_row``."""
        leaf = given.leaf
        identity = self.rows.identity(leaf.relation, leaf.columns)
        columns = list(dict.fromkeys([*leaf.columns, *identity]))
        frame = self.rows.weighted(leaf.relation, columns)
        names = {f"_k{place}": f"_key{place}" for place in range(len(given.keys))}
        keyed = frame.selectExpr("*", *(f"{key} AS _key{place}" for place, key in enumerate(given.keys)))
        few = restricted(keyed, wanted, names).select(*map(quoted, columns), WEIGHT)
        return with_row(expand(consolidate(few)), identity)

    # Leading rows

    def _leading(self, stage: LeadingStage, demands: Sequence[Demand]) -> LineageStep:
        state = self.state(stage, demands)
        held = list(stage.held)
        rule, wanted = "the row", state.select(held)
        if NUMBER in stage.shown or stage.first > 1:
            rule, wanted = "the row, and those before it in the order", self._up_to(stage, wanted)
        demand = Demand(comparable(wanted.schema, held), wanted)
        return LineageStep(rule, Precision.EXACT, self._through([stage.term], [demand]))

    def _up_to(self, stage: LeadingStage, wanted: pa.Table) -> pa.Table:
        """The rows of the buffer up to the last wanted one."""
        held = list(stage.held)
        buffer = consolidate(self.rows.contents.weighted(stage.name).select(*held, WEIGHT).toArrow())
        local_frame(self.spark, buffer.slice(0, 0)).createOrReplaceTempView("_flow")
        local_frame(self.spark, buffer).createOrReplaceTempView("_before")
        placed = self.spark.sql(stage.merge)
        own = restricted(placed, Demand(comparable(wanted.schema, held), wanted))
        (last,) = own.selectExpr("max(_place) AS last").toArrow().column(0).to_pylist()
        return placed.where(f"_place <= {last}").select(*held).toArrow()


def _found(rows: pa.Table, demand: Demand) -> pa.Table:
    """The wanted rows among some that are here; the demand's are here too."""
    if not demand.columns:
        return rows
    assert isinstance(demand.rows, pa.Table)
    return matching(rows, demand.columns, demand.rows.select(list(demand.columns)))


def _everything(stage: Stage) -> LineageStep:
    rule = "depends on all rows of what it reads"
    if isinstance(stage, WholeStage) and stage.reason:
        rule += f" ({stage.reason})"
    return LineageStep(rule, Precision.ALL, [(leaf.relation, EVERYTHING) for leaf in stage.leaves])


def _either(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)


def _rule(query: CarriedQuery) -> str:
    if query.grouped:
        return "the rows of its session" if query.sessions else "the rows of its group"
    if query.joined:
        return "the row" if query.absent and len(query.leaves) == 1 else "the rows that meet in it"
    return "the rows equal to it"


def _told_apart(answer: DataFrame, wanted: pa.Table) -> DataFrame:
    """The rows beside wanted sessions. What is no number with rounding errors tells most of them apart."""
    session, names = row_column(SESSION), wanted.column_names
    plain = [name for name in names if not _has_floats(wanted.schema.field(name).type)]
    own = restricted(answer, Demand(tuple(plain), wanted.select(plain)))
    if own.select(*map(quoted, [*plain, session])).distinct().count() == _different(wanted.select(plain)):
        return own
    own = restricted(answer, Demand(tuple(names), wanted))
    if own.select(*map(quoted, names)).distinct().count() == _different(wanted):
        return own
    raise NotCarried("another order of rows gave other values")


def _has_floats(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)] if kinds.is_nested(kind) else []
    return kinds.is_floating(kind) or any(map(_has_floats, inner))


def _different(rows: pa.Table) -> int:
    once = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows, np.int64)))
    return int(consolidate(once).num_rows)


def broadcast(frame: DataFrame) -> DataFrame:
    """A frame that Spark sends to all tasks."""
    from pyspark.sql import functions as f

    return f.broadcast(frame)


def _same(names: Sequence[str], prefix: str) -> Column:
    from pyspark.sql import functions as f

    equal = [f.col(quoted(name)).eqNullSafe(f.col(prefix + name)) for name in names]
    return reduce(lambda one, other: one & other, equal, f.lit(True))
