"""Erasure rebuild: the views of an app after people were erased from its topics.

What it is: ``ErasureRebuild`` takes people from the state that views keep of topics, as the log did, recomputes the
views over these topics beside the live ones, and swaps them in with a tick over no rows; what that changes in each view
goes to its readers as the change of that tick. ``forget_before`` then lets go of every earlier tick.
Invariants: the tick is all of it or nothing; ticks wait meanwhile. What the state of a topic becomes is what the same
rules make of the log's rows, so that ``verify`` agrees. A view that judges what is late, or shows what is final, begins
anew: what it had decided holds the people. After ``forget_before`` no file of a forgotten tick is left.
Not here: the log's rows (``log/erasure/``), when this is done (``erasure_follower.py``).
Read next: ``erasure_follower.py``, ``set_aside.py``.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Unavailable
from headwater.log.erasure.erased_people import Erased
from headwater.log.erasure.expired_rows import ExpiringColumns
from headwater.log.erasure.personal_rows import PersonalRows, rules_with_copies
from headwater.log.maintenance.removal_pin import is_held
from headwater.searches.index_file import FOLDER as KEPT_SEARCHES
from headwater.views.compiler.plan import FinalStage, TimedStage
from headwater.views.lifecycle.rebuild import Rebuild, RebuildReport
from headwater.views.state.algebra import consolidate, negate, union
from headwater.views.state.delta import Delta
from headwater.views.state.log_trace import LogTrace
from headwater.views.state.state_trace import Traces
from headwater.views.state.trace import Trace
from headwater.views.tick.built_views import BuiltViews
from headwater.views.tick.engine import TickEngine
from headwater.views.tick.inputs import InputRelation
from headwater.views.tick.pausing import with_readers
from headwater.views.tick.prepare import Prepared

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

MERGES_WAIT_S = 600.0


class ErasureRebuild(Rebuild):
    """The views over topics with personal columns, once more, without some people."""

    def __init__(self, engine: TickEngine, people: Sequence[Erased], log: EventLog, *arguments: Any) -> None:
        every, self.people = log.topics(), people
        self.rules: dict[str, list[tuple[PersonalRows, Erased]]] = {}
        for base in engine.prepared.inputs.values():
            found = [(rules, each) for each in people for rules in rules_with_copies(base.topic, each.rules_of, every)]
            if found:
                self.rules[base.name] = found
        self._keeps: dict[str, tuple[str, str]] = {}  # stages that keep rows of a relation: (the view, the relation)
        names = with_readers(engine.prepared, self._readers(engine.prepared)) & set(engine.running)
        super().__init__(engine, engine.prepared, names, *arguments)

    def _readers(self, prepared: Prepared) -> set[str]:
        """The relations with which the views begin that are to be recomputed.

        Rows of persons may go, and count; where columns end rows stay, and what reads none of these is as it was.
        """
        ended = {
            name: {column.lower() for each, _ in rules for rule in each.rules for column in rule.columns}
            for name, rules in self.rules.items()
            if all(isinstance(each, ExpiringColumns) for each, _ in rules)
        }
        reading = set(self.rules) - set(ended)
        for name, view in prepared.views.items():
            for stage in view.plan.stages:
                if isinstance(stage, TimedStage):  # it keeps rows whole, for the stages behind it
                    self._keeps[stage.name] = (name, stage.source.relation)
                    ended[stage.name] = ended.get(stage.source.relation, set())
                elif any(
                    not ended.get(leaf.relation, set()).isdisjoint(column.lower() for column in leaf.columns)
                    for leaf in stage.leaves
                ):
                    reading.add(name)
        return reading

    @property
    def inputs(self) -> list[InputRelation]:
        """The relations of topics that may have had rows of the people."""
        return [base for name, base in self.engine.prepared.inputs.items() if name in self.rules]

    def run(self) -> RebuildReport:
        """Do everything, in this thread, while ticks wait."""
        began = time.perf_counter()
        try:
            with self.engine.alone():
                self.at, self.given = self.engine.manifest, dict(self.engine.traces)
                self.corrected = self._without_people()
                shutil.rmtree(self.store.folder / KEPT_SEARCHES, ignore_errors=True)  # as they were
                self.given |= self.corrected
                self._choose()
                self._fill()
                report = self.engine.swap(self._built())
        except BaseException:
            self._discard()
            raise
        finally:
            self.engine.pinned_tick = None
            self.store.close()
        changes = {name: table.num_rows for name, table in self.differences.items()}
        seconds = time.perf_counter() - began
        return RebuildReport(tuple(self.own.views), report.tick, changes, tuple(sorted(self.restarted)), 0, seconds)

    def _without_people(self) -> Traces:
        """The state of the topics, as the log has them now."""
        found: Traces = {}
        for base in self.inputs:
            trace = self.given.get(base.name)
            if isinstance(trace, LogTrace):
                shutil.rmtree(trace.folder / "arrangements", ignore_errors=True)  # sorted copies of rows as they were
                found[base.name] = self.engine.store.log_trace(base, trace.stop)
            elif isinstance(trace, Trace):
                found[base.name] = self._corrected(self.rules[base.name], trace)
        for stage, (view, relation) in self._keeps.items():
            kept = self.given.get(stage)
            if relation in self.rules and view not in self.asked and isinstance(kept, Trace):
                found[stage] = self._corrected(self.rules[relation], kept)
        return found

    def _corrected(self, every: Sequence[tuple[PersonalRows, Erased]], trace: Trace) -> Trace:
        """The rows of a topic without the people, as one run: none that held them is part of it."""
        changed = [trace.schema.empty_table()]
        for batch in trace.read():
            for rules, people in every:
                erased = rules.erase(batch, people)
                if erased.found.any():
                    old = pa.Table.from_batches([batch.filter(pa.array(erased.found))], schema=trace.schema)
                    kept = erased.found if erased.kept is None else erased.found[erased.kept]
                    new = pa.Table.from_batches([erased.rows.filter(pa.array(kept))], schema=trace.schema)
                    changed += [negate(old), new]
                    batch = erased.rows
        change = consolidate(union(*changed))
        if change.num_rows:
            run = trace.write(Delta.local(change), tick=self.at.tick + 1, epoch=self.engine.epoch)
            trace = trace.with_run(run, Delta.local(change))
        if len(trace.runs) > 1:  # rows that left the topic earlier are in runs that take them back
            replaced, merged = trace.merge_of_all().run(self.spark)
            trace = trace.with_merge(replaced, merged)
        return trace

    def _choose(self) -> None:
        super()._choose()
        judging = {
            name
            for name, view in self.own.views.items()
            if any(
                isinstance(stage, FinalStage) or (isinstance(stage, TimedStage) and stage.late)
                for stage in view.plan.stages
            )
        }
        self.restarted = (self.restarted | with_readers(self.own, judging)) & set(self.own.views)

    def _built(self) -> BuiltViews:
        return replace(super()._built(), inputs=self.corrected)


def forget_before(engine: TickEngine) -> int:
    """Forget every tick before a new one over no rows, and remove their files now; returns the new tick.

    Whoever reads an older tick at this moment, or is behind, takes a full copy.
    """
    idle = threading.Event()
    with engine.alone():
        if engine.pinned_tick is not None or is_held(engine.store.folder.parent.parent):
            raise Unavailable(
                "earlier ticks cannot be forgotten while views are being rebuilt, or a backup copies files",
                hint="It is tried again with the next tick.",
            )
        engine.store.run_beside(idle.set)  # merges run one after the other: those before are done then
        if not idle.wait(MERGES_WAIT_S):
            raise Unavailable("the runs of views are still being merged", hint="It is tried again with the next tick.")
        engine.traces = engine.store.settle_merges(engine.traces)
        before = time.time()
        report = engine.swap(BuiltViews(engine.prepared, {}, frozenset(), {}, forgets=True))
        engine.manifests.take_released()
        _remove_unlisted(engine, before)
    return report.tick


def _remove_unlisted(engine: TickEngine, before: float) -> None:
    """Remove the files and folders that no kept manifest lists; what is younger may be about to be listed."""
    store, listed = engine.store, engine.manifests.listed_by(engine.epoch)
    current = {trace.folder.name for trace in engine.traces.values()}
    for place in sorted(path for path in store.folder.iterdir() if path.is_dir() and "-" in path.name):
        known = listed.get(place.name)
        if known is None and place.name not in current:
            if all(path.is_dir() or ".parquet" in path.name for path in place.iterdir()):  # of a relation that is gone
                shutil.rmtree(place, ignore_errors=True)
            continue
        for path in sorted(place.glob("*.parquet*")):
            if path.name not in (known or ()) and path.stat().st_mtime < before:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    store.files.unlink(path, label="state.forget")
    for trace in engine.traces.values():
        if isinstance(trace, Trace) and trace.folder.is_dir():
            trace.prune_caches(trace.runs)
