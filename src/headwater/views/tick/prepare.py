"""Preparing: declarations become plans with types, before anything is touched.

What it is: ``prepare`` compiles every declared view, asks Spark for the types, and tells what must be kept.
Invariants: an app whose views do not all compile is refused as a whole, and nothing of it was run or written; except
that in an app which ran before, a view that may pause is left out, with its readers (``unprepared.py``). A view's
fingerprint changes when its query, its inputs' columns or a view that it reads changes, and when a topic that it reads
was deleted and made again.
Not here: running (``engine.py``).
Read next: ``engine.py``; ``compiler/compile.py``.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.log.contract import EventLog
from headwater.log.schema.ddl import to_ddl
from headwater.views.compiler.frontend.as_of import with_versions
from headwater.views.compiler.frontend.metadata_columns import with_mentioned
from headwater.views.compiler.plan import (
    FinalStage,
    FlowStage,
    Leaf,
    LeafContent,
    Relation,
    Stage,
    TimedStage,
    ViewPlan,
)
from headwater.views.event_time.progress import EventTimeProgress, ViewTime
from headwater.views.event_time.timing import timed_plan
from headwater.views.spark.analysis_cache import AnalysisCache
from headwater.views.spark.spark_errors import in_view
from headwater.views.stages.python_views import RowFunctionStage, function_plan
from headwater.views.stages.stage_schemas import Analyser, StageSchema, columns_of
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.tick.inputs import InputRelation, inputs_of
from headwater.views.tick.unprepared import Unprepared, may_wait
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.state.manifest import ViewEntry

logger = logging.getLogger("headwater.views")


@dataclass(frozen=True)
class PreparedView:
    """A view ready to run."""

    declared: ViewDeclaration
    plan: ViewPlan
    shapes: Mapping[str, StageSchema]
    keeps: Mapping[str, bool]  # which stages keep a state
    fingerprint: str
    sessions: ViewSessions
    topics: tuple[str, ...] = ()  # those with an event time that it reads, itself or through others
    build_id: str = ""  # of a state that was begun beside an older one: the tick and the epoch of that moment

    @property
    def name(self) -> str:
        """The view's name."""
        return self.declared.name

    @property
    def identity(self) -> str:
        """What its state goes by. The state of another query, or of a rebuild, is another one."""
        return f"{self.fingerprint}.{self.build_id}" if self.build_id else self.fingerprint

    def time(self, before: EventTimeProgress, after: EventTimeProgress | None) -> ViewTime:
        """What a tick that leads from these times to those needs to know."""
        known = before.views.get(self.name)
        later = known if after is None else after.views.get(self.name)
        return ViewTime(known, later, self.declared.timing.horizon_us, self.plan.reach_us)

    def entry(self, before: ViewEntry | None, tick: int) -> ViewEntry:
        """What the manifest of this tick says of it; ``before``: what the one before said, None when it begins."""
        return {
            "fingerprint": self.fingerprint,
            "build_id": self.build_id,
            "columns": to_ddl(self.schema),
            "key": list(self.plan.key),
            "kind": str(self.plan.kind),
            "sql": self.declared.sql,
            "timing": vars(self.declared.timing),
            "created_tick": tick if before is None else before["created_tick"],
            "table": self.identity if before is None else before.get("table", self.fingerprint),
        }

    @cached_property
    def moves_by_time(self) -> bool:
        """Whether a tick may change it though no input moved: rows become final, or their state is let go."""
        return self.plan.lets_go_groups or any(isinstance(stage, TimedStage | FinalStage) for stage in self.plan.stages)

    @property
    def schema(self) -> pa.Schema:
        """The columns that users see."""
        return self.shapes[self.plan.stages[-1].name].visible


@dataclass(frozen=True)
class Prepared:
    """An app ready to run."""

    views: Mapping[str, PreparedView]  # each behind those that it reads
    inputs: Mapping[str, InputRelation]
    clock: Clock
    threads: int
    log: EventLog
    unprepared: Mapping[str, Unprepared] = field(default_factory=dict)  # views that wait until they can run

    @property
    def topics(self) -> dict[str, int]:
        """The topics that are read, in whatever way, and their numbers."""
        return {base.topic.name: base.topic.id for base in self.inputs.values()}

    def as_built(self, known: Mapping[str, ViewEntry]) -> Prepared:
        """The same, each view with the state that a manifest's views say it has."""
        views = {}
        for name, view in self.views.items():
            about = known.get(name)
            same = about if about is not None and about["fingerprint"] == view.fingerprint else None
            views[name] = replace(view, build_id="" if same is None else same["build_id"])
        return replace(self, views=views)


def relations_of(log: EventLog) -> dict[str, Relation]:
    """Every topic and table of the home, as the compiler wants them."""
    return _relations(inputs_of(log))


def _relations(inputs: Mapping[str, InputRelation]) -> dict[str, Relation]:
    # A query names a table, never its versions or metadata: the compiler derives these relations from the table.
    return {name: base.relation for name, base in inputs.items() if name == base.topic.name}


def event_times_of(log: EventLog) -> dict[str, str]:
    """The same, of every topic and table of the home."""
    return {topic.name: topic.settings.event_time for topic in log.topics() if topic.settings.event_time}


def event_times(inputs: Mapping[str, InputRelation]) -> dict[str, str]:
    """The column of event time of each topic that has one."""
    return {
        name: base.topic.settings.event_time
        for name, base in inputs.items()
        # A table as it was has a time too, and is not judged by it: an older version is what is asked for.
        if base.topic.settings.event_time and name == base.topic.name
    }


