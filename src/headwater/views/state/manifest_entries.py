"""Manifest entries: what manifests say of views, relations and runs, each stored once for the ticks that it holds in.

What it is: two tables of the catalog. ``manifest_entries`` has an app's views, its relations without their runs, what
ticks set apart, and the fields that rarely change; ``manifest_runs`` the runs of relations, by the relation's folder.
A row holds from its first tick to its last one, or until now when that is NULL. So a tick writes what it changed, and
nothing of views that stood still, however many they are and however many ticks are kept.
Invariants: a row changes once, when its last tick is known; it goes with the last kept tick that it holds in. Rows are
written by the transaction that commits the manifest. The manifest of a tick is the rows that hold in it, read by one
statement: a commit beside it is seen whole or not at all. A manifest says how many runs it has, and which views and
relations in which order, so that a row that is missing is noticed. Runs of a relation are in the order of their ticks.
Not here: the commit, and the rest of a manifest (``manifest.py``); rows of small runs (``small_runs.py``).
Read next: ``manifest.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.views.state.run import RunEntry

if TYPE_CHECKING:
    from headwater.log.catalog.catalog import Catalog
    from headwater.views.state.manifest import Manifest

VIEW, RELATION, APART, FIELD, ORDER = "view", "relation", "apart", "field", "order"  # kinds of entries
FIELDS = ("topics", "paused", "aside")  # of a manifest, that stay as they are from tick to tick

AT_TICK = """
WITH asked AS (SELECT tick, manifest FROM ticks WHERE app = ?1 AND tick = {tick})
SELECT 'manifest' AS kind, '' AS name, manifest AS entry FROM asked
UNION ALL SELECT kind, name, entry FROM asked CROSS JOIN manifest_entries
    WHERE app = ?1 AND last_tick IS NULL AND first_tick <= tick
UNION ALL SELECT kind, name, entry FROM asked CROSS JOIN manifest_entries
    WHERE app = ?1 AND last_tick >= tick AND first_tick <= tick
UNION ALL SELECT 'run', folder, run FROM asked CROSS JOIN manifest_runs
    WHERE app = ?1 AND last_tick IS NULL AND first_tick <= tick
UNION ALL SELECT 'run', folder, run FROM asked CROSS JOIN manifest_runs
    WHERE app = ?1 AND last_tick >= tick AND first_tick <= tick
"""
NOW, THEN = AT_TICK.format(tick="(SELECT tick FROM apps WHERE name = ?1)"), AT_TICK.format(tick="?2")

Place = tuple[str, str]  # folder, and name of a run or a file
Listed = dict[str, set[str]]  # {folder: names of files}


def folder_name(relation: str, identity: str) -> str:
    """The name of a relation's folder."""
    return f"{relation.replace('$', '.')}-{identity}"


