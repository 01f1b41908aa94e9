"""The buffer of leading rows: the first rows of a relation, kept so that a tick need not read the relation.

What it is: what becomes of the buffer of a ``LeadingStage`` when rows come and leave, on the driver. Spark tells where
each row stands in the order (``LeadingStage.merge``); adding up, numbering and cutting off are done here.
Invariants: the buffer is a prefix of the relation in the order. A row that leaves from behind it changes nothing; a row
that comes behind it is not taken in, unless the buffer was the whole relation. It is that exactly when it has no row
behind the last one that can be shown: a buffer that runs so short without being the whole is filled anew.
Not here: the queries, and filling (``leading_run.py``).
Read next: ``leading_run.py``, ``LeadingStage`` in ``views/compiler/plan.py``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.compiler.plan import NUMBER, WEIGHT, LeadingStage
from headwater.views.state.algebra import SHOWN, WEIGHT_FIELD, consolidate, weights, with_weight


class BufferMerge:
    """The rows of ``LeadingStage.merge``: a tick's changes among the rows of the buffer.

    >>> from headwater.views.compiler.plan import PlanColumn, StageKind
    >>> hidden = (PlanColumn("_c0", "BIGINT"), PlanColumn("_shown", "BOOLEAN"))
    >>> stage = LeadingStage("v", StageKind.LEADING, (), hidden, "first 1 by x", last=1, spare=9)
    >>> places = {"_held": [True, False, False, True], "_place": [1, 1, 3, 4], "_rows": [4, 4, 4, 4]}
    >>> merge = BufferMerge(stage, pa.table({"_c0": [1, 1, 2, 5], "_weight": [1, -1, 1, 1], **places}))
    >>> merge.is_unreached
    False
    >>> merge.buffer().select(["_c0", "_number", "_shown"]).to_pylist()  # 1 left, 2 came
    [{'_c0': 2, '_number': 1, '_shown': True}, {'_c0': 5, '_number': 2, '_shown': False}]
    """

    def __init__(self, stage: LeadingStage, found: pa.Table) -> None:
        self.stage = stage
        self.found = found.take(pc.sort_indices(found, sort_keys=[("_place", "ascending")]))
        held = self.found.filter(self.found.column("_held"))
        self.was_everything = not _reaches_behind(stage, _numbered(stage, held))
        self.is_everything = self.was_everything and (
            not found.num_rows or found.num_rows == found.column("_rows")[0].as_py()
        )
        if not self.was_everything:
            near = pc.less_equal(self.found.column("_place"), held.column("_place")[-1])
            self.found = self.found.filter(near)

    @property
    def is_unreached(self) -> bool:
        """Whether all changes are behind the buffer, so that it stays as it is."""
        return not self.was_everything and bool(pc.all(self.found.column("_held")).as_py())

    def buffer(self) -> pa.Table | None:
        """The new buffer; None when it must be filled from everything."""
        names = [name for name in (*self.stage.held, "_place", "_peer", WEIGHT) if name in self.found.column_names]
        rows = consolidate(self.found.select(names))
        buffer = _numbered(self.stage, rows.filter(pc.greater(rows.column(WEIGHT), 0)))
        return buffer if self.is_everything or _reaches_behind(self.stage, buffer) else None


def filled(stage: LeadingStage, found: pa.Table) -> pa.Table:
    """The new buffer from the rows of ``LeadingStage.fill``."""
    in_order = found.take(pc.sort_indices(found, sort_keys=[("_place", "ascending")]))
    return _numbered(stage, with_weight(in_order, 1))


def state_rows(stage: LeadingStage, buffer: pa.Table, state: pa.Schema) -> pa.Table:
    """The buffer as weighted rows of the stage's state."""
    names = (*stage.shown, *stage.held, SHOWN, WEIGHT)
    return pa.Table.from_arrays([buffer.column(name) for name in names], names=[*state.names, WEIGHT])


def _reaches_behind(stage: LeadingStage, buffer: pa.Table) -> bool:
    """Whether the buffer has a row behind the last one that can be shown; numbers never go down."""
    return bool(buffer.num_rows) and buffer.column(NUMBER)[-1].as_py() > stage.last


def _numbered(stage: LeadingStage, rows: pa.Table) -> pa.Table:
    """Weighted rows in order, with their numbers and whether they are shown, no more of them than the buffer holds."""
    if stage.number == "row_number":  # each copy of a row has its own
        most = stage.last + stage.spare
        copies = np.minimum(weights(rows), most)
        rows = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), copies)[:most]))
        counts = np.ones(rows.num_rows, dtype=np.int64)
        numbers = np.arange(1, rows.num_rows + 1)
    else:
        counts = weights(rows)
        numbers = _ranks(rows.column("_peer").to_numpy(), counts, dense=stage.number == "dense_rank")
    before = np.cumsum(counts) - counts
    kept = before < counts[numbers <= stage.last].sum() + stage.spare
    shown = (numbers >= stage.first) & (numbers <= stage.last)
    buffer = rows.select(list(stage.held))
    buffer = buffer.append_column(NUMBER, pa.array(numbers, pa.int32()))
    buffer = buffer.append_column(SHOWN, pa.array(shown, pa.bool_()))
    return buffer.append_column(WEIGHT_FIELD, pa.array(counts)).slice(0, int(kept.sum()))


def _ranks(peers: np.ndarray, counts: np.ndarray, *, dense: bool) -> np.ndarray:
    """The rank of each row: rows of one ``peer`` have the same, and count as often as they are there.

    >>> peers, counts = np.array([1, 1, 3]), np.array([1, 2, 1])
    >>> _ranks(peers, counts, dense=False).tolist(), _ranks(peers, counts, dense=True).tolist()
    ([1, 1, 4], [1, 1, 2])
    """
    begins = np.ones(len(peers), dtype=bool)
    begins[1:] = peers[1:] != peers[:-1]
    class_of = np.cumsum(begins)
    if dense:
        return class_of
    first = (np.cumsum(counts) - counts + 1)[begins]
    return np.asarray(first[class_of - 1])
