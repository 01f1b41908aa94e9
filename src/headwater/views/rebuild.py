"""A rebuild: views computed anew beside the live ones, which then make room for them.

What it is: ``Rebuild`` fills views from what their inputs hold at one tick, takes in the ticks that were committed
meanwhile, and swaps the views in with a tick of its own. The live ones answer, and move, until then.
Invariants: the new state lies in folders of its own, that no manifest lists before the swap, so that whatever happens
until then changes nothing; the swap is one manifest. A view whose query is the same goes on in the change feed, with
what the rebuild changed in it, and its readers are handed the same; another query, or one whose old state cannot be
read, begins anew, with its readers.
Not here: the swap itself (``tick.py``); which views, and in whose thread (``operation.py``).
Read next: ``passage.py``, ``tick.py``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Conflict, Corruption
from headwater.views import bags
from headwater.views.changes import Changes
from headwater.views.committed import visible
from headwater.views.compiler.plan import WEIGHT, Stage
from headwater.views.followers import as_table
from headwater.views.manifest import Manifest
from headwater.views.netting import net
from headwater.views.passage import Passage
from headwater.views.piles import Pile
from headwater.views.prepare import Prepared, PreparedView
from headwater.views.runs import Run, verify_run
from headwater.views.scans import scan
from headwater.views.sources import LOCAL_ROWS_MAX, SHOWN, Rows, Source, Standing
from headwater.views.store import Piles, StateStore, pile_of
from headwater.views.tick import Built, Engine
from headwater.views.workbench import Workbench, with_weight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Behind by no more ticks than this, the rest is caught up with while the next tick waits.
TICKS_LEFT = 1
# Ticks may come as fast as they are caught up with: after so many rounds they wait, however many are left.
ROUNDS_MAX = 10
DRIVER_ROWS_MAX = 10 * LOCAL_ROWS_MAX


@dataclass(frozen=True)
class RebuildProgress:
    """How far a rebuild is. ``part`` is an estimate: 0 at the beginning, 1 when it is done."""

    step: str  # "filling revenue$1", "catching up with 12 ticks", "swapping", "done"
    part: float
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """When it goes on as it went; None when it is too early to say.

        >>> RebuildProgress("filling revenue", 0.25, 10.0).seconds_left
        30.0
        """
        return self.seconds * (1 - self.part) / self.part if self.part > 0.02 else None


@dataclass(frozen=True)
class RebuildReport:
    """What a rebuild did."""

    views: tuple[str, ...]  # all that were computed anew
    tick: int  # with which they were swapped in
    changes: Mapping[str, int]  # {view: weighted rows that differ}, for views that go on
    born: tuple[str, ...]  # views that begin anew
    ticks_meanwhile: int
    seconds: float


class Rebuild:
    """Some views of an engine, once more, with every view that ticks do not maintain yet."""

    def __init__(
        self, engine: Engine, wanted: Prepared, names: Collection[str], spark: SparkSession, scratch: Path
    ) -> None:
        self.engine = engine
        self.wanted = wanted
        self.asked = names
        self.spark = spark
        self.scratch = scratch
        self.progress = Progress(spark)
        self.own = replace(wanted, views={}, bases={})  # what is computed anew
        self.store = StateStore(engine.store.folder, engine.store.files, spark)
        self.piles: Piles = {}
        self.differences: dict[str, pa.Table] = {}

    # From beginning to end

    def run(self) -> RebuildReport:
        """Do everything, in this thread."""
        began = time.perf_counter()
        self._hold()
        first = self.at.tick
        try:
            self._choose()
            with _job_group(self.spark.sparkContext, self.progress.group):
                self._fill()
                self._follow()
                with self.engine.alone():
                    self._catch_up(self.engine.manifest, self.engine.piles)
                    self.progress.swaps()
                    report = self.engine.swap(self._built())
        except Exception as error:
            self._discard()
            self.progress.check(error)
            raise
        finally:
            self.engine.held = None
            self.store.close()
        changes = {name: table.num_rows for name, table in self.differences.items()}
        seconds = time.perf_counter() - began
        return RebuildReport(
            tuple(self.own.views), report.tick, changes, tuple(sorted(self.born)), report.tick - 1 - first, seconds
        )

    def _hold(self) -> None:
        """Choose the tick to begin with. Nothing that was written since goes before this is done."""
        with self.engine.alone():
            if self.engine.held is not None:
                raise Conflict(
                    f"views of this app are being rebuilt already, since tick {self.engine.held}",
                    hint="Wait until that is done, then ask again.",
                )
            self.at: Manifest = self.engine.manifest
            self.given = self.engine.piles  # what the live relations hold at that tick
            self.live = self.engine.prepared
            self.engine.held = self.at.tick

    def _choose(self) -> None:
        """Which views are computed, and which of them begin anew."""
        views = self.wanted.views
        asked = {name for name, view in views.items() if name in self.asked or not self._is_live(view)}
        born = {name for name in asked if not self._is_live(views[name]) or not _readable(self.given[name])}
        self.born = _with_readers(self.wanted, born)
        build = f"{self.at.tick}.{self.engine.epoch}"
        # Sessions of their own, which no tick uses.
        beside = {
            name: replace(view, build=build, bench=Workbench(self.spark, self.scratch / f"{name}.{build}"))
            for name, view in views.items()
            if name in asked | self.born
        }
        self.own = replace(self.wanted, views=beside, bases={})
        self.piles = self.store.open(Manifest(), self.own, self.engine.epoch)
        self.progress.expects(
            # What a stage costs: the rows that it reads, where the live relations tell how many those are.
            {stage.name: 1.0 + sum(getattr(self.given.get(name), "rows", 0) for name in stage.reads)
             for view in beside.values() for stage in view.plan.stages}
        )  # fmt: skip

    def _is_live(self, view: PreparedView) -> bool:
        """Whether ticks maintain this view, by this query."""
        return view.name in self.live.views and self.live.views[view.name].fingerprint == view.fingerprint

    def _follow(self) -> None:
        """Take in what ticks commit meanwhile, until hardly any is left."""
        for _ in range(ROUNDS_MAX):
            with self.engine.alone():
                now, piles = self.engine.manifest, self.engine.piles
            if now.tick - self.at.tick <= TICKS_LEFT:
                return
            self._catch_up(now, piles)

    def cancel(self) -> None:
        """End it from another thread: ``run`` raises there, and what was computed is removed."""
        self.progress.cancel()

    def _discard(self) -> None:
        """Remove what was written, unless it was committed all the same."""
        for view in self.own.views.values():
            view.bench.tidy()
        self.store.remove(self.own, unless=self.engine.manifests.current())

    def _fill(self) -> None:
        self._pass(self._inputs(None), self.at.tick, fresh=self.own.views.keys())
        for name in self.own.views:
            if name not in self.born:
                self.differences[name] = self._compared(name)

    def _catch_up(self, now: Manifest, piles: Mapping[str, Any]) -> None:
        """Take in the ticks up to ``now``, as one."""
        if now.tick == self.at.tick:
            return
        self.progress.catches_up(now.tick - self.at.tick)
        passage = self._pass(self._inputs(now), now.tick)
        for name, known in self.differences.items():
            came = as_table(passage.visible[name], self.spark)
            live = as_table(self._since(name, self.live.views[name].schema, now), self.spark)
            self.differences[name] = net(pa.concat_tables([known, came.cast(known.schema), _negative(live, known)]))
        self.at, self.given = now, dict(piles)

    def _pass(self, sources: dict[str, Source], tick: int, fresh: Collection[str] = ()) -> Passage:
        engine = self.engine
        engine.manifests.check(engine.epoch)
        self.store.forget()
        passage = Passage(
            self.own.views, self.piles, self.store, tick=tick, epoch=engine.epoch, fresh=fresh,
            on_stage=self.progress.enters if fresh else None,
        )  # fmt: skip
        passage.run(sources)
        self.piles = self.store.next(self.piles, self.own, {})
        self.store.adopt(self.piles, self.own)
        for view in self.own.views.values():
            view.bench.tidy()
        return passage

    def _built(self) -> Built:
        # Views that were not computed anew go on with the state that they have.
        views = {name: self.own.views.get(name) or self.engine.prepared.views[name] for name in self.wanted.views}
        differences = {name: Changes.local(table) for name, table in self.differences.items()}
        return Built(replace(self.wanted, views=views), self.piles, frozenset(self.born), differences)

    # What the views read

    def _inputs(self, until: Manifest | None) -> dict[str, Source]:
        """The relations that the views read and that are not rebuilt, with what came since, up to ``until``."""
        sources = {}
        for name in sorted(
            {read for view in self.own.views.values() for read in view.plan.reads} - set(self.own.views)
        ):
            base = self.wanted.bases.get(name)
            schema = base.schema if base is not None else self.wanted.views[name].schema
            pile = self.given.get(name)
            if until is None:
                changes: Changes | Standing = Changes.nothing(with_weight(schema))
            elif base is not None and base.keeps_itself:
                start = base.topic.start_offsets()
                changes = base.changes(self.at.frontier.get(name, start), until.frontier.get(name, start), pile)
            else:
                changes = self._since(name, schema, until)
            sources[name] = Source(name, schema, changes, pile)
        return sources

    def _since(self, name: str, schema: pa.Schema, until: Manifest) -> Changes | Standing:
        """What ticks have changed in a live relation, after ``self.at`` and up to ``until``."""
        found: list[tuple[Pile, Run]] = []
        for tick in range(self.at.tick + 1, until.tick + 1):
            manifest = self.engine.manifests.at(tick)
            assert manifest is not None, "the engine keeps them while it is held"
            if name in manifest.relations:
                pile = pile_of(self.store.folder, name, manifest.relations[name], self.store.files)
                found += [(pile, run) for run in pile.runs if run.first_tick == tick]
        if not found:
            return Changes.nothing(with_weight(schema))
        shape = with_weight(schema)
        rows = sum(run.rows for _, run in found)
        pile = found[0][0]
        if rows <= DRIVER_ROWS_MAX:
            batches = [batch for each, run in found for batch in each.read([run])]
            return Changes.local(net(visible(pa.Table.from_batches(batches, pile.schema), shape)))
        paths = [path for each, run in found for path in run.paths(each.folder)]
        if pile.schema.names == shape.names:
            return Changes.written(paths, schema)
        return Standing(Rows(shape, rows, None, lambda spark: _shown(scan(spark, paths, pile.schema), shape)))

    # What changed

    def _compared(self, name: str) -> pa.Table:
        """What the view holds now, less what the live one holds."""
        new, old = self.piles[name], self.given[name]
        shape = with_weight(self.own.views[name].schema)
        if new.rows + old.rows <= DRIVER_ROWS_MAX:
            tables = [
                visible(pa.Table.from_batches(pile.read(), pile.schema), shape).cast(shape) for pile in (new, old)
            ]
            return net(pa.concat_tables([tables[0], _negative(tables[1], tables[0])]))
        spark = self.own.views[name].bench.large
        both = _shown(new.frame(spark), shape).unionByName(
            _shown(old.frame(spark), shape).withColumn(WEIGHT, -_weights())
        )
        return bags.netted(both, shape.names).toArrow().select(shape.names).cast(shape)


class Progress:
    """How far a rebuild is, as its stages and the tasks of Spark's jobs tell. It may be asked from any thread."""

    def __init__(self, spark: SparkSession) -> None:
        self.context = spark.sparkContext
        self.group = f"headwater-rebuild-{uuid.uuid4().hex}"
        self._began = time.perf_counter()
        self._costs: dict[str, float] = {}
        self._done = 0.0
        self._stage: str | None = None
        self._step = "beginning"
        self._most = 0.0
        self._earlier_jobs: set[int] = set()
        self._cancelled = threading.Event()

    def expects(self, costs: Mapping[str, float]) -> None:
        """These stages will be run."""
        self._costs = dict(costs)

    def enters(self, stage: Stage) -> None:
        """A stage begins."""
        self.check()
        if self._stage is not None:
            self._done += self._costs[self._stage]
        self._stage = stage.name
        self._step = f"filling {stage.name}"
        self._earlier_jobs = set(self.context.statusTracker().getJobIdsForGroup(self.group))

    def catches_up(self, ticks: int) -> None:
        """The views are filled."""
        self.check()
        self._stage, self._done = None, sum(self._costs.values())
        self._step = f"catching up with {ticks} tick{'s' * (ticks != 1)}"

    def swaps(self) -> None:
        """From here on it is not stopped any more."""
        self.check()
        self._step = "swapping"

    def cancel(self) -> None:
        """End the running step, and let the next one raise."""
        self._cancelled.set()
        self.context.cancelJobGroup(self.group)

    def check(self, cause: Exception | None = None) -> None:
        """Raise when it was cancelled."""
        if self._cancelled.is_set():
            raise Conflict(
                "the rebuild was stopped", detail="The live views are as they were.", hint="Begin it again."
            ) from cause

    def now(self) -> RebuildProgress:
        """How far it is. It never goes back."""
        total = sum(self._costs.values()) or 1.0
        part = self._done / total
        stage = self._stage
        if stage is not None:
            part += self._tasks_done() * self._costs[stage] / total
        self._most = max(self._most, 0.99 * min(part, 1.0))
        return RebuildProgress(self._step, self._most, time.perf_counter() - self._began)

    def _tasks_done(self) -> float:
        """The part of the tasks that are done, of the jobs that this stage has begun."""
        tracker = self.context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup(self.group)) - self._earlier_jobs]
        stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
        known = [stage for stage in stages if stage is not None]
        tasks = sum(stage.numTasks for stage in known)
        return sum(stage.numCompletedTasks for stage in known) / tasks if tasks else 0.0