@dataclass
class EntryChanges:
    """What one tick changes in the entries: by kind and name, and in the runs, by folder and name."""

    ended: list[tuple[str, str]] = field(default_factory=list)
    begun: list[tuple[str, str, Any]] = field(default_factory=list)
    runs_ended: list[Place] = field(default_factory=list)
    runs_begun: list[tuple[str, RunEntry]] = field(default_factory=list)
    apart: list[tuple[str, Any]] = field(default_factory=list)  # hold in this tick alone
    runs_apart: list[tuple[str, RunEntry]] = field(default_factory=list)

    @staticmethod
    def between(before: Manifest, after: Manifest) -> EntryChanges:
        """What is different. An entry that is the same object as before is not looked at."""
        changes = EntryChanges()
        changes._compare(VIEW, before.views, after.views)
        changes._compare(FIELD, *({name: getattr(each, name) for name in FIELDS} for each in (before, after)))
        changes._compare(ORDER, {"": _order(before)}, {"": _order(after)})
        for name in before.relations.keys() | after.relations.keys():
            old, new = before.relations.get(name), after.relations.get(name)
            if old is not new:
                changes._compare(RELATION, *({} if one is None else {name: _head(one)} for one in (old, new)))
                old_runs, new_runs = _runs(name, old), _runs(name, new)
                changes.runs_ended += [place for place in old_runs if place not in new_runs]
                changes.runs_begun += [(place[0], run) for place, run in new_runs.items() if place not in old_runs]
        for name, entry in after.apart.items():
            changes.apart.append((name, _head(entry)))
            changes.runs_apart += [(place[0], run) for place, run in _runs(name, entry).items()]
        return changes

    def _compare(self, kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        for name, entry in after.items():
            old = before.get(name)
            if old is not entry and old != entry:
                self.begun.append((kind, name, entry))
                self.ended += [(kind, name)] if name in before else []
        self.ended += [(kind, name) for name in before if name not in after]

    @property
    def places(self) -> list[Place]:
        """The runs that a manifest lists for the first time."""
        return [(folder, run["name"]) for folder, run in (*self.runs_begun, *self.runs_apart)]


def _order(manifest: Manifest) -> dict[str, list[str]]:
    return {"views": list(manifest.views), "relations": list(manifest.relations)}


def _head(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "runs"}


def _runs(name: str, entry: Mapping[str, Any] | None) -> dict[Place, RunEntry]:
    if entry is None:
        return {}
    folder = folder_name(name, entry["identity"])
    return {(folder, run["name"]): run for run in entry["runs"]}


class ManifestEntries:
    """The entries of one app's manifests in the catalog."""

    def __init__(self, catalog: Catalog, app: str) -> None:
        self.catalog = catalog
        self.app = app

    # Reading

    def at(self, tick: int | None) -> tuple[str, EntriesFound] | None:
        """The text of a tick's manifest and its entries; None when it is not kept. The current tick when None."""
        rows = self.catalog.read(*((NOW, (self.app,)) if tick is None else (THEN, (self.app, tick))))
        return (rows[0]["entry"], EntriesFound.of(rows[1:])) if rows else None

    def listed(self) -> Listed:
        """The folders that kept manifests list, and the files in them."""
        found: Listed = {}
        for kind, name, entry in self.catalog.read(
            "SELECT kind, name, entry FROM manifest_entries WHERE app = ?1 AND kind IN ('relation', 'apart')"
            " UNION ALL SELECT 'run', folder, run FROM manifest_runs WHERE app = ?1 AND files > 0",
            (self.app,),
        ):
            about = json.loads(entry)
            folder = name if kind == "run" else folder_name(name, about["identity"])
            found.setdefault(folder, set()).update(file[0] for file in about.get("files", ()))
        return found

    def kept(self) -> Iterator[tuple[str, str, int, str]]:
        """Every entry and every run that is kept, as stored: kind ("run" too), name or folder, first tick, text."""
        for row in self.catalog.read(
            "SELECT kind, name, first_tick, entry FROM manifest_entries WHERE app = ?1"
            " UNION ALL SELECT 'run', folder, first_tick, run FROM manifest_runs WHERE app = ?1",
            (self.app,),
        ):
            yield row[0], row[1], int(row[2]), row[3]

    # Within the commit of a manifest

    def write(self, db: sqlite3.Connection, tick: int, changes: EntryChanges) -> None:
        """Store what a tick changed."""
        app, end = self.app, tick - 1
        db.executemany(
            "UPDATE manifest_entries SET last_tick = ? WHERE app = ? AND last_tick IS NULL AND kind = ? AND name = ?",
            [(end, app, *ended) for ended in changes.ended],
        )
        db.executemany(
            "UPDATE manifest_runs SET last_tick = ? WHERE app = ? AND last_tick IS NULL AND folder = ? AND name = ?",
            [(end, app, *place) for place in changes.runs_ended],
        )
        db.executemany(
            "INSERT INTO manifest_entries (app, kind, name, first_tick, last_tick, entry) VALUES (?, ?, ?, ?, ?, ?)",
            [
                *((app, kind, name, tick, None, text_of(entry)) for kind, name, entry in changes.begun),
                *((app, APART, name, tick, tick, text_of(entry)) for name, entry in changes.apart),
            ],
        )
        db.executemany(
            "INSERT INTO manifest_runs (app, folder, name, files, first_tick, last_tick, run)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (app, folder, run["name"], len(run["files"]), tick, last, text_of(run))
                for runs, last in ((changes.runs_begun, None), (changes.runs_apart, tick))
                for folder, run in runs
            ],
        )

    def forget(self, db: sqlite3.Connection, first_kept: int) -> list[Place]:
        """Remove what held only before the first kept tick, with the rows of small runs; returns files, by folder."""
        gone = (self.app, first_kept)
        released = db.execute(
            "SELECT folder, run FROM manifest_runs WHERE app = ? AND last_tick < ? AND files > 0", gone
        ).fetchall()
        db.execute(
            "DELETE FROM small_runs WHERE app = ?1 AND (folder, name) IN"
            " (SELECT folder, name FROM manifest_runs WHERE app = ?1 AND last_tick < ?2)",
            gone,
        )
        db.execute("DELETE FROM manifest_runs WHERE app = ? AND last_tick < ?", gone)
        db.execute("DELETE FROM manifest_entries WHERE app = ? AND last_tick < ?", gone)
        return [(folder, file[0]) for folder, run in released for file in json.loads(run)["files"]]


@dataclass
class EntriesFound:
    """The entries that hold in one tick."""

    entries: dict[str, dict[str, Any]]
    runs: dict[str, list[RunEntry]]  # by folder

    @staticmethod
    def of(rows: list[sqlite3.Row]) -> EntriesFound:
        """The entries of rows with kind, name and text."""
        parsed = json.loads(f"[{','.join([row[2] for row in rows])}]")  # in one go: they are hundreds
        found = EntriesFound({kind: {} for kind in (VIEW, RELATION, APART, FIELD, ORDER)}, {})
        for (kind, name, _), entry in zip(rows, parsed, strict=True):
            if kind == "run":
                found.runs.setdefault(name, []).append(entry)
            else:
                found.entries[kind][name] = entry
        return found

    def fields(self, runs: int) -> dict[str, Any]:
        """The fields of a manifest that says that it has so many runs; a ``ValueError`` when entries are missing."""
        order = self.entries[ORDER].get("", {"views": [], "relations": []})
        missing = [name for kind, names in order.items() for name in names if name not in self.entries[kind[:-1]]]
        have = sum(map(len, self.runs.values()))
        if missing or runs != have:
            what = f"what it says of {', '.join(missing)}" if missing else f"{runs - have} of its {runs} runs"
            raise ValueError(f"{what} cannot be found")
        relations = self.entries[RELATION]
        return {
            "views": {name: self.entries[VIEW][name] for name in order["views"]},
            "relations": {name: self._with_runs(name, relations[name]) for name in order["relations"]},
            "apart": {name: self._with_runs(name, entry) for name, entry in self.entries[APART].items()},
            **self.entries[FIELD],
        }

    def _with_runs(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        runs = self.runs.get(folder_name(name, entry["identity"]), [])
        return {**entry, "runs": sorted(runs, key=lambda run: (run["first_tick"], run["last_tick"])) if runs else []}


def text_of(value: object) -> str:
    """A value as compact JSON."""
    return json.dumps(value, separators=(",", ":"))
