"""Store manifests: an app's manifests on an object store, with a copy in the catalog.

What it is: ``StoreManifests``, manifests whose commit is an object that is created once (``commit_log.py``). What was
committed is then copied into the tables that ``manifest.py`` reads: so the current manifest, older ones, what a reader
misses and which files are listed are answered by the catalog, without the store.
Invariants: nothing is committed but by the store; the copy never leads. A crash between the two leaves a copy that is
behind, and taking over brings it up to date: the positions of the app as a reader, and what ticks changed, are written
then. The copy changes in one transaction with the position that it reached, so two processes of one home cannot apply a
commit twice. A process commits only after its own last commit, never after what another one was found to have made.
Not here: the protocol (``commit_log.py``); the files of runs (``run_cache.py``).
Read next: ``commit_log.py``, ``manifest.py``; ``docs/scale.md``.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from headwater.errors import Fenced, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.log.catalog.catalog import Catalog
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.manifest import Frontier, Manifest, Manifests, TickRecord
from headwater.views.state.manifest_entries import EntryChanges, Listed, Place, folder_name
from headwater.views.state.remote.commit_body import SmallRows, body_of, record_in
from headwater.views.state.remote.commit_log import CommitLog, CommitPosition, CommitsFound, Overtaken, StateCommit
from headwater.views.state.remote.state_lease import LeaseRecord, StateLease, read_lease
from headwater.views.state.run import Run
from headwater.views.state.small_runs import SmallRuns, insert_small

CHECKPOINT_COMMITS = 100  # a machine that begins anew reads the kept ticks and at most twice so many commits
COMMIT_ROWS_BYTES_MAX = 4 << 20  # of small runs in one commit: the others become files
TAKE_OVERS_MAX = 20  # others may take over at the same moment
TABLES = ("ticks", "tick_changes", "manifest_entries", "manifest_runs", "small_runs")


class StoreManifests(Manifests):
    """The manifests of one app at an address. ``log_id`` names the log that the state is derived from.

    >>> import headwater as hw, tempfile
    >>> address = ObjectAddress.parse(f"file://{tempfile.mkdtemp()}")
    >>> manifests = StoreManifests(hw.Log(tempfile.mkdtemp()).catalog, "shop", address, log_id="7f")
    >>> epoch = manifests.take_over()
    >>> manifests.commit(Manifest(tick=1, epoch=epoch))
    >>> manifests.current().tick
    1
    """

    def __init__(self, catalog: Catalog, app: str, address: ObjectAddress, *, log_id: str) -> None:
        super().__init__(catalog, app)
        self.place = address
        self.commits = CommitLog(address.open())
        self._log_id = log_id
        self._position: CommitPosition | None = None  # of the last commit of this process: its next one goes behind it
        self._unsettled = False  # a commit of this process may have been made, and is not in the copy
        self._checkpoint_due: CommitPosition | None = None
        self._lock = threading.Lock()  # a tick of another thread must not look while a commit is under way
        self._lease: StateLease | None = None
        self.lease_seconds = float(address.lease_seconds)

    # Committing

    def take_over(self) -> int:
        """Become the one process that may commit: with a commit that only raises the epoch."""
        self._check_begun_here()
        for _ in range(TAKE_OVERS_MAX):
            self.follow()
            known = self._copied()
            body = {"identity": self._identity()}
            try:
                made = self.commits.append(known, epoch=known.epoch + 1, tick=known.tick, body=body)
            except Overtaken:
                continue
            self._copy(known, CommitsFound(None, (StateCommit(made, body),)))
            self._position, self._unsettled = made, False
            return made.epoch
        raise ObjectStoreUnavailable(
            f'other processes keep taking over app "{self.app}"',
            detail=f"Its state is at {self.commits.store.shown}.",
            hint="Stop all of them but one.",
            app=self.app,
        )

    def _check_begun_here(self) -> None:
        """Refuse an app that has run with its state in the home."""
        if self.tick() and not self.catalog.read("SELECT 1 FROM remote_states WHERE app = ?", (self.app,)):
            raise ObjectStoreRefused(
                f'app "{self.app}" has run with its state in the home, up to tick {self.tick()}',
                detail=f"It does not move to {self.place} by itself.",
                hint="Leave state= out, or give the app another name: then its views are computed from the log.",
                app=self.app,
            )

    def commit(
        self,
        manifest: Manifest,
        *,
        first_kept: int = 0,
        needed: Iterable[Frontier] = (),
        small: SmallRuns | None = None,
    ) -> None:
        """Make the manifest current, on the store and then in the copy; see ``Manifests.commit``."""
        with self._lock:
            self._commit(manifest, first_kept, needed, small)

    def _commit(self, manifest: Manifest, first_kept: int, needed: Iterable[Frontier], small: SmallRuns | None) -> None:
        known = self._position
        if self._unsettled:
            raise ObjectStoreUnavailable(
                f"it is not known what became of the last commit at {self.commits.store.shown}",
                hint="The next tick finds it out.",
                app=self.app,
            )
        if known is None or (known.epoch, known.tick) != (manifest.epoch, manifest.tick - 1):
            raise self._fenced(manifest.epoch)
        record = self._record(manifest, first_kept, needed)
        rows = {} if small is None else small.pending(record.changes.places)
        body = {"record": body_of(record, rows)}
        self._unsettled = True
        try:
            made = self.commits.append(known, epoch=manifest.epoch, tick=manifest.tick, body=body)
        except Overtaken as error:
            raise self._overtaken(manifest) from error
        self._position = made
        released = self._copy_own(known, made, record, rows)
        self._unsettled, self._committed = False, manifest
        self._released += released
        if small is not None:
            small.written(list(rows))
        if made.number // CHECKPOINT_COMMITS != known.number // CHECKPOINT_COMMITS:
            self._checkpoint_due = made

    def _overtaken(self, manifest: Manifest) -> Fenced | ObjectStoreUnavailable:
        """Why a commit was not made: another process was first, or an earlier attempt of this one."""
        self.follow()
        if self.epoch() != manifest.epoch:
            return self._fenced(manifest.epoch)
        return ObjectStoreUnavailable(
            f"an earlier commit of tick {manifest.tick} has arrived at {self.commits.store.shown} after all",
            hint="The next tick goes on behind it.",
            app=self.app,
        )

    def settle(self) -> bool:
        """Find out what became of a commit that was not answered; True when the engine is to look at it anew."""
        with self._lock:
            if not self._unsettled or self._position is None:
                return False
            self.follow()
            copied = self._copied()
            if copied.epoch != self._position.epoch:
                raise self._fenced(self._position.epoch)
            self._position, self._unsettled = copied, False
            return True

    # The lease

    def hold_lease(self, epoch: int) -> None:
        """See ``Manifests.hold_lease``."""
        if self._lease is None:
            lease = StateLease(self.commits.store, epoch=epoch, seconds=self.place.lease_seconds, look=self._look)
            lease.begin()
            self._lease = lease

    def _look(self) -> None:
        """Learn that another process has taken over, also while no row comes and nothing is committed."""
        with self._lock:  # not between a commit of this process and its copy
            if not self._unsettled:
                self.follow()

    def release_lease(self) -> None:
        """See ``Manifests.release_lease``."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def read_lease(self) -> LeaseRecord | None:
        """See ``Manifests.read_lease``."""
        return read_lease(self.commits.store, self.epoch())

    def listed_by(self, epoch: int) -> Listed:
        """See ``Manifests.listed_by``; the store is asked who may commit."""
        self.follow()
        return super().listed_by(epoch)

    # The copy

    def follow(self) -> None:
        """Copy what was committed since."""
        known = self._copied()
        found = self.commits.after(known)
        if found.checkpoint is not None or found.commits:
            self._copy(known, found)

    def _copied(self) -> CommitPosition:
        """How far the copy goes."""
        rows = self.catalog.read("SELECT position FROM remote_states WHERE app = ?", (self.app,))
        return CommitPosition(**json.loads(rows[0]["position"])) if rows else CommitPosition()

    def _copy(self, known: CommitPosition, found: CommitsFound) -> None:
        """Write into the catalog what was found after a position, if no other process of this home has done so."""
        with self.catalog.write() as db:
            if not self._is_at(db, known):
                return
            identity: Mapping[str, str] | None = None
            if found.checkpoint is not None:
                identity = self._checked_identity(found.checkpoint.body)
                for table in TABLES:
                    db.execute(f"DELETE FROM {table} WHERE app = ?", (self.app,))
                self._copy_tick(db, found.checkpoint.body["record"])
            for commit in found.commits:
                if "record" in commit.body:
                    self._copy_tick(db, commit.body["record"])
                else:
                    identity = self._checked_identity(commit.body)
            self._reach(db, found.head(known), identity or self._identity())

    def _copy_tick(self, db: sqlite3.Connection, body: Mapping[str, Any]) -> None:
        record, rows = record_in(body)
        db.execute("INSERT OR IGNORE INTO apps (name, epoch, tick) VALUES (?, 0, 0)", (self.app,))
        self._write(db, record)  # files that it releases are collected with those that no manifest lists
        insert_small(db, self.app, rows)

    def _copy_own(
        self, known: CommitPosition, made: CommitPosition, record: TickRecord, rows: SmallRows
    ) -> list[Place]:
        """The same of a commit of this process, which has it in hand; returns the files that it released."""
        with self.catalog.write() as db:
            if not self._is_at(db, known):
                return []
            released = self._write(db, record)
            insert_small(db, self.app, rows)
            self._reach(db, made, self._identity())
        return released

    def _is_at(self, db: sqlite3.Connection, known: CommitPosition) -> bool:
        row = db.execute("SELECT position FROM remote_states WHERE app = ?", (self.app,)).fetchone()
        return (CommitPosition(**json.loads(row["position"])) if row else CommitPosition()) == known

    def _reach(self, db: sqlite3.Connection, position: CommitPosition, identity: Mapping[str, str]) -> None:
        db.execute(
            "INSERT OR REPLACE INTO remote_states (app, address, position, identity) VALUES (?, ?, ?, ?)",
            (self.app, str(self.place), json.dumps(asdict(position)), json.dumps(dict(identity))),
        )
        db.execute(
            "INSERT INTO apps (name, epoch, tick) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (name) DO UPDATE SET epoch = ?2, tick = ?3",
            (self.app, position.epoch, position.tick),
        )

    def _check_here(self, db: sqlite3.Connection) -> None:
        """The app's manifests are on a store, as they should be."""

    def _identity(self) -> dict[str, str]:
        """Whose state it is: as the copy says, or that of a state which begins here."""
        rows = self.catalog.read("SELECT identity FROM remote_states WHERE app = ?", (self.app,))
        if rows:
            return dict(json.loads(rows[0]["identity"]))
        return {"app": self.app, "log": self._log_id, "state": secrets.token_hex(8)}

    def _checked_identity(self, body: Mapping[str, Any]) -> Mapping[str, str]:
        theirs: dict[str, str] = body["identity"]
        if (theirs["app"], theirs["log"]) != (self.app, self._log_id):
            whose = f'app "{theirs["app"]}"' if theirs["app"] != self.app else "an app of another log"
            raise ObjectStoreRefused(
                f"the state at {self.commits.store.shown} is that of {whose}",
                detail="State is derived from one log, and belongs to one app.",
                hint="Give each app an address of its own.",
                app=self.app,
            )
        return theirs

    # Checkpoints

    @property
    def tidy_due(self) -> bool:
        """Whether ``tidy`` has something to do."""
        return self._checkpoint_due is not None

    def tidy(self) -> None:
        """Write a checkpoint, and delete the commits that no kept tick needs any more."""
        due, self._checkpoint_due = self._checkpoint_due, None
        manifest = None if due is None else self.at(due.tick)
        if due is None or manifest is None:
            return
        self.commits.write_checkpoint(due, {"identity": self._identity(), "record": self._whole(manifest)})
        kept = self.kept()
        if kept:
            self.commits.collect(kept[0][0])

    def _whole(self, manifest: Manifest) -> dict[str, Any]:
        """All that a manifest says, as if its tick had been the first."""
        changed = self.catalog.read(
            "SELECT view, rows FROM tick_changes WHERE app = ? AND tick = ?", (self.app, manifest.tick)
        )
        positions: dict[int, dict[int, int]] = {}
        needed: dict[int, dict[int, int]] = {}
        for topic, number, offset, first in self.catalog.read(
            "SELECT topic_id, partition, offset, needed FROM app_positions WHERE app = ?", (self.app,)
        ):
            positions.setdefault(topic, {})[number] = offset
            needed.setdefault(topic, {})[number] = first
        record = TickRecord(
            manifest.tick,
            manifest.epoch,
            manifest.committed_us,
            manifest.to_json(),
            {row["view"]: row["rows"] for row in changed},
            EntryChanges.between(Manifest(), manifest),
            positions,
            [needed],
            manifest.tick,
        )
        return body_of(record, self._small_rows(manifest))

    def _small_rows(self, manifest: Manifest) -> dict[Place, bytes]:
        small, found = SmallRuns(self.catalog, self.app), dict[Place, bytes]()
        for name, entry in (*manifest.relations.items(), *manifest.apart.items()):
            folder = folder_name(name, entry["identity"])
            for run in (Run.from_json(each) for each in entry["runs"]):
                if run.small is not None:
                    found[folder, run.name] = small.stored(folder, run)
        return found
