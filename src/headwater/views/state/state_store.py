"""The state store: the traces of an app's relations, from tick to tick.

What it is: opens the traces that a manifest lists, collects the runs that a tick writes, makes the next tick's traces,
merges in the background, and removes files that no kept manifest lists.
Invariants: a run counts only once a committed manifest lists it; a file goes only when no kept manifest lists it.
Not here: runs and merging themselves (``trace.py``); manifests (``manifest.py``).
Read next: ``trace.py``.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import HeadwaterError
from headwater.log.maintenance.removal_pin import is_held
from headwater.log.schema.ddl import parse_view_ddl, to_ddl
from headwater.log.schema.evolution import conform
from headwater.log.storage.files import Files, translated
from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT, AccumulateStage
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.log_trace import LogTrace
from headwater.views.state.manifest import Manifest, RelationEntry
from headwater.views.state.manifest_entries import Listed, Place, folder_name
from headwater.views.state.merge import RunMerge
from headwater.views.state.remote.executor_files import StagePlace
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.run import STAGING, Run
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_trace import Traces
from headwater.views.state.trace import Trace, delta_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views.tick.inputs import InputRelation
    from headwater.views.tick.prepare import Prepared

logger = logging.getLogger("headwater.views")

Shape = tuple[str, pa.Schema, tuple[str, ...]]  # of a relation's state: its identity, its columns, its unique key

APART = "apart"  # what a rebuild changed, beside the state that it made
BUILD = re.compile(r".+-[0-9a-f]{16}\.[0-9]+\.(?P<epoch>[0-9]+)")  # a folder that a rebuild made
WRITERS = 2  # mostly they wait for the disk
UNLISTED_SECONDS_MAX = 3600  # a run is listed soon after it was written, or never
RELEASED_SECONDS_MAX = 300  # whoever reads an older tick goes on reading its files for so long after it was forgotten


class StateStore:
    """The state of one app's relations under one folder."""

    def __init__(
        self,
        folder: Path,
        files: Files,
        spark: SparkSession,
        small: SmallRuns | None = None,
        cache: RunCache | None = None,
    ) -> None:
        self.folder = folder
        self.cache = cache  # of files that are on an object store; None: they are here
        self.small = small  # None: every run is a file
        self.files = files
        self.spark = spark
        self._pending: dict[str, tuple[Run, Delta | None]] = {}
        self._new: dict[str, Trace] = {}
        self._open: Traces = {}
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(max_workers=WRITERS, thread_name_prefix="headwater-write")
        self._writes: list[Future[None]] = []
        self._merger = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-merge")
        self._pruning: Future[None] | None = None
        self._released: deque[tuple[float, Place]] = deque()  # when a file was let go, and which
        self._entries: dict[str, tuple[Trace, Shape, RelationEntry]] = {}  # what manifests said last
        self._unmerged: dict[str, Trace] = {}  # traces of which no merge is due
        self._merges: dict[str, Future[tuple[tuple[Run, ...], Run | None]]] = {}
        self._merging_since: dict[str, float] = {}
        # Merges within a tick. Once it is committed their runs are sorted for lookups, so that its views had all cores,
        # and count from the next tick on, sorted or not: without them a second large tick would read everything twice.
        self._unfinished: dict[str, tuple[RunMerge, Run | None]] = {}
        self._committed: dict[str, tuple[RunMerge, Run | None]] = {}
        self._sorting: dict[str, Future[tuple[tuple[Run, ...], Run | None]]] = {}
        self._shapes: dict[str, Shape] = {}
        self._prepared: Prepared | None = None

    # Opening

    def open(self, manifest: Manifest, prepared: Prepared, epoch: int) -> Traces:
        """The traces that the manifest lists and the prepared app still means."""
        self._shapes, self._prepared = _identities(prepared), prepared
        traces: Traces = {}
        for name, base in prepared.inputs.items():
            if base.is_log_backed:
                start = base.topic.start_offsets()
                traces[name] = self.log_trace(base, manifest.frontier.get(base.topic.name) or start)
        for name, (identity, _, _) in self._shapes.items():
            entry = manifest.relations.get(name)
            if entry is not None and entry["identity"] == identity:
                traces[name] = self._trace(name, [Run.from_json(run) for run in entry["runs"]])
            elif name in prepared.inputs and prepared.inputs[name].topic.name in manifest.frontier:
                traces[name] = self._carried_over(prepared.inputs[name], manifest, entry, epoch)
        self._open = traces
        return traces

    def _carried_over(self, base: InputRelation, manifest: Manifest, entry: RelationEntry | None, epoch: int) -> Trace:
        """What ticks have seen of a topic, in the columns that it has now, as a run that the next tick will commit.

        Not read again from the log: retention may have taken rows from there that views still hold.
        """
        trace = self._trace(base.name, [])
        if entry is not None and entry["identity"].startswith(_topic_identity(base)):
            older: Iterator[pa.RecordBatch] = self.trace_of(base.name, entry).read()
        else:  # until now the log itself was the state; or the topic was read otherwise: as it is, or as it was
            older = base.rows_up_to(manifest.frontier[base.topic.name])
        self.files.make_dir(trace.folder, label="state.make_directory")
        staging = trace.folder / f"{manifest.tick:012d}-{epoch}.carried{STAGING}"
        with translated(f"state {staging}"), pq.ParquetWriter(staging, trace.schema, compression="zstd") as writer:
            for batch in older:
                writer.write_batch(conform(batch, trace.schema))
        changes = Delta.written([staging], trace.schema)
        if not changes.rows:
            self.files.unlink(staging, label="state.carry_over")
            return trace
        return trace.with_run(trace.write(changes, tick=manifest.tick, epoch=epoch))

    def _trace(self, name: str, runs: list[Run]) -> Trace:
        identity, schema, key = self._shapes[name]
        folder = self.folder / folder_name(name, identity)
        return Trace(folder, schema, runs, files=self.files, key=key, small=self.small, cache=self.cache)

    def trace_of(self, name: str, entry: RelationEntry) -> Trace:
        """A trace as a manifest lists it, for reading only."""
        return trace_of(self.folder, name, entry, self.files, self.small, self.cache)

    def log_trace(self, base: InputRelation, stop: Mapping[int, int]) -> LogTrace:
        """A topic that is its own state, up to a place."""
        folder = self.folder / folder_name(base.name, _input_identity(base))
        start, columns = base.topic.start_offsets(), base.schema if base.name != base.topic.name else None
        return LogTrace(base.topic, start, stop, folder=folder, columns=columns, files=self.files, omitted=base.omitted)

    # A tick's runs

    def place_of(self, name: str, *, kept: bool = True) -> StagePlace | None:
        """Where the executors of a cluster write a relation's changes; None: they write where this process does."""
        executors = None if self.cache is None else self.cache.executors_of(self.spark)
        if executors is None:
            return None
        folder = self._current(self._open, name).folder.name if kept else f"scratch-{uuid.uuid4().hex}"
        return StagePlace(executors, folder, kept)

    def write(self, name: str, changes: Delta, tick: int, epoch: int) -> None:
        """Write a relation's changes as a run that the next manifest will list. Called from several threads.

        Not too many rows are written in the background: readers of the changes have them in memory. A few bytes, which
        go into the catalog, are only encoded: that takes less time than another thread would.
        """
        if changes.table is None or changes.rows > thresholds.TASK_ROWS_MAX or self._is_tiny(changes.table):
            self._write(name, changes, tick, epoch)
        else:
            self._write_beside(name, changes, tick, epoch)

    def _is_tiny(self, rows: pa.Table) -> bool:
        few = self.small is not None and rows.num_rows <= thresholds.FEW_ROWS_MAX
        return few and rows.nbytes <= thresholds.TINY_RUN_BYTES_MAX

    def _write_beside(self, name: str, changes: Delta, tick: int, epoch: int) -> Future[None]:
        with self._lock:
            write = self._writer.submit(self._write, name, changes, tick, epoch)
            self._writes.append(write)
        return write

    def _write(self, name: str, changes: Delta, tick: int, epoch: int) -> None:
        trace = self._current(self._open, name)
        run = trace.write(changes, tick=tick, epoch=epoch)
        if changes.table is not None and changes.rows > thresholds.TASK_ROWS_MAX and run.files:
            changes.read_from(delta_of(self.spark, [(trace, run)], trace.schema))
        with self._lock:
            self._new[name] = trace
            self._pending[name] = (run, changes)

    def write_and_merge(self, name: str, changes: Delta, tick: int, epoch: int) -> Delta | None:
        """Write many changes, and merge at once when that is due anyway: then all that is there now, else None.

        A tick that changes so much recomputes views, and reads the merged rows instead of every run's. The merge
        counts from the next tick on, as others do: the manifest of this one lists the run.
        """
        began = time.time()
        self.write(name, changes, tick, epoch)
        trace = self._new[name].with_run(self._pending[name][0])
        if changes.staying is not None:  # a merge that is under way is of no use any more: this one has all runs
            merge, merged = trace.merge_of_all(), trace.adopt_content(changes.staying, trace.runs[-1])
        else:
            due = None if name in self._merges else trace.merge_due()
            if due is None or due.runs != trace.runs or due.needs_spark or due.by_executors(self.spark):
                return None
            merge, merged = due, due.write()
        self._pending[name] = (self._pending[name][0], None)  # lookups read the merged run instead
        self._merging_since[name] = began
        self._unfinished[name] = merge, merged
        schema = merge.trace.schema
        if merged is None:
            return Delta.nothing(schema)
        if merged.small is not None:
            return Delta.local(pa.Table.from_batches(merge.trace.read([merged]), schema))
        return delta_of(self.spark, [(merge.trace, merged)], schema)

    def next(self, traces: Traces, prepared: Prepared, stop: Mapping[str, Mapping[int, int]]) -> Traces:
        """The traces after the tick whose runs were written. A write that failed fails here."""
        for write in self._written():
            write.result()
        # Most relations of an app of many views stand still: they are taken along at once.
        same = prepared is self._prepared and traces.keys() >= self._shapes.keys()
        following: Traces = dict(traces) if same else {}
        for name, base in prepared.inputs.items():
            if base.is_log_backed:
                log_trace = traces.get(name) or self.log_trace(base, base.topic.start_offsets())
                assert isinstance(log_trace, LogTrace)
                following[name] = log_trace.with_range(stop[base.topic.name])
        for name in list(self._pending) if same else self._shapes_of(prepared):
            trace = self._current(traces, name)
            if name in self._pending:
                trace = trace.with_run(*self._pending[name])
            following[name] = trace
        return following

    def _current(self, traces: Traces, name: str) -> Trace:
        """The runs of a relation before this tick's; none when it is new."""
        found = traces.get(name) or self._new.get(name) or self._trace(name, [])
        assert isinstance(found, Trace)
        return found

    def _shapes_of(self, prepared: Prepared) -> dict[str, Shape]:
        return self._shapes if prepared is self._prepared else _identities(prepared)

    def adopt(self, traces: Traces, prepared: Prepared) -> None:
        """The tick was committed."""
        self._open = traces
        self._shapes, self._prepared = self._shapes_of(prepared), prepared
        self._pending, self._new = {}, {}

    def discard(self, names: Collection[str]) -> None:
        """Drop the runs of these relations that this tick wrote: their view has failed."""
        with self._lock:
            writes = list(self._writes)
        wait(writes)  # a failed one is told by ``next``
        for name in names:
            if name in self._pending:
                self._drop_small(self._new[name], self._pending.pop(name)[0])
            self._new.pop(name, None)

    def forget(self) -> None:
        """Drop the runs that were written and not committed: the tick failed, or a new one begins."""
        self._written()
        for name, (run, _) in self._pending.items():
            self._drop_small(self._new[name], run)
        for merge, merged in self._unfinished.values():
            self._drop_small(merge.trace, merged)
        self._pending, self._new, self._unfinished = {}, {}, {}

    def _drop_small(self, trace: Trace, run: Run | None) -> None:
        """Let go of the rows of a run that no manifest will list, if they are here; a file is pruned by its age."""
        if self.small is not None and run is not None and run.small is not None:
            self.small.drop(trace.folder.name, run.name)

    def _written(self) -> list[Future[None]]:
        """Wait until nothing is being written."""
        with self._lock:
            writes, self._writes = self._writes, []
        wait(writes)
        return writes

    def describe(self, traces: Traces, prepared: Prepared) -> dict[str, RelationEntry]:
        """What the manifest says of the traces; of one that stood still it is the same object as before."""
        found: dict[str, RelationEntry] = {}
        for name, shape in self._shapes_of(prepared).items():
            trace, known = self._current(traces, name), self._entries.get(name)
            if known is None or known[0] is not trace or known[1] is not shape:
                known_shape = known is not None and known[1] is shape
                entry = {**known[2]} if known is not None and known_shape else _entry(*shape, ())
                entry["runs"] = [run.to_json() for run in trace.runs]
                known = self._entries[name] = (trace, shape, entry)
            found[name] = known[2]
        return found

    def write_apart(self, view: str, changes: Delta, tick: int, epoch: int) -> RelationEntry:
        """Write changes of a view that are no run of its state; returns what the manifest says of them."""
        identity = f"{APART}{tick}"
        folder = self.folder / folder_name(view, identity)
        trace = Trace(folder, changes.schema, files=self.files, small=self.small, cache=self.cache)
        return _entry(identity, trace.schema, (), [trace.write(changes, tick=tick, epoch=epoch)])

    # Housekeeping

    def begin_merges(self, traces: Traces) -> None:
        """Merge traces that have grown too many runs, beside the next ticks."""
        for name, (merge, merged) in self._unfinished.items():
            self._merges.pop(name, None)  # of runs that are no more
            self._sorting[name] = self._merger.submit(merge.finish, merged)
        self._committed, self._unfinished = {**self._committed, **self._unfinished}, {}
        for name, trace in traces.items():
            busy = name in self._merges or name in self._committed
            if not isinstance(trace, Trace) or busy or self._unmerged.get(name) is trace:
                continue
            due = trace.merge_due()
            if due is not None:
                self._merging_since[name] = time.time()
                self._merges[name] = self._merger.submit(due.run, self.spark)
            else:
                self._unmerged[name] = trace

    def settle_merges(self, traces: Traces) -> Traces:
        """Put merges whose runs are written into the traces."""
        written = {name: (merge.runs, merged) for name, (merge, merged) in self._committed.items()}
        for name in [name for name, future in self._merges.items() if future.done()]:
            future = self._merges.pop(name)
            if future.exception() is None:
                written[name] = future.result()
            else:  # housekeeping only: the runs are as they were, and the next tick may try again
                logger.warning("merging the state of %s failed: %s", name, future.exception())
        for name, (replaced, merged) in written.items():
            trace = traces.get(name)
            if isinstance(trace, Trace) and set(replaced) <= set(trace.runs):
                traces = {**traces, name: trace.with_merge(replaced, merged)}
            elif isinstance(trace, Trace):
                self._drop_small(trace, merged)
        self._sorting = {name: future for name, future in self._sorting.items() if not future.done()}
        self._committed, self._open = {}, traces
        return traces

    def prune(self, listed: Listed, traces: Traces, released: Iterable[Place] = ()) -> None:
        """Remove files that no kept manifest lists, and sorted copies of runs that are no longer current.

        ``released`` are files that were listed and are not any more: they go soon. What was never listed stays longer,
        since another process may be about to list it.
        """
        self._prune_caches(traces)
        self._release(released)
        self._remove_unlisted(listed, self._settled_s(), {trace.folder.name for trace in traces.values()})

    def begin_pruning(self, listed: Callable[[], Listed], traces: Traces, released: Iterable[Place] = ()) -> None:
        """The same, the files beside the next ticks."""
        self._prune_caches(traces)
        self._release(released)
        before, current = self._settled_s(), {trace.folder.name for trace in traces.values()}
        if self._pruning is None or self._pruning.done():
            self._pruning = self._merger.submit(self._prune_beside, listed, before, current)

    def _prune_beside(self, listed: Callable[[], Listed], before: float, current: set[str]) -> None:
        self._remove_unlisted(listed(), before, current)
        if self.cache is not None:
            self.cache.collect(listed, older_s=time.time() - before)
            self.cache.trim(self.folder)

    def run_beside(self, work: Callable[[], None]) -> None:
        """Do this beside the next ticks; it is housekeeping, which may fail."""

        def warned() -> None:
            try:
                work()
            except HeadwaterError as error:
                logger.warning("housekeeping failed: %s", error)

        self._merger.submit(warned)

    def _release(self, released: Iterable[Place]) -> None:
        self._released.extend((time.time(), place) for place in released)

    def _settled_s(self) -> float:
        """What was written before this moment is listed, or is of no use any more."""
        # A newer process may have written runs that no manifest lists yet; by their age it has committed them since.
        # Those of merges that are under way are listed nowhere either.
        under_way = [self._merging_since[name] for name in (*self._merges, *self._committed)]
        return min([time.time() - UNLISTED_SECONDS_MAX, *under_way])

    def _prune_caches(self, traces: Traces) -> None:
        for name, trace in traces.items():
            if isinstance(trace, LogTrace):
                trace.prune()
            # A merge sorts copies of its own. Most relations of an app of many views have no folder.
            elif isinstance(trace, Trace) and not self._is_merging(name) and trace.folder.is_dir():
                trace.prune_caches(trace.runs)

    def _is_merging(self, name: str) -> bool:
        return any(name in of for of in (self._merges, self._committed, self._sorting))

    def _remove_unlisted(self, listed: Listed, before: float, current: set[str]) -> None:
        if is_held(self.folder.parent.parent):  # a backup copies what was listed when it began
            return
        while self._released and self._released[0][0] <= time.time() - RELEASED_SECONDS_MAX:
            _, (folder, name) = self._released.popleft()
            if name not in listed.get(folder, ()):  # a merged run may list a file of the run that was let go
                self.files.unlink(self.folder / folder / name, label="state.prune")
                if self.cache is not None:
                    self.cache.delete(folder, name)
        for place in sorted(path for path in self.folder.iterdir() if path.is_dir()):
            known, settled = listed.get(place.name, set()), place.stat().st_mtime < before
            for path in sorted(place.glob("*.parquet*")):  # those that a crash left half-written too
                if path.name not in known and path.stat().st_mtime < before:
                    self._remove_file(path)
            unknown = "-" in place.name and place.name not in listed and place.name not in current
            if unknown and settled:  # else a tick may be about to write into it
                self._remove_empty(place)  # of a relation that is no more, or was made anew

    def _remove_file(self, path: Path) -> None:
        if path.is_dir():  # Spark was writing when the process ended
            shutil.rmtree(path, ignore_errors=True)
        else:
            self.files.unlink(path, label="state.prune")

    def _remove_empty(self, place: Path) -> None:
        if not any(place.glob("*.parquet*")):
            shutil.rmtree(place, ignore_errors=True)

    def remove(self, prepared: Prepared, *, unless: Manifest) -> None:
        """Remove the state of views that were built, where this manifest does not list it."""
        listed = _folders(unless)
        for name, (identity, _, _) in _identities(prepared).items():
            if (place := folder_name(name, identity)) not in listed:
                shutil.rmtree(self.folder / place, ignore_errors=True)
                if self.small is not None:
                    self.small.drop(place)

    def remove_builds(self, listed: Callable[[], Listed], epoch: int) -> None:
        """Remove what processes of older epochs had begun to build, and no kept manifest lists."""
        found = [
            place
            for place in self.folder.glob("*-*")
            if (made := BUILD.fullmatch(place.name)) and int(made["epoch"]) < epoch
        ]
        known = listed() if found else {}
        for place in found:
            if place.name not in known:
                shutil.rmtree(place, ignore_errors=True)

    def close(self) -> None:
        """Stop writing and merging."""
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._merger.shutdown(wait=True, cancel_futures=True)


