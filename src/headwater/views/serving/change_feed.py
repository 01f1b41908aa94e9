"""The change feed: what changed in a view, tick by tick, in Spark's words.

What it is: ``ChangeFeed`` reads a view's committed changes and names them: ``_change_type`` (insert, delete,
update_preimage, update_postimage), ``_commit_version`` (the tick), ``_commit_timestamp``.
Invariants: exactly the committed ticks, in order, each once: a reader goes on after the last ``_commit_version`` it
remembers, without gap or repeat. Ticks that changed nothing in the view are passed over. A tick that is no longer kept,
and a view that was redeclared, are errors that say where to begin, never a silent gap.
Not here: where changes are kept and for how long (``committed_changes.py``, ``views/state/manifest.py``).
Read next: ``committed_changes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.errors import OffsetOutOfRange
from headwater.log.schema.ddl import TIMESTAMP
from headwater.log.schema.row_identity import row_identities
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.algebra import consolidate

if TYPE_CHECKING:
    from headwater.views.serving.committed_changes import CommittedChanges
    from headwater.views.state.manifest import Manifest

INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"
CHANGE_TYPE, VERSION, TIMESTAMP_COLUMN = "_change_type", "_commit_version", "_commit_timestamp"
LOOK_S = 60.0  # a follower without a time-out looks up this often even without being woken

Wait = Callable[[int, float], bool]  # until this tick is committed; False when the seconds ran out


def named(changes: pa.Table, *, tick: int, committed_us: int, key: Sequence[str] = ()) -> pa.Table:
    """Weighted changes as rows with Spark's names; with a key, a row that leaves and comes again is an update.

    >>> changes = pa.table({"id": [1, 1, 2], "n": [5, 6, 7], "_weight": [-1, 1, 1]})
    >>> table = named(changes, tick=3, committed_us=0, key=["id"])
    >>> table.select(["id", "n", "_change_type"]).to_pydict()
    {'id': [1, 1, 2], 'n': [5, 6, 7], '_change_type': ['update_preimage', 'update_postimage', 'insert']}
    """
    changes = consolidate(changes)
    weights = changes.column(WEIGHT).to_numpy()
    rows = changes.drop_columns([WEIGHT])
    everywhere = np.arange(changes.num_rows)
    gone, come = (np.repeat(everywhere[sign * weights > 0], np.abs(weights[sign * weights > 0])) for sign in (-1, 1))
    places, types = _ordered(rows, gone.tolist(), come.tolist(), key)
    made = rows.take(pa.array(places, pa.int64()))
    count = made.num_rows
    return (
        made.append_column(CHANGE_TYPE, pa.array(types, pa.string()))
        .append_column(VERSION, pa.array(np.full(count, tick, np.int64)))
        .append_column(TIMESTAMP_COLUMN, pa.array(np.full(count, committed_us, np.int64)).cast(TIMESTAMP))
    )


def _ordered(rows: pa.Table, gone: list[int], come: list[int], key: Sequence[str]) -> tuple[list[int], list[str]]:
    """Which row stands where, and what it is: updates and deletes first, then inserts."""
    if not key or not gone or not come:
        return [*gone, *come], [DELETE] * len(gone) + [INSERT] * len(come)
    identities = row_identities(rows.select(list(key)))
    following = {identities[place]: place for place in come}
    places: list[int] = []
    types: list[str] = []
    for place in gone:
        after = following.pop(identities[place], None)
        places += [place] if after is None else [place, after]
        types += [DELETE] if after is None else [PREIMAGE, POSTIMAGE]
    left = list(following.values())
    return places + left, types + [INSERT] * len(left)


class ChangeFeed:
    """The changes of one view.

    ``wait`` is how it sleeps until a tick is committed: ``ServingStore.wait``.
    """

    def __init__(self, view: str, committed: CommittedChanges, wait: Wait) -> None:
        self.view = view
        self._committed = committed
        self._manifests = committed.manifests
        self._wait = wait

    @property
    def first_tick(self) -> int:
        """The first tick whose changes are kept."""
        kept = self._manifests.kept()
        return kept[0][0] if kept else self.last_tick + 1

    @property
    def last_tick(self) -> int:
        """The last committed tick."""
        return self._manifests.tick()

    def read(self, from_tick: int | None = None, to_tick: int | None = None) -> Iterator[pa.Table]:
        """One table for each tick that changed something, from ``from_tick`` to ``to_tick``, both included.

        Without them: from the first one kept of the view's present query to the last one committed.
        """
        first, created_tick = self._begin(from_tick)
        last = self.last_tick if to_tick is None else min(to_tick, self.last_tick)
        return self._walk(first, last, created_tick)

    def changes(
        self, from_tick: int | None = None, *, follow: bool = False, timeout: float | None = None
    ) -> Iterator[pa.Table]:
        """As ``read``; with ``follow`` it goes on with ticks to come, until none has come for ``timeout`` seconds."""
        first, created_tick = self._begin(from_tick)
        return self._follow(first, created_tick, timeout) if follow else self._walk(first, self.last_tick, created_tick)

    def _follow(self, first: int, created_tick: int | None, timeout: float | None) -> Iterator[pa.Table]:
        while True:
            last = self.last_tick
            if first <= last:
                yield from self._walk(first, last, created_tick)
                first, created_tick = last + 1, self._created_before(last + 1)
            deadline = None if timeout is None else monotonic() + timeout
            while self.last_tick < first:
                left = LOOK_S if deadline is None else min(LOOK_S, deadline - monotonic())
                if left <= 0:
                    return
                self._wait(first, left)

    def _walk(self, first: int, last: int, created_tick: int | None) -> Iterator[pa.Table]:
        """``created_tick`` is that of the query that the reader follows; None when it follows none yet."""
        for tick in range(first, last + 1):
            manifest = self._kept(tick)
            about = manifest.views.get(self.view)
            if about is None:  # not declared yet, or dropped
                continue
            if created_tick is not None and about["created_tick"] != created_tick:
                raise self._another_query(tick)
            created_tick = about["created_tick"]
            try:
                changes = self._committed.changes_in(manifest, self.view)
            except FileNotFoundError:
                self._kept(tick)  # it may have left the kept span between the look and the reading
                raise
            if changes.num_rows:
                table = named(changes, tick=tick, committed_us=manifest.committed_us, key=about["key"])
                if table.num_rows:
                    yield table

    def _created_before(self, tick: int) -> int | None:
        """When the query began that was current before a tick, as far as anybody remembers."""
        manifest = self._manifests.at(tick - 1)
        about = None if manifest is None else manifest.views.get(self.view)
        return None if about is None else int(about["created_tick"])

    def _begin(self, from_tick: int | None) -> tuple[int, int | None]:
        """The first tick to be read, and when the query began that the reader has followed until then."""
        if from_tick is None:  # a new reader begins with the present query
            about = self._manifests.current().views.get(self.view)
            return max(self.first_tick, 0 if about is None else int(about["created_tick"])), None
        last = self.last_tick
        if from_tick > last + 1:
            raise OffsetOutOfRange(
                f"tick {from_tick} is after the last one, {last}",
                hint=f"Go on at {last + 1}, or leave from_tick out.",
                tick=from_tick,
                last=last,
            )
        if from_tick <= last:
            self._kept(max(1, from_tick))  # tick 0 is before everything
        first = max(1, from_tick)
        return first, self._created_before(first)

    def _kept(self, tick: int) -> Manifest:
        manifest = self._manifests.at(tick)
        if manifest is None:
            first = self.first_tick
            raise OffsetOutOfRange(
                f'the changes of view "{self.view}" in tick {tick} are no longer kept; the first that are: {first}',
                hint=f"Read the view as it is now, and go on with its changes from tick {self.last_tick + 1}.",
                tick=tick,
                first=first,
            )
        return manifest

    def _another_query(self, tick: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f'view "{self.view}" was redeclared at tick {tick}; its changes before are of another query',
            detail=f"Tick {tick} brings all rows of the new query as inserts.",
            hint="Clear the rows that you derived from earlier changes, and begin again without from_tick.",
            tick=tick,
            first=tick,
        )
