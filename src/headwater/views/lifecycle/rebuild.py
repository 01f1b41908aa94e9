"""A rebuild: views computed again beside the live ones, then swapped in.

What it is: ``Rebuild`` fills views from what their inputs hold at one tick, takes in the ticks that were committed
meanwhile, and swaps the views in with a tick of its own. The live ones answer, and move, until then.
Invariants: the new state lies in folders of its own, that no manifest lists before the swap, so that whatever happens
until then changes nothing; the swap is one manifest. A view whose query is the same goes on in the change feed, with
what the rebuild changed in it, and its readers are handed the same; another query, or one whose old state cannot be
read, starts over, with its readers. A paused view is rebuilt only when asked for, and then it runs again.
Not here: the swap itself (``views/tick/engine.py``); which views, when, and in whose thread (``migration.py``).
Read next: ``views/tick/evaluate.py``, ``views/tick/engine.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Conflict, Corruption
from headwater.views import thresholds
from headwater.views.compiler.plan import FinalStage, TimedStage
from headwater.views.event_time.progress import EventTimeProgress, ViewTime
from headwater.views.event_time.state_expiry import microseconds
from headwater.views.lifecycle.rebuild_progress import RebuildMeter
from headwater.views.spark.scans import fitted
from headwater.views.stages.relation import TickRelation
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, negate, union, visible, weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest
from headwater.views.state.run import Run
from headwater.views.state.state_store import StateStore
from headwater.views.state.state_trace import Traces
from headwater.views.state.trace import Trace, delta_of, scan_runs
from headwater.views.tick.built_views import BuiltViews
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.evaluate import Evaluation
from headwater.views.tick.pausing import refused, with_readers
from headwater.views.tick.prepare import Prepared, PreparedView
from headwater.views.tick.reports import TickReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Behind by no more ticks than this, the rest is caught up with while the next tick waits.
TICKS_LEFT = 1
# Ticks may come as fast as they are caught up with: after so many rounds they wait, however many are left.
ROUNDS_MAX = 10


@dataclass(frozen=True)
class RebuildReport:
    """What a rebuild did."""

    views: tuple[str, ...]  # all that were recomputed
    tick: int  # with which they were swapped in
    changes: Mapping[str, int]  # {view: weighted rows that differ}, for views that go on
    restarted: tuple[str, ...]  # views that start over
    ticks_meanwhile: int
    seconds: float


class Rebuild:
    """Some views of an engine, once more, with every view that ticks do not maintain yet."""

    def __init__(
        self,
        engine: TickEngine,
        wanted: Prepared,
        names: Collection[str],
        spark: SparkSession,
        scratch: Path,
        on_tick: Callable[[TickReport], None] | None = None,
    ) -> None:
        self.engine = engine
        self.wanted = wanted
        self.asked = names
        self.spark = spark
        self.scratch = scratch
        self.on_tick = on_tick  # told of the tick that swaps
        self.progress = RebuildMeter(spark)
        self.own = replace(wanted, views={}, inputs={})  # what is recomputed
        self.store = StateStore(engine.store.folder, engine.store.files, spark, engine.store.small, engine.store.cache)
        self.traces: Traces = {}
        self.differences: dict[str, pa.Table] = {}
        self._hold()

    def _hold(self) -> None:
        """Choose the tick to begin with. Nothing that was written since goes before this is done."""
        with self.engine.alone():
            if self.engine.pinned_tick is not None:
                raise Conflict(
                    f"views of this app are being rebuilt already, since tick {self.engine.pinned_tick}",
                    hint="Wait until that is done, then ask again.",
                )
            self.at: Manifest = self.engine.manifest
            self.given = self.engine.traces  # what the live relations hold at that tick
            self.live = self.engine.prepared
            self.engine.pinned_tick = self.at.tick

    # From beginning to end

    def run(self) -> RebuildReport:
        """Do everything, in this thread; once, as the engine is held from the making of a rebuild to its end."""
        began = time.perf_counter()
        first = self.at.tick
        try:
            self._choose()
            with self.progress.watching():
                self._fill()
                self._follow()
                with self.engine.alone():
                    self._catch_up(self.engine.manifest, self.engine.traces)
                    self._check_inputs()
                    self.progress.swaps()
                    report = self.engine.swap(self._built())
        except Exception as error:
            self._discard()
            self.progress.check(error)
            raise
        finally:
            self.engine.pinned_tick = None
            self.store.close()
        if self.on_tick is not None:
            self.on_tick(report)
        changes = {name: table.num_rows for name, table in self.differences.items()}
        seconds = time.perf_counter() - began
        return RebuildReport(
            tuple(self.own.views), report.tick, changes, tuple(sorted(self.restarted)), report.tick - 1 - first, seconds
        )

    def _choose(self) -> None:
        """Which views are computed, and which of them start over."""
        views = self.wanted.views
        still = self._still_paused()
        asked = {
            name
            for name, view in views.items()
            if name not in still and (name in self.asked or not self._is_live(view))
        }
        restarted = {name for name in asked if not self._is_live(views[name]) or not self._readable(name)}
        self.restarted = with_readers(self.wanted, restarted)
        build_id = f"{self.at.tick}.{self.engine.epoch}"
        # Sessions of their own, which no tick uses.
        beside = {
            name: replace(
                view, build_id=build_id, sessions=ViewSessions(self.spark, self.scratch / f"{name}.{build_id}")
            )
            for name, view in views.items()
            if name in asked | self.restarted
        }
        self.own = replace(self.wanted, views=beside, inputs={})
        for name in self._outside():
            if not self._readable(name):
                raise self._damaged(name)
        self.traces = self.store.open(Manifest(), self.own, self.engine.epoch)
        self.progress.expects(
            # What a stage costs: the rows that it reads, where the live relations tell how many those are.
            {
                stage.name: 1.0 + sum(self._rows(name) for name in stage.reads)
                for view in beside.values()
                for stage in view.plan.stages
            }
        )

    def _readable(self, relation: str) -> bool:
        """Whether a trace's files are there, and are what was written. Those of a topic without a key are the log's."""
        trace = self.given.get(relation)
        try:
            if isinstance(trace, Trace):
                trace.check(self.spark)
        except Corruption:
            return False
        return True

    def _rows(self, relation: str) -> int:
        found = self.given.get(relation)
        return 0 if found is None else found.rows

    def _outside(self) -> list[str]:
        """What the views read and is not recomputed."""
        return sorted({read for view in self.own.views.values() for read in view.plan.reads} - set(self.own.views))

    def _check_inputs(self) -> None:
        """What is read must not have been paused meanwhile: it stands still, and other inputs do not."""
        for name in self._outside():
            if name in self.engine.paused:
                raise refused(name, self.engine.paused[name])

    def _damaged(self, name: str) -> Corruption:
        is_view = name in self.live.views
        return Corruption(
            f'{"view" if is_view else "table"} "{name}", which is read for the rebuild, has damaged state itself',
            hint=f"Rebuild {name} first: the views over it are then recomputed with it."
            if is_view
            else "Declare the app under another name: it then begins with the log, which has every row.",
            relation=name,
        )

    def _is_live(self, view: PreparedView) -> bool:
        """Whether ticks maintain this view, by this query; or it is paused, and what it holds is of this query."""
        known = view.name in self.live.views and self.live.views[view.name].fingerprint == view.fingerprint
        return known and (view.name not in self.engine.paused or self.engine.knows(view))

    def _still_paused(self) -> set[str]:
        """The paused views that nobody asked for and whose query is the same, with all that reads them."""
        views = self.wanted.views
        return with_readers(
            self.wanted,
            {
                name
                for name, pause in self.engine.paused.items()
                if name not in self.asked and name in views and views[name].fingerprint == pause.fingerprint
            },
        )

    def _follow(self) -> None:
        """Take in what ticks commit meanwhile, until hardly any is left."""
        for _ in range(ROUNDS_MAX):
            with self.engine.alone():
                now, traces = self.engine.manifest, self.engine.traces
            if now.tick - self.at.tick <= TICKS_LEFT:
                return
            self._catch_up(now, traces)

    def _discard(self) -> None:
        """Remove what was written, unless it was committed all the same."""
        for view in self.own.views.values():
            view.sessions.tidy()
        self.store.remove(self.own, unless=self.engine.manifests.current())

    def _fill(self) -> None:
        self._pass(self._inputs(None), self.at.tick, initial=self.own.views.keys())
        for name in self.own.views:
            if name not in self.restarted:
                self.differences[name] = self._compared(name)

    def _catch_up(self, now: Manifest, traces: Traces) -> None:
        """Take in the ticks up to ``now``, as one."""
        if now.tick == self.at.tick:
            return
        self.progress.catches_up(now.tick - self.at.tick)
        evaluation = self._pass(self._inputs(now), now.tick, until=now)
        for name, known in self.differences.items():
            came = evaluation.visible[name].collect(self.spark)
            live = self._since(name, self.live.views[name].schema, now).collect(self.spark)
            self.differences[name] = consolidate(union(known, came, negate(live)))
        self.at, self.given = now, dict(traces)

    def _times(self, until: Manifest | None) -> dict[str, ViewTime]:
        """How far the views were in event time, and are ``until`` then."""
        before = EventTimeProgress.from_json(self.at.times)
        after = before if until is None else EventTimeProgress.from_json(until.times)
        return {
            name: view.time(EventTimeProgress() if until is None and name in self.restarted else before, after)
            for name, view in self.own.views.items()
        }

    def _live(self, until: Manifest | None) -> dict[str, TickRelation]:
        """What the live views have decided about late rows, and hold of what is final."""
        found: dict[str, TickRelation] = {}
        for name, view in self.own.views.items():
            for stage in view.plan.stages if name not in self.restarted else ():
                schema = view.shapes[stage.name].state
                came: Delta = Delta.nothing(schema)
                if isinstance(stage, TimedStage) and stage.late:
                    if name in self.engine.paused and until is not None:
                        continue  # nobody decides for it: rows that come now are judged as in a tick
                    if until is not None:
                        came = self._since(stage.name, schema, until)
                    elif name in self.engine.paused:
                        came = self._late_meanwhile(view, stage)
                elif not isinstance(stage, FinalStage):
                    continue
                found[stage.name] = TickRelation(stage.name, schema, came, self.given.get(stage.name))
        return found

    def _late_meanwhile(self, view: PreparedView, stage: TimedStage) -> Delta:
        """Of the rows that came while a view stood still, those that its watermark of then finds late."""
        schema = weighted_schema(view.shapes[stage.name].state)
        pause, base = self.engine.paused[view.name], self.wanted.inputs.get(stage.source.relation)
        cutoff = self._times(None)[view.name].cutoff_us
        if base is None or cutoff is None or not pause.tick:
            return Delta.nothing(schema)
        topic = base.topic.name
        begin = pause.frontier.get(topic) or base.topic.start_offsets()
        found = [schema.empty_table()]
        for table in base.changed_between(begin, self.at.frontier.get(topic, begin)):
            late = pc.less(microseconds(table.column(stage.time)), cutoff).fill_null(False)
            found.append(table.filter(late))
        return Delta.local(consolidate(union(*found)))

    def _pass(
        self, sources: dict[str, TickRelation], tick: int, initial: Collection[str] = (), until: Manifest | None = None
    ) -> Evaluation:
        engine = self.engine
        engine.manifests.check(engine.epoch)
        self.store.forget()
        evaluation = Evaluation(
            self.own.views,
            self.traces,
            self.store,
            tick=tick,
            epoch=engine.epoch,
            initial=initial,
            on_stage=self.progress.enters if initial else None,
            times=self._times(until),
            live=self._live(until),
        )
        evaluation.run(sources)
        self.traces = self.store.next(self.traces, self.own, {})
        self.store.adopt(self.traces, self.own)
        for view in self.own.views.values():
            view.sessions.tidy()
        return evaluation

    def _built(self) -> BuiltViews:
        # Views that were not recomputed go on with the state that they have.
        found = {name: self.own.views.get(name) or self.engine.prepared.views.get(name) for name in self.wanted.views}
        # One that is new and reads a paused one waits for it.
        views = {name: view for name, view in found.items() if view is not None}
        differences = {name: Delta.local(table) for name, table in self.differences.items()}
        return BuiltViews(replace(self.wanted, views=views), self.traces, frozenset(self.restarted), differences)

    # What the views read

    def _inputs(self, until: Manifest | None) -> dict[str, TickRelation]:
        """The relations that the views read and that are not rebuilt, with what came since, up to ``until``."""
        sources = {}
        for name in sorted(
            {read for view in self.own.views.values() for read in view.plan.reads} - set(self.own.views)
        ):
            base = self.wanted.inputs.get(name)
            schema = base.schema if base is not None else self.wanted.views[name].schema
            trace = self.given.get(name)
            if until is None:
                changes: Delta = Delta.nothing(schema)
            elif base is not None and base.is_log_backed:
                start = base.topic.start_offsets()
                topic = base.topic.name
                changes = base.changes(self.at.frontier.get(topic, start), until.frontier.get(topic, start), trace)
            else:
                changes = self._since(name, schema, until)
            sources[name] = TickRelation(name, schema, changes, trace)
        return sources

    def _since(self, name: str, schema: pa.Schema, until: Manifest) -> Delta:
        """What ticks have changed in a live relation, after ``self.at`` and up to ``until``."""
        found: list[tuple[Trace, Run]] = []
        for tick in range(self.at.tick + 1, until.tick + 1):
            manifest = self.engine.manifests.at(tick)
            assert manifest is not None, "the engine keeps them while it is held"
            if name in manifest.relations:
                trace = self.store.trace_of(name, manifest.relations[name])
                found += [(trace, run) for run in trace.runs if run.first_tick == tick]
        if not found:
            return Delta.nothing(schema)
        shape = weighted_schema(schema)
        rows = sum(run.rows for _, run in found)
        trace = found[0][0]
        if rows <= thresholds.SETTLED_ROWS_MAX:
            batches = [batch for each, run in found for batch in each.read([run])]
            return Delta.local(consolidate(visible(pa.Table.from_batches(batches, trace.schema), shape.names)))
        if trace.schema.names == shape.names and not any(run.small for _, run in found):
            return delta_of(self.spark, found, schema)
        return Delta.lazy(shape, rows, lambda spark: visible(scan_runs(spark, found), shape.names))

    # What changed

    def _compared(self, name: str) -> pa.Table:
        """What the view holds now, less what the live one holds."""
        new, old = self.traces[name], self.given[name]
        shape = weighted_schema(self.own.views[name].schema)
        if new.rows + old.rows <= thresholds.SETTLED_ROWS_MAX:
            here, there = (
                visible(pa.Table.from_batches(trace.read(), trace.schema), shape.names) for trace in (new, old)
            )
            return fitted(consolidate(union(here, negate(there))), shape)
        spark = self.own.views[name].sessions.large
        both = union(visible(new.frame(spark), shape.names), negate(visible(old.frame(spark), shape.names)))
        return fitted(consolidate(both).toArrow(), shape)
