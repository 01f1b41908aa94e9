"""Exchange: many rows of a keyed relation replaced, in one pass over its state.

What it is: ``exchanged``, for a tick that changes more keys than are worth a lookup: the runs are read batch by batch,
and each row that is current goes into one of two files, that of the rows that leave or that of the rows that stay.
Invariants: memory does not grow with the state, only with the rows of the tick, which ``tick_offsets_max`` bounds. A
file that a crash leaves behind belongs to no run, and is pruned with those of other crashes.
Not here: few keys (``Trace.lookup``); which rows of a range are the last of their keys (``inputs.py``); which rows of
the state are current (``views/state/lookups/keyed_pass.py``).
Read next: ``inputs.py``, ``views/state/state_store.py``, which makes runs of the files.

Why not by Spark: to replace rows of a table of 2 million by 1.8 million changes takes it 3.8 s of processor time (a
hash join by key, the rows written as Parquet), and this pass 0.7 s; 1.1 s where the keys are numbers far apart, 1.5 s
where they are texts.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from headwater.log.storage.files import Files
from headwater.views.state.algebra import negate
from headwater.views.state.delta import Delta, StayingRows
from headwater.views.state.lookups.key_index import NOT_FOUND, KeyIndex
from headwater.views.state.lookups.keyed_pass import current_rows
from headwater.views.state.run import STAGING, RowWriter
from headwater.views.state.trace import Trace


def exchanged(trace: Trace, keys: pa.Table, new: pa.Table, *, keeps: bool) -> Delta:
    """What it changes when the rows of ``keys`` (each there once) leave and ``new``, with weights of 1, come.

    ``keeps``: the rows that stay are written as well, so that the content afterwards is known.
    """
    new = new.select(trace.schema.names).cast(trace.schema)
    trace.files.make_dir(trace.folder, label="run.make_directory")
    place = uuid.uuid4().hex  # no other process uses it
    paths = [trace.folder / f"{place}-{part}{STAGING}" for part in ("old", "new", "kept")]
    try:
        old, added, kept = _written(trace, keys, new, paths, keeps=keeps)
    except BaseException:
        _remove(trace.files, paths)
        raise
    changes = Delta.written([path for path, rows in zip(paths[:2], (old, added), strict=True) if rows], trace.schema)
    if keeps and changes.rows:
        changes.staying = StayingRows(tuple(paths[2:] if kept else ()), added_from=1 if old else 0)
    of_no_use = [path for path, rows in zip(paths, (old, added, kept if changes.rows else 0), strict=True) if not rows]
    _remove(trace.files, of_no_use)
    return changes


def _written(trace: Trace, keys: pa.Table, new: pa.Table, paths: Sequence[Path], *, keeps: bool) -> Sequence[int]:
    """Write the rows that leave, come and stay into these three files; how many there are of each."""
    with contextlib.ExitStack() as stack:
        old, added, kept = (stack.enter_context(RowWriter(path, trace.schema)) for path in paths)
        # Arrow works without Python's lock: the new rows are written while the old ones are looked for.
        beside = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-exchange"))
        writing = beside.submit(added.add, new)
        for leaving, staying in _parted(trace, keys):
            old.add(negate(leaving))
            if keeps:
                kept.add(staying)
        writing.result()
    return old.rows, added.rows, kept.rows


def _remove(files: Files, paths: Sequence[Path]) -> None:
    for path in paths:
        files.unlink(path, label="exchange.unlink")


def _parted(trace: Trace, keys: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The current rows, batch by batch: those that have one of the keys, and the others."""
    touched = KeyIndex(keys)
    for rows in current_rows(trace):
        leaving = touched.find(rows.select(list(trace.key))) != NOT_FOUND
        yield rows.filter(pa.array(leaving)), rows.filter(pa.array(~leaving))
