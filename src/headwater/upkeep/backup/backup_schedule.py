"""Backup schedule: backups and drills of an app's home, beside its ticks.

What it is: ``BackupPlan``, what ``app.backup(…)`` declares, and ``BackupSchedule``, the thread that keeps to it.
Invariants: when the last backup was made is read from the repository, and when the last good drill was from the
catalog: so a process that is started again goes on with the plan. A backup or drill that fails is told by an alert and
tried again after a while; it never ends the app. Both run in processes of their own, a drill with a Spark of its own:
threads of the app would wait for those of a backup, since one interpreter runs one at a time.
Not here: the work (``backup_writer.py``, ``backup_drill.py``).
Read next: ``backup_writer.py``, ``backup_drill.py``.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwater.encryption.encryption_key import KeySource
from headwater.errors import HeadwaterError
from headwater.log.home import Log
from headwater.log.maintenance.alerts import note_backup, note_drill
from headwater.upkeep.backup.backup_drill import DrillRecords, drill
from headwater.upkeep.backup.backup_repository import BackupRepository, address_of
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.repository_prune import KeepRule, prune
from headwater.upkeep.routine import Routine

logger = logging.getLogger("headwater.backup")

LOOK_SECONDS = 10.0
RETRY_US = 5 * 60 * 1_000_000
DRILL_SECONDS_MAX = 6 * 3600.0
NICE = 10  # of a process that makes a backup
OVERDUE = 2.0  # a drill is overdue after so many times its interval


@dataclass(frozen=True)
class BackupPlan:
    """When a home is backed up, where to, what is kept, and how often a backup is tried out."""

    to: str
    every_s: float
    keep: str | None = None
    drill_s: float | None = None
    key: KeySource | None = None  # the backups are encrypted with it
    rate: int | None = None  # bytes that are copied in a second, at most

    def __post_init__(self) -> None:
        if self.keep is not None:
            KeepRule.parse(self.keep)


def created_in_a_process(log: Log, plan: BackupPlan) -> str:
    """Make a backup in a process of its own, which gives way to others; what it says of it."""
    words = ["nice", "-n", str(NICE)] if shutil.which("nice") else []
    words += [sys.executable, "-m", "headwater.cli.main", "backup", "create", "--home", str(log.home), "--to", plan.to]
    words += [] if plan.key is None else plan.key.words()
    words += [] if plan.rate is None else ["--rate", str(plan.rate)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HeadwaterError(done.stderr.strip()[-500:] or f"it ended with status {done.returncode}")
    return done.stdout.strip()


def created_here(log: Log, plan: BackupPlan) -> str:
    """Make a backup in this process, with the clock of this log; what it says of it."""
    return str(create_backup(log, plan.to, key=plan.key, rate=plan.rate))


class BackupSchedule(Routine):
    """The thread that keeps to a plan."""

    def __init__(
        self,
        log: Callable[[], Log],
        plan: BackupPlan,
        file: Callable[[], Path | None],
        create: Callable[[Log, BackupPlan], str] | None = None,
    ) -> None:
        super().__init__("headwater-backup", LOOK_SECONDS)
        self._log = log
        self._create = create or created_in_a_process
        self.plan = plan
        self._address = address_of(plan.to)  # names its alerts
        self._file = file  # the app's, for drills that verify its views
        self._child: subprocess.Popen[bytes] | None = None
        self._retry_us = {"backup": 0, "drill": 0}

    def stop(self) -> None:
        """End: a drill that is under way is given up, a backup is waited for."""
        self._over.set()
        child = self._child
        if child is not None:
            child.terminate()
        super().stop()

    def step(self) -> None:
        """Do what is due."""
        log = self._log()
        now_us = log.clock.now_us()
        if now_us >= self._retry_us["backup"]:
            self._retry_us["backup"] = now_us + RETRY_US
            if self._tried("backup", lambda: self._back_up_if_due(log, now_us)):
                self._retry_us["backup"] = 0
        if self.plan.drill_s is not None and not self._over.is_set() and now_us >= self._retry_us["drill"]:
            self._retry_us["drill"] = now_us + RETRY_US
            if self._tried("drill", lambda: self._drill_if_due(log, now_us)):
                self._retry_us["drill"] = 0

    def _tried(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:
            message = error.message if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
            logger.warning("a %s at %s failed: %s", what, self.plan.to, message)
            note = note_backup if what == "backup" else note_drill
            note(self._log(), self._address, f"a {what} at {self.plan.to} failed: {message}", {})
            return False
        return True

    def _back_up_if_due(self, log: Log, now_us: int) -> None:
        repository = BackupRepository.at(self.plan.to, self.plan.key)
        if repository.ids() and now_us - repository.newest().cut_us < self.plan.every_s * 1e6:
            return
        logger.info("%s", self._create(log, self.plan))
        if self.plan.keep is not None:
            logger.info("%s", prune(BackupRepository.at(self.plan.to, self.plan.key), self.plan.keep))
        note_backup(log, self._address, None, {})

    def _drill_if_due(self, log: Log, now_us: int) -> None:
        assert self.plan.drill_s is not None
        if not BackupRepository.at(self.plan.to, self.plan.key).ids():
            return
        records = DrillRecords(log)
        good = records.last(good=True)
        age_s = (now_us - good["began_us"]) / 1e6 if good is not None else float("inf")
        if age_s < self.plan.drill_s:
            return
        if good is not None and age_s > OVERDUE * self.plan.drill_s:
            note_drill(log, self._address, f"the last good drill of {self.plan.to} was {good['began']}", {})
        file = self._file()
        if file is None:  # an app that no command has read: its log is tried out, without its views
            records.note(drill(self.plan.to, key=self.plan.key, clock=log.clock))
            return
        words = [sys.executable, "-m", "headwater.cli.main", "backup", "drill", str(file), "--from", self.plan.to]
        words += [] if self.plan.key is None else self.plan.key.words()
        with subprocess.Popen([*words, "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as self._child:
            try:
                _, said = self._child.communicate(timeout=DRILL_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                raise
            finally:
                status, self._child = self._child.poll(), None
        if status not in (0, 5) and not self._over.is_set():  # those it has noted itself
            raise HeadwaterError(f"it ended with status {status}: {said.decode(errors='replace')[-500:]}")
