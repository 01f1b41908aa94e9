"""A trace: the content of one relation or stage, as runs of weighted rows.

What it is: an immutable list of runs with ways to read them: all of it by Spark (``frame``, ``bag``), the rows of some
keys on the driver (``lookup``); and the next trace, when a tick or a merge adds a run.
Invariants: the content is the sum of the weights of equal rows over all runs, whatever their order; every trace that
begins with the oldest run has no row with a negative sum. Traces of successive ticks share their caches, and an older
one stays readable until its owner prunes the files. A reader asks for a run's files first: they may be on an
object store. The executors of a cluster read them there themselves.
Not here: which runs are current, which the manifest knows; when to merge (``merge.py``); relations whose state is a
topic's own log (``log_trace.py``).
Read next: ``run.py`` for the files, ``multisets.py`` and ``arrangements.py`` for the reading, ``merge.py``.
"""

from __future__ import annotations

import copy
import functools
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import Misuse
from headwater.log.storage.files import Files, translated
from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import FrameCache, fitted, local_frame, scan
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.algebra import consolidate, latest, weighted_schema
from headwater.views.state.delta import Delta, StayingRows
from headwater.views.state.lookups.arrangements import Arrangements
from headwater.views.state.lookups.sorted_blocks import StatePiece
from headwater.views.state.multisets import WeightedPart, consolidated, expanded
from headwater.views.state.remote.executor_files import StoredRows
from headwater.views.state.remote.stored_file import StoredFile
from headwater.views.state.run import (
    STAGING,
    Run,
    RunFile,
    Weighed,
    adopt_run,
    described,
    read_run,
    verify_run,
    weigh,
    write_run,
)
from headwater.views.state.state_trace import Restriction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.views.state.merge import RunMerge
    from headwater.views.state.remote.executor_files import ExecutorFiles
    from headwater.views.state.remote.run_cache import RunCache
    from headwater.views.state.small_runs import SmallRuns


