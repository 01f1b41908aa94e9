"""How far a rebuild is, and how long it will take.

What it is: ``RebuildMeter`` is told by the rebuild which stage begins, asks Spark how much of it is done, and gives
``RebuildProgress`` to its callers. It is also the way to stop a rebuild.
Invariants: the part that is done never goes back; asking is cheap, and possible from any thread.
Not here: showing it (``cli/views/rebuild_commands.py``).
Read next: ``rebuild.py``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import Conflict
from headwater.views.compiler.plan import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "headwater-rebuild"
READ_PART_MAX = 0.9  # what was read is not yet written
SAYABLE_PART = 0.02  # before that an estimate of the time means nothing


@dataclass(frozen=True)
class RebuildProgress:
    """How far a rebuild is. ``part`` is an estimate: 0 at the beginning, 1 when it is done."""

    step: str  # "filling revenue$1", "catching up with 12 ticks", "swapping", "done"
    part: float
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """When it goes on as it went; None when it is too early to say.

        >>> RebuildProgress("filling revenue", 0.25, 10.0).seconds_left
        30.0
        """
        return self.seconds * (1 - self.part) / self.part if self.part > SAYABLE_PART else None


class RebuildMeter:
    """How far a rebuild is, as its stages and Spark's jobs tell. It may be asked from any thread."""

    def __init__(self, spark: SparkSession) -> None:
        self.context = spark.sparkContext
        self.group = f"headwater-rebuild-{uuid.uuid4().hex}"
        self._began = time.perf_counter()
        self._costs: dict[str, float] = {}
        self._done = 0.0
        self._stage: str | None = None
        self._step = "beginning"
        self._most = 0.0
        self._earlier_jobs: set[int] = set()
        self._cancelled = threading.Event()

    def expects(self, costs: Mapping[str, float]) -> None:
        """These stages will be run, and read about so many rows."""
        self._costs = dict(costs)

    def enters(self, stage: Stage) -> None:
        """A stage begins."""
        self.check()
        if self._stage is not None:
            self._done += self._costs[self._stage]
        self._stage = stage.name
        self._step = f"filling {stage.name}"
        self._earlier_jobs = set(self.context.statusTracker().getJobIdsForGroup(self.group))

    def catches_up(self, ticks: int) -> None:
        """The views are filled."""
        self.check()
        self._stage, self._done = None, sum(self._costs.values())
        self._step = f"catching up with {ticks} tick{'s' * (ticks != 1)}"

    def swaps(self) -> None:
        """From here on it is not stopped any more."""
        self.check()
        self._step = "swapping"

    def cancel(self) -> None:
        """End the running step, and let the next one raise."""
        self._cancelled.set()
        self.context.cancelJobGroup(self.group)

    def check(self, cause: Exception | None = None) -> None:
        """Raise when it was cancelled."""
        if self._cancelled.is_set():
            raise Conflict(
                "the rebuild was stopped", detail="The live views are as they were.", hint="Begin it again."
            ) from cause

    def now(self) -> RebuildProgress:
        """How far it is. It never goes back."""
        total = sum(self._costs.values()) or 1.0
        part = self._done / total
        stage = self._stage
        if stage is not None:
            part += self._part_of(self._costs[stage]) * self._costs[stage] / total
        self._most = max(self._most, 0.99 * min(part, 1.0))
        return RebuildProgress(self._step, self._most, time.perf_counter() - self._began)

    def _part_of(self, rows: float) -> float:
        """How much of the present stage is done, which is to read so many rows.

        Spark counts the rows that it reads from Parquet. Where it does not count them, tasks that are done are a hint;
        more may come, so it is taken for half of what it says.
        """
        tracker = self.context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup(self.group)) - self._earlier_jobs]
        found = {number: tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds}
        known = {number: info for number, info in found.items() if info is not None}
        store = self.context._jsc.sc().statusStore()  # what Spark's own pages show, and Python is not given
        read = float(sum(store.lastStageAttempt(number).inputRecords() for number in known)) / rows
        tasks = sum(info.numTasks for info in known.values()) + self.context.defaultParallelism
        return max(min(read, READ_PART_MAX), sum(info.numCompletedTasks for info in known.values()) / tasks / 2)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, Spark's jobs of this thread are known as the rebuild's, and share the cores with others.

        Fairly, where Spark schedules so (``spark.scheduler.mode``); else they let others wait.
        """
        properties = {"spark.jobGroup.id": self.group, "spark.scheduler.pool": POOL}
        for name, value in properties.items():
            self.context.setLocalProperty(name, value)
        try:
            yield
        finally:
            for name in properties:
                self.context.setLocalProperty(name, None)  # type: ignore[arg-type]
