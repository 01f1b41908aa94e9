"""The manifest: what is true of an app's views, and who may say so.

What it is: one row per app in the catalog (its epoch and its current tick) and one per kept tick (its manifest).
Invariants: a manifest is committed by one transaction that also compares the epoch and the tick, so that of two
processes exactly one can commit a tick and an older one never can again; a committed manifest is never changed.
Not here: the files that it lists (``run.py``); when to commit (``views/tick/engine.py``).
Read next: ``views/tick/engine.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.errors import Fenced
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.readers import write_app_positions
from headwater.log.token import Token

Frontier = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Manifest:
    """An app at one tick. Tick 0 is before everything."""

    tick: int = 0
    epoch: int = 0
    frontier: Frontier = field(default_factory=dict)  # {topic: {partition: next offset}}
    committed_us: int = 0
    relations: Mapping[str, Any] = field(default_factory=dict)  # {name: {"schema": DDL, "runs": [...], ...}}
    views: Mapping[str, Any] = field(
        default_factory=dict
    )  # {name: {"fingerprint", "columns", "key", "created_tick", ...}}
    rows_in: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)  # {topic: its number}: a name may be given to another one
    # {view: as in relations}: what this tick changed in a view of which it also replaced the state
    apart: Mapping[str, Any] = field(default_factory=dict)
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

    def to_json(self) -> str:
        """The text that the catalog keeps."""
        frontier = {
            topic: {str(number): offset for number, offset in of.items()} for topic, of in self.frontier.items()
        }
        fields = {name: value for name, value in vars(self).items() if name != "frontier"}
        return json.dumps({**fields, "frontier": frontier}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Manifest:
        """The manifest that ``to_json`` wrote.

        >>> Manifest.from_json(Manifest(tick=3, frontier={"orders": {0: 7}}).to_json()).frontier
        {'orders': {0: 7}}
        """
        parts = json.loads(text)
        parts["frontier"] = {t: {int(p): offset for p, offset in of.items()} for t, of in parts["frontier"].items()}
        return Manifest(**parts)


class Manifests:
    """The manifests of one app in a home's catalog.

    >>> import headwater as hw, tempfile
    >>> manifests = Manifests(hw.Log(tempfile.mkdtemp()).catalog, "shop")
    >>> epoch = manifests.take_over()
    >>> manifests.commit(Manifest(tick=1, epoch=epoch))
    >>> manifests.current().tick
    1
    """

    def __init__(self, catalog: Catalog, app: str) -> None:
        self.catalog = catalog
        self.app = app

    def take_over(self) -> int:
        """Become the one process that may commit; whoever was it before no longer is. Returns the new epoch."""
        with self.catalog.write(durable=True) as db:
            db.execute("INSERT OR IGNORE INTO apps (name, epoch, tick) VALUES (?, 0, 0)", (self.app,))
            db.execute("UPDATE apps SET epoch = epoch + 1 WHERE name = ?", (self.app,))
            (epoch,) = db.execute("SELECT epoch FROM apps WHERE name = ?", (self.app,)).fetchone()
            return int(epoch)

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
        """The last committed manifest, or that of tick 0."""
        rows = self.catalog.read(
            "SELECT manifest FROM ticks JOIN apps ON ticks.app = apps.name AND ticks.tick = apps.tick WHERE app = ?",
            (self.app,),
        )
        return Manifest.from_json(rows[0]["manifest"]) if rows else Manifest()

    def at(self, tick: int) -> Manifest | None:
        """The manifest of a tick, when it is still kept."""
        rows = self.catalog.read("SELECT manifest FROM ticks WHERE app = ? AND tick = ?", (self.app, tick))
        return Manifest.from_json(rows[0]["manifest"]) if rows else None

    def kept(self) -> list[tuple[int, int]]:
        """The ticks whose manifest is kept, each with the microsecond of its commit."""
        rows = self.catalog.read("SELECT tick, committed_us FROM ticks WHERE app = ? ORDER BY tick", (self.app,))
        return [(int(row["tick"]), int(row["committed_us"])) for row in rows]

    def all_kept(self) -> list[Manifest]:
        """The manifests that are kept."""
        rows = self.catalog.read("SELECT manifest FROM ticks WHERE app = ? ORDER BY tick", (self.app,))
        return [Manifest.from_json(row["manifest"]) for row in rows]

    def commit(self, manifest: Manifest, *, first_kept: int = 0, needed: Iterable[Frontier] = ()) -> None:
        """Make the manifest current; forget those of ticks before ``first_kept``.

        The app's positions as a reader move with it; rows from the ``needed`` frontiers on are still read again.
        """
        with self.catalog.write(durable=True) as db:
            done = db.execute(
                "UPDATE apps SET tick = ? WHERE name = ? AND epoch = ? AND tick = ?",
                (manifest.tick, self.app, manifest.epoch, manifest.tick - 1),
            )
            if done.rowcount != 1:
                raise self._fenced(manifest.epoch)
            db.execute(
                "INSERT OR REPLACE INTO ticks (app, tick, epoch, committed_us, manifest) VALUES (?, ?, ?, ?, ?)",
                (self.app, manifest.tick, manifest.epoch, manifest.committed_us, manifest.to_json()),
            )
            db.execute("DELETE FROM ticks WHERE app = ? AND tick < ?", (self.app, first_kept))
            positions = {manifest.topics[name]: at for name, at in manifest.frontier.items() if name in manifest.topics}
            again = [{manifest.topics[name]: f[name] for name in f if name in manifest.topics} for f in needed]
            write_app_positions(db, self.app, positions, manifest.committed_us, needed=again)

    def replace(self, manifest: Manifest) -> None:
        """Put other runs of the same content (merged ones) into the current tick's manifest."""
        with self.catalog.write(durable=True) as db:
            done = db.execute(
                "UPDATE apps SET tick = tick WHERE name = ? AND epoch = ? AND tick = ?",
                (self.app, manifest.epoch, manifest.tick),
            )
            if done.rowcount != 1:
                raise self._fenced(manifest.epoch)
            db.execute(
                "UPDATE ticks SET manifest = ? WHERE app = ? AND tick = ?",
                (manifest.to_json(), self.app, manifest.tick),
            )

    def _fenced(self, epoch: int) -> Fenced:
        return Fenced(
            f'another process runs app "{self.app}" now (epoch {self.epoch()}; this one has {epoch})',
            detail="Nothing of this tick was committed.",
            hint="Stop one of the two. The newer one goes on where this one was.",
            app=self.app,
            epoch=epoch,
        )
