"""Late rows: rows that came after their view's watermark had passed them, counted, set aside and alerted about.

What it is: where a tick found late rows (``found``), how many by producer (``counted``), and ``LateTopic``, which
copies them to the side topic ``VIEW.late`` and raises an alert when they become many.
Invariants: the manifest of a tick has enough about its late rows to find them again in the log, so that each stands in
the side topic exactly once, also when the process dies between the commit and the copy.
Not here: which rows are late (``progress.py``), leaving them out (``timed_operators.py``).
Read next: ``timed_operators.py``; ``docs/time.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import format_us
from headwater.log.contract import EventLog, EventTopic
from headwater.log.maintenance.alerts import note_late_rows, publish
from headwater.views.compiler.plan import TimedStage, ViewPlan, topic_of
from headwater.views.event_time.state_expiry import microseconds
from headwater.views.state.manifest import Manifest

if TYPE_CHECKING:
    from headwater.views.tick.evaluate import Evaluation
    from headwater.views.tick.prepare import Prepared

EXTRA = (
    ("late_producer", pa.string()),
    ("late_by_ms", pa.int64()),
    ("late_watermark", pa.timestamp("us", tz="UTC")),
    ("late_tick", pa.int64()),
)
RECENT_ROWS_MIN = 100  # of fewer rows no part is worth an alert


def judged(plan: ViewPlan) -> list[str]:
    """The topics of whose rows some may come too late for a view."""
    late = (stage for stage in plan.stages if isinstance(stage, TimedStage) and stage.late)
    return list(dict.fromkeys(topic_of(stage.source.relation) for stage in late))


def found(evaluation: Evaluation, start: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    """Where a tick found late rows, as its manifest keeps it."""
    late: dict[str, Any] = {}
    for view in evaluation.views.values():
        time = evaluation.times.get(view.name)
        for stage in view.plan.stages:
            if not isinstance(stage, TimedStage) or not stage.late or time is None or time.cutoff_us is None:
                continue
            changes = evaluation.visible.get(stage.name)
            if changes is not None and changes.rows:
                topic = topic_of(stage.source.relation)
                begin = {str(number): offset for number, offset in start[topic].items()}
                about = {"start": begin, "cutoff_us": time.cutoff_us, "watermark_us": time.before_us}
                late.setdefault(view.name, {})[topic] = about
    return late


class LateTopic:
    """The side topics of one app's views."""

    def __init__(self, app: str, log: EventLog, prepared: Prepared) -> None:
        self.app = app
        self.log = log
        self.views = {name: view for name, view in prepared.views.items() if not view.declared.timing.plain}
        self._done = 0

    def follow(self, manifest: Manifest) -> None:
        """Copy what a committed tick found late. Called again for the last tick after a restart: that is harmless."""
        if manifest.tick == self._done:
            return
        for view, topics in manifest.late.items():
            for name, about in topics.items():
                topic = self.log.get_topic(name)
                rows = late_rows(topic, manifest, about, topic.producer_names())
                if rows.num_rows:
                    self._side(view, topic).append(rows, producer=f"app {self.app}", sequence=manifest.tick)
        self._watch(manifest)
        self._done = manifest.tick

    def _side(self, view: str, source: EventTopic) -> EventTopic:
        columns = [field.with_nullable(True) for field in source.schema]
        schema = pa.schema([*columns, *(pa.field(*extra) for extra in EXTRA)])
        return self.log.local.topic(self._side_name(view, source.name), schema)  # in the home, whatever the log is

    def _side_name(self, view: str, topic: str) -> str:
        alone = view not in self.views or len(judged(self.views[view].plan)) <= 1
        return f"{view}.late" if alone else f"{view}.late.{topic}"

    def _watch(self, manifest: Manifest) -> None:
        """Raise an alert for a view of whose recent rows too many were late, and end it when they are few again."""
        for name, view in self.views.items():
            for topic, recent in manifest.times.get("recent", {}).get(name, {}).items():
                late, rows = recent
                limit, side = view.declared.timing.late_alert, self._side_name(name, topic)
                part = late / rows if rows >= RECENT_ROWS_MIN else 0.0
                message = None
                if part > limit:
                    message = (
                        f'{part:.1%} of the recent rows of topic "{topic}" came too late for view "{name}" '
                        f"(its threshold is {limit:.1%}); they are in {side}"
                    )
                if note_late_rows(
                    self.log.local, self.log.get_topic(topic), name, message, {"late": late, "rows": rows}
                ):
                    publish(self.log.local)


def late_rows(topic: EventTopic, manifest: Manifest, about: Mapping[str, Any], names: Mapping[int, str]) -> pa.Table:
    """The late rows of one tick as the side topic has them."""
    table = _late(topic, manifest.frontier[topic.name], about)
    watermark = about["watermark_us"]
    by_us = pc.subtract(pa.scalar(watermark, pa.int64()), microseconds(table.column(topic.settings.event_time or "")))
    extra = (
        pa.array([names.get(producer, "") for producer in table.column("_producer").to_pylist()], pa.string()),
        pc.divide(by_us, 1000),
        pa.array(np.full(table.num_rows, watermark), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array(np.full(table.num_rows, manifest.tick), pa.int64()),
    )
    table = table.drop_columns(["_producer"])
    for (name, _), column in zip(EXTRA, extra, strict=True):
        table = table.append_column(name, column)
    return table


def counted(topic: EventTopic, stop: Mapping[int, int], about: Mapping[str, Any]) -> dict[int, int]:
    """How many rows of each producer were late."""
    return dict(Counter(producer or 0 for producer in _late(topic, stop, about).column("_producer").to_pylist()))


def _late(topic: EventTopic, stop: Mapping[int, int], about: Mapping[str, Any]) -> pa.Table:
    """The late rows of a range, with their producers."""
    column = topic.settings.event_time
    assert column is not None
    names = [*topic.schema.names, "_producer"]
    start = topic.start_offsets()
    fields = [field.with_nullable(True) for field in topic.schema]
    found = [pa.schema([*fields, pa.field("_producer", pa.int64())]).empty_table()]
    for number in sorted(stop):
        begin = max(about["start"].get(str(number), 0), start[number])
        if begin >= stop[number]:
            continue
        for batch in topic.read_partition(number, begin, stop=stop[number], columns=names):
            rows = pa.Table.from_batches([batch.data])
            late = pc.less(microseconds(rows.column(column)), about["cutoff_us"]).fill_null(False)
            found.append(rows.filter(late).cast(found[0].schema))
    return pa.concat_tables(found)


def describe(manifest: Manifest, view: str, names: Mapping[str, Mapping[int, str]]) -> list[dict[str, Any]]:
    """How many rows came too late for a view, by topic and producer."""
    totals: Mapping[str, Mapping[str, int]] = manifest.times.get("late", {}).get(view, {})
    return [
        {"topic": topic, "producer": names.get(topic, {}).get(int(producer), "") or "(no name)", "rows": rows}
        for topic, of in totals.items()
        for producer, rows in sorted(of.items())
    ]


def shown_watermark(manifest: Manifest, view: str) -> str | None:
    """A view's watermark for people."""
    at_us = manifest.times.get("views", {}).get(view)
    return None if at_us is None else format_us(at_us)
