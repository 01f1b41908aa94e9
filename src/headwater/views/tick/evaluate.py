"""Evaluation: one tick's deltas pushed through the stages of views.

What it is: ``Evaluation`` runs the stages of some views, each view after those that it reads, and writes their deltas.
Ticks, the first fill of a view and a rebuild beside the live one all use it.
Invariants: written deltas count only once a manifest is committed. A view that fails lets the others finish; then the
whole evaluation fails, unless the view is to be paused: it and its readers are in ``failed``, without changes.
Not here: the inputs, and committing (``engine.py``, ``views/lifecycle/rebuild.py``); a single stage
(``views/stages/stage_run.py``).
Read next: ``views/stages/stage_run.py``, ``engine.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.plan import WEIGHT, AccumulateStage, FinalStage, MatchStage, Stage, TimedStage
from headwater.views.event_time.progress import ViewTime
from headwater.views.event_time.timed_operators import TimedRun, joined, trimmed
from headwater.views.event_time.timing import IN_TIME, LATE
from headwater.views.spark.spark_errors import in_view
from headwater.views.stages.match_expiry import MatchExpiry, with_steady_closes
from headwater.views.stages.relation import TickRelation
from headwater.views.stages.stage_run import StageRun
from headwater.views.state.algebra import SHOWN, consolidate, visible
from headwater.views.state.delta import Delta
from headwater.views.state.state_store import StateStore
from headwater.views.state.state_trace import StateTrace, Traces
from headwater.views.tick.pausing import is_its_own
from headwater.views.tick.prepare import PreparedView


@dataclass(frozen=True)
class ViewProgress:
    """What one tick did to one view."""

    view: str
    changes: int
    rows_read: int
    actions: int  # Spark queries that were run
    seconds: float
    plans_reused: int = 0  # of the actions: with a plan that an earlier one had made; Spark planned the others
    in_lane: int = 0  # of the actions: on the driver's thread; the others were Spark jobs
    idle: bool = False  # nothing that it reads has moved

    @property
    def plans_made(self) -> int:
        """Of the actions: those that Spark planned, because they were new, too large, or cannot be kept."""
        return self.actions - self.plans_reused

    @property
    def jobs(self) -> int:
        """Of the actions: those that were Spark jobs, because they were too large or their plan cannot be kept."""
        return self.actions - self.in_lane


class InputFailed(Exception):
    """A view that this one reads has failed."""


class Evaluation:
    """Some views in one tick. ``visible`` has, after ``run``, what each stage shows to its readers."""

    def __init__(
        self,
        views: Mapping[str, PreparedView],
        traces: Traces,
        store: StateStore,
        *,
        tick: int,
        epoch: int,
        initial: Collection[str] = (),
        on_stage: Callable[[Stage], None] | None = None,
        times: Mapping[str, ViewTime] | None = None,
        live: Mapping[str, TickRelation] | None = None,
    ) -> None:
        self.views = views  # each behind those that it reads
        self.traces = traces  # before the tick
        self.store = store
        self.tick = tick
        self.epoch = epoch
        self.initial = initial  # these have seen nothing yet: everything that is there has just come
        self.on_stage = on_stage
        self.times = times or {}
        self.live = live or {}  # while views are computed anew: what the live ones have decided, and hold
        self.visible: dict[str, Delta] = {}
        self.failed: dict[str, Exception | None] = {}  # None: a view that it reads has

    def run(self, sources: dict[str, TickRelation], pool: ThreadPoolExecutor | None = None) -> list[ViewProgress]:
        """Run them, in this thread or side by side in a pool. ``sources`` are their inputs; the views are added."""
        if pool is None:
            return [self._view(view, [], sources) for view in self.views.values()]
        futures: dict[str, Future[ViewProgress]] = {}
        moving, idle = self._moving(sources)
        for view in moving:
            needed = [futures[other] for other in view.plan.reads if other in futures]
            for other in view.plan.reads:  # a view that stands still is read with no changes
                if other in idle and other not in sources:
                    self._with_all_it_reads(idle[other], idle, sources)
            if len(moving) == 1 and not _is_main_thread():  # another thread would only take time
                futures[view.name] = _done(partial(self._view, view, needed, sources))
            else:
                futures[view.name] = pool.submit(self._view, view, needed, sources)
        errors = {name: error for name, future in futures.items() if (error := future.exception()) is not None}
        for name, error in errors.items():
            if isinstance(error, InputFailed):
                self.failed[name] = None
            elif isinstance(error, Exception) and is_its_own(error, self.views[name].declared):
                self.failed[name] = error
            else:
                raise error
        for name in self.failed:
            stages = [stage.name for stage in self.views[name].plan.stages]
            self.store.discard(stages)
            self.visible = {stage: shown for stage, shown in self.visible.items() if stage not in stages}
        done = {name: future.result() for name, future in futures.items() if name not in self.failed}
        still = {name: ViewProgress(name, 0, 0, 0, 0.0, idle=True) for name in idle}
        return [done.get(name) or still[name] for name in self.views if name not in self.failed]

    def shown(self, views: Iterable[str]) -> dict[str, Delta]:
        """What these views show to their readers; without those that stood still."""
        return {name: self.visible[name] for name in views if name in self.visible}

    def _moving(self, sources: Mapping[str, TickRelation]) -> tuple[list[PreparedView], dict[str, PreparedView]]:
        """The views that have something to do, and the others: none of their inputs moved, nor does time move them."""
        moving, idle = dict[str, PreparedView](), dict[str, PreparedView]()
        touched = {name for name, source in sources.items() if source.touched}
        for name, view in self.views.items():
            waits = name not in self.initial and not view.moves_by_time
            (idle if waits and touched.isdisjoint(view.plan.reads) else moving)[name] = view
            if name in moving:
                touched.add(name)
        return list(moving.values()), idle

    def _with_all_it_reads(
        self, view: PreparedView, idle: Mapping[str, PreparedView], sources: dict[str, TickRelation]
    ) -> None:
        for other in view.plan.reads:
            if other in idle and other not in sources:
                self._with_all_it_reads(idle[other], idle, sources)
        self._view(view, [], sources)

    def _view(
        self, view: PreparedView, needed: list[Future[ViewProgress]], sources: dict[str, TickRelation]
    ) -> ViewProgress:
        if any(future.exception() is not None for future in needed):
            raise InputFailed
        began = time.perf_counter()
        sessions = view.sessions
        sessions.count_anew()
        sessions.tick = self.tick
        initial = view.name in self.initial
        expiry: MatchExpiry | None = None
        for stage in view.plan.stages:
            if self.on_stage is not None:
                self.on_stage(stage)
            own = self.traces.get(stage.name)
            shape = view.shapes[stage.name]
            inputs = {name: sources[name] for name in stage.reads}
            with in_view(view.declared):
                sessions.place = self.store.place_of(stage.name, kept=view.keeps[stage.name])
                shown = changes = self._stage(view, stage, inputs, own)
                if expiry is not None and stage is expiry.stage:
                    shown = changes = joined(changes, expiry.state(sessions), sessions)
                elif own is not None and (found := self._match_expiry(view, stage, changes)) is not None:
                    # The matches must not take rows that leave for rows that were deleted.
                    expiry, changes = found, joined(changes, found.rows(own, sessions), sessions)
                if changes.rows and view.keeps[stage.name]:
                    assert not changes.is_lazy
                    self.store.write(stage.name, changes, self.tick, self.epoch)
                shown = _visible(shown, shape.visible)
            self.visible[stage.name] = shown
            known = initial or view.keeps[stage.name]
            sources[stage.name] = TickRelation(stage.name, shape.visible, shown, None if initial else own, known=known)
        changed = self.visible[view.name].rows
        seconds, plans = time.perf_counter() - began, sessions.plan_cache
        return ViewProgress(
            view.name, changed, sessions.rows_read, sessions.actions, seconds, plans.reused, plans.in_lane
        )

    def _match_expiry(self, view: PreparedView, stage: Stage, changes: Delta) -> MatchExpiry | None:
        """What leaves with the rows of a stage that a pattern is looked for in; None: nothing does in this tick."""
        time = self.times.get(view.name, ViewTime())
        for reader in view.plan.stages:
            if isinstance(reader, MatchStage) and reader.lets_go and reader.source.relation == stage.name:
                own = self.traces.get(reader.name)
                if own is None or not own.rows or changes.table is None or view.name in self.initial:
                    return None
                if time.lets_go and time.cutoff_us is not None:
                    return MatchExpiry(reader, own, time.cutoff_us, changes.table)
        return None

    def _stage(
        self, view: PreparedView, stage: Stage, inputs: Mapping[str, TickRelation], own: StateTrace | None
    ) -> Delta:
        shape, sessions, initial = view.shapes[stage.name], view.sessions, view.name in self.initial
        time = self.times.get(view.name, ViewTime())
        if isinstance(stage, TimedStage | FinalStage):
            decided = self.live.get(stage.name.replace(IN_TIME, LATE)) if isinstance(stage, TimedStage) else None
            older = self.live.get(stage.name) if isinstance(stage, FinalStage) else None
            return TimedRun(
                stage,
                shape,
                inputs[stage.source.relation],
                own,
                sessions,
                time,
                initial=initial,
                kept=view.keeps[stage.name],
                decided=decided,
                older=older,
            ).run()
        keeps_all = view.keeps[stage.name] and not any(
            isinstance(each, TimedStage | FinalStage) for each in view.plan.stages
        )
        changes = StageRun(stage, shape, inputs, own, sessions, initial=initial, keeps_all=keeps_all).run()
        if (
            view.plan.lets_go_groups
            and not initial
            and isinstance(stage, AccumulateStage)
            and CLOSES in shape.state.names
        ):
            return trimmed(changes, own, time, sessions)
        cutoff = None if initial or not isinstance(stage, MatchStage) else time.cutoff_us
        if cutoff is not None and changes.table is not None and CLOSES in shape.state.names:
            return Delta.local(with_steady_closes(changes.table, cutoff))
        return changes


def _is_main_thread() -> bool:
    """Whether Ctrl-C may come between any two steps of this thread: in the middle of a call to Java it would leave an
    answer behind, which the next call takes for its own.
    """
    return threading.current_thread() is threading.main_thread()


def _done(work: Callable[[], ViewProgress]) -> Future[ViewProgress]:
    """What came of some work, done in this thread."""
    future: Future[ViewProgress] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


def _visible(changes: Delta, schema: pa.Schema) -> Delta:
    """A stage's changes as its readers see them."""
    names = [*schema.names, WEIGHT]
    if changes.schema.names == names or changes.rows == 0:
        return changes if changes.rows else Delta.nothing(schema)
    if changes.table is not None:
        return Delta.local(consolidate(visible(changes.table, schema.names)))
    # Few among many that Spark wrote (matches among what is remembered of their partitions) are read here: the next
    # stage would take Spark a query and a file.
    few = changes.few_marked(SHOWN, names, most=min(thresholds.SETTLED_ROWS_MAX, changes.rows // 4))
    if few is not None:
        return Delta.local(consolidate(few))
    return Delta.lazy(schema, changes.rows, lambda spark: visible(changes.frame(spark), schema.names))
