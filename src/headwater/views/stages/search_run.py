"""Running a stage of stored searches: changed documents and changed searches become changed matches.

What it is: ``SearchRun``, one such stage in one tick; and ``KeptIndex``, the index of queries, which lives from tick to
tick beside the sessions of the view.
Invariants: matches that leave are taken from the stage's own state, by the document or by the search. The index is that
of the searches before the tick, whatever became of ticks that failed: it is compared with the trace it belongs to,
rolled back when its last change was not committed, and built anew when it belongs to another one. What its file has is
compared with the searches that there are, so that it may be of any tick, also of one that was not committed.
A tick costs the changed documents and their matches; a search that is new, all documents if it looks back, else those
that came since it was put.
Not here: the index itself (``headwater/searches``); the plan (``search_views.py``).
Read next: ``search_views.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.searches.index_file import IndexFile, index_path
from headwater.searches.query_index import QueryIndex, QueryReader, StoredSearch
from headwater.searches.search_columns import SearchColumns
from headwater.searches.search_rows import stored_searches
from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT, Stage
from headwater.views.spark.scans import fitted
from headwater.views.stages.relation import BoundRows, TickRelation, by_place
from headwater.views.stages.search_views import SearchStage, matched_frame, matched_rows, status_rows
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import (
    consolidate,
    distinct,
    expand,
    negate,
    union,
    visible,
    weighted_schema,
    with_weight,
)
from headwater.views.state.delta import Delta
from headwater.views.state.row_equality import matches, matching
from headwater.views.state.trace import Trace

if TYPE_CHECKING:
    from headwater.views.state.state_trace import StateTrace

NO_TIME = -(2**63)


@dataclass
class KeptIndex:
    """The index of queries between ticks, and which content of the searches it has."""

    columns: SearchColumns
    reader: QueryReader
    index: QueryIndex
    lineage: object | None = None  # of the trace it belongs to
    last_tick: int = -1  # the last tick of that trace that is in it for certain
    applied_tick: int = -1  # the tick whose changes are in it too, and may not be committed
    applied: dict[str, StoredSearch | None] = field(default_factory=dict)  # what was there before these
    latest_us: int | None = None  # no document came later before this tick; None: not known
    file: IndexFile | None = None  # None: it is not kept for the next process
    unwritten: int = 0  # searches that are not in the file as they are here

    @staticmethod
    def of(columns: SearchColumns, path: Path | None) -> KeptIndex:
        """An index of no searches. ``path``: of its file."""
        reader = QueryReader(columns)
        file = None if path is None else IndexFile(path)
        return KeptIndex(columns, reader, QueryIndex(columns, reader), file=file)

    def fill(self, rows: pa.Table) -> QueryIndex:
        """Make the index that of the searches of some rows: what its file lacks is read from them."""
        kept = None if self.file is None else self.file.read(self.columns)
        self.index = QueryIndex.read(kept, self.columns, self.reader)
        self.unwritten = self.index.replace_all(stored_searches(rows))
        self.write()
        return self.index

    def write(self) -> None:
        """Write the file when enough has changed since it was written."""
        least = max(thresholds.KEPT_SEARCHES_MIN, int(thresholds.KEPT_SEARCHES_PART * len(self.index)))
        if self.file is not None and self.unwritten >= least:
            self.file.write(self.index.packed())
            self.unwritten = 0

    def before(self, source: TickRelation) -> QueryIndex:
        """The index of the searches as they were before the tick."""
        trace = source.trace if isinstance(source.trace, Trace) and source.trace.rows else None
        lineage, last_tick = (None, 0) if trace is None else (trace.lineage, trace.last_tick)
        if lineage is not None and lineage is self.lineage and last_tick == self.applied_tick:
            self.last_tick, self.applied_tick, self.applied = last_tick, -1, {}  # it is committed
        elif lineage is not None and lineage is self.lineage and last_tick == self.last_tick:
            self._roll_back()
        else:
            self.index = QueryIndex(self.columns, self.reader)
            if trace is not None:  # read here: Spark would take longer to begin
                self.fill(expand(visible(trace.consolidated_table(), source.schema.names)))
            self.lineage, self.last_tick, self.latest_us = lineage, last_tick, None
            self.applied_tick, self.applied = -1, {}
        return self.index

    def _roll_back(self) -> None:
        for name, search in self.applied.items():
            self.index.remove(name) if search is None else self.index.put(search)
        self.applied_tick, self.applied = -1, {}

    def apply(self, changes: pa.Table, tick: int) -> list[StoredSearch]:
        """Change the index as the table of searches changed; returns the searches that came or changed."""
        if changes.num_rows:
            self.applied_tick = tick
        come = {each.id: each for each in stored_searches(changes.filter(pc.greater(changes.column(WEIGHT), 0)))}
        for name in changes.column("id").unique().to_pylist():
            self.applied.setdefault(name, self.index.get(name))
            if name in come:
                self.index.put(come[name])
            else:
                self.index.remove(name)
            self.unwritten += 1
        self.write()
        return list(come.values())


class SearchRun:
    """One stage of stored searches in one tick."""

    def __init__(
        self,
        stage: SearchStage,
        shape: StageSchema,
        sources: Mapping[str, TickRelation],
        own: StateTrace | None,
        sessions: ViewSessions,
        *,
        initial: bool,
    ) -> None:
        assert stage.function is not None
        self.stage = stage
        self.function = stage.function
        self.schema = shape.state
        self.documents = sources[stage.documents.relation]
        self.searches = sources[stage.searches.relation]
        self.own = own
        self.sessions = sessions
        self.initial = initial
        self.names = [column for column, _ in self.function.documents]  # of a document, in its own relation
        self.key = [name for _, name in self.function.documents]  # the same in the view

    def run(self) -> Delta | None:
        """The stage's changes; None when so many documents changed that all of them must be looked at."""
        changed = consolidate(self.searches.changes.collect(self.sessions.large))
        self.sessions.rows_read += changed.num_rows + (0 if self.function.status else self.documents.changes.rows)
        if self.function.status:
            return self._status(changed)
        if self.initial:
            index = self._new_index().fill(expand(changed))
            return self._all_documents(index, self.documents.changed(self.stage.documents.columns), changed)
        touched = self.documents.changes.table
        if touched is None and not self.function.append_only:
            return None
        kept = self._kept()
        kept.before(self.searches)
        come = kept.apply(changed, self.sessions.tick)
        gone_searches = distinct(changed.select(["id"]))
        if touched is None:
            now = self._all_documents(
                kept.index, self.documents.changed(self.stage.documents.columns), self._searches_now()
            )
            parts = [now.read()]
            keys = None
        else:
            keys = distinct(touched.select(self.names))
            parts = [self._matched(kept.index, self._documents_now(touched, keys))]
        parts += self._left(keys, gone_searches)
        parts += self._found_in_the_past(kept, come, keys)
        self._note_latest(kept, touched)
        return Delta.local(consolidate(union(weighted_schema(self.schema).empty_table(), *parts)))

    # The index

    def _columns(self) -> SearchColumns:
        return self.function.columns(self.documents.schema)

    def _kept(self) -> KeptIndex:
        kept = self.sessions.remembered.get(self.stage.name)
        if not isinstance(kept, KeptIndex) or kept.columns.schema != self._columns().schema:
            kept = self.sessions.remembered[self.stage.name] = self._new_index()
        return kept

    def _new_index(self) -> KeptIndex:
        folder = self.sessions.app_folder
        return KeptIndex.of(self._columns(), None if folder is None else index_path(folder, self.stage.name))

    def _searches_now(self) -> pa.Table:
        return _rows(self.searches.bag(self.searches.schema.names), self.sessions)

    # Documents

    def _documents_now(self, touched: pa.Table, keys: pa.Table) -> pa.Table:
        """The documents that came or changed, as they are after the tick."""
        columns = list(self.stage.documents.columns)
        if self.function.unique:
            return touched.filter(pc.greater(touched.column(WEIGHT), 0)).select(columns)
        found = self.documents.bag_of(columns, self.names, by_place(keys))
        if found is not None:
            return _rows(found, self.sessions)
        every = _rows(self.documents.bag(columns), self.sessions)
        return matching(every, self.names, keys)

    def _matched(self, index: QueryIndex, documents: pa.Table) -> pa.Table:
        return with_weight(matched_rows(index, documents, self.function, self.schema), 1)

    def _all_documents(self, index: QueryIndex, documents: BoundRows, searches: pa.Table) -> Delta:
        """The matches of weighted documents, here or on Spark's workers."""
        if documents.local is not None:
            plain = self.documents.changes.plain
            rows = documents.local.drop_columns([WEIGHT]) if plain else expand(consolidate(documents.local))
            return Delta.local(self._matched(index, rows))
        frame = documents.frame(self.sessions.large)
        frame = expand(frame if self.function.append_only else consolidate(frame))
        given = pa.schema([field for field in documents.schema if field.name != WEIGHT])
        rows = searches if WEIGHT not in searches.column_names else expand(searches)
        found = matched_frame(frame, self.function, rows, given, index)
        return self.sessions.write(with_weight(found, 1), weighted_schema(self.schema))

    def _found_in_the_past(
        self, kept: KeptIndex, come: list[StoredSearch], keys: pa.Table | None
    ) -> Iterable[pa.Table]:
        """What new searches match among the documents that did not change."""
        if not come or self.documents.trace is None:
            return
        look_back = self.function.at is None or any(search.look_back for search in come)
        since = min(search.since_us for search in come)
        if not look_back:
            kept.latest_us = self._latest_before() if kept.latest_us is None else kept.latest_us
            if since > kept.latest_us:
                return
        columns = list(self.stage.documents.columns)
        every = self.documents.bag(columns)
        index = QueryIndex(kept.columns, kept.reader)
        for search in come:
            index.put(search)
        if every.local is None:
            frame = every.frame(self.sessions.large)
            if not look_back:
                frame = frame.where(f"{self.function.at} >= timestamp_micros({since})")
            rows = _searched(come)
            found = self.sessions.materialize(
                matched_frame(frame, self.function, rows, every.schema, index), self.schema
            )
            past = _rows(found, self.sessions)
        else:
            past = matched_rows(index, every.local, self.function, self.schema)
        if keys is not None and keys.num_rows and past.num_rows:
            past = past.filter(pc.invert(matches(past, self.key, by_place(keys))))
        yield with_weight(past, 1)

    def _note_latest(self, kept: KeptIndex, touched: pa.Table | None) -> None:
        """Remember when the last document came, so that a search that is put later need not look for older ones."""
        if touched is None:
            kept.latest_us = None
        elif self.function.at is not None and kept.latest_us is not None:
            kept.latest_us = max(kept.latest_us, _latest(touched.column(self.function.at)))

    def _latest_before(self) -> int:
        """No document came later than this before the tick."""
        assert self.function.at is not None
        before = self.documents.before([self.function.at])
        if before.local is not None:
            return _latest(before.local.column(self.function.at))
        from pyspark.sql import functions as f

        self.sessions.actions += 1
        return _latest(
            before.frame(self.sessions.large).agg(f.max(self.function.at).alias("latest")).toArrow().column(0)
        )

    # The stage's own state

    def _left(self, keys: pa.Table | None, searches: pa.Table) -> list[pa.Table]:
        """The old matches of documents and searches that changed, each once, taken away."""
        if self.own is None:
            return []
        parts, names = [], self.schema.names
        known = keys is not None and keys.num_rows and not self.function.append_only
        if known:
            assert keys is not None
            found = self.own.lookup(self.key, by_place(keys), names)
            parts.append(negate(matching(found, self.key, keys)))
        if searches.num_rows:
            found = self.own.lookup(["search"], by_place(searches), names)
            found = matching(found, ["search"], searches)
            if known and found.num_rows:
                assert keys is not None
                found = found.filter(pc.invert(matches(found, self.key, by_place(keys))))
            parts.append(negate(found))
        return parts

    def _status(self, changed: pa.Table) -> Delta:
        """The rows of searches that changed, in the place of those that they had."""
        come = changed.filter(pc.greater(changed.column(WEIGHT), 0))
        new = with_weight(status_rows(come, self._columns(), self._kept().reader), 1)
        searches = distinct(changed.select(["id"]))
        if self.own is None or not searches.num_rows:
            return Delta.local(consolidate(new))
        old = self.own.lookup(["search"], by_place(searches), self.schema.names)
        old = fitted(matching(old, ["search"], searches), weighted_schema(self.schema))
        return Delta.local(consolidate(union(new, negate(old))))


