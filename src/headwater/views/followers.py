"""Followers: what is told of each committed tick.

What it is: fills the serving store with each tick's changes, after the commit, and catches up when it fell behind.
Invariants: the store never gets ahead of the manifest; it gets each tick once and in order, after a crash too.
Not here: the serving store itself (``serving.py``).
Read next: ``serving.py``, ``committed.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import Corruption
from headwater.log.ddl import parse_view_ddl
from headwater.log.home import Log
from headwater.views.changes import Changes
from headwater.views.committed import Committed
from headwater.views.manifest import Manifest, Manifests
from headwater.views.reading import Contents
from headwater.views.serving import ServingStore
from headwater.views.shapes import columns_of
from headwater.views.sources import Unwritten
from headwater.views.stragglers import Aside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.prepare import Prepared

STORE = "serving.sqlite"
# Behind by more ticks than this, the store is filled anew from the state.
REPLAYED_TICKS_MAX = 1000


class Followers:
    """The serving store of one app, led along by its engine."""

    def __init__(self, folder: Path, manifests: Manifests, prepared: Prepared, log: Log, spark: SparkSession) -> None:
        self.folder = folder
        self.manifests = manifests
        self.log = log
        self.spark = spark
        self.served = {name: view for name, view in prepared.views.items() if view.declared.serve}
        folder.mkdir(parents=True, exist_ok=True)
        self.store = ServingStore(folder / STORE, files=log.files)
        self.committed = Committed(manifests, folder, log.files)
        self.aside = Aside(manifests.app, log, prepared)

    def catch_up(self, manifest: Manifest, epoch: int) -> None:
        """Bring the store to the manifest's tick: after a crash, or when it refused one (a full disk)."""
        self.aside.follow(manifest)
        for tick in range(max(self.store.tick, 0) + 1, manifest.tick + 1):
            then = self.manifests.at(tick)
            if then is None or manifest.tick - tick > REPLAYED_TICKS_MAX:
                self._fill(manifest, epoch)
                return
            self._declare(then)
            known = self._known(then)
            self.store.apply(
                tick, epoch, then.frontier, {name: self.committed.changes_in(then, name) for name in known}, swap=known
            )

    def _known(self, manifest: Manifest) -> list[str]:
        return [name for name in self.served if name in manifest.views]

    def _fill(self, manifest: Manifest, epoch: int) -> None:
        contents = Contents(self.log, self.folder, manifest, self.spark)
        self._declare(manifest)
        for name in self._known(manifest):
            self.store.reset(name, contents.frame(name).toArrow().to_reader(), tick=manifest.tick)
            self.store.swap(name)
        self.store.set_progress(manifest.tick, epoch, manifest.frontier)

    def _declare(self, manifest: Manifest) -> None:
        # As the manifest has them: a query that was changed since is no business of the ticks before it.
        for name in self._known(manifest):
            about = manifest.views[name]
            columns = [(column.name, str(column.type)) for column in columns_of(parse_view_ddl(about["columns"]))]
            self.store.declare(name, columns, about["key"], about.get("table", about["fingerprint"]))

    def follow(self, manifest: Manifest, changes: Mapping[str, Changes | Unwritten], fresh: Collection[str]) -> None:
        """A tick was committed: take its changes."""
        self.aside.follow(manifest)
        if fresh:
            self._declare(manifest)
        tables = {
            name: as_table(changes[name], self.spark) for name in self.served if name in changes and changes[name].rows
        }
        swap = [name for name in fresh if name in self.served]
        self.store.apply(manifest.tick, manifest.epoch, manifest.frontier, tables, swap=swap)
        for name in set(self.store.views()) - set(self.served):
            self.store.drop(name)

    def follow_swap(
        self, before: Manifest, manifest: Manifest, changes: Mapping[str, Changes | Unwritten], born: Collection[str]
    ) -> None:
        """A tick was committed that put views right: also when the store could not follow them as they were."""
        try:
            self.catch_up(before, manifest.epoch)
            self.follow(manifest, changes, born)
        except Corruption:
            self._fill(manifest, manifest.epoch)

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def as_table(changes: Changes | Unwritten, spark: SparkSession) -> pa.Table:
    """Changes as an Arrow table, wherever they are."""
    if changes.table is not None:
        return changes.table
    if isinstance(changes, Changes):
        return changes.read()
    return changes.frame(spark).toArrow().cast(changes.schema)
