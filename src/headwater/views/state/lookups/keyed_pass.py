"""Current rows: what a trace with a key holds, read batch by batch.

What it is: ``current_rows``, one pass over the runs of a trace that gives the rows that are there, without adding up
all of them in memory.
Invariants: memory does not grow with the state, only with the keys of its negative rows, which merging bounds. The rows
are those of ``Trace.consolidated_table``.
Not here: traces without a key, whose equal rows must be added up (``multisets.py``).
Read next: ``views/tick/exchange.py`` and ``views/state/merge.py``, which use it.

Which rows are current: each tick that changes a key takes its row back, with -1. So a row of a run is current unless a
later run has a row of its key with a negative weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.algebra import weights
from headwater.views.state.lookups.key_index import NOT_FOUND, KeyIndex
from headwater.views.state.row_equality import last_of_each

if TYPE_CHECKING:
    from headwater.views.state.run import Run
    from headwater.views.state.trace import Trace

BATCH_ROWS = 1 << 19


def current_rows(trace: Trace) -> Iterator[pa.Table]:
    """The rows that are there, each with weight 1, in the order of the runs."""
    taken, taken_in = _taken_back(trace)
    for number, run in enumerate(trace.runs):
        for rows in _batches(trace, run):
            if not run.positive:
                rows = rows.filter(pc.greater(rows.column(WEIGHT), 0))
            if taken.keys.num_rows:
                places = taken.find(rows.select(list(trace.key)))
                later = (places != NOT_FOUND) & (taken_in[places] > number)
                rows = rows.filter(pa.array(~later))
            yield rows


def _taken_back(trace: Trace) -> tuple[KeyIndex, np.ndarray]:
    """The keys of all negative rows, each once, and for each the number of the last run that has one."""
    key = list(trace.key)
    found = [trace.schema.empty_table().select(key)]
    numbers: list[np.ndarray] = [np.empty(0, np.int64)]
    for number, run in enumerate(trace.runs):
        for rows in () if run.positive else _batches(trace, run, [*key, WEIGHT]):
            negative = rows.filter(pa.array(weights(rows) < 0)).select(key)
            found.append(negative)
            numbers.append(np.full(negative.num_rows, number))
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
