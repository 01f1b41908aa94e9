"""Status: the state of everything, for ``GET /v1/status`` and the dashboard.

What it is: ``StatusReader`` reads the log, the manifests, the serving store and the catalog's rows of sinks, captures
and inlets.
Invariants: it only reads, starts no Spark and connects to no other system. It reads at most every ``FRESH_S`` seconds
for all callers. Counting the rows of a large view takes a twentieth of the time at most.
Not here: declarations (``app_graph.py``); rates (``topic_rates.py``); events (``server/realtime/status_events.py``).
Read next: ``topic_rates.py``.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import HeadwaterError
from headwater.inlets.counters import stored
from headwater.log.event_time.capture_markers import Markers
from headwater.log.maintenance.alerts import ALERTS_TOPIC, lasting_rows
from headwater.server.status.app_graph import is_system
from headwater.server.status.topic_rates import TopicRates
from headwater.sinks.runner.sink_status import SinkStatus, SinkStatuses
from headwater.upkeep.backup.backup_drill import DrillRecords
from headwater.views.event_time import late_rows
from headwater.views.serving.serving_columns import quoted
from headwater.views.serving.serving_store import ServingStore
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.tick.pausing import paused_in
from headwater.views.tick.reports import TickReports

if TYPE_CHECKING:
    from headwater.app import App

FRESH_S = 0.5
TICKS_SHOWN = 60
ALERTS_SHOWN = 50
COUNT_PART = 20  # a view is counted again after so many times the time it took,
COUNT_FREE_S = 0.2  # but when it took less than this with every tick

Values = dict[str, Any]


class StatusReader:
    """Reads the status, cached for ``FRESH_S`` seconds."""

    def __init__(self, app: App, store: ServingStore, rates: TopicRates) -> None:
        self.app = app
        self.log = app.log
        self.store = store
        self.rates = rates
        self.manifests = Manifests(app.log.local.catalog, app.name)
        self.reports = TickReports(app.log.local.catalog, app.name)
        self._turn = threading.Lock()
        self._known: tuple[float, int, Values] | None = None
        self._counts: dict[str, tuple[int, int, float, float]] = {}  # view: rows, tick, when to count again, cost

    def read(self) -> Values:
        """The status, of the last tick and at most half a second old."""
        with self._turn:
            tick, now = self.manifests.tick(), time.monotonic()
            if self._known is None or self._known[1] != tick or now - self._known[0] > FRESH_S:
                self._known = (now, tick, self._look())
            return self._known[2]

    def _look(self) -> Values:
        manifest = self.manifests.current()
        ticks = self.reports.last(TICKS_SHOWN)
        now_us = self.log.clock.now_us()
        return {
            "app": self.app.name,
            "now": format_us(now_us),
            "epoch": self.manifests.epoch(),
            "state_at": self.manifests.address(),
            "tick": {
                "tick": manifest.tick,
                "committed_at": format_us(manifest.committed_us) if manifest.tick else None,
                "age_seconds": round((now_us - manifest.committed_us) / 1e6, 3) if manifest.tick else None,
                "rows_in": manifest.rows_in,
                "frontier": str(manifest.token),
                "behind": self._behind(manifest),
            },
            "topics": self._topics(),
            "views": self._views(manifest, ticks),
            "sinks": self._sinks(manifest, ticks),
            "captures": self._captures(),
            "inlets": self._inlets(),
            "ticks": ticks,
            "alerts": self._alerts(),
            "drill": self._drill(now_us),
        }

    def _drill(self, now_us: int) -> Values | None:
        """The last drill of the home's backups; None when there was none."""
        records = DrillRecords(self.log.local)
        last, good = records.last(), records.last(good=True)
        if last is None:
            return None
        return {
            "ok": last["ok"],
            "began": last["began"],
            "seconds": last["seconds"],
            "loss_seconds": last["loss_seconds"],
            "problems": last["problems"],
            "good_age_seconds": None if good is None else round((now_us - good["began_us"]) / 1e6, 3),
        }

    # Topics

    def _topics(self) -> list[Values]:
        found = []
        for topic in self.log.topics():
            about = topic.describe(times=False)
            parts = about["partitions"]
            found.append(
                {
                    "name": topic.name,
                    "system": is_system(topic.name),
                    "history": topic.settings.events,
                    "rows": sum(part["rows"] for part in parts),
                    "bytes": sum(part["sealed_bytes"] + part["arrow_bytes"] for part in parts),
                    "segments": sum(part["sealed_segments"] + part["arrow_segments"] for part in parts),
                    "start_offsets": {str(part["partition"]): part["start_offset"] for part in parts},
                    "end_offsets": {str(part["partition"]): part["end_offset"] for part in parts},
                    "rate": self.rates.now(topic.name),
                    "rates": self.rates.history(topic.name),
                    "dropped_rows": about["dropped_rows"],
                    "groups": [_group(group) for group in topic.groups()],
                    "readers": [reader.to_dict() for reader in topic.lag()] if not is_system(topic.name) else [],
                }
            )
        return found

    def _behind(self, manifest: Manifest) -> int:
        known = set(self.log.topic_names())
        return sum(
            max(0, end - manifest.frontier[name].get(number, 0))
            for name in manifest.frontier
            if name in known
            for number, end in self.log.get_topic(name).end_offsets().items()
        )

    # Views

    def _views(self, manifest: Manifest, ticks: list[Values]) -> list[Values]:
        last: dict[str, Values] = {}
        for report in ticks:
            last |= {each["view"]: {**each, "tick": report["tick"]} for each in report["views"]}
        moved = {each["view"]: report["tick"] for report in ticks for each in report["views"] if each["changes"]}
        found, paused = [], paused_in(manifest)
        for view in self.app.views:
            about = manifest.views.get(view.name)
            runs = manifest.runs_of(view.name)
            found.append(
                {
                    "name": view.name,
                    "paused": paused[view.name].describe(view.name) if view.name in paused else None,
                    "state": "paused" if view.name in paused else "live" if about is not None else "new",
                    "rows": self._rows(view.name) if about is not None else None,
                    "tick": paused[view.name].tick if view.name in paused else manifest.tick,
                    "created_tick": about["created_tick"] if about else None,
                    "last_tick": last.get(view.name),
                    "changed_tick": moved.get(view.name),
                    "runs": len(runs),
                    "bytes": sum(run.bytes for run in runs),
                    "watermark": late_rows.shown_watermark(manifest, view.name),
                    "late_rows": self._late_rows(manifest, view.name),
                }
            )
        return found

    def _late_rows(self, manifest: Manifest, view: str) -> list[Values]:
        if not manifest.times.get("late", {}).get(view):
            return []
        found = (self.log.find_topic(topic) for topic in manifest.times.get("topics", {}))
        names = {topic.name: topic.producer_names() for topic in found if topic is not None}
        return late_rows.describe(manifest, view, names)

    def _rows(self, view: str) -> int | None:
        """The number of rows of a served view; slow counts are repeated seldom."""
        rows, at, again, _ = self._counts.get(view, (None, -1, 0.0, 0.0))
        began = time.monotonic()
        try:
            tick = self.store.tick  # before the count, which may be of a later one
            if at == tick or began < again:
                return rows
            counted = self.store.query(f"SELECT count(*) AS n FROM {quoted(view)}").to_pylist()[0]["n"]
        except HeadwaterError:  # not served, or not yet
            return None
        cost = time.monotonic() - began
        # The first count also opens the store.
        again = began + COUNT_PART * cost if cost > COUNT_FREE_S and at >= 0 else 0.0
        self._counts[view] = (counted, tick, again, cost)
        return int(counted)

    # Sinks, captures and inlets

    def _sinks(self, manifest: Manifest, ticks: list[Values]) -> list[Values]:
        statuses = SinkStatuses(self.log, self.app.name)
        kept = dict(self.manifests.kept()) if len(self.app.sinks) else {}
        found = []
        for sink in self.app.sinks:
            identity = f"{self.app.name}/{sink.view}/{sink.name}"
            fresh = SinkStatus(sink.name, sink.view, sink.sink.kind, str(sink.sink))
            values = statuses.load(identity, fresh).to_dict()
            values["view_paused"] = sink.view in manifest.paused
            # The sinks of a paused view are not behind.
            last = manifest.paused[sink.view]["tick"] if sink.view in manifest.paused else manifest.tick
            behind = max(0, last - values["tick"])
            missing_us = kept.get(values["tick"] + 1) if behind else None
            changes = sum(
                each["changes"]
                for report in ticks
                if report["tick"] > values["tick"]
                for each in report["views"]
                if each["view"] == sink.view
            )
            seconds = (self.log.clock.now_us() - missing_us) / 1e6 if missing_us else 0.0
            values["lag"] = {"ticks": behind, "seconds": round(max(0.0, seconds), 3), "changes": changes}
            found.append(values)
        return found

    def _captures(self) -> list[Values]:
        found = []
        for capture, tables in self.app.captures.declared().items():
            markers = Markers.find(self.log, capture)
            last = markers.last() if markers is not None else None
            found.append(
                {
                    "name": capture,
                    "tables": tables,
                    "position": last.position if last else None,
                    "committed_at": last.committed_at.isoformat() if last and last.committed_at else None,
                    "ends": dict(last.ends) if last else {},
                }
            )
        return found

    def _inlets(self) -> list[Values]:
        declared = list(self.app.inlets)
        known = stored(self.log.local, self.app.name, [inlet.name for inlet in declared])
        return [
            {"name": each.name, "type": each.kind, "topic": each.topic.name, **known[each.name]} for each in declared
        ]

    # Alerts

    def _alerts(self) -> list[Values]:
        """Lasting alerts, then recent ones, latest first."""
        lasting = [
            {
                "at": format_us(row["since_us"]),
                "kind": row["kind"],
                "topic": row["topic"],
                "subject": row["subject"],
                "message": row["message"],
                "detail": json.loads(row["detail"]),
                "state": "begin",
                "lasting": True,
            }
            for row in lasting_rows(self.log.local)
        ]
        known = {(each["kind"], each["message"]) for each in lasting}
        history = [each for each in self._recent_alerts() if (each["kind"], each["message"]) not in known]
        return (lasting + history)[:ALERTS_SHOWN]

    def _recent_alerts(self) -> list[Values]:
        topic = self.log.local.find_topic(ALERTS_TOPIC)
        if topic is None:
            return []
        start, end = topic.start_offsets()[0], topic.end_offsets()[0]
        batches = topic.read({0: max(start, end - ALERTS_SHOWN)}, stop={0: end})
        rows = [each for batch in batches for each in batch.to_pylist()]
        return [
            {
                "at": each["at"].strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "kind": each["kind"],
                "topic": each["topic"],
                "subject": each["group"],
                "message": each["message"],
                "detail": json.loads(each["detail"] or "{}"),
                "state": each.get("state"),
                "lasting": False,
            }
            for each in reversed(rows)
        ]


def _group(group: Any) -> Values:
    about = group.describe()
    return {
        "group": about.group,
        "kind": about.kind,
        "generation": about.generation,
        "lag": about.lag_total,
        "members": sum(1 for member in about.members if member.alive),
        "in_flight": about.in_flight,
        "dead_letters": about.dead_letters,
        "missed": about.missed,
    }
