"""Views check: verification of everything below ``views/``.

What it is: ``check_views`` reads the manifests of all apps, compares every state file that they list with its size and
checksum, and each served view with the state of the same tick. It is the second half of ``headwater check``.
Invariants: it changes no data and may run beside a running app: what is missing or differs is looked at again before it
is reported. It starts no Spark and no JVM. Every finding is a ``Problem``, never an exception; damage is also an alert,
which ends with the first check that finds everything sound.
Not here: files on an object store (``remote_check.py``); topics and the catalog (``log/maintenance/home_check.py``);
recomputing views (``verification.py``).
Read next: ``log/maintenance/home_check.py``, ``views/state/run.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.errors import Corruption, HeadwaterError, Unavailable
from headwater.log.maintenance.alerts import Condition, alerts_topic, begin, end, lasting_names, publish
from headwater.log.maintenance.home_check import CheckReport
from headwater.log.maintenance.segment_check import Problem, Severity
from headwater.log.storage.checksums import checksum_of
from headwater.views.lifecycle.remote_check import RemoteFiles
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_columns import DECIMAL_COLLATION, compare_decimals, quoted
from headwater.views.serving.serving_store import FILE, ServingStore
from headwater.views.serving.view_reader import ViewReader
from headwater.views.spark.scans import fitted
from headwater.views.state.manifest import Manifests
from headwater.views.state.manifest_entries import APART, RELATION, folder_name
from headwater.views.state.row_hash import comparisons, hash_rows
from headwater.views.state.run import Run, RunFile
from headwater.views.state.small_runs import SmallRuns

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

KIND = "view_damaged"
LOOKS_MAX = 5  # at a serving store that a running app keeps changing
DERIVED = "State is derived: headwater view rebuild APP.py VIEW; or stop the app, delete its folder, and run it."
FILL_AGAIN = "It holds copies only: stop the app, delete it with the files beside it of that name, and run the app."


def with_views(log: EventLog, report: CheckReport) -> CheckReport:
    """A report about the log, with what is found below ``views/``."""
    began = log.clock.monotonic()
    check = check_views(log)
    return replace(
        report,
        problems=(*report.problems, *check.problems),
        state_files=check.files,
        bytes=report.bytes + check.bytes,
        seconds=report.seconds + log.clock.monotonic() - began,
    )


def check_views(log: EventLog) -> ViewsCheck:
    """Check the views of every app that has run in a home, and begin or end the alerts about damaged ones.

    >>> import headwater as hw, tempfile
    >>> check_views(hw.Log(tempfile.mkdtemp())).problems
    []
    """
    check = ViewsCheck(log)
    for row in log.local.catalog.read("SELECT name FROM apps WHERE tick > 0 ORDER BY name"):
        check.app(row["name"])
    if not log.read_only:
        _alert(log, [problem for problem in check.problems if problem.severity == "error"])
    return check


@dataclass
class ViewsCheck:
    """One check: what it has found, and how much it has read."""

    log: EventLog
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def app(self, name: str) -> None:
        """Check one app."""
        folder = self.log.home / "views" / name
        manifests = Manifests(self.log.local.catalog, name)
        listed, damaged = self._listed(manifests), set[str]()
        try:
            problem_of = self._remote(manifests) if manifests.address() else _problem
            problems = {key: problem_of(folder / key[1], file) for key, (file, _) in sorted(listed.items())}
        except HeadwaterError as error:  # of an object store that does not answer nothing is judged
            where = f'app "{name}", {manifests.address()}'
            severity: Severity = "warning" if isinstance(error, Unavailable) else "error"
            self._add(severity, where, f"the state could not be checked: {error.message}", error.hint or "")
            return
        for (relation, path), (file, ticks) in sorted(listed.items()):
            place, problem = folder / path, problems[relation, path]
            if problem is not None and (relation, path) not in self._listed(manifests, quietly=True):
                continue  # merged or pruned since
            self.files += 1
            self.bytes += file.bytes
            if problem is not None:
                damaged.add(relation.partition("$")[0])
                message = f"{problem}; it holds {_of(relation)}, ticks {ticks[0]} to {ticks[1]}"
                self._add("error", place, message, DERIVED)
        damaged |= self._small_runs(manifests)
        self._serving(folder, manifests, damaged)

    def _remote(self, manifests: Manifests) -> Callable[[Path, RunFile], str | None]:
        """Look at the commits of an app whose state is on an object store; returns what looks at its files."""
        remote = RemoteFiles(self.log.local.catalog, manifests.app)
        behind = remote.behind()
        if behind:
            message = f"{behind} commits of the store are not in the catalog's copy"
            where = f'app "{manifests.app}", {manifests.address()}'
            self._add("warning", where, message, "Run the app: it copies them when it begins.")
        return remote.problem

    def _small_runs(self, manifests: Manifests) -> set[str]:
        """Check the rows of small runs that the current manifest lists; returns the views whose are damaged."""
        small, damaged = SmallRuns(self.log.local.catalog, manifests.app), set[str]()
        for relation, folder, run in _small_of(manifests):
            problem = small.problem(folder, run)
            if problem is None or (relation, folder, run) not in _small_of(manifests):
                continue  # or merged since
            damaged.add(relation.partition("$")[0])
            ticks = f"ticks {run.first_tick} to {run.last_tick}"
            message = f"the rows of run {run.name} are {problem}; it holds {_of(relation)}, {ticks}"
            self._catalog(manifests, message)
        return damaged

    def _listed(
        self, manifests: Manifests, *, quietly: bool = False
    ) -> dict[tuple[str, str], tuple[RunFile, tuple[int, int]]]:
        """The files that kept manifests list, by relation and path, each with the ticks that it holds."""
        entries, runs = [], []
        for kind, name, first, text in manifests.entries.kept():
            try:
                entry = json.loads(text)
                if kind == "run":
                    runs.append((name, Run.from_json(entry)))
                elif kind in (RELATION, APART):
                    entries.append((folder_name(name, entry["identity"]), name))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not quietly:
                    what = f"what the manifests from tick {first} on say of a {kind} ({name})"
                    self._catalog(manifests, f"{what} is damaged: {error}")
        if not quietly:
            self._manifests(manifests)
        relations = dict(entries)
        return {
            (relations.get(folder, folder), f"{folder}/{file.name}"): (file, (run.first_tick, run.last_tick))
            for folder, run in runs
            for file in run.files
        }

    def _manifests(self, manifests: Manifests) -> None:
        """Check that the manifest of every kept tick can be read, and that the current tick has one."""
        kept, damaged = [tick for tick, _ in manifests.kept()], dict[str, list[int]]()
        for tick in kept:
            try:
                manifests.at(tick)
            except Corruption as error:
                damaged.setdefault(str(error.__cause__), []).append(tick)
        for reason, ticks in damaged.items():
            which = f"manifest of tick {ticks[0]} is" if len(ticks) == 1 else f"manifests of {len(ticks)} ticks are"
            more = "" if len(ticks) == 1 else f", from tick {ticks[0]} to tick {ticks[-1]}"
            self._catalog(manifests, f"the {which} damaged: {reason}{more}")
        if manifests.tick() not in {*kept, 0}:
            self._catalog(manifests, f"the manifest of tick {manifests.tick()} is missing")

    def _catalog(self, manifests: Manifests, message: str) -> None:
        self._add("error", f'catalog.sqlite, app "{manifests.app}"', message, DERIVED)

    # The serving store

    def _serving(self, folder: Path, manifests: Manifests, damaged: set[str]) -> None:
        path = folder / FILE
        if not path.exists():
            self._add("error", path, "the serving store is missing", "Run the app: it is filled again from the state.")
            return
        if self.log.read_only:
            return  # SQLite reads a store of this kind only where it can write beside it
        self.files += 1
        self.bytes += path.stat().st_size
        try:
            sound = self._integrity(path)
            with ServingStore(path) as store:
                for view, reason in store.broken().items():
                    self._add("warning", path, f'the table of view "{view}" is damaged: {reason}', "Run the app.")
                for view in sorted(set(store.views()) - damaged - set(store.broken())) if sound else ():
                    self._served(
                        store,
                        view,
                        ViewReader(
                            view, CommittedChanges(manifests, folder, self.log.local.files), epoch=manifests.epoch
                        ),
                        manifests,
                    )
        except (HeadwaterError, sqlite3.Error, pa.ArrowException, ValueError) as error:
            message = error.message if isinstance(error, HeadwaterError) else str(error)
            self._add("error", path, f"the serving store cannot be read: {message}", FILL_AGAIN)

    def _integrity(self, path: Path) -> bool:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        db.create_collation(DECIMAL_COLLATION, compare_decimals)
        try:
            found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        finally:
            db.close()
        for problem in found:
            self._add("error", path, problem, FILL_AGAIN)
        return not found

    def _served(self, store: ServingStore, view: str, reader: ViewReader, manifests: Manifests) -> None:
        """Compare a served view with its state at the same tick, as sums of row hashes."""
        for _ in range(LOOKS_MAX):
            tick = store.tick
            manifest = manifests.at(tick)
            if manifest is None or view not in manifest.views or view not in manifest.relations:
                return
            with reader.rows_at(manifest) as (head, batches):
                state = _digest(head.schema, batches)
            served = store.query(f"SELECT * FROM {quoted(view)}")
            if store.tick != tick:
                continue  # the app has moved on meanwhile
            table = fitted(served, head.schema)
            if _digest(head.schema, table.to_batches()) != state:
                message = f'the rows of view "{view}" are not those of its state at tick {tick}'
                self._add("error", store.path, message, FILL_AGAIN)
            return

    def _add(self, severity: Severity, where: Path | str, message: str, hint: str) -> None:
        named = str(where.relative_to(self.log.home)) if isinstance(where, Path) else where
        self.problems.append(Problem(severity, named, message, hint))


def _small_of(manifests: Manifests) -> list[tuple[str, str, Run]]:
    """The small runs of the current manifest; none when it is damaged, which was told."""
    try:
        relations = manifests.current().relations
        runs = [(name, entry, Run.from_json(run)) for name, entry in relations.items() for run in entry["runs"]]
    except (Corruption, KeyError, TypeError, AttributeError):
        return []
    return [(name, folder_name(name, entry["identity"]), run) for name, entry, run in runs if run.small is not None]


def _problem(path: Path, file: RunFile) -> str | None:
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"the state file has {size} bytes, and was written with {file.bytes}"
        return None if checksum_of(path) == file.checksum else "the state file is damaged: its checksum is another"
    except FileNotFoundError:
        return "the state file is missing"


def _of(relation: str) -> str:
    view, _, stage = relation.partition("$")
    return f'a stage of view "{view}"' if stage else f'the rows of "{view}"'


def _digest(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """The number of rows and the sum of their hashes: equal for equal rows in any order."""
    rows, total = 0, 0
    how = comparisons(schema.names, schema, schema)
    for batch in batches:
        table = fitted(pa.Table.from_batches([batch]), schema)
        rows += table.num_rows
        hashes: Any = hash_rows([table.column(name) for name in schema.names], how)
        total = (total + int(np.sum(hashes, dtype=np.uint64))) % (1 << 64)
    return rows, total


def _alert(log: EventLog, errors: list[Problem]) -> None:
    """Begin an alert for each damaged file, and end those of files that are sound now."""
    found: dict[tuple[str, int, str], Condition] = {}
    for problem in errors:
        condition = Condition(KIND, 0, problem.where, f"{problem.where}: {problem.message}", {"file": problem.where})
        found.setdefault(condition.name, condition)
    read: Callable[..., list[sqlite3.Row]] = log.local.catalog.read
    lasts = {
        (row["kind"], row["partition"], row["subject"])
        for row in read("SELECT kind, partition, subject FROM alert_conditions WHERE kind = ?", (KIND,))
    }
    if set(found) == lasts:
        return
    topic = alerts_topic(log.local)
    with log.local.catalog.write() as db:
        for condition in found.values():
            begin(db, topic.id, condition, log.clock.now_us())
        for name in lasting_names(read, topic.id, (KIND,)) - set(found):
            end(db, topic.id, name, log.clock.now_us(), "The check finds it sound.")
    publish(log.local)