@contextmanager
def _job_group(context: Any, group: str) -> Iterator[None]:
    """Spark's jobs of this thread belong to a group, and share the cores fairly with those of ticks."""
    properties = {"spark.jobGroup.id": group, "spark.scheduler.pool": "headwater-rebuild"}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in properties:
            context.setLocalProperty(name, None)


def _with_readers(prepared: Prepared, names: Collection[str]) -> set[str]:
    """These views and all that read them, at any distance."""
    found = set(names)
    for name, view in prepared.views.items():  # each behind those that it reads
        if found & set(view.plan.reads):
            found.add(name)
    return found


def _readable(pile: Pile) -> bool:
    """Whether the files are there, and are what was written."""
    try:
        for run in pile.runs:
            verify_run(pile.folder, run)
    except Corruption:
        return False
    return True


def _shown(frame: DataFrame, shape: pa.Schema) -> DataFrame:
    """What readers see of state rows."""
    if SHOWN in frame.columns:
        frame = frame.where(SHOWN)
    return frame.select(*(f"`{name}`" for name in shape.names))


def _negative(table: pa.Table, like: pa.Table) -> pa.Table:
    table = table.cast(like.schema)
    place = table.schema.get_field_index(WEIGHT)
    return table.set_column(place, table.schema.field(place), pc.negate(table.column(place)))


def _weights() -> Any:
    from pyspark.sql import functions

    return functions.col(WEIGHT)
