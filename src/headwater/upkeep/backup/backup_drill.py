"""Backup drill: a backup is restored and looked at, so that it is known to be one.

What it is: ``drill`` restores the newest backup and one random point into scratch homes, checks every byte of them, has
views verified, and compares rows and times with the manifest; ``DrillRecords`` keeps the outcomes in the catalog.
Invariants: the home that is backed up is not touched but for the record; scratch homes are removed, whatever happens. A
drill that finds anything is a problem by name, never an exception; one that could not be done at all is a problem too.
Not here: running an app on a home (``verify`` is given), when (``backup_schedule.py``).
Read next: ``point_restore.py``, ``backup_schedule.py``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater.clock import Clock, format_us
from headwater.encryption.encryption_key import KeySource
from headwater.errors import HeadwaterError, NotBackedUp
from headwater.log.home import Log
from headwater.log.maintenance.alerts import note_drill
from headwater.log.maintenance.home_check import check_home
from headwater.upkeep.backup.backup_manifest import BackupManifest
from headwater.upkeep.backup.backup_repository import BackupRepository, address_of
from headwater.upkeep.backup.home_restore import RestoreReport, restore_home
from headwater.upkeep.backup.point_restore import restore_at
from headwater.views.lifecycle.views_check import with_views

RECORDS_KEPT = 1000


@dataclass(frozen=True)
class VerifiedView:
    """A view of a restored home, compared with what the log gives."""

    view: str
    rows: int
    equal: bool


Verify = Callable[[Path], list[VerifiedView]]  # runs the app on a restored home, without captures and sinks


@dataclass(frozen=True)
class DrilledPoint:
    """A point that was restored."""

    what: str  # "newest" or "point"
    backup: str
    token: str
    at: str
    rows: int
    newest: str | None  # the append time of the newest row
    views: int
    seconds: float


@dataclass(frozen=True)
class DrillReport:
    """The outcome of a drill."""

    began_us: int
    seconds: float
    address: str
    loss_seconds: float  # what would be lost now: since the newest backup
    points: tuple[DrilledPoint, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "began": format_us(self.began_us), "ok": self.ok}

    def __str__(self) -> str:
        restored = "; ".join(
            f"{p.what}: backup {p.backup} at {p.at}, {p.rows:,} rows, {p.views} views verified, {p.seconds:.1f} s"
            for p in self.points
        )
        head = "Drill passed" if self.ok else f"DRILL FAILED: {'; '.join(self.problems)}"
        return f"{head} in {self.seconds:.1f} s. {restored}"


def drill(
    source: str | os.PathLike[str],
    *,
    key: KeySource | None = None,
    verify: Verify | None = None,
    chance: random.Random | None = None,
    clock: Clock | None = None,
    scratch: Path | None = None,
) -> DrillReport:
    """Restore the newest backup and one random point, and look at both. Without ``verify`` no view is computed.

    >>> import headwater as hw, tempfile
    >>> from headwater.upkeep.backup.backup_writer import create_backup
    >>> log, place = hw.Log(tempfile.mkdtemp()), tempfile.mkdtemp()
    >>> _ = log.topic("orders", "id BIGINT").append([{"id": 1}, {"id": 2}])
    >>> _ = create_backup(log, place)
    >>> report = drill(place)
    >>> report.ok, [(point.what, point.rows) for point in report.points][0]
    (True, ('newest', 2))
    """
    clock = clock or Clock()
    began_us, began = clock.now_us(), time.monotonic()
    done = _Drill(BackupRepository.at(source, key), source, key, verify, chance or random.Random())
    folder = Path(tempfile.mkdtemp(prefix="headwater-drill-", dir=scratch))
    try:
        done.run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    loss = 0.0 if done.newest is None else (began_us - done.newest.cut_us) / 1e6
    return DrillReport(
        began_us, time.monotonic() - began, address_of(source), loss, tuple(done.points), tuple(done.problems)
    )


class _Drill:
    def __init__(
        self,
        repository: BackupRepository,
        source: str | os.PathLike[str],
        key: KeySource | None,
        verify: Verify | None,
        chance: random.Random,
    ) -> None:
        self.repository = repository
        self.source = source
        self.key = key
        self.verify = verify
        self.chance = chance
        self.newest: BackupManifest | None = None
        self.points: list[DrilledPoint] = []
        self.problems: list[str] = []

    def run(self, folder: Path) -> None:
        try:
            manifests = self.repository.manifests()
            self.newest = self.repository.newest()
        except (HeadwaterError, ValueError, KeyError) as error:
            self._found("the backups cannot be read", error)
            return
        newest = self.newest
        self._look(
            "newest", newest, lambda: restore_home(self.source, folder / "newest", backup=newest.id, key=self.key)
        )
        self._look("point", None, lambda: self._random_point(manifests, folder / "point"))

    def _random_point(self, manifests: list[BackupManifest], home: Path) -> RestoreReport:
        """A random moment between the first and the newest backup; one of the backups' own if that is not covered."""
        first, last = manifests[0].cut_us, manifests[-1].cut_us
        try:
            return restore_at(self.source, home, at_us=self.chance.randint(min(first, last), last), key=self.key)
        except NotBackedUp:
            shutil.rmtree(home, ignore_errors=True)
            return restore_home(self.source, home, backup=self.chance.choice(manifests).id, key=self.key)

    def _look(self, what: str, manifest: BackupManifest | None, restore: Callable[[], RestoreReport]) -> None:
        began = time.monotonic()
        try:
            report = restore()
            self.problems += [f"{what}: {problem}" for problem in _wrong(report, manifest)]
            newest_us = _newest_us(report.home)
            verified = [] if self.verify is None else self.verify(report.home)
            self.problems += [f'{what}: view "{v.view}" is not what its query gives' for v in verified if not v.equal]
            self.problems += [f"{what}: {problem}" for problem in _wrong_in_views(report.home)]
        except Exception as error:  # whatever it is, the backup could not be used
            self._found(f"{what}: it could not be restored and verified", error)
            return
        newest = format_us(newest_us) if newest_us else None
        seconds = round(time.monotonic() - began, 3)
        at = format_us(report.at_us)
        self.points.append(
            DrilledPoint(what, report.backup, str(report.token), at, report.rows, newest, len(verified), seconds)
        )

    def _found(self, what: str, error: BaseException) -> None:
        said = error.message if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
        self.problems.append(f"{what}: {said}")


