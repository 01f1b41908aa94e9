"""The manifest: what is true of an app's views, and who may say so.

What it is: one row per app in the catalog (its epoch and its current tick) and one per kept tick: its manifest, JSON.
``Manifests`` is also the contract of manifests on an object store, whose commits are copied into the same tables
(``remote/store_manifests.py``): every reader of manifests reads them here.
What a manifest says of views, relations and runs is stored once for all the ticks that it holds in
(``manifest_entries.py``), so that a tick writes what it changed. ``tick_changes`` has the rows that each tick changed
in each view, so that no manifests are read for a lag. The rows of small runs are written with the manifest
(``small_runs.py``).
Invariants: a manifest is committed by one transaction that also compares the epoch and the tick, so that of two
processes exactly one can commit a tick and an older one never can again; a committed manifest is never changed. All
tables change in that transaction. The kept ticks have no gap.
Not here: the files that it lists (``run.py``); when to commit (``views/tick/engine.py``).
Read next: ``views/tick/engine.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from headwater.errors import Corruption, Fenced, ObjectStoreRefused
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.readers import write_app_positions
from headwater.log.token import Token
from headwater.views.state.manifest_entries import FIELDS, EntryChanges, Listed, ManifestEntries, Place, text_of
from headwater.views.state.run import Run, RunEntry
from headwater.views.state.small_runs import SmallRuns

if TYPE_CHECKING:
    from headwater.views.state.remote.state_lease import LeaseRecord

Frontier = Mapping[str, Mapping[int, int]]


class RelationEntry(TypedDict):
    """What a manifest says of a relation that keeps a state."""

    identity: str
    schema: str  # DDL, without the weight
    key: NotRequired[list[str]]
    runs: list[RunEntry]


STORED_APART = ("views", "relations", "apart", *FIELDS)  # the fields of a manifest that are entries


class ViewEntry(TypedDict):
    """What a manifest says of a view."""

    fingerprint: str
    build_id: str
    columns: str  # DDL
    key: list[str]
    kind: str
    sql: str | None  # so that it can go on while another query takes its place
    timing: dict[str, Any]
    created_tick: int
    table: NotRequired[str]  # the serving store's name for its table: another one when the view begins anew


@dataclass(frozen=True)
class Manifest:
    """An app at one tick. Tick 0 is before everything."""

    tick: int = 0
    epoch: int = 0
    frontier: Frontier = field(default_factory=dict)  # {topic: {partition: next offset}}
    committed_us: int = 0
    relations: Mapping[str, RelationEntry] = field(default_factory=dict)
    views: Mapping[str, ViewEntry] = field(default_factory=dict)
    rows_in: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)  # {topic: its number}: a name may be given to another one
    # {view: …}: what this tick changed in a view of which it also replaced the state
    apart: Mapping[str, RelationEntry] = field(default_factory=dict)
    times: Mapping[str, Any] = field(default_factory=dict)  # as ``Times.to_json`` gives them
    # {view: {topic: {"start": {partition: offset}, "cutoff_us", "watermark_us"}}}: where this tick found late rows
    late: Mapping[str, Any] = field(default_factory=dict)
    paused: Mapping[str, Any] = field(default_factory=dict)  # {view: as ``Pause.to_json`` gives it}
    # {topic: {partition: [offset, ...]}}: records that the views of this app leave out (``lifecycle/set_aside.py``)
    aside: Mapping[str, Any] = field(default_factory=dict)
    # {topic: {partition: [first lost offset, first kept one]}}: rows that this tick went on without (--accept-loss)
    lost: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> Token:
        """The frontier as a token."""
        return Token(self.frontier)

    def of_topics(self, topics: Mapping[str, int]) -> Manifest:
        """The manifest without the frontier of topics that were deleted and made again: those begin at their start."""
        frontier = {
            name: offsets
            for name, offsets in self.frontier.items()
            if name not in topics or self.topics.get(name, topics[name]) == topics[name]
        }
        return replace(self, frontier=frontier)

    def runs_of(self, relation: str) -> list[Run]:
        """The runs of a relation's state; none when it keeps none."""
        entry = self.relations.get(relation)
        return [] if entry is None else [Run.from_json(run) for run in entry["runs"]]

    def to_json(self) -> str:
        """The text that the catalog keeps with the tick: all but the entries, of which it has the number of runs."""
        fields = {name: value for name, value in vars(self).items() if name not in STORED_APART}
        fields["frontier"] = {topic: {str(p): at for p, at in of.items()} for topic, of in self.frontier.items()}
        return text_of({**fields, "runs": self.run_count})

    @property
    def run_count(self) -> int:
        """How many runs it lists."""
        return sum(len(entry["runs"]) for of in (self.relations, self.apart) for entry in of.values())


