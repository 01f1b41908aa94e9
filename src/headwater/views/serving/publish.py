"""Publishing: each committed tick is brought to the serving store, the late-row topics and the alerts.

What it is: ``Publisher`` fills the serving store with a tick's changes after the commit, catches up when the store fell
behind, and raises an alert for each paused view.
Invariants: the store never gets ahead of the manifest; it gets each tick once and in order, after a crash too. A view
whose table is damaged is filled again from its state, and delays no other.
Not here: the serving store itself (``serving_store.py``).
Read next: ``serving_store.py``, ``committed_changes.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import Corruption
from headwater.log.contract import EventLog
from headwater.log.maintenance.alerts import note_paused
from headwater.log.schema.ddl import parse_view_ddl
from headwater.views.event_time.late_rows import LateTopic
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_store import ServingStore
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.stages.stage_schemas import columns_of
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.tick.pausing import paused_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.tick.prepare import Prepared

logger = logging.getLogger("headwater.views")

STORE = "serving.sqlite"
# Behind by more ticks than this, the store is refilled from the state.
REPLAYED_TICKS_MAX = 1000


class Publisher:
    """The serving store of one app, led along by its engine."""

    def __init__(
        self, folder: Path, manifests: Manifests, prepared: Prepared, log: EventLog, spark: SparkSession
    ) -> None:
        self.folder = folder
        self.manifests = manifests
        self.log = log
        self.spark = spark
        declared = [view.declared for view in prepared.views.values()]
        declared += [view.declared for view in prepared.unprepared.values()]
        self.served = [view.name for view in declared if view.serve]
        folder.mkdir(parents=True, exist_ok=True)
        self.store = ServingStore(folder / STORE, files=log.local.files)
        self.committed = CommittedChanges(manifests, folder, log.local.files)
        self.aside = LateTopic(manifests.app, log, prepared)
        self.unserved: dict[str, Corruption] = {}  # views of which no table can be made
        self._noted: Mapping[str, Any] | None = None
        self._followed: int | None = None  # the tick with which the store was told everything, and all went well
        self._all_sound = False  # whether every table can be read, a paused view's too
        self._others_dropped = False  # tables of views that are served no more

    def catch_up(self, manifest: Manifest, epoch: int) -> None:
        """Bring the store to the manifest's tick: after a crash, or when it refused one (a full disk)."""
        if self._followed == manifest.tick and self.store.path.exists():
            return
        self.aside.follow(manifest)
        for tick in range(max(self.store.tick, 0) + 1, manifest.tick + 1):
            then = self.manifests.at(tick)
            if then is None or manifest.tick - tick > REPLAYED_TICKS_MAX:
                self._fill(manifest, epoch)
                return
            self._declare(then)
            known = self._known(then)
            changes = {name: self.committed.changes_in(then, name) for name in known}
            self.store.apply(tick, epoch, then.frontier, changes, swap=known, on_broken=_warn)
        self._mend(manifest)

    def _mend(self, manifest: Manifest) -> None:
        """Refill views whose tables are damaged."""
        self.unserved = {}
        every = self.store.broken()
        broken = [name for name in every if name in self._known(manifest) and name not in manifest.paused]
        self._all_sound = len(broken) == len(every)  # unless one of them cannot be refilled
        if not broken:
            return
        contents = RelationSnapshot(self.log, self.folder, manifest, self.spark)
        for name in broken:
            try:
                self._refill(name, contents, manifest)
            except Corruption as error:
                self.unserved[name] = error
                self._all_sound = False

    def _known(self, manifest: Manifest) -> list[str]:
        return [name for name in self.served if name in manifest.views]

    def _fill(self, manifest: Manifest, epoch: int) -> None:
        contents = RelationSnapshot(self.log, self.folder, manifest, self.spark)
        self._declare(manifest)
        for name in self._known(manifest):
            self._refill(name, contents, manifest)
            self.store.swap(name)
        self.store.set_progress(manifest.tick, epoch, manifest.frontier)

    def _refill(self, name: str, contents: RelationSnapshot, manifest: Manifest) -> None:
        self.store.reset(name, contents.frame(name).toArrow().to_reader(), tick=manifest.tick)

    def _declare(self, manifest: Manifest) -> None:
        # As the manifest has them: a query that was changed since is no business of the ticks before it.
        for name in self._known(manifest):
            about = manifest.views[name]
            columns = [(column.name, str(column.type)) for column in columns_of(parse_view_ddl(about["columns"]))]
            self.store.declare(name, columns, about["key"], about.get("table", about["fingerprint"]))

    def follow(self, manifest: Manifest, changes: Mapping[str, Delta], initial: Collection[str]) -> None:
        """A tick was committed: take its changes."""
        self.aside.follow(manifest)
        if initial:
            self._declare(manifest)
        tables = {
            name: changes[name].collect(self.spark) for name in self.served if name in changes and changes[name].rows
        }
        swap = [name for name in initial if name in self.served]
        sound, broken = self._followed == manifest.tick - 1, list[str]()
        self._followed = None

        def note_broken(view: str, error: Exception) -> None:
            broken.append(view)
            _warn(view, error)

        self.store.apply(manifest.tick, manifest.epoch, manifest.frontier, tables, swap=swap, on_broken=note_broken)
        if broken or not sound:
            self._mend(manifest)
        self.note_paused(manifest)
        if initial or not self._others_dropped:
            for name in set(self.store.views()) - set(self.served):
                self.store.drop(name)
            self._others_dropped = True
        if self._all_sound:
            self._followed = manifest.tick

    def follow_swap(
        self, before: Manifest, manifest: Manifest, changes: Mapping[str, Delta], restarted: Collection[str]
    ) -> None:
        """A tick was committed that put views right: also when the store could not follow them as they were."""
        try:
            self.catch_up(before, manifest.epoch)
            self.follow(manifest, changes, restarted)
        except Corruption:
            self._fill(manifest, manifest.epoch)

    def note_paused(self, manifest: Manifest) -> None:
        """Raise an alert for each view that failed and stands still, and end those of views that go on."""
        if manifest.paused == self._noted:
            return
        paused = paused_in(manifest)
        found = {}
        for name, pause in paused.items():
            if name in pause.because:
                others = [other for other, each in paused.items() if name in each.because and other != name]
                with_it = f"; with it: {', '.join(others)}" if others else ""
                found[name] = (f'view "{name}" is paused: {pause.reason(name)}{with_it}', pause.describe(name))
        note_paused(self.log.local, self.manifests.app, found)
        self._noted = manifest.paused

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _warn(view: str, error: Exception) -> None:
    logger.warning('view "%s" is refilled in the serving store: %s', view, str(error).splitlines()[0])
