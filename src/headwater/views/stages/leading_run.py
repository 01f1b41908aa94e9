"""Running a stage of leading rows: a tick's changes meet the buffer, not the relation.

What it is: the queries of a ``LeadingStage`` in one tick, on Spark: where the changes stand among the leading rows,
and, when the buffer runs short, the first rows of everything.
Invariants: a tick whose changes leave enough leading rows reads the changes and the buffer, and nothing else.
Not here: what becomes of the buffer (``leading_buffer.py``); all other kinds (``stage_run.py``).
Read next: ``leading_buffer.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.compiler.plan import LeadingStage
from headwater.views.spark.scans import fitted
from headwater.views.stages.leading_buffer import BufferMerge, filled, state_rows
from headwater.views.stages.relation import BoundRows, TickRelation
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, negate, union, weighted_schema
from headwater.views.state.delta import Delta

if TYPE_CHECKING:
    from headwater.views.state.state_trace import StateTrace


class LeadingRun:
    """One stage of leading rows in one tick. ``initial``: it has no buffer yet."""

    def __init__(
        self,
        stage: LeadingStage,
        shape: StageSchema,
        source: TickRelation,
        own: StateTrace | None,
        sessions: ViewSessions,
        *,
        initial: bool,
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.source = source
        self.own = own
        self.sessions = sessions
        self.initial = initial

    def run(self) -> Delta:
        """The stage's changes."""
        buffer = None
        if not self.initial:
            merge = BufferMerge(self.stage, self._placed())
            if merge.is_unreached:
                return Delta.nothing(weighted_schema(self.shape.state))
            buffer = merge.buffer()
        if buffer is None:
            buffer = filled(self.stage, self._first_of_everything())
        new = fitted(state_rows(self.stage, buffer, self.shape.state), weighted_schema(self.shape.state))
        return Delta.local(consolidate(new if self.own is None else union(new, negate(self.own.content()))))

    def _placed(self) -> pa.Table:
        """The changes of the flow and the rows of the buffer, and where they stand."""
        stage, flow = self.stage, self.shape.flow
        assert flow is not None
        before = flow.empty_table() if self.own is None else fitted(self.own.content(), flow)
        (leaf,) = stage.term.leaves
        changed = self.source.changed(leaf.columns)
        places = [pa.field("_held", pa.bool_()), *self._places, pa.field("_rows", pa.int64())]
        schema = pa.schema([*flow, *places])
        if changed.local is not None:
            bound = {leaf.name: changed, "_before": BoundRows.of(before)}
            return self.sessions.collect(stage.merge, bound, schema, (("_flow", stage.term.sql),))
        self.sessions.frame(stage.term.sql, {leaf.name: changed}, large=True).createOrReplaceTempView("_flow")
        frame = self.sessions.frame(stage.merge, {"_before": BoundRows.of(before)}, large=True)
        return self.sessions.collect_frame(frame, schema)

    def _first_of_everything(self) -> pa.Table:
        """The first rows of the whole flow, and where they stand."""
        stage, flow = self.stage, self.shape.flow
        assert flow is not None
        schema = pa.schema([*(flow.field(name) for name in stage.held), *self._places])
        rows = self.source.bag(stage.everything.columns)
        bound = {stage.everything.name: rows}
        if rows.local is not None and rows.count <= thresholds.TASK_ROWS_MAX:
            return self.sessions.collect(stage.fill, bound, schema)
        return self.sessions.collect_frame(self.sessions.frame(stage.fill, bound, large=True), schema)

    @property
    def _places(self) -> list[pa.Field]:
        names = ("_place",) if self.stage.number == "row_number" else ("_place", "_peer")
        return [pa.field(name, pa.int32()) for name in names]
