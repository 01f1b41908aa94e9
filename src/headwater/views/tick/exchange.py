"""Exchange: many rows of a keyed relation replaced, in one pass over its state.

What it is: ``exchanged``, for a tick that changes more keys than are worth a lookup: the runs are read batch by batch,
and each row that is current goes into one of two files, that of the rows that leave or that of the rows that stay.
Invariants: memory does not grow with the state, only with the rows of the tick, which ``tick_rows_max`` bounds, and the
keys of rows that older ticks took back. A file that this module leaves behind in a crash belongs to no run.
Not here: few keys (``Trace.lookup``); which rows of a range are the last of their keys (``inputs.py``).
Read next: ``inputs.py``, ``views/state/state_store.py``, which makes runs of the files.

Which rows are current: each tick that changes a key takes its row back, with -1. So a row of a run is current unless a
later run has a row of its key with a negative weight.

Why not by Spark: on two cores it needs 3.8 s of processor time to replace 1.5 of 2 million rows (a hash join by key and
Parquet files), this pass 1.2 s.
"""

from __future__ import annotations

import contextlib
import gc
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.storage.files import Files
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.algebra import negate, weights
from headwater.views.state.delta import Delta
from headwater.views.state.lookups.key_index import NOT_FOUND, KeyIndex
from headwater.views.state.row_equality import last_of_each
from headwater.views.state.run import STAGING, RowWriter, Run
from headwater.views.state.trace import Trace

MARK = ".exchange"
LEFT_BEHIND_SECONDS = 3600  # no tick takes so long
BATCH_ROWS = 1 << 19


def exchanged(trace: Trace, keys: pa.Table, new: pa.Table, *, keeps: bool) -> Delta:
    """What it changes when the rows of ``keys`` (each there once) leave and ``new``, with weights of 1, come.

    ``keeps``: the rows that stay are written as well, so that the content afterwards is known.
    """
    new = new.select(trace.schema.names).cast(trace.schema)
    with contextlib.ExitStack() as stack:
        place = _staging(trace.folder, trace.files)
        old, added, kept = (
            stack.enter_context(RowWriter(trace.folder / f"{place}-{part}{MARK}{STAGING}", trace.schema))
            for part in ("old", "new", "kept")
        )
        # Arrow works without Python's lock: the new rows are written while the old ones are looked for.
        beside = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-exchange"))
        writing = beside.submit(added.add, new)
        for leaving, staying in _parted(trace, keys):
            old.add(negate(leaving))
            if keeps:
                kept.add(staying)
        writing.result()
    for empty in (writer for writer in (old, added, kept) if not writer.rows):
        trace.files.unlink(empty.path, label="exchange.unlink")
    changes = Delta.written([writer.path for writer in (old, added) if writer.rows], trace.schema)
    changes.staying = tuple(writer.path for writer in (kept,) if writer.rows) if keeps else None
    return changes


def release_memory() -> None:
    """Give back what a large tick held: its rows are in cycles of Python objects, and Arrow keeps what was freed."""
    gc.collect()
    pa.default_memory_pool().release_unused()


def _staging(folder: Path, files: Files) -> str:
    """A name that no other process uses; what one left behind in a crash is removed."""
    files.make_dir(folder, label="run.make_directory")
    for path in folder.glob(f"*{MARK}{STAGING}"):
        if path.stat().st_mtime < time.time() - LEFT_BEHIND_SECONDS:
            files.unlink(path, label="exchange.unlink")
    return uuid.uuid4().hex


def _parted(trace: Trace, keys: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The current rows, batch by batch: those that have one of the keys, and the others."""
    touched, taken, taken_in = KeyIndex(keys), *_taken_back(trace)
    for number, run in enumerate(trace.runs):
        for rows in _batches(trace, run):
            if not run.positive:
                rows = rows.filter(pc.greater(rows.column(WEIGHT), 0))
            mine = rows.select(list(trace.key))
            if taken.keys.num_rows:
                places = taken.find(mine)
                later = (places != NOT_FOUND) & (taken_in[places] > number)
                rows, mine = (table.filter(pa.array(~later)) for table in (rows, mine))
            leaving = touched.find(mine) != NOT_FOUND
            yield rows.filter(pa.array(leaving)), rows.filter(pa.array(~leaving))


def _taken_back(trace: Trace) -> tuple[KeyIndex, np.ndarray]:
    """The keys of all negative rows, each once, and for each the number of the last run that has one."""
    key = list(trace.key)
    found = [trace.schema.empty_table().select(key)]
    numbers: Sequence[np.ndarray] = [np.empty(0, np.int64)]
    for number, run in enumerate(trace.runs):
        for rows in () if run.positive else _batches(trace, run, [*key, WEIGHT]):
            negative = rows.filter(pa.array(weights(rows) < 0)).select(key)
            found.append(negative)
            numbers = [*numbers, np.full(negative.num_rows, number)]
    together, runs = pa.concat_tables(found), np.concatenate(numbers)
    last = last_of_each(together, key)
    return KeyIndex(together.filter(pa.array(last))), runs[last]


def _batches(trace: Trace, run: Run, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in trace.read([run], columns):
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= BATCH_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)