class Trace:
    """The content of a relation.

    >>> import tempfile
    >>> users = Trace(Path(tempfile.mkdtemp()), pa.schema([("id", pa.int64()), ("country", pa.string())]), key=["id"])
    >>> changes = Delta.local(pa.table({"id": [1, 2], "country": ["DE", "FR"], "_weight": [1, 1]}))
    >>> users = users.with_run(users.write(changes, tick=1, epoch=1), changes)
    >>> users
    Trace(1 run, 2 rows)
    >>> users.lookup(["id"], pa.table({"id": [2, 3]}), ["country"]).to_pylist()
    [{'country': 'FR', '_weight': 1}]
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        runs: Sequence[Run] = (),
        *,
        key: Sequence[str] = (),
        files: Files | None = None,
        small: SmallRuns | None = None,
        cache: RunCache | None = None,
    ) -> None:
        self.folder = folder
        self.schema = weighted_schema(schema)
        self.runs = tuple(runs)
        self.key = tuple(key)
        self.files = files or Files()
        self.small = small  # where few rows go; None: every run is a file
        self.cache = cache  # of files that are on an object store; None: they are here
        self._arrangements = Arrangements(folder / "arrangements", self.files)
        self._frames = FrameCache()
        self._content: pa.Table | None = None
        self._since: tuple[pa.Table, ...] = ()  # what came to the content since it was added up

    @property
    def rows(self) -> int:
        """The number of weighted rows over all runs; at least the number of rows of the content's distinct rows."""
        return sum(run.rows for run in self.runs)

    @property
    def last_tick(self) -> int:
        """The last tick that changed the content; 0: none has."""
        return max((run.last_tick for run in self.runs), default=0)

    @property
    def lineage(self) -> object:
        """The same object for the traces of successive ticks: of two of them, ``last_tick`` tells which is later."""
        return self._arrangements

    # Reading

    def frame(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """Weighted rows of all runs, as they are: not added up. Without ``columns``: all of them."""
        frame = self._scan(spark, self.runs, columns)
        return frame if columns is None else frame.select(*map(quoted, columns), WEIGHT)

    def bag(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        changes: Delta | None = None,
        restrict: Restriction | None = None,
    ) -> DataFrame:
        """The rows that are there, each as often as it is there; with ``changes``, after these were added.

        ``restrict`` gets weighted rows and returns some of them; whether a row stays may depend on its values only.
        """
        parts = self._parts(spark, self.runs)
        if changes is not None and changes.rows:
            parts.append(WeightedPart(changes.frame(spark), changes.rows, not changes.has_negative, changes.plain))
        names = list(columns) if columns is not None else [name for name in self.schema.names if name != WEIGHT]
        if not parts:
            return self._scan(spark, ()).select(*map(quoted, names))
        return expanded(self._consolidated(parts, names, restrict), names)

    def consolidated_frame(self, spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
        """The weighted rows of some neighbouring runs, consolidated as far as it pays."""
        names = [name for name in self.schema.names if name != WEIGHT]
        if runs[0] == self.runs[0]:
            parts = self._consolidated(self._parts(spark, runs), names, None)
            frame = functools.reduce(lambda one, other: one.union(other), [part.frame for part in parts])
        elif all(run.positive for run in runs):
            frame = self._scan(spark, runs)
        else:
            frame = consolidate(self._scan(spark, runs), names)
        return frame.select(*map(quoted, self.schema.names))

    def consolidated_table(self, runs: Sequence[Run] | None = None) -> pa.Table:
        """The same on the driver, wholly consolidated."""
        runs = self.runs if runs is None else runs
        if self._content is not None and not self._since and tuple(runs) == self.runs:
            return self._content
        tables = [pa.Table.from_batches(self.read([run]), schema=self.schema) for run in runs]
        if self.key and tables and runs[0] == self.runs[0]:
            return latest(tables, self.key) if len(tables) > 1 else tables[0]
        return consolidate(pa.concat_tables(tables or [self.schema.empty_table()]))

    def _consolidated(
        self, parts: Sequence[WeightedPart], names: Sequence[str], restrict: Restriction | None
    ) -> list[WeightedPart]:
        needed = {*names, *self.key, WEIGHT}
        fields = pa.schema([field for field in self.schema if field.name in needed])
        columns = [quoted(name) for name in fields.names]
        restricted = [
            replace(part, frame=(restrict(part.frame) if restrict else part.frame).select(*columns)) for part in parts
        ]
        return consolidated(restricted, fields, key=self.key)

    def lookup(self, columns: Sequence[str], keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        """The rows whose ``columns`` equal some row of ``keys``, column by column: ``wanted`` and ``_weight``.

        On the driver, without Spark. Null equals null. Equal rows are added up. A row of another key may be among
        them, very rarely; none is missing.
        """
        return self._arrangements.lookup(list(map(self._piece, self.runs)), self.schema, columns, keys, wanted)

    def read(self, runs: Sequence[Run] | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The weighted rows of some runs (all when None), on the driver; with ``columns``, these of them."""
        fields = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        for run in self.runs if runs is None else runs:
            yield from self._read(run, fields)

    def _read(self, run: Run, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        if run.small is None:
            self._bring([run])
            yield from read_run(self.folder, run, fields)
        else:
            yield from fitted(self._small(run), fields).to_batches()

    def _small(self, run: Run) -> pa.Table:
        assert self.small is not None, "a manifest that lists small runs belongs to a catalog"
        return self.small.table(self.folder.name, run)

    def verify(self, run: Run) -> None:
        """Raise ``Corruption`` when a run's rows are not what was written."""
        if run.small is None:
            self._bring([run])
            verify_run(self.folder, run)
        else:
            self._small(run)

    def paths(self, run: Run) -> list[Path]:
        """Where a run's files are on this machine; those that are not are brought here."""
        self._bring([run])
        return run.paths(self.folder)

    def check(self, spark: SparkSession) -> None:
        """Raise ``Corruption`` when rows of some run are not what was written; executors read their own copies."""
        executors = self.executors_of(spark)
        if executors is not None:
            executors.check(spark, self._stored(self.runs))
        for run in self.runs if executors is None else (run for run in self.runs if run.small is not None):
            self.verify(run)

    def executors_of(self, spark: SparkSession) -> ExecutorFiles | None:
        """What executors use that read and write runs on the store themselves; None: they see the files here."""
        return None if self.cache is None else self.cache.executors_of(spark)

    def _stored(self, runs: Sequence[Run]) -> list[StoredFile]:
        return [StoredFile(self.folder.name, file) for run in runs for file in run.files]

    def _bring(self, runs: Sequence[Run]) -> None:
        if self.cache is not None:
            for run in runs:
                self.cache.bring(self.folder, run)

    def content(self) -> pa.Table:
        """The rows that are there with their weights, added up, on the driver: for a small trace. It is remembered."""
        if self._content is None:
            self._content = self.consolidated_table()
        elif self._since and self.key:
            self._content = latest([self._content, *self._since], self.key)
        elif self._since:
            self._content = consolidate(pa.concat_tables([self._content, *self._since]))
        self._since = ()
        return self._content

    def _scan(self, spark: SparkSession, runs: Sequence[Run], columns: Sequence[str] | None = None) -> DataFrame:
        """The weighted rows of some runs: at least these columns of them."""
        executors = self.executors_of(spark)
        fields = self.schema
        if executors is not None and columns is not None:  # Spark's own reader leaves out by itself what is not used
            fields = pa.schema([field for field in self.schema if field.name in {*columns, WEIGHT}])

        def make() -> DataFrame:
            if not runs:
                return local_frame(spark, self.schema.empty_table())
            return scan_runs(spark, [(self, run) for run in runs], fields)

        source = tuple(run.identity for run in runs)
        if executors is not None:
            return self._frames.get(spark, (source, tuple(fields.names), executors.access()), make)
        self._bring(runs)  # a frame that is remembered names its files
        return self._frames.get(spark, source, make)

    def _parts(self, spark: SparkSession, runs: Sequence[Run]) -> list[WeightedPart]:
        """The largest positive run by itself, the other positive ones in one scan, and the rest in another."""
        positive = sorted((run for run in runs if run.positive), key=lambda run: run.rows)
        sets = [positive[-1:], positive[:-1], [run for run in runs if not run.positive]]
        return [
            WeightedPart(
                self._scan(spark, some),
                sum(run.rows for run in some),
                all(run.positive for run in some),
                all(run.plain for run in some),
            )
            for some in sets
            if some
        ]

    def _piece(self, run: Run) -> StatePiece:
        return StatePiece(run.identity, run.rows, lambda fields: self._read(run, fields))

    # The next trace

    def write(self, changes: Delta, *, tick: int, epoch: int) -> Run:
        """Make the changes a run on disk. It is not current: that is for the manifest to say.

        A repeated tick writes the same names again; a process of another epoch writes others.
        """
        # On an object store a name is used once: a commit whose answer was lost may list what the first attempt wrote.
        name = f"{tick:012d}-{epoch}" + (f"-{uuid.uuid4().hex[:8]}" if self.cache is not None else "")
        if changes.table is not None:
            return self.write_table(name, fitted(changes.table, self.schema), first_tick=tick, last_tick=tick)
        if changes.stored is not None:
            files = [self._own_file(changes.stored.executors, stored) for stored in changes.stored.files]
            return described(name, files, changes.weighed, tick, tick)
        with changes.adopting:  # rows that a view takes as they are, all in time, are the input's and the view's
            own = not changes.adopted
            paths = changes.files if own else self._copied(changes.files)
            run = self.adopt(name, paths, changes.weighed, first_tick=tick, last_tick=tick)
            if own:
                changes.moved(run.paths(self.folder))
        return run

    def _own_file(self, executors: ExecutorFiles, stored: StoredFile) -> RunFile:
        """A file on the store in this trace's folder; of another trace's, which prunes its own, a copy."""
        return (stored if stored.folder == self.folder.name else executors.copy(stored, self.folder.name)).file

    def _copied(self, paths: Sequence[Path]) -> list[Path]:
        """Copies of files that are another trace's: each trace prunes its own."""
        self.files.make_dir(self.folder, label="run.make_directory")
        copies = [self.folder / f"{uuid.uuid4().hex}{STAGING}" for _ in paths]
        for path, copy_ in zip(paths, copies, strict=True):
            with translated(f"copy {path}"):
                shutil.copyfile(path, copy_)
        return copies

    def adopt(self, name: str, paths: Sequence[Path], weighed: Weighed, *, first_tick: int, last_tick: int) -> Run:
        """Make files that were written here a run."""
        run = adopt_run(self.folder, name, paths, weighed, first_tick=first_tick, last_tick=last_tick, files=self.files)
        return self._uploaded(run)

    def _uploaded(self, run: Run) -> Run:
        if self.cache is not None:
            self.cache.upload(self.folder, run)
        return run

    def write_table(self, name: str, table: pa.Table, *, first_tick: int, last_tick: int) -> Run:
        """Make a table that is here a run: in the catalog when it is small, else a file."""
        small = None if self.small is None else self.small.keep(self.folder.name, name, table)
        if small is None:
            run = write_run(self.folder, name, table, first_tick=first_tick, last_tick=last_tick, files=self.files)
            return self._uploaded(run)
        weighed = weigh(table)
        return Run(name, (), weighed.rows, first_tick, last_tick, weighed.weight_min, weighed.weight_max, small)

    def with_run(self, run: Run, changes: Delta | None = None) -> Trace:
        """The trace with one more run. The rows of ``changes``, if they are here, go straight into the arrangements."""
        if changes is not None and changes.table is not None:
            table = fitted(changes.table, self.schema)
            self._arrangements.add(self._piece(run), table)
            following = self._next((*self.runs, run))
            if changes.content is not None and changes.content.num_rows <= thresholds.REMEMBERED_ROWS_MAX:
                following._content = fitted(changes.content, self.schema)
                return following
            few = table.num_rows <= thresholds.REMEMBERED_ROWS_MAX
            few = few and len(self._since) < thresholds.REMEMBERED_TICKS_MAX
            if self._content is not None and few:
                following._content, following._since = self._content, (*self._since, table)
            return following
        return self._next((*self.runs, run))

    def with_merge(self, replaced: Sequence[Run], run: Run | None) -> Trace:
        """The trace with ``run`` in the place of others (``RunMerge.run`` says of which); None: all cancelled out."""
        gone = {one.name for one in replaced}
        places = [place for place, one in enumerate(self.runs) if one.name in gone]
        if len(places) != len(gone) or not gone:
            raise Misuse("the runs to be replaced are not all in this trace", runs=sorted(gone))
        runs = [one for one in self.runs if one.name not in gone]
        runs[places[0] : places[0]] = [] if run is None else [run]
        self._arrangements.forget([one.identity for one in replaced])
        following = self._next(runs)
        following._content, following._since = self._content, self._since
        return following

    def _next(self, runs: Sequence[Run]) -> Trace:
        trace = copy.copy(self)
        trace.runs = tuple(runs)
        trace._content, trace._since = None, ()
        return trace

    # Housekeeping

    def merge_due(self) -> RunMerge | None:
        """The merge that housekeeping asks for, if any."""
        from headwater.views.state.merge import due

        return due(self)

    def merge_of_all(self) -> RunMerge:
        """A merge of all runs."""
        from headwater.views.state.merge import RunMerge

        return RunMerge(self, self.runs)

    def adopt_content(self, staying: StayingRows, newest: Run) -> Run | None:
        """What is there after a tick as one run, for ``merge_of_all``; None when nothing is left.

        It has the files of the rows that stayed, and those files of the tick's run that add rows: both runs list them.
        """
        from headwater.views.state.merge import adopt_merged

        first, last = self.runs[0].first_tick, newest.last_tick
        return adopt_merged(self, staying.files, newest.files[staying.added_from :], first_tick=first, last_tick=last)

    def prepare(self, run: Run) -> None:
        """Sort a run for the lookups known so far, so that the first one after a merge does not wait."""
        self._arrangements.prepare(self._piece(run), self.schema)

    def unmap(self) -> None:
        """Let go of the sorted copies; a lookup opens their files again. For a tick after which they are of no use."""
        self._arrangements.forget([run.identity for run in self.runs])

    def prune(self, keep: Collection[Run]) -> None:
        """Delete every file of this folder that belongs to none of these runs."""
        names = {file.name for run in keep for file in run.files}
        for path in self.folder.glob("*.parquet*"):
            if path.is_dir():  # Spark was writing when the process ended
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in names:
                self.files.unlink(path, label="run.unlink")
        self.prune_caches(keep)

    def prune_caches(self, keep: Iterable[Run]) -> None:
        """Delete the sorted copies of runs that are none of these."""
        self._arrangements.prune({run.identity for run in keep})

    def __repr__(self) -> str:
        return f"Trace({len(self.runs)} run{'s' if len(self.runs) != 1 else ''}, {self.rows} rows)"


def delta_of(spark: SparkSession, runs: Sequence[tuple[Trace, Run]], schema: pa.Schema) -> Delta:
    """The rows of some runs with files, of traces with one schema, as changes."""
    executors = runs[0][0].executors_of(spark)
    if executors is not None:
        files = tuple(StoredFile(trace.folder.name, file) for trace, run in runs for file in run.files)
        weights = (Weighed(run.rows, run.weight_min, run.weight_max) for _, run in runs)
        weighed = functools.reduce(Weighed.and_also, weights)
        return Delta.on_store(StoredRows(executors, files), weighed, schema)
    changes = Delta.written([path for trace, run in runs for path in trace.paths(run)], schema)
    changes.adopted = True
    return changes


def scan_runs(spark: SparkSession, runs: Sequence[tuple[Trace, Run]], fields: pa.Schema | None = None) -> DataFrame:
    """The weighted rows of some runs, of traces with one schema; with ``fields``, these columns of them."""
    executors, schema = runs[0][0].executors_of(spark), runs[0][0].schema if fields is None else fields
    few = [pa.Table.from_batches(trace.read([run]), trace.schema) for trace, run in runs if run.small is not None]
    frames = []
    if executors is not None:
        stored = [StoredFile(trace.folder.name, file) for trace, run in runs for file in run.files]
        frames += [executors.scan(spark, stored, schema)] if stored else []
    else:
        for trace, run in runs:
            trace.verify(run)
        paths = [path for trace, run in runs for path in run.paths(trace.folder)]
        frames += [scan(spark, paths, schema)] if paths else []
    frames += [local_frame(spark, fitted(pa.concat_tables(few), schema))] if few else []
    return functools.reduce(lambda one, other: one.unionAll(other), frames)
