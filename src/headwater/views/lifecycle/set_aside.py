"""Setting aside: a record that views cannot be computed over goes to a dead-letter topic, and they leave it out.

What it is: ``SettingAside`` puts records on the list of those that an app's views leave out, takes them from the state
of their topics, and recomputes the running views that read these, in one tick over no rows.
Invariants: the record's letter (what, where, who, why, when) is in the dead-letter topic before the tick is committed;
the tick is all of it or nothing. Ticks wait meanwhile, so that no tick takes a row with the record and one without.
Not here: leaving out (``views/state/omissions.py``), finding records (``diagnosis.py``), a paused view's return
(``rebuild.py``).
Read next: ``views/state/omissions.py``, ``docs/failures.md``.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import OffsetOutOfRange
from headwater.log.groups.dead_letters import SCHEMA, dead_letter_topic
from headwater.log.maintenance.alerts import note_set_aside
from headwater.log.schema.json_lines import json_line
from headwater.log.topic_reader import metadata_at
from headwater.views.compiler.plan import TimedStage
from headwater.views.lifecycle.rebuild import Rebuild, RebuildReport
from headwater.views.state.delta import Delta
from headwater.views.state.omissions import omitted_of, with_records
from headwater.views.state.state_trace import Traces
from headwater.views.state.trace import Trace
from headwater.views.tick.inputs import InputRelation
from headwater.views.tick.pausing import with_readers

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic
    from headwater.views.tick.built_views import BuiltViews
from headwater.views.tick.engine import TickEngine


@dataclass(frozen=True)
class RecordPlace:
    """Where a record is.

    >>> str(RecordPlace("orders", 0, 17))
    'orders[0]@17'
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


def letters_of(topic: str, app: str) -> str:
    """The topic that the records go to which the views of an app leave out.

    >>> letters_of("orders", "shop")
    'orders.shop.views.dead'
    """
    return dead_letter_topic(topic, f"{app}.views")


class SettingAside(Rebuild):
    """The views over some topics, once more, without some records."""

    def __init__(self, engine: TickEngine, places: Sequence[RecordPlace], log: EventLog, *arguments: Any) -> None:
        self.log = log
        self.places = places
        self.records = [(log.get_topic(place.topic), place.partition, place.offset) for place in places]
        touched = {base.name for base in engine.prepared.inputs.values() if base.topic.name in self._topics}
        names = with_readers(engine.prepared, touched) & set(engine.running)
        super().__init__(engine, engine.prepared, names, *arguments)

    @property
    def _topics(self) -> set[str]:
        return {place.topic for place in self.places}

    def run(self, *, reason: str = "", by: str = "") -> RebuildReport:
        """Do everything, in this thread, while ticks wait."""
        began = time.perf_counter()
        inputs = [base for base in self.engine.prepared.inputs.values() if base.topic.name in self._topics]
        before = {base.name: base.omitted for base in inputs}
        try:
            with self.engine.alone():
                self.at, self.given = self.engine.manifest, dict(self.engine.traces)
                self.aside = with_records(self.at.aside, self.records)
                self._send_letters(reason, by)
                self.corrected = self._without_records(inputs)
                self.given |= self.corrected
                self._choose()
                self._fill()
                report = self.engine.swap(self._built())
        except BaseException:
            for base in inputs:
                base.omitted = before[base.name]
            self._discard()
            raise
        finally:
            self.engine.pinned_tick = None
            self.store.close()
        changes = {name: table.num_rows for name, table in self.differences.items()}
        seconds = time.perf_counter() - began
        for place in self.places:
            told = f'record {place} was set aside: the views of app "{self.engine.manifests.app}" leave it out'
            detail = {"app": self.engine.manifests.app, "by": by, "reason": reason, "tick": report.tick}
            note_set_aside(self.log.local, str(place), f"{told} ({reason})" if reason else told, detail)
        return RebuildReport(tuple(self.own.views), report.tick, changes, tuple(sorted(self.restarted)), 0, seconds)

    def _send_letters(self, reason: str, by: str) -> None:
        app = self.engine.manifests.app
        now = dt.datetime.fromtimestamp(self.log.clock.now_us() / 1_000_000, tz=dt.UTC)
        for place, (topic, partition, offset) in zip(self.places, self.records, strict=True):
            row = record_at(topic, partition, offset)
            letter = {
                "topic": topic.name,
                "group": app,
                "partition": partition,
                "offset": offset,
                "deliveries": 0,
                "reason": reason,
                "worker": by,
                "died_at": now,
                "row": json_line(row),
            }
            dead = self.log.local.topic(letters_of(topic.name, app), SCHEMA, partitions=1, fsync="always")
            said = metadata_at(topic, partition, offset)
            # A repeated try is recognised.
            dead.append([letter], producer=f"{app} {place}", sequence=self.at.tick, metadata=said)

    def _without_records(self, inputs: Collection[InputRelation]) -> Traces:
        """The state of the topics without the records; from here on their inputs leave them out."""
        found: Traces = {}
        for base in inputs:
            stop = self.at.frontier.get(base.topic.name) or base.topic.start_offsets()
            new = {(p, o) for topic, p, o in self.records if topic.id == base.topic.id and o < stop.get(p, 0)}
            initial = {p: tuple(o for q, o in new if q == p and o not in base.omitted.get(p, ())) for p, _ in new}
            known, base.omitted = base.omitted, omitted_of(self.aside, base.topic)
            if base.is_log_backed:
                found[base.name] = self.engine.store.log_trace(base, stop)
                continue
            trace = self.given[base.name]
            assert isinstance(trace, Trace)
            change = base.taken_back(initial, known, stop, trace)
            if change.num_rows:
                changes = Delta.local(change)
                run = trace.write(changes, tick=self.at.tick + 1, epoch=self.engine.epoch)
                found[base.name] = trace.with_run(run, changes)
        return found

    def _choose(self) -> None:
        super()._choose()
        # What was late stays late in a rebuild, but a record that is left out was neither: these start over.
        judging = {
            name
            for name, view in self.own.views.items()
            if any(isinstance(stage, TimedStage) and stage.late for stage in view.plan.stages)
        }
        self.restarted = (self.restarted | with_readers(self.own, judging)) & set(self.own.views)

    def _built(self) -> BuiltViews:
        return replace(super()._built(), inputs=self.corrected, aside=self.aside)


def record_at(topic: EventTopic, partition: int, offset: int) -> dict[str, Any]:
    """One record's row."""
    for batch in topic.read_partition(partition, offset, stop=offset + 1):
        for row in batch.to_pylist():
            return row
    raise OffsetOutOfRange(
        f"there is no record {topic.name}[{partition}]@{offset}",
        detail=f"The partition has offsets up to {topic.end_offsets().get(partition, 0)}, as of "
        f"{format_us(topic.clock.now_us())}.",
        hint="Retention or compaction may have taken it: then recomputed views are without it.",
    )
