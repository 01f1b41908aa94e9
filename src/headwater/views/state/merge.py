"""Merging: fewer and larger runs, and rows that cancel out are dropped.

What it is: which runs of a trace to merge (``due``), and the merging, by Arrow on the driver or by Spark; on a cluster
whose executors write to the store themselves, by them as soon as it is more than a task's work.
Invariants: a merge changes the runs and never the content; it writes a new run beside the old ones, which stay until
their owner prunes them. A merge that begins with the oldest run yields a positive run.
Not here: the manifest's change from the old runs to the new one, which is the caller's.
Read next: ``trace.py``.

The policy.

- Small: the newest runs become one when they are eight or more, and the largest of them has at most eight times the
  rows of the others together; as many as fit. So a row is rewritten a few times for each factor of eight by which its
  run grows, a large run is never rewritten for the sake of a few rows, and there are at most seven runs for each
  factor. (Positive runs of a million rows and more stay as they are: a file more costs nothing beside that.)
- Large: when runs that are not positive hold half as many rows as those that are, all become one positive run. So each
  of their rows pays for the rewriting of three, once, and what is to be read is at most half as much again as after a
  merge.
- A small merge whose rows come to half of the one run before them takes that one along.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.lookups.keyed_pass import current_rows
from headwater.views.state.run import STAGING, RowWriter, Run, RunFile, described, weigh_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.state.trace import Trace

FAN = 8
TAIL_FRACTION = 0.5
POSITIVE_ROWS_MAX = 1_000_000
FILE_ROWS = 2_000_000  # what Spark writes is cut into files of about this size


@dataclass(frozen=True)
class RunMerge:
    """Some neighbouring runs that are to become one."""

    trace: Trace
    runs: tuple[Run, ...]

    @property
    def rows(self) -> int:
        """How many weighted rows it reads."""
        return sum(run.rows for run in self.runs)

    @property
    def needs_spark(self) -> bool:
        """Too much for the driver."""
        size = sum(run.bytes for run in self.runs)
        return self.rows > thresholds.DRIVER_MERGE_ROWS_MAX or size > thresholds.DRIVER_MERGE_BYTES_MAX

    def by_executors(self, spark: SparkSession) -> bool:
        """Whether the executors of a cluster read and write the rows, which do not pass the driver."""
        return self.rows > thresholds.TASK_ROWS_MAX and self.trace.executors_of(spark) is not None

    def run(self, spark: SparkSession | None = None) -> tuple[tuple[Run, ...], Run | None]:
        """Merge: the runs that are replaced, and the new one; None when everything cancelled out.

        Nothing is current yet: put it into the manifest, then use ``trace.with_merge``. Spark is needed only when
        ``needs_spark`` says so.
        """
        return self.finish(self.write(spark))

    def write(self, spark: SparkSession | None = None) -> Run | None:
        """Write the new run."""
        if spark is not None and self.by_executors(spark):
            return self._on_store(spark)
        if self.needs_spark:
            assert spark is not None, "ask needs_spark first"
            return self._by_spark(spark)
        return self._on_driver()

    def finish(self, run: Run | None) -> tuple[tuple[Run, ...], Run | None]:
        """Make it ready to be looked into."""
        if run is not None:
            self.trace.prepare(run)
        return self.runs, run

    def _on_driver(self) -> Run | None:
        first, last = self.runs[0].first_tick, self.runs[-1].last_tick
        if self.trace.key and self.runs == self.trace.runs and self.rows > thresholds.TASK_ROWS_MAX:
            return self._in_one_pass(_name(first, last))
        return write_merged(self.trace, self.trace.consolidated_table(self.runs), first_tick=first, last_tick=last)

    def _in_one_pass(self, name: str) -> Run | None:
        """All runs of a relation with a key, which need not be in memory together."""
        trace = self.trace
        trace.files.make_dir(trace.folder, label="run.make_directory")
        with RowWriter(trace.folder / f"{name}{STAGING}", trace.schema) as writer:
            for rows in current_rows(trace):
                writer.add(rows)
        if not writer.rows:
            trace.files.unlink(writer.path, label="merge.unlink")
            return None
        first, last = self.runs[0].first_tick, self.runs[-1].last_tick
        weighed = weigh_files([writer.path])
        return trace.adopt(name, [writer.path], weighed, first_tick=first, last_tick=last)

    def _on_store(self, spark: SparkSession) -> Run | None:
        trace, executors = self.trace, self.trace.executors_of(spark)
        assert executors is not None
        rows, weighed = executors.write(
            trace.consolidated_frame(spark, self.runs), trace.folder.name, weighted_schema(trace.schema)
        )
        if not weighed.rows:
            return None
        first, last = self.runs[0].first_tick, self.runs[-1].last_tick
        return described(_name(first, last), [stored.file for stored in rows.files], weighed, first, last)

    def _by_spark(self, spark: SparkSession) -> Run | None:
        trace, name = self.trace, _name(self.runs[0].first_tick, self.runs[-1].last_tick)
        staging = trace.folder / f"{name}{STAGING}"
        count = max(spark.sparkContext.defaultParallelism, self.rows // FILE_ROWS)
        frame = trace.consolidated_frame(spark, self.runs).coalesce(count)
        try:
            frame.write.option("compression", "zstd").parquet(str(staging))
            paths = [path for path in sorted(staging.glob("part-*.parquet")) if weigh_files([path]).rows]
            if not paths:
                return None
            first, last = self.runs[0].first_tick, self.runs[-1].last_tick
            return trace.adopt(name, paths, weigh_files(paths), first_tick=first, last_tick=last)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def write_merged(trace: Trace, table: pa.Table, *, first_tick: int, last_tick: int) -> Run | None:
    """Write the content of some runs as one; None when there is none."""
    if not table.num_rows:
        return None
    return trace.write_table(_name(first_tick, last_tick), table, first_tick=first_tick, last_tick=last_tick)


def adopt_merged(
    trace: Trace, paths: Sequence[Path], shared: Sequence[RunFile], *, first_tick: int, last_tick: int
) -> Run | None:
    """Make a run of files that hold the content of some runs: these, and files of a run; None when there are none."""
    if not paths and not shared:
        return None
    name = _name(first_tick, last_tick)
    weighed = weigh_files([*paths, *(trace.folder / file.name for file in shared)])
    run = trace.adopt(name, paths, weighed, first_tick=first_tick, last_tick=last_tick)
    return replace(run, files=(*run.files, *shared))


def _name(first_tick: int, last_tick: int) -> str:
    # Never used before: a process that was shut out may be merging the same runs.
    return f"{first_tick:012d}-{last_tick:012d}-{uuid.uuid4().hex[:8]}"


def due(trace: Trace) -> RunMerge | None:
    """The merge that the policy asks for."""
    runs = trace.runs
    if len(runs) < 2:
        return None
    positive_rows = sum(run.rows for run in runs if run.positive)
    if trace.rows - positive_rows >= max(thresholds.TAIL_ROWS_MIN, TAIL_FRACTION * positive_rows):
        return RunMerge(trace, runs)
    start = _small_from(runs) if len(runs) >= FAN else None
    if start is None:
        return None
    rows = sum(run.rows for run in runs[start:])
    if start == 1 and rows >= TAIL_FRACTION * runs[0].rows and not all(run.positive for run in runs):
        start = 0
    return RunMerge(trace, runs[start:])


def _small_from(runs: Sequence[Run]) -> int | None:
    """Where the longest row of newest runs begins that are worth merging; None when none is."""
    found, rows, largest = None, 0, 0
    for start in range(len(runs) - 1, -1, -1):
        if _settled(runs[start]):
            break
        rows, largest = rows + runs[start].rows, max(largest, runs[start].rows)
        if len(runs) - start >= FAN and largest <= FAN * (rows - largest):
            found = start
    return found


def _settled(run: Run) -> bool:
    return run.positive and run.rows >= POSITIVE_ROWS_MAX