class RunningStage(Protocol):
    """What a stage in a tick has (``StageRun``)."""

    stage: Stage
    shape: StageSchema
    sources: dict[str, TickRelation]
    own: StateTrace | None
    sessions: ViewSessions
    initial: bool


def search_changes(of: RunningStage) -> Delta | None:
    """The changes of a stage of stored searches; None when it must be recomputed."""
    assert isinstance(of.stage, SearchStage)
    return SearchRun(of.stage, of.shape, of.sources, of.own, of.sessions, initial=of.initial).run()


def _rows(bound: BoundRows, sessions: ViewSessions) -> pa.Table:
    """Rows of a leaf on the driver."""
    if bound.local is not None:
        return bound.local
    sessions.actions += 1
    return bound.frame(sessions.large).toArrow().cast(bound.schema)


def _latest(moments: Any) -> int:
    found = pc.max(moments.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())).as_py()
    return NO_TIME if found is None else int(found)


def _searched(searches: list[StoredSearch]) -> pa.Table:
    """Searches as rows of their table."""
    rows = [
        {
            "id": search.id,
            "query": search.query,
            "owner": search.owner,
            "tags": list(search.tags),
            "look_back": search.look_back,
            "_appended_at": search.since_us,
        }
        for search in searches
    ]
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("query", pa.string()),
            ("owner", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("look_back", pa.bool_()),
            ("_appended_at", pa.int64()),
        ]
    )
    table = pa.Table.from_pylist(rows, schema)
    place = schema.get_field_index("_appended_at")
    return table.set_column(
        place, "_appended_at", table.column(place).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    )
