"""The view reader: one view's committed rows and changes, as a sink reads them.

What it is: ``ViewReader`` gives a sink the view's head, its consolidated changes and all its rows.
Invariants: no Spark, and no app is taken over: everything comes from the manifests and the runs they list. Changes that
are no longer kept are None, never a gap. A full copy is of one tick, also of a view that is not served, and its memory
is bounded: rows that may cancel out are consolidated in passes over parts of them.
Not here: deciding and delivering (``sinks/runner/sink_task.py``); the feed that users see (``change_feed.py``).
Read next: ``sinks/runner/sink_task.py``, ``committed_changes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.clock import Clock
from headwater.log.schema.ddl import parse_view_ddl
from headwater.views.compiler.plan import WEIGHT
from headwater.views.serving.committed_changes import CommittedChanges, visible_schema
from headwater.views.serving.deliveries import Delivery
from headwater.views.spark.scans import fitted
from headwater.views.state.algebra import consolidate, expand_in_batches, visible, weighted_schema
from headwater.views.state.manifest import Manifest, ViewEntry
from headwater.views.state.row_hash import comparisons, hash_rows
from headwater.views.state.run import Run
from headwater.views.state.trace import Trace

PASS_ROWS = 4_000_000  # so many weighted rows are added up at once
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class ViewHead:
    """A view at its last committed tick."""

    tick: int
    version: str  # "state_id/created_tick/table", see ``SinkContext``
    schema: pa.Schema
    key: tuple[str, ...]


@dataclass(frozen=True)
class ViewLag:
    """How far a reader is behind a view."""

    ticks: int = 0
    seconds: float = 0.0  # since the first tick was committed that is missing
    changes: int | None = 0  # None: they are no longer kept, a full copy is to come


class ViewReader:
    """The committed rows and changes of one view.

    ``epoch`` is that of this process.
    """

    def __init__(
        self, view: str, committed: CommittedChanges, *, epoch: Callable[[], int], clock: Clock | None = None
    ) -> None:
        self.view = view
        self.epoch = epoch
        self._committed = committed
        self._manifests = committed.manifests
        self._clock = clock or Clock()
        self._known: ViewHead | None = None

    def head(self) -> ViewHead | None:
        """The view at its last committed tick; None when it has not run yet."""
        if self._known is None or self._known.tick != self._manifests.tick():
            manifest = self._manifests.current()
            self._known = self.head_at(manifest) if self.view in manifest.views else None
        return self._known

    def head_at(self, manifest: Manifest) -> ViewHead:
        """The view at the tick of a manifest."""
        about = manifest.views[self.view]
        paused = manifest.paused.get(self.view)  # it stands still, and its readers too
        tick = manifest.tick if paused is None else int(paused["tick"])
        return ViewHead(tick, self._version(about), parse_view_ddl(about["columns"]), tuple(about["key"]))

    def _version(self, about: ViewEntry) -> str:
        return f"{self._manifests.state_id()}/{about['created_tick']}/{about.get('table', about['fingerprint'])}"

    # Changes

    def changes(self, after: int, head: ViewHead, *, rows_max: int, ticks_max: int) -> Delivery | None:
        """The changes after a tick, of at most so many ticks and about so many rows, at least one tick.

        None when they are no longer kept, or are of another query: then a full copy is the way.
        """
        tables: list[pa.Table] = []
        rows, tick = 0, after
        while tick < head.tick and tick - after < ticks_max and (rows < rows_max or tick == after):
            manifest = self._manifests.at(tick + 1)
            about = None if manifest is None else manifest.views.get(self.view)
            if manifest is None or about is None or self._version(about) != head.version:
                return None
            try:
                table = self._committed.changes_in(manifest, self.view)
            except FileNotFoundError:  # it left the kept span between the look and the reading
                return None
            tick += 1
            if table.num_rows:
                tables.append(table)
                rows += table.num_rows
        if len(tables) > 1:
            tables = [consolidate(pa.concat_tables(tables))]
        nothing = weighted_schema(head.schema).empty_table()
        return Delivery(tables[0] if tables else nothing, after, tick, self.epoch())

    def lag(self, after: int) -> ViewLag:
        """How far a reader at this tick is behind."""
        head = self.head()
        ticks = (self._manifests.tick() if head is None else head.tick) - after
        if ticks <= 0:
            return ViewLag()
        missed = self._manifests.missed(self.view, after)
        if missed is None:
            return ViewLag(ticks, 0.0, None)
        since = max(0.0, (self._clock.now_us() - missed.committed_us) / 1_000_000)
        return ViewLag(ticks, since, missed.changes if missed.first == after + 1 else None)

    # All rows

    @contextmanager
    def rows(self) -> Iterator[tuple[ViewHead, Iterator[pa.RecordBatch]]]:
        """All rows at the last committed tick."""
        with self.rows_at(self._manifests.current()) as found:
            yield found

    @contextmanager
    def rows_at(self, manifest: Manifest) -> Iterator[tuple[ViewHead, Iterator[pa.RecordBatch]]]:
        """All rows at the tick of a manifest, as long as its files are kept."""
        yield self.head_at(manifest), self._batches(manifest)

    def _batches(self, manifest: Manifest) -> Iterator[pa.RecordBatch]:
        schema = visible_schema(manifest, self.view)
        entry = manifest.relations[self.view]
        trace = self._committed.trace_of(self.view, entry)
        runs = [Run.from_json(run) for run in entry["runs"]]
        if all(run.positive for run in runs):  # nothing can cancel out
            for batch in trace.read(runs):
                yield from expand_in_batches(_visible(batch, schema), BATCH_ROWS)
            return
        passes = -(-sum(run.rows for run in runs) // PASS_ROWS)
        for number in range(passes):
            part = consolidate(self._part(trace, runs, schema, number, passes))
            yield from expand_in_batches(part, BATCH_ROWS)

    def _part(self, trace: Trace, runs: list[Run], schema: pa.Schema, number: int, passes: int) -> pa.Table:
        """The weighted rows whose hash falls into one of so many parts."""
        names = [name for name in schema.names if name != WEIGHT]
        how = comparisons(names, schema, pa.schema([schema.field(name) for name in names]))
        found = [schema.empty_table()]
        for batch in trace.read(runs):
            table = _visible(batch, schema)
            if passes > 1:
                hashes = hash_rows([table.column(name) for name in names], how)
                table = table.filter(pa.array(hashes % np.uint64(passes) == number))
            found.append(table)
        return pa.concat_tables(found)


def _visible(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    return fitted(visible(pa.Table.from_batches([batch]), schema.names), schema)
