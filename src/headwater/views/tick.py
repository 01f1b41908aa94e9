"""The tick: one atomic advance of all views of an app.

What it is: ``Engine.tick`` takes the log's new rows up to a frontier, pushes their changes through every view, writes
the new runs and commits one manifest. Live ticks, catch-up and the first fill of a new view are the same code.
Invariants: a committed tick leaves every view equal to its query over the same prefix of the log; nothing is current
before the manifest says so, and after it nothing of the tick is repeated; a failed tick changes nothing.
Not here: who calls it (``app.tick()``, ``runner.py``), a single stage (``stages.py``), planning (``prepare.py``).
Read next: ``prepare.py``, ``stages.py``, ``manifest.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.ddl import to_ddl
from headwater.views.bases import DRIVER_ROWS_MAX, Base
from headwater.views.changes import Changes
from headwater.views.compiler.plan import WEIGHT
from headwater.views.failure import in_view
from headwater.views.manifest import Frontier, Manifest, Manifests
from headwater.views.netting import net
from headwater.views.prepare import Prepared, PreparedView
from headwater.views.sources import SHOWN, Rows, Source, Standing
from headwater.views.stages import StageRun
from headwater.views.store import StateStore

TICKS_KEPT = 1000
PRUNE_TICKS = 100  # looking for files that nobody lists any more


@dataclass(frozen=True)
class ViewProgress:
    """What one tick did to one view."""

    view: str
    changes: int
    rows_read: int
    actions: int  # Spark jobs asked for
    seconds: float


@dataclass(frozen=True)
class TickReport:
    """What one tick did."""

    tick: int
    rows_in: int
    seconds: float
    views: tuple[ViewProgress, ...] = ()
    frontier: Frontier = field(default_factory=dict)
    behind: int = 0  # rows in the log that this tick did not take

    @property
    def moved(self) -> bool:
        """Whether there was anything to do."""
        return bool(self.views) or self.rows_in > 0


class Engine:
    """Runs the ticks of one app. One process at a time: a newer engine shuts out an older one."""

    def __init__(self, prepared: Prepared, manifests: Manifests, store: StateStore, followers: Any) -> None:
        self.prepared = prepared
        self.manifests = manifests
        self.store = store
        self.followers = followers  # the feed and the serving store: told of each committed tick
        self.epoch = manifests.take_over()
        self.manifest = _of_these_topics(manifests.current(), prepared.bases)
        self.piles = store.open(self.manifest, prepared, self.epoch)
        self.fresh = {name for name in prepared.views if not self._known(prepared.views[name])}
        self._one_at_a_time = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=prepared.threads, thread_name_prefix="headwater-view")

    def _known(self, view: PreparedView) -> bool:
        entry = self.manifest.views.get(view.name)
        return entry is not None and entry["fingerprint"] == view.fingerprint

    # One advance

    def tick(self, frontier: Frontier | None = None, *, rows_max: int | None = None) -> TickReport:
        """Advance to ``frontier``, or as far as the log and ``rows_max`` allow."""
        with self._one_at_a_time:  # app.tick() beside app.start() is one process, and no case for an epoch
            return self._tick(frontier, rows_max)

    def _tick(self, frontier: Frontier | None, rows_max: int | None) -> TickReport:
        began = time.perf_counter()
        self.followers.catch_up(self.manifest, self.epoch)
        self.piles = self.store.settle_merges(self.piles)
        stop, behind = self._target(frontier, rows_max)
        begin = {name: self._begin(base) for name, base in self.prepared.bases.items()}
        rows_in = _distance(begin, stop)
        if rows_in == 0 and not self.fresh:
            return TickReport(self.manifest.tick, 0, time.perf_counter() - began, frontier=stop, behind=behind)
        self.manifests.check(self.epoch)  # the commit checks again; this saves a process that was shut out the work
        number = self.manifest.tick + 1
        self.store.forget()
        sources = self._bases(stop, number)
        results, progress = self._views(sources, number)
        manifest = self._commit(number, stop, rows_in)
        # Before the followers: when these fail the tick is committed all the same, and its views are not new any more.
        fresh, self.fresh = self.fresh, set()
        self.followers.follow(manifest, {name: results[name].visible for name in self.prepared.views}, fresh)
        for view in self.prepared.views.values():
            view.bench.tidy()
        self.store.begin_merges(self.piles)
        if number % PRUNE_TICKS == 0:
            kept = [found for tick, _ in self.manifests.kept() if (found := self.manifests.at(tick))]
            self.store.prune(kept, self.piles)
        return TickReport(number, rows_in, time.perf_counter() - began, tuple(progress), stop, behind)

    def _target(self, frontier: Frontier | None, rows_max: int | None) -> tuple[dict[str, dict[int, int]], int]:
        """Where this tick ends, and how many rows it leaves behind."""
        stop: dict[str, dict[int, int]] = {}
        behind = 0
        for name, base in self.prepared.bases.items():
            begin = self._begin(base)
            end = base.topic.end_offsets()
            if frontier is not None:
                wanted = frontier.get(name, {})
                # Never behind what was committed: Spark repeats a microbatch that the manifest may be ahead of.
                end = {
                    number: max(begin.get(number, 0), min(wanted.get(number, 0), offset))
                    for number, offset in end.items()
                }
            limits = [
                limit for limit in (rows_max, None if base.keeps_itself else DRIVER_ROWS_MAX) if limit is not None
            ]
            stop[name] = _limited(begin, end, min(limits, default=None))
            behind += sum(end[number] - stop[name][number] for number in end)
        return stop, behind

    def _begin(self, base: Base) -> Mapping[int, int]:
        return self.manifest.frontier.get(base.name) or base.topic.start_offsets()

    # Base relations

    def _bases(self, stop: Mapping[str, Mapping[int, int]], number: int) -> dict[str, Source]:
        sources = {}
        for name, base in self.prepared.bases.items():
            pile = self.piles.get(name)
            changes = base.changes(self._begin(base), stop[name], pile)
            if isinstance(changes, Changes) and changes.rows and not base.keeps_itself:
                self.store.write(name, changes, number, self.epoch)
            sources[name] = Source(name, base.schema, changes, pile)
        return sources

    # Views

    def _views(self, sources: dict[str, Source], number: int) -> tuple[dict[str, StageResult], list[ViewProgress]]:
        """Every view, each after what it reads; those that do not wait for each other side by side."""
        results: dict[str, StageResult] = {}
        futures: dict[str, Future[ViewProgress]] = {}
        for name, view in self.prepared.views.items():
            needed = [futures[other] for other in view.plan.reads if other in futures]
            futures[name] = self._pool.submit(self._view, view, needed, sources, results, number)
        errors = [future.exception() for future in futures.values()]
        for error in errors:
            if error is not None:
                raise error
        return results, [future.result() for future in futures.values()]

    def _view(
        self, view: PreparedView, needed: list[Future[ViewProgress]], sources: dict[str, Source],
        results: dict[str, StageResult], number: int,
    ) -> ViewProgress:  # fmt: skip
        for future in needed:
            future.result()
        began = time.perf_counter()
        bench = view.bench
        bench.rows_read = bench.actions = 0
        for stage in view.plan.stages:
            own = self.piles.get(stage.name)
            inputs = {name: sources[name] for name in stage.reads}
            with in_view(view.declared):
                run = StageRun(stage, view.shapes[stage.name], inputs, own, bench, fresh=view.name in self.fresh)
                changes = run.run()
                if changes.rows and view.keeps[stage.name]:
                    self.store.write(stage.name, changes, number, self.epoch)
                result = StageResult(changes, _visible(changes, view.shapes[stage.name].visible))
            results[stage.name] = result
            before = None if view.name in self.fresh else own
            sources[stage.name] = Source(stage.name, view.shapes[stage.name].visible, result.visible, before)
        done = results[view.plan.stages[-1].name].visible
        return ViewProgress(view.name, done.rows, bench.rows_read, bench.actions, time.perf_counter() - began)

    # Committing

    def _commit(self, number: int, stop: Mapping[str, Mapping[int, int]], rows_in: int) -> Manifest:
        piles = self.store.next(self.piles, self.prepared, stop)
        views = {
            name: {
                "fingerprint": view.fingerprint,
                "columns": to_ddl(view.schema),
                "key": list(view.plan.key),
                "kind": str(view.plan.kind),
                "born": number if name in self.fresh else self.manifest.views[name]["born"],
            }
            for name, view in self.prepared.views.items()
        }
        clock = self.prepared.clock
        manifest = Manifest(
            tick=number, epoch=self.epoch, frontier=stop, committed_us=clock.now_us(), views=views, rows_in=rows_in,
            relations=self.store.describe(piles),
            topics={name: base.topic.id for name, base in self.prepared.bases.items()},
        )  # fmt: skip
        self.manifests.commit(manifest, first_kept=number - TICKS_KEPT)
        self.manifest, self.piles = manifest, piles
        self.store.adopt(piles)
        return manifest

    def close(self) -> None:
        """Stop the threads. What was committed stays."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.store.close()
        self.followers.close()


