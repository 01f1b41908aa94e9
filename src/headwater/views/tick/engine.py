"""The tick: one atomic advance of all views of an app.

What it is: ``TickEngine.tick`` takes the log's new rows up to a frontier, pushes their changes through every view,
writes the new runs and commits one manifest. Live ticks, catch-up and the first fill of a new view are the same code.
``TickEngine.swap`` is a tick over no rows, with which views that were computed beside take the place of the live ones.
Invariants: a committed tick leaves every running view equal to its query over the same prefix of the log, and a paused
one as it was; nothing is current before the manifest says so, and after it nothing of the tick is repeated; a failed
tick changes nothing. The tick in which a view fails is the one whose manifest says that it is paused.
Not here: who calls it (``app.tick()``, ``driver.py``, ``views/lifecycle/rebuild.py``), the stages of a view
(``evaluate.py``), planning (``prepare.py``).
Read next: ``prepare.py``, ``evaluate.py``, ``views/state/manifest.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.log.contract import EventTopic
from headwater.log.event_time import capture_markers, heartbeats
from headwater.log.event_time.heartbeats import HEARTBEATS
from headwater.views import thresholds
from headwater.views.event_time import late_rows
from headwater.views.event_time.progress import EventTimeProgress
from headwater.views.source.offset_ranges import distance
from headwater.views.stages.relation import TickRelation
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Frontier, Manifest, Manifests, RelationEntry, ViewEntry
from headwater.views.state.omissions import omitted_of
from headwater.views.state.state_store import StateStore
from headwater.views.state.state_trace import Traces
from headwater.views.tick import input_times, overtaken, pausing, unprepared
from headwater.views.tick.built_views import BuiltViews
from headwater.views.tick.cancellation import Cancellation
from headwater.views.tick.evaluate import Evaluation, ViewProgress
from headwater.views.tick.freed_memory import release_memory, return_freed
from headwater.views.tick.inputs import InputRelation, rows_taken
from headwater.views.tick.overtaken import LostRows
from headwater.views.tick.pausing import Pause
from headwater.views.tick.prepare import Prepared, PreparedView
from headwater.views.tick.reports import TickReport, TickReports

if TYPE_CHECKING:
    from headwater.views.serving.publish import Publisher

TICKS_KEPT = 1000
PRUNE_TICKS = 100  # between two removals of files that no manifest lists, and of free memory

Stops = dict[str, dict[int, int]]


class TickEngine:
    """Runs the ticks of one app. One process at a time: a newer engine shuts out an older one."""

    prepared: Prepared
    manifest: Manifest
    traces: Traces
    times: EventTimeProgress
    initial: set[str]  # views that the next tick fills
    paused: dict[str, Pause]  # views that stand still
    waiting: dict[str, Pause]  # the same, of those that could not be prepared

    def __init__(self, prepared: Prepared, manifests: Manifests, store: StateStore, publisher: Publisher) -> None:
        self.manifests = manifests
        self.store = store
        self.publisher = publisher  # the feed and the serving store: told of each committed tick
        self.reports = TickReports(manifests.catalog, manifests.app)
        self.cancellation = Cancellation(store.spark)
        self.epoch = manifests.take_over()
        self.before_tick: Callable[[], bool] = lambda: True  # False: ticks stand still for now
        self.lost: LostRows = {}  # rows that the tick under way goes on without, because retention has dropped them
        self._abouts: dict[str, tuple[PreparedView, ViewEntry]] = {}  # what manifests said last of the views
        self.pinned_tick: int | None = None  # a rebuild reads what was written since this tick: nothing of it may go
        self._turn, self._one_at_a_time = threading.Lock(), threading.Lock()
        self._inputs: ViewSessions | None = None
        self._pool = ThreadPoolExecutor(max_workers=prepared.threads, thread_name_prefix="headwater-view")
        self.use(prepared)
        store.remove_builds(manifests.listed, self.epoch)

    def use(self, prepared: Prepared) -> None:
        """Let ticks maintain these views from now on, those that the manifest knows from where it left them."""
        with self.alone():
            self.manifest = self.manifests.current().of_topics(prepared.topics)
            self.times = EventTimeProgress.from_json(self.manifest.times)
            for base in prepared.inputs.values():
                base.omitted = omitted_of(self.manifest.aside, base.topic)
            self.paused = pausing.kept(self.manifest, prepared)
            self.waiting = unprepared.pauses(self.manifest, prepared.unprepared, prepared.clock.now_us())
            self.prepared = self._as_built(prepared)
            self.traces = self.store.open(self.manifest, self.prepared, self.epoch)
            self.initial = {
                name
                for name, view in self.prepared.views.items()
                if name not in self.paused and (not self.knows(view) or name in self.manifest.paused)
            }
            self.publisher.note_paused(self.manifest)

    def _as_built(self, prepared: Prepared) -> Prepared:
        """Each view with the state that it has; one that goes on after a pause, by an older query, begins a new one."""
        built, views = prepared.as_built(self.manifest.views), dict[str, PreparedView]()
        for name, view in built.views.items():
            stale = name in self.manifest.paused and name not in self.paused
            views[name] = replace(view, build_id=f"{self.manifest.tick}.{self.epoch}") if stale else view
        return replace(built, views=views)

    @property
    def running(self) -> dict[str, PreparedView]:
        """The views that ticks advance."""
        return {name: view for name, view in self.prepared.views.items() if name not in self.paused}

    def knows(self, view: PreparedView) -> bool:
        """Whether the manifest has this view, by this query."""
        entry = self.manifest.views.get(view.name)
        return entry is not None and entry["fingerprint"] == view.fingerprint

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No tick and no swap but the caller's."""
        # Fair lock: without the outer lock the back-to-back ticks of a backlog starve a waiting rebuild.
        with self._turn:
            self._one_at_a_time.acquire()
        try:
            yield
        finally:
            self._one_at_a_time.release()

    # One advance

    def tick(self, *, rows_max: int | None = None, accept_loss: bool = False) -> TickReport:
        """Advance as far as the log and ``rows_max`` allow; ``accept_loss``: also past rows that retention dropped."""
        if self.manifests.settle():  # the commit of the last tick was not answered: go on with what became of it
            self.use(self.prepared)
        if not self.before_tick():
            return TickReport(self.manifest.tick, 0, 0.0, frontier=self._standing(), behind=0)
        with self.alone():  # app.tick() beside app.start() is one process, and no case for an epoch
            self.cancellation.begin()
            topics = [base.topic for base in self.prepared.inputs.values()]
            self.lost = overtaken.check(self.manifests.app, self.manifest.frontier, topics, accept_loss=accept_loss)
            try:
                report = self._tick(rows_max)
            finally:
                self.lost = {}
            if report.moved:
                self.reports.save(report, self.manifest.committed_us)
            return report

    def _tick(self, rows_max: int | None) -> TickReport:
        began = time.perf_counter()
        self.publisher.catch_up(self.manifest, self.epoch)
        self.traces = self.store.settle_merges(self.traces)
        stop, behind = self._target(rows_max)
        begin = {base.topic.name: self._begin(base) for base in self.prepared.inputs.values()}
        sent = self._heartbeats()
        untold = bool(self.lost) or not unprepared.is_told(self.manifest, self.waiting)
        if distance(begin, stop) == 0 and not self.initial and sent is None and not untold:
            return TickReport(self.manifest.tick, 0, time.perf_counter() - began, frontier=stop, behind=behind)
        needed = any(view.moves_by_time for view in self.running.values())
        moved = input_times.begun(self.store, self.prepared.inputs, self.times, begin, stop, needed=needed)
        beats = self._beats()
        reached = beats if sent is None else moved.with_heartbeats(sent, beats.get(HEARTBEATS, {}).get(0, 0))
        begin, stop = {**begin, **beats}, {**stop, **reached}
        if (
            distance(begin, stop) == 0 and not self.initial and not untold
        ):  # a heartbeat that speaks of rows which are not taken yet
            return TickReport(self.manifest.tick, 0, time.perf_counter() - began, frontier=stop, behind=behind)
        reads = {name: view.topics for name, view in self.running.items()}
        evaluation = self._evaluation(self.running, self.initial, moved.before_evaluation(reads))
        progress = evaluation.run(self._input_relations(self.prepared, stop, evaluation.tick), self._pool)
        self.cancellation.check()
        taken = rows_taken(self.prepared.inputs.values(), begin, stop)
        rows_in = sum(taken.values())
        paused = self._paused_by(evaluation.failed, evaluation.views, stop, self.paused)
        initial = self.initial - set(paused)
        late = late_rows.found(evaluation, begin)
        times = self._counted(
            self._standing_still(moved.after(reads, input_times.told(self.prepared.inputs)), paused),
            late,
            stop,
            taken,
            paused,
        )
        manifest = self._commit(
            self.prepared, self.traces, stop, rows_in, restarted=initial, times=times, late=late, paused=paused
        )
        # Before the publisher: when these fail the tick is committed all the same, and its views are not new any more.
        self.initial = set()
        self.publisher.follow(manifest, evaluation.shown(self.running), initial)
        unserved = self._pause_unserved()
        if self.lost:
            overtaken.note_loss(self.prepared.log, self.manifests.app, manifest.tick, self.lost)
        self._keep_house(manifest.tick)
        if rows_in > thresholds.TASK_ROWS_MAX:
            release_memory()
        failed = (*evaluation.failed, *unserved)
        return TickReport(manifest.tick, rows_in, time.perf_counter() - began, tuple(progress), stop, behind, failed)

    # Views that fail

    def _paused_by(
        self,
        failed: Mapping[str, Exception | None],
        views: Mapping[str, PreparedView],
        stop: Frontier,
        before: Mapping[str, Pause],
    ) -> dict[str, Pause]:
        return pausing.paused_by(failed, views, stop, before, self.manifest, self.prepared.clock.now_us())

    def give_up(self, prepared: Prepared, name: str, error: Exception) -> None:
        """Let ticks maintain these views; a new one that could not be filled is paused, with its readers."""
        self.use(prepared)
        with self.alone():
            readers = [other for other in pausing.with_readers(self.prepared, {name}) if other in self.initial]
            failed = {other: error if other == name else None for other in self.prepared.views if other in readers}
            stop = self._standing()
            self.paused = self._paused_by(failed, self.prepared.views, stop, self.paused)
            self.initial -= set(failed)
            if not self.initial:  # else the next tick, which fills the others, says so
                manifest = self._commit(self.prepared, self.traces, stop, 0, restarted=(), paused=self.paused)
                self.publisher.follow(manifest, {}, ())

    def _standing(self) -> Stops:
        """Where ticks are."""
        return {**{base.topic.name: dict(self._begin(base)) for base in self.prepared.inputs.values()}, **self._beats()}

    def _pause_unserved(self) -> tuple[str, ...]:
        """Pause views of which the serving store can make no table, with a tick over no rows; returns them."""
        errors, paused = self.publisher.unserved, dict(self.paused)
        if not errors:
            return ()
        for name, error in errors.items():
            if not pausing.is_its_own(error, self.prepared.views[name].declared):
                raise error
        for name, view in self.running.items():
            roots = dict.fromkeys(root for read in view.plan.reads if read in paused for root in paused[read].because)
            if name in errors or roots:
                error = errors.get(name) or errors[next(iter(roots))]
                paused[name] = Pause(
                    self.manifest.tick,
                    self.prepared.clock.now_us(),
                    self.manifest.frontier,
                    self.manifest.frontier,
                    view.fingerprint,
                    (name,) if name in errors else tuple(roots),
                    pausing.as_data(error, view.declared),
                    self.manifest.aside,
                )
        before = set(self.paused)
        manifest = self._commit(self.prepared, self.traces, self.manifest.frontier, 0, restarted=(), paused=paused)
        self.publisher.follow(manifest, {}, ())
        return tuple(name for name in paused if name not in before)

    def _standing_still(self, times: EventTimeProgress, paused: Collection[str]) -> EventTimeProgress:
        """The times, those of paused views as they were."""
        before = {name: self.times.views[name] for name in paused if name in self.times.views}
        views = {name: at_us for name, at_us in times.views.items() if name not in paused}
        return replace(times, views={**views, **before})

    # Time

    def _beats(self) -> Stops:
        """Up to where heartbeats were taken, when some were."""
        taken = self.manifest.frontier.get(HEARTBEATS)
        return {} if taken is None else {HEARTBEATS: dict(taken)}

    def _heartbeats(self) -> EventTopic | None:
        """The heartbeats, when some of them were not taken yet."""
        sent = heartbeats.find(self.prepared.log)
        waits = sent is not None and sent.end_offsets()[0] > self._beats().get(HEARTBEATS, {}).get(0, 0)
        return sent if waits else None

    def _counted(
        self,
        times: EventTimeProgress,
        late: Mapping[str, Any],
        stop: Frontier,
        taken: Mapping[str, int],
        paused: Collection[str],
    ) -> EventTimeProgress:
        """The times, with the rows that came too late counted."""
        for name, view in self.prepared.views.items():
            if view.declared.timing.horizon_us is None or name in paused:
                continue
            for topic in late_rows.judged(view.plan):
                about = late.get(name, {}).get(topic)
                counts = (
                    {} if about is None else late_rows.counted(self.prepared.log.get_topic(topic), stop[topic], about)
                )
                times = times.with_late(name, topic, taken[topic], counts)
        return times

    def swap(self, built: BuiltViews) -> TickReport:
        """Let views take the place of the live ones. The caller has the engine alone.

        Views that read them get the differences, as those of any tick.
        """
        began, before = time.perf_counter(), self.manifest
        still = {name: p for name, p in self.paused.items() if name in built.prepared.views and name not in built.names}
        rest = {
            name: view for name, view in built.prepared.views.items() if name not in built.names and name not in still
        }
        evaluation = self._evaluation(rest)
        stop = {**{base.topic.name: self._begin(base) for base in built.prepared.inputs.values()}, **self._beats()}
        sources = self._input_relations(built.prepared, stop, evaluation.tick)
        for name, changes in built.differences.items():
            sources[name] = TickRelation(name, built.prepared.views[name].schema, changes, self.traces[name])
        progress = evaluation.run(sources, self._pool)
        apart = {
            name: self.store.write_apart(name, changes, evaluation.tick, self.epoch)
            for name, changes in built.differences.items()
            if changes.rows
        }
        paused = self._paused_by(evaluation.failed, rest, stop, still)
        manifest = self._commit(
            built.prepared,
            {**self.traces, **built.inputs, **built.traces},
            stop,
            0,
            restarted=built.restarted,
            apart=apart,
            paused=paused,
            aside=built.aside,
            forgets=built.forgets,
        )
        self.initial = set()
        visible = evaluation.shown(name for name in rest if name not in paused)
        # As after a crash: what the manifest says of them, and not what this process remembers.
        visible |= {name: Delta.local(self.publisher.committed.changes_in(manifest, name)) for name in built.names}
        progress += [ViewProgress(name, visible[name].rows, 0, 0, 0.0) for name in built.names]
        self.publisher.follow_swap(before, manifest, visible, built.restarted)
        self._pause_unserved()
        self._keep_house(manifest.tick)
        failed = tuple(evaluation.failed)
        report = TickReport(manifest.tick, 0, time.perf_counter() - began, tuple(progress), stop, paused=failed)
        self.reports.save(report, manifest.committed_us)
        return report

    def _evaluation(
        self, views: Mapping[str, PreparedView], initial: Collection[str] = (), times: EventTimeProgress | None = None
    ) -> Evaluation:
        self.manifests.check(self.epoch)  # the commit checks again; this saves a process that was shut out the work
        self.store.forget()
        return Evaluation(
            views,
            self.traces,
            self.store,
            tick=self.manifest.tick + 1,
            epoch=self.epoch,
            initial=initial,
            on_stage=lambda _: self.cancellation.check(),
            times={
                n: view.time(EventTimeProgress() if n in initial else self.times, times) for n, view in views.items()
            },
        )

    def _target(self, rows_max: int | None) -> tuple[dict[str, dict[int, int]], int]:
        """Where this tick ends in each topic, and how many rows it leaves behind."""
        ways: dict[str, list[InputRelation]] = {}  # a table that is read as it is and as it was: both up to one place
        for base in self.prepared.inputs.values():
            ways.setdefault(base.topic.name, []).append(base)
        topics = [base.topic for base, *_ in ways.values()]
        begins = {name: self._begin(base) for name, (base, *_) in ways.items()}
        ends = self.prepared.log.cut(topics)
        limits: dict[str, int | None] = {}
        for name, readers in ways.items():
            allowed = [rows_max, *(each.tick_offsets_max(begins[name], ends[name]) for each in readers)]
            limits[name] = min((limit for limit in allowed if limit is not None), default=None)
        stop = self.prepared.log.limited_cut(topics, begins, ends, limits)
        if any(topic.settings.captured_by for topic in topics):
            ends = capture_markers.bound(topics, ends)
            stop = capture_markers.cut(topics, begins, stop, ends)
        behind = sum(max(0, ends[name][number] - stop[name][number]) for name in ends for number in ends[name])
        return stop, behind

    def _begin(self, base: InputRelation) -> Mapping[int, int]:
        at = self.manifest.frontier.get(base.topic.name)
        if not at:
            return base.topic.start_offsets()
        return {**at, **{number: start for number, (_, start) in self.lost.get(base.topic.name, {}).items()}}

    # Input relations

    def _input_relations(
        self, prepared: Prepared, stop: Mapping[str, Mapping[int, int]], number: int
    ) -> dict[str, TickRelation]:
        sources = {}
        for name, base in prepared.inputs.items():
            trace = self.traces.get(name)
            sessions = None if base.is_log_backed else self._sessions_of(name)
            changes, merged = base.changes(self._begin(base), stop[base.topic.name], trace, sessions), None
            if not changes.is_lazy and changes.rows and not base.is_log_backed:
                if changes.rows > thresholds.TASK_ROWS_MAX or changes.staying is not None:
                    merged = self.store.write_and_merge(name, changes, number, self.epoch)
                else:
                    self.store.write(name, changes, number, self.epoch)
            sources[name] = TickRelation(name, base.schema, changes, trace, merged)
        return sources

    def _sessions_of(self, relation: str) -> ViewSessions | None:
        """Where executors compute many changes of an input; None: executors that share this machine's disk do not."""
        place = self.store.place_of(relation)
        if place is None:
            return None
        if self._inputs is None:
            self._inputs = ViewSessions(self.store.spark, self.store.folder / "scratch" / "inputs")
        self._inputs.place = place
        return self._inputs

    # Committing

    def _commit(
        self,
        prepared: Prepared,
        traces: Traces,
        stop: Frontier,
        rows_in: int,
        *,
        restarted: Collection[str],
        apart: Mapping[str, RelationEntry] | None = None,
        times: EventTimeProgress | None = None,
        late: Mapping[str, Any] | None = None,
        paused: Mapping[str, Pause],
        aside: Mapping[str, Any] | None = None,
        forgets: bool = False,
    ) -> Manifest:
        number = self.manifest.tick + 1
        traces = self.store.next(traces, prepared, stop)
        views, relations = unprepared.carried(self.manifest, self.waiting)
        manifest = Manifest(
            tick=number,
            epoch=self.epoch,
            frontier=stop,
            committed_us=prepared.clock.now_us(),
            rows_in=rows_in,
            views={
                name: self.manifest.views[name] if name in paused else self._about(view, number, name in restarted)
                for name, view in prepared.views.items()
                if name not in paused or name in self.manifest.views
            }
            | views,
            relations=self._relations(traces, prepared, paused) | relations,
            topics=prepared.topics,
            apart=apart or {},
            times=(times or self.times).to_json(),
            late=late or {},
            paused={name: pause.to_json() for name, pause in {**paused, **self.waiting}.items()},
            aside=self.manifest.aside if aside is None else aside,
            lost=self.lost,
        )
        pinned = None if self.pinned_tick is None else self.manifests.at(self.pinned_tick)
        needed = [*(pause.frontier for pause in paused.values()), *([] if pinned is None else [pinned.frontier])]
        first_kept = number if forgets else min(number - TICKS_KEPT, self.pinned_tick or number)
        self.manifests.commit(manifest, first_kept=first_kept, needed=needed, small=self.store.small)
        self.manifest, self.traces, self.prepared, self.paused = manifest, traces, prepared, dict(paused)
        self.times = times or self.times
        self.store.adopt(traces, prepared)
        return manifest

    def _relations(self, traces: Traces, prepared: Prepared, paused: Collection[str]) -> dict[str, RelationEntry]:
        """What the manifest says of the traces; what a paused view holds by an older query stays as it is."""
        found = self.store.describe(traces, prepared)
        older = {name for name in paused if not self.knows(prepared.views[name])}
        kept = {name: entry for name, entry in self.manifest.relations.items() if _owner(name) in older}
        return {name: entry for name, entry in found.items() if _owner(name) not in older} | kept

    def _about(self, view: PreparedView, number: int, restarted: bool) -> ViewEntry:
        """What the manifest says of a view; the same object as before when that is still so."""
        before = None if restarted else self.manifest.views[view.name]
        known = self._abouts.get(view.name)
        if before is None or known is None or known[0] is not view or known[1] is not before:
            known = self._abouts[view.name] = (view, view.entry(before, number))
        return known[1]

    def _keep_house(self, number: int) -> None:
        for sessions in filter(None, (self._inputs, *(view.sessions for view in self.prepared.views.values()))):
            sessions.tidy()
        self.store.begin_merges({name: trace for name, trace in self.traces.items() if _owner(name) not in self.paused})
        if number % PRUNE_TICKS == 0:
            return_freed()
            if self.pinned_tick is None:
                released = self.manifests.take_released()
                self.store.begin_pruning(lambda: self.manifests.listed_by(self.epoch), self.traces, released)
        if self.manifests.tidy_due:
            self.store.run_beside(self.manifests.tidy)

    def close(self) -> None:
        """Stop the threads. What was committed stays."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.store.close()
        self.publisher.close()


def _owner(relation: str) -> str:
    """The view whose stage a relation is."""
    return relation.partition("$")[0]
