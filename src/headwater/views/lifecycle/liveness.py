"""Signs of life: who runs an app, and whether it gets on while a tick takes long.

What it is: ``LivenessReporter``, in the process that runs the app: a file with the number of its epoch, locked as long
as it lives, that says how much it has done; ``signs_of``, how any other process reads it.
Invariants: the kernel gives a dead process's lock back, so a dead process is never taken for alive. What is written is
what Spark says: where Java does not answer nothing is written, and the counts stand still. Questions of readers are no
sign that the app gets on.
Not here: what to conclude from it (``stalls.py``).
Read next: ``stalls.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.log.maintenance.bounded_logs import bounded
from headwater.log.storage.file_descriptors import open_file
from headwater.log.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("headwater.views")

EVERY_S = 1.0
BUSY_PART = 0.3  # of one core: so much of this Python process means that it computes
WRITTEN_BYTES = 128
QUESTIONS: set[str] = set()  # Spark's job groups of readers, which are no progress of the app


@dataclass(frozen=True)
class LivenessSigns:
    """What a process that runs an app has told: ``done`` grows with what was finished, ``busy`` while it is at work."""

    alive: bool = False
    done: int = 0
    busy: int = 0


def _path(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch}.alive"


def signs_of(folder: Path, epoch: int) -> LivenessSigns:
    """The signs of the process that took an app over with this epoch."""
    try:
        fd = open_file(_path(folder, epoch), os.O_RDONLY)
    except FileNotFoundError:
        return LivenessSigns()
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False  # no process has it
        except BlockingIOError:
            alive = True
        told = {"done": 0, "busy": 0}
        with contextlib.suppress(ValueError):
            told = json.loads(os.pread(fd, WRITTEN_BYTES, 0) or b"{}")
        return LivenessSigns(alive, int(told.get("done", 0)), int(told.get("busy", 0)))
    finally:
        os.close(fd)


class LivenessReporter:
    """Tells that this process runs an app, from when it is made until it is closed or the process ends."""

    def __init__(self, folder: Path, epoch: int, spark: SparkSession, files: Files, java_log: Path) -> None:
        self._files = files
        self._java_log = java_log  # bounded here only
        self._tracker = spark.sparkContext.statusTracker()
        self._completed: dict[int, int] = {}
        self._signs = LivenessSigns(alive=True)
        for old in folder.glob("epoch-*.alive"):  # a process that still has one is shut out by now
            files.unlink(old, label="signs.remove")
        self._fd = files.create(_path(folder, epoch), label="signs.create")
        # Others that look hold it for a moment.
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._closed = threading.Event()
        self._writing = threading.Lock()
        threading.Thread(target=self._run, name="headwater-signs", daemon=True).start()

    def _run(self) -> None:
        before, cpu = time.monotonic(), time.process_time()
        while not self._closed.wait(EVERY_S):
            with contextlib.suppress(HeadwaterError, OSError):  # a full disk: the next second will do
                bounded(self._java_log, self._files)
            try:
                done, running = self._look()
            except Exception as error:  # Spark has ended, and the loop that ticks will notice
                logger.debug("no sign of life from Spark: %s", error)
                continue
            now, spent = time.monotonic(), time.process_time()
            busy = running or (spent - cpu) > BUSY_PART * (now - before)
            before, cpu = now, spent
            try:
                self._tell(LivenessSigns(True, self._signs.done + done, self._signs.busy + busy))
            except Exception:
                raise
            except BaseException:  # the process is at its end, and this thread with it
                return

    def _look(self) -> tuple[int, bool]:
        """How many tasks were finished since the last look, and whether some are running."""
        asked = {job for group in list(QUESTIONS) for job in self._tracker.getJobIdsForGroup(group)}
        done, running, completed = 0, False, dict[int, int]()
        for job in set(self._tracker.getActiveJobsIds()) - asked:
            info = self._tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = self._tracker.getStageInfo(stage)
                if found is not None:
                    completed[stage] = found.numCompletedTasks
                    running = running or found.numActiveTasks > 0
                    # A stage that was not there is something new, and so a sign.
                    done += max(0, found.numCompletedTasks - self._completed.get(stage, -1))
        self._completed = completed
        return done, running

    def _tell(self, signs: LivenessSigns) -> None:
        self._signs = signs
        with self._writing, contextlib.suppress(OSError):
            if not self._closed.is_set():
                written = json.dumps(asdict(signs)).ljust(WRITTEN_BYTES).encode()
                self._files.write_at(self._fd, written, 0, label="signs.write")

    def close(self) -> None:
        """This process does not run the app any more."""
        with self._writing:
            if not self._closed.is_set():
                self._closed.set()
                os.close(self._fd)