@dataclass(frozen=True)
class StageResult:
    """A stage's changes, as its state and as its readers see them."""

    state: Changes
    visible: Changes | Standing


def _visible(changes: Changes, schema: pa.Schema) -> Changes | Standing:
    """What readers see of a stage's changes: visible columns, shown rows."""
    names = [*schema.names, WEIGHT]
    if changes.schema.names == names or changes.rows == 0:
        return changes if changes.rows else Changes.nothing(pa.schema([*schema, pa.field(WEIGHT, pa.int64())]))
    hides = SHOWN in changes.schema.names
    if changes.table is not None:
        table = changes.table.filter(pc.field(SHOWN)) if hides else changes.table
        return Changes.local(net(table.select(names)))

    def build(spark: Any) -> Any:
        frame = changes.frame(spark)
        return (frame.where(SHOWN) if hides else frame).select(*(f"`{name}`" for name in names))

    return Standing(Rows(pa.schema([*schema, pa.field(WEIGHT, pa.int64())]), changes.rows, None, build))


def _of_these_topics(manifest: Manifest, bases: Mapping[str, Base]) -> Manifest:
    """The manifest without the frontier of topics that were deleted and made again: those begin at their start."""
    frontier = {
        name: offsets
        for name, offsets in manifest.frontier.items()
        if name not in bases or manifest.topics.get(name, bases[name].topic.id) == bases[name].topic.id
    }
    return replace(manifest, frontier=frontier)


def _limited(begin: Mapping[int, int], end: Mapping[int, int], rows_max: int | None) -> dict[int, int]:
    """The end, or as near to it as ``rows_max`` allows, every partition moved by the same part of its way."""
    total = sum(end[number] - begin.get(number, 0) for number in end)
    if rows_max is None or total <= rows_max:
        return dict(end)
    ways = {number: end[number] - begin.get(number, 0) for number in end}
    return {number: begin.get(number, 0) + -(-ways[number] * rows_max // total) for number in end}


def _distance(start: Frontier, stop: Frontier) -> int:
    return sum(
        offset - start.get(topic, {}).get(number, 0) for topic, of in stop.items() for number, offset in of.items()
    )


__all__ = ["Engine", "StageResult", "TickReport", "ViewProgress"]