@dataclass(frozen=True)
class MissedTicks:
    """The kept ticks after one: the first of them, when it was committed, and what they changed in a view."""

    first: int
    committed_us: int
    changes: int


@dataclass(frozen=True)
class TickRecord:
    """What the commit of a tick writes, wherever it is committed."""

    tick: int
    epoch: int
    committed_us: int
    text: str  # the manifest, without its entries
    changed: Mapping[str, int]  # {view: weighted rows that the tick changed}
    changes: EntryChanges
    positions: Mapping[int, Mapping[int, int]]  # {topic: {partition: next offset}}, by the topic's number
    needed: Sequence[Mapping[int, Mapping[int, int]]]  # rows from here on are read again
    first_kept: int  # manifests of earlier ticks are forgotten


class Manifests:
    """The manifests of one app in a home's catalog.

    >>> import headwater as hw, tempfile
    >>> manifests = Manifests(hw.Log(tempfile.mkdtemp()).local.catalog, "shop")
    >>> epoch = manifests.take_over()
    >>> manifests.commit(Manifest(tick=1, epoch=epoch))
    >>> manifests.current().tick
    1
    """

    def __init__(self, catalog: Catalog, app: str) -> None:
        self.catalog = catalog
        self.app = app
        self.entries = ManifestEntries(catalog, app)
        self._committed: Manifest | None = None  # the last one that was committed here
        self._current: Manifest | None = None  # the last one that was read as the current one
        self._released: list[Place] = []

    def take_over(self) -> int:
        """Become the one process that may commit, in place of the one before. Returns the new epoch."""
        with self.catalog.write(durable=True) as db:
            self._check_here(db)
            db.execute("INSERT OR IGNORE INTO apps (name, epoch, tick) VALUES (?, 0, 0)", (self.app,))
            db.execute("UPDATE apps SET epoch = epoch + 1 WHERE name = ?", (self.app,))
            (epoch,) = db.execute("SELECT epoch FROM apps WHERE name = ?", (self.app,)).fetchone()
            return int(epoch)

    def _check_here(self, db: sqlite3.Connection) -> None:
        """Refuse to go on in the catalog with an app whose manifests are on an object store."""
        found = db.execute("SELECT address FROM remote_states WHERE app = ?", (self.app,)).fetchone()
        if found is not None:
            raise ObjectStoreRefused(
                f'the state of app "{self.app}" is at {found["address"]}',
                detail="What the home has of it is a copy.",
                hint=f'Declare the app with state="{found["address"]}".',
                app=self.app,
            )

    def settle(self) -> bool:
        """Find out what became of a commit that failed halfway; whether a tick was committed since ``current``.

        Called before each tick. Here a commit is a transaction: nothing is ever open.
        """
        return False

    def follow(self) -> None:
        """Learn what another process has committed since. Here that is read from the catalog anyway."""

    # The lease: only where the state is on a store, since in a home a file lock tells who runs an app

    lease_seconds: float | None = None  # a process that was silent for so long is taken for gone; None: no lease

    def hold_lease(self, epoch: int) -> None:
        """Tell others that this process runs the app, until ``release_lease``."""

    def release_lease(self) -> None:
        """Tell others that it does not any more."""

    def read_lease(self) -> LeaseRecord | None:
        """The lease of the last process that took over; None when there is none."""
        return None

    # Housekeeping

    @property
    def tidy_due(self) -> bool:
        """Whether ``tidy`` has something to do."""
        return False

    def tidy(self) -> None:
        """Remove what no kept manifest needs, beside the ticks. Here commits do it."""

    def check(self, epoch: int) -> None:
        """Raise ``Fenced`` when another process has taken over."""
        if self.epoch() != epoch:
            raise self._fenced(epoch)

    def epoch(self) -> int:
        """The epoch of the last process that took over; 0 when there was none."""
        rows = self.catalog.read("SELECT epoch FROM apps WHERE name = ?", (self.app,))
        return int(rows[0]["epoch"]) if rows else 0

    def tick(self) -> int:
        """The number of the last committed tick."""
        rows = self.catalog.read("SELECT tick FROM apps WHERE name = ?", (self.app,))
        return int(rows[0]["tick"]) if rows else 0

    def current(self) -> Manifest:
        """The last committed manifest, or that of tick 0. It is read once a tick."""
        known = self._current
        if known is None or known.tick != self.tick():
            known = self._current = self._read(None) or Manifest()
        return known

    def at(self, tick: int) -> Manifest | None:
        """The manifest of a tick, when it is still kept."""
        return self._read(tick)

    def _read(self, tick: int | None) -> Manifest | None:
        try:
            found = self.entries.at(tick)
            if found is None:
                return None
            text, entries = found
            fields = json.loads(text)
            runs = fields.pop("runs", 0)
            fields["frontier"] = {t: {int(p): at for p, at in of.items()} for t, of in fields["frontier"].items()}
            return Manifest(**{**fields, **entries.fields(runs)})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(
                f"the manifest of tick {self.tick() if tick is None else tick} is damaged: {error}",
                detail=f'It is of app "{self.app}": catalog.sqlite, tables ticks, manifest_entries and manifest_runs.',
                hint="What views hold is derived from the log: headwater check says what is damaged.",
                app=self.app,
            ) from error

    def state_id(self) -> str:
        """Names this state: ticks and epochs of another one are others. On a store it moves with the state."""
        rows = self.catalog.read("SELECT identity FROM remote_states WHERE app = ?", (self.app,))
        return str(json.loads(rows[0]["identity"])["state"]) if rows else self.catalog.home_id()

    def address(self) -> str | None:
        """The object store that the app's state is on; None: it is in the home."""
        rows = self.catalog.read("SELECT address FROM remote_states WHERE app = ?", (self.app,))
        return str(rows[0]["address"]) if rows else None

    def kept(self) -> list[tuple[int, int]]:
        """The ticks whose manifest is kept, each with the microsecond of its commit."""
        rows = self.catalog.read("SELECT tick, committed_us FROM ticks WHERE app = ? ORDER BY tick", (self.app,))
        return [(int(row["tick"]), int(row["committed_us"])) for row in rows]

    def missed(self, view: str, after: int) -> MissedTicks | None:
        """What somebody misses of a view who is at this tick; None when no later one is kept."""
        rows = self.catalog.read(
            "SELECT tick, committed_us, (SELECT coalesce(sum(rows), 0) FROM tick_changes WHERE app = ?1 AND tick > ?2"
            " AND view = ?3) AS changes FROM ticks WHERE app = ?1 AND tick > ?2 ORDER BY tick LIMIT 1",
            (self.app, after, view),
        )
        return MissedTicks(*map(int, rows[0])) if rows else None

    def listed(self) -> Listed:
        """The folders that kept manifests list, and the files in them."""
        return self.entries.listed()

    def listed_by(self, epoch: int) -> Listed:
        """The same for the process that may commit; ``Fenced`` for one that may not any more."""
        self.check(epoch)
        return self.listed()

    def commit(
        self,
        manifest: Manifest,
        *,
        first_kept: int = 0,
        needed: Iterable[Frontier] = (),
        small: SmallRuns | None = None,
    ) -> None:
        """Make the manifest current; forget those of ticks before ``first_kept``.

        The app's positions as a reader move with it; rows from the ``needed`` frontiers on are still read again.
        ``small`` has the rows of small runs that the manifest lists.
        """
        with self.catalog.write(durable=True) as db:
            self._check_free(db, manifest)
            record = self._record(manifest, first_kept, needed)
            released = self._write(db, record)
            written = [] if small is None else small.write(db, record.changes.places)
        self._committed = manifest
        self._released += released
        if small is not None:
            small.written(written)

    def _check_free(self, db: sqlite3.Connection, manifest: Manifest) -> None:
        """Raise ``Fenced`` unless this manifest's tick is the next one and its process the one that may commit."""
        found = db.execute("SELECT epoch, tick FROM apps WHERE name = ?", (self.app,)).fetchone()
        if found is None or tuple(found) != (manifest.epoch, manifest.tick - 1):
            raise self._fenced(manifest.epoch)

    def _record(self, manifest: Manifest, first_kept: int, needed: Iterable[Frontier]) -> TickRecord:
        """What the manifest's commit writes."""
        before = self._before(manifest)
        return TickRecord(
            manifest.tick,
            manifest.epoch,
            manifest.committed_us,
            manifest.to_json(),
            _changes(before, manifest),
            EntryChanges.between(before, manifest),
            {manifest.topics[name]: at for name, at in manifest.frontier.items() if name in manifest.topics},
            [{manifest.topics[name]: f[name] for name in f if name in manifest.topics} for f in needed],
            first_kept,
        )

    def _write(self, db: sqlite3.Connection, record: TickRecord) -> list[Place]:
        """Make a tick the current one; returns the files, by folder, that no kept manifest lists any more."""
        db.execute("UPDATE apps SET tick = ? WHERE name = ?", (record.tick, self.app))
        db.execute(
            "INSERT OR REPLACE INTO ticks (app, tick, epoch, committed_us, manifest) VALUES (?, ?, ?, ?, ?)",
            (self.app, record.tick, record.epoch, record.committed_us, record.text),
        )
        db.executemany(
            "INSERT INTO tick_changes (app, tick, view, rows) VALUES (?, ?, ?, ?)",
            [(self.app, record.tick, view, rows) for view, rows in record.changed.items()],
        )
        self.entries.write(db, record.tick, record.changes)
        db.execute("DELETE FROM ticks WHERE app = ? AND tick < ?", (self.app, record.first_kept))
        db.execute("DELETE FROM tick_changes WHERE app = ? AND tick < ?", (self.app, record.first_kept))
        released = self.entries.forget(db, record.first_kept)
        write_app_positions(db, self.app, record.positions, record.committed_us, needed=record.needed)
        return released

    def take_released(self) -> list[Place]:
        """The files, by folder, that were listed and are not any more, since commits here let the last of them go."""
        released, self._released = self._released, []
        return released

    def _before(self, manifest: Manifest) -> Manifest:
        """The manifest of the tick before, remembered where this process committed it."""
        last = self._committed
        if last is not None and (last.epoch, last.tick) == (manifest.epoch, manifest.tick - 1):
            return last
        return self.at(manifest.tick - 1) or Manifest()

    def _fenced(self, epoch: int) -> Fenced:
        return Fenced(
            f'another process runs app "{self.app}" now (epoch {self.epoch()}; this one has {epoch})',
            detail="Nothing of this tick was committed.",
            hint="Stop one of the two. The newer one goes on where this one was.",
            app=self.app,
            epoch=epoch,
        )


def _changes(before: Manifest, manifest: Manifest) -> dict[str, int]:
    """The rows that the manifest's tick changed in each view; a tick with which a view began brought all it holds."""
    found: dict[str, int] = {}
    for view, about in manifest.views.items():
        entry = manifest.apart.get(view) or manifest.relations.get(view)
        if entry is None or entry is before.relations.get(view):  # most views stand still in most ticks
            continue
        whole = about["created_tick"] == manifest.tick
        rows = sum(run["rows"] for run in entry["runs"] if whole or run["first_tick"] == manifest.tick)
        if rows:
            found[view] = rows
    return found