def _wrong(report: RestoreReport, manifest: BackupManifest | None) -> list[str]:
    """What is not as it should be in a restored home."""
    checked = check_home(report.home)
    problems = [str(problem) for problem in checked.problems if problem.severity == "error"]
    with Log(report.home, create=False, maintenance_interval=None) as log:
        ends = {topic.name: topic.end_offsets() for topic in log.topics()}
    if ends != report.token.frontier:
        problems.append(f"the log ends at {ends}, not at {report.token}")
    if checked.rows != report.rows:
        problems.append(f"there are {checked.rows:,} rows, not {report.rows:,}")
    if manifest is not None:
        newest_us = max((topic.newest_us for topic in manifest.topics.values()), default=0)
        if (found := _newest_us(report.home)) != newest_us:
            problems.append(f"the newest row is of {format_us(found)}, not of {format_us(newest_us)}")
    return problems


def _wrong_in_views(home: Path) -> list[str]:
    """What is damaged in the state of views. A serving store is not in a backup: the app fills it when it runs."""
    found = check_home(home, also=with_views).problems
    errors = [each for each in found if each.severity == "error" and not str(each.where).endswith("serving.sqlite")]
    return [str(each) for each in errors]


def _newest_us(home: Path) -> int:
    """The append time of the newest row of a home, read from its rows."""
    newest = 0
    with Log(home, create=False, maintenance_interval=None) as log:
        for topic in log.topics():
            for number, end in topic.end_offsets().items():
                start = topic.start_offsets()[number]
                # Compaction may have left gaps at the end: look further back until a row is found.
                reach = 1
                while end > start:
                    batches = list(topic.reader(number).read(max(start, end - reach), end, ["_appended_at"]))
                    times = [row["_appended_at"] for batch in batches for row in batch.to_pylist()]
                    if times:
                        newest = max(newest, round(max(times).timestamp() * 1e6))
                        break
                    if end - reach <= start:
                        break
                    reach *= 16
    return newest


class DrillRecords:
    """The drills of a home's backups, in its catalog."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def note(self, report: DrillReport) -> None:
        """Keep an outcome, and begin or end the alert about failing drills."""
        with self._log.catalog.write(durable=True) as db:
            db.execute(
                "INSERT OR REPLACE INTO backup_drills VALUES (?, ?, ?)",
                (report.began_us, int(report.ok), json.dumps(report.to_dict())),
            )
            db.execute(
                "DELETE FROM backup_drills WHERE began_us NOT IN"
                " (SELECT began_us FROM backup_drills ORDER BY began_us DESC LIMIT ?)",
                (RECORDS_KEPT,),
            )
        message = None if report.ok else f"a drill of the backups at {report.address} failed: {report.problems[0]}"
        note_drill(self._log, report.address, message, {"problems": list(report.problems)})

    def last(self, *, good: bool = False) -> dict[str, Any] | None:
        """The last outcome, or the last good one."""
        rows = self._log.catalog.read(
            f"SELECT report FROM backup_drills {'WHERE ok = 1' if good else ''} ORDER BY began_us DESC LIMIT 1"
        )
        return json.loads(rows[0]["report"]) if rows else None