def _folders(manifest: Manifest) -> set[str]:
    """The folders of all that a manifest lists."""
    return {folder_name(name, entry["identity"]) for name, entry in manifest.relations.items()}


def _entry(identity: str, schema: pa.Schema, key: Sequence[str], runs: Sequence[Run]) -> RelationEntry:
    return {
        "identity": identity,
        "schema": to_ddl(pa.schema([field.with_nullable(True) for field in schema if field.name != WEIGHT])),
        "key": list(key),
        "runs": [run.to_json() for run in runs],
    }


def trace_of(
    folder: Path, name: str, entry: RelationEntry, files: Files, small: SmallRuns | None, cache: RunCache | None = None
) -> Trace:
    """A trace as a manifest lists it, for reading only."""
    schema = weighted_schema(parse_view_ddl(entry["schema"]))
    place = folder / folder_name(name, entry["identity"])
    runs = [Run.from_json(run) for run in entry["runs"]]
    return Trace(place, schema, runs, files=files, key=entry.get("key", ()), small=small, cache=cache)


def _identities(prepared: Prepared) -> dict[str, Shape]:
    """The relations that keep a state."""
    found: dict[str, Shape] = {}
    for name, base in prepared.inputs.items():
        if not base.is_log_backed:
            found[name] = (_input_identity(base), weighted_schema(base.schema), base.key)
    for view in prepared.views.values():
        for stage in view.plan.stages:
            if view.keeps[stage.name]:
                # A group has one row, so its columns are a key; with none, a stage of one row needs no help.
                key = tuple(column.name for column in stage.groups) if isinstance(stage, AccumulateStage) else ()
                found[stage.name] = (view.identity, weighted_schema(view.shapes[stage.name].state), key)
    return found


def _input_identity(base: InputRelation) -> str:
    return f"{_topic_identity(base)}{base.topic.schema_version}"


def _topic_identity(base: InputRelation) -> str:
    return f"t{base.topic.id}v"
