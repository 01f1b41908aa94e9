"""Committed changes: what each tick changed in a view, read back from the manifests.

What it is: the run that a tick added to a view's state *is* the view's changes in that tick; the tick's manifest
tells which file that is, and merging leaves it alone as long as the manifest is kept. A tick with which a view began
brought all that it holds; one that replaced a view's state by a rebuilt one has what that changed set apart.
Invariants: exactly the committed ticks, each with exactly the changes that were committed with it.
Not here: the names and the iterator that users see (``change_feed.py``).
Read next: ``change_feed.py``.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.storage.files import Files
from headwater.views.state.algebra import consolidate, visible, weighted_schema
from headwater.views.state.manifest import Manifest, Manifests, RelationEntry
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.run import Run
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_store import trace_of
from headwater.views.state.trace import Trace


class CommittedChanges:
    """The changes of an app's views, tick by tick."""

    def __init__(self, manifests: Manifests, folder: Path, files: Files) -> None:
        self.manifests = manifests
        self.folder = folder
        self.files = files
        self.small = SmallRuns(manifests.catalog, manifests.app)
        self._cache: RunCache | None = None

    def changes(self, view: str, tick: int) -> pa.Table | None:
        """The visible changes of a view in a tick; None when the tick's manifest is no longer kept."""
        manifest = self.manifests.at(tick)
        return None if manifest is None else self.changes_in(manifest, view)

    def changes_in(self, manifest: Manifest, view: str) -> pa.Table:
        """The visible changes that a manifest's own tick made."""
        schema = visible_schema(manifest, view)
        entry = manifest.apart.get(view) or manifest.relations[view]
        trace = self.trace_of(view, entry)
        runs = [Run.from_json(run) for run in entry["runs"]]
        if manifest.views[view]["created_tick"] != manifest.tick:
            runs = [run for run in runs if run.first_tick == manifest.tick]
        if not runs:
            return schema.empty_table()
        changes = visible(pa.Table.from_batches(trace.read(runs), trace.schema), schema.names)
        # One run with all of its columns visible is consolidated already.
        return changes if len(runs) == 1 and trace.schema.names == schema.names else consolidate(changes)

    def trace_of(self, view: str, entry: RelationEntry) -> Trace:
        """A trace as a manifest lists it."""
        if self._cache is None:  # the app may have run for the first time since
            self._cache = RunCache.of(self.manifests.catalog, self.manifests.app, self.files)
        return trace_of(self.folder, view, entry, self.files, self.small, self._cache)


def visible_schema(manifest: Manifest, view: str) -> pa.Schema:
    """The columns of a view's changes."""
    return weighted_schema(parse_view_ddl(manifest.views[view]["columns"]))