def prepare(
    declared: Iterable[ViewDeclaration],
    log: EventLog,
    spark: SparkSession,
    scratch: Path,
    *,
    answers: Path | None = None,
    ran: Collection[str] = (),
    sessions: Mapping[str, ViewSessions] | None = None,
) -> Prepared:
    """Compile and type every view. ``answers``: the file that keeps what Spark's analyser said; ``sessions``: those of
    views that were prepared before, with the plans that they keep.

    Where views ``ran`` before, one that may pause does not keep the others from running: see ``unprepared.py``.
    """
    inputs = inputs_of(log)
    relations = _relations(inputs)
    schemas = {name: base.schema for name, base in inputs.items()}
    fingerprints: dict[str, str] = {}
    analyser = Analyser(ViewSessions(spark, scratch / "analysis"), AnalysisCache(answers, spark.version))
    plans: dict[str, tuple[ViewDeclaration, ViewPlan, dict[str, StageSchema]]] = {}
    unprepared: dict[str, Unprepared] = {}
    for view in declared:
        waits = Unprepared.reading(view, unprepared, analyser.read)
        if waits is not None:
            unprepared[view.name] = waits
            continue
        try:
            plan, shapes = _planned(view, relations, inputs, schemas, analyser)
        except HeadwaterError as error:
            if not ran or not may_wait(error, view):
                analyser.cache.save(complete=False)  # the next try does not ask again about the others
                raise
            logger.warning("%s cannot be prepared and is paused: %s", view.title, error)
            unprepared[view.name] = Unprepared(view, (view.name,), error)
            continue
        visible = shapes[plan.stages[-1].name].visible
        relations[view.name] = Relation(view.name, columns_of(visible), plan.key, is_view=True)
        above = "".join(fingerprints.get(name) or f"topic {inputs[name].topic.id}" for name in plan.reads)
        fingerprints[view.name] = hashlib.sha256((plan.fingerprint + above).encode()).hexdigest()[:16]
        plans[view.name] = (view, plan, shapes)
    analyser.cache.save(complete=not unprepared)
    read = {name for _, plan, _ in plans.values() for name in plan.reads}
    # The relations of which some stage needs more than the changes.
    looked_at = {
        leaf.relation
        for _, leaf in _leaves(plan for _, plan, _ in plans.values())
        if leaf.content is not LeafContent.CHANGES
    }
    topics = _timed_topics({name: plan for name, (_, plan, _) in plans.items()}, inputs)
    kept = None if answers is None else answers.parent
    views = {
        name: PreparedView(
            view,
            plan,
            shapes,
            _keeps(plan, looked_at),
            fingerprints[name],
            (sessions or {}).get(name) or ViewSessions(spark, scratch / name, kept),
            topics[name],
        )
        for name, (view, plan, shapes) in plans.items()
    }
    cores = spark.sparkContext.defaultParallelism
    used = {name: base for name, base in inputs.items() if name in read}
    needed = {
        leaf.relation
        for stage, leaf in _leaves(plan for _, plan, _ in plans.values())
        if not isinstance(stage, TimedStage)
    }
    # Stages that judge rows by their time keep a copy of their own, and need no state of the input.
    used = {name: base if name in needed else base.with_changes_only() for name, base in used.items()}
    # One more than there are cores: while some wait for Spark, another can go on.
    return Prepared(views, used, log.clock, max(1, min(len(views), cores + 1)), log, unprepared)


def _planned(
    view: ViewDeclaration,
    relations: Mapping[str, Relation],
    inputs: Mapping[str, InputRelation],
    schemas: dict[str, pa.Schema],
    analyser: Analyser,
) -> tuple[ViewPlan, dict[str, StageSchema]]:
    """One view's plan, and the types of its stages, which are added to ``schemas``."""
    with in_view(view):
        if view.sql is None:
            plan, shapes = function_plan(view, schemas, analyser)
            schemas[view.name] = shapes[view.name].visible
            return plan, shapes
        plan = timed_plan(
            view.name,
            view.sql,
            relations,
            view.timing,
            event_times(inputs),
            describe=analyser.describe,
            confirm=analyser.confirm,
            read=analyser.read,
        )
        every = with_versions(with_mentioned(plan.reads, relations))
        analyser.check_times(view.sql, plan.batch, {name: every[name].columns for name in plan.reads})
        shapes = {}
        for stage in plan.stages:
            shapes[stage.name] = analyser.shape_of(stage, schemas)
            schemas[stage.name] = shapes[stage.name].visible
        return plan, shapes


def _timed_topics(plans: Mapping[str, ViewPlan], inputs: Mapping[str, InputRelation]) -> dict[str, tuple[str, ...]]:
    """The topics with an event time that each view reads, itself or through others."""
    timed = {name: base.topic.name for name, base in inputs.items() if base.topic.settings.event_time}
    found: dict[str, tuple[str, ...]] = {}
    for name, plan in plans.items():  # each behind those that it reads
        through = {topic for read in plan.reads for topic in found.get(read, ())}
        found[name] = tuple(sorted(through | {timed[read] for read in plan.reads if read in timed}))
    return found


def _leaves(plans: Iterable[ViewPlan]) -> Iterator[tuple[Stage, Leaf]]:
    """All that the stages of some plans read."""
    return ((stage, leaf) for plan in plans for stage in plan.stages for leaf in stage.leaves)


def _keeps(plan: ViewPlan, looked_at: set[str]) -> dict[str, bool]:
    last = plan.stages[-1]
    return {
        stage.name: stage is last or stage.name in looked_at or not isinstance(stage, FlowStage | RowFunctionStage)
        if not isinstance(stage, TimedStage)
        else stage.late or stage.lets_go or stage.name in looked_at
        for stage in plan.stages
    }
