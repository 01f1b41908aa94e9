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
import pyarrow.compute as pc

from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.storage.files import Files
from headwater.views.compiler.plan import WEIGHT
from headwater.views.stages.relation import SHOWN
from headwater.views.state.consolidate import net
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.run import Run
from headwater.views.state.state_store import pile_of


class CommittedChanges:
    """The changes of an app's views, tick by tick."""

    def __init__(self, manifests: Manifests, folder: Path, files: Files) -> None:
        self.manifests = manifests
        self.folder = folder
        self.files = files

    def changes(self, view: str, tick: int) -> pa.Table | None:
        """The visible changes of a view in a tick; None when the tick's manifest is no longer kept."""
        manifest = self.manifests.at(tick)
        return None if manifest is None else self.changes_in(manifest, view)

    def changes_in(self, manifest: Manifest, view: str) -> pa.Table:
        """The visible changes that a manifest's own tick made."""
        schema = visible_schema(manifest, view)
        entry = manifest.apart.get(view) or manifest.relations[view]
        pile = pile_of(self.folder, view, entry, self.files)
        runs = [Run.from_json(run) for run in entry["runs"]]
        if manifest.views[view]["born"] != manifest.tick:
            runs = [run for run in runs if run.first_tick == manifest.tick]
        if not runs:
            return schema.empty_table()
        changes = visible(pa.Table.from_batches(pile.read(runs), pile.schema), schema)
        return net(changes) if len(runs) > 1 else changes


def visible_schema(manifest: Manifest, view: str) -> pa.Schema:
    """The columns of a view's changes."""
    columns = parse_view_ddl(manifest.views[view]["columns"])
    return pa.schema([*columns, pa.field(WEIGHT, pa.int64())])


def visible(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """What users see of state rows: visible columns, shown rows, netted."""
    if SHOWN in table.column_names:
        table = table.filter(pc.field(SHOWN))
    if table.column_names == schema.names:
        return table
    return net(table.select(schema.names))
