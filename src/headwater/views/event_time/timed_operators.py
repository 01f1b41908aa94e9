"""Running timed stages: rows are judged when they come in, and left alone when they are final.

What it is: ``TimedRun``, which is to ``TimedStage`` and ``FinalStage`` what ``StageRun`` is to the others; and
``trimmed``, which lets go of groups that nothing can touch any more.
Invariants: whether a row is late is decided once, by the watermark before its tick, and kept: a rebuild follows what
was decided (``decided``). What is let go never shows: the rows that a view shows stay when the state behind them goes.
Not here: until when state is needed (``progress.py``); which rows leave (``state_expiry.py``); other kinds
(``views/stages/stage_run.py``).
Read next: ``state_expiry.py``, ``progress.py``, ``views/stages/stage_run.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.plan import FinalStage, Superseded, TimedStage
from headwater.views.event_time.progress import ViewTime
from headwater.views.event_time.state_expiry import before, leaving, microseconds
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.relation import BoundRows, TickRelation
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, negate, select, union, weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TimedRun:
    """One timed stage in one tick."""

    def __init__(
        self,
        stage: TimedStage | FinalStage,
        shape: StageSchema,
        source: TickRelation,
        own: StateTrace | None,
        sessions: ViewSessions,
        time: ViewTime,
        *,
        initial: bool,
        kept: bool,
        decided: TickRelation | None = None,
        older: TickRelation | None = None,
    ) -> None:
        self.stage = stage
        self.schema = weighted_schema(shape.state)
        self.source = source.as_initial() if initial else source
        self.own = None if initial else own
        self.sessions = sessions
        self.time = time
        self.initial = initial
        self.kept = kept
        self.decided = decided if decided is None or not initial else decided.as_initial()
        self.older = older  # the live view, while it is recomputed

    def run(self) -> Delta:
        """The stage's changes."""
        if isinstance(self.stage, FinalStage):
            return self._closing(self.stage)
        return self._judged(self.stage)

    # Rows that come in

    def _judged(self, stage: TimedStage) -> Delta:
        if self.decided is not None:
            return self._as_decided(stage, self.decided)
        cutoff = None if self.initial or isinstance(stage.leaving, Superseded) else self.time.cutoff_us
        came = self.source.changes
        if cutoff is None:
            found: Delta = Delta.nothing(self.schema) if stage.late else came
        elif came.table is not None:
            times = microseconds(came.table.column(stage.time))
            late = pc.less(times, cutoff).fill_null(False)
            found = Delta.local(came.table.filter(late if stage.late else pc.invert(late)))
        else:
            sign = "<" if stage.late else ">="
            moment = f"CAST({quoted(stage.time)} AS TIMESTAMP) {sign} timestamp_micros({cutoff})"
            found = self._from_frame(lambda spark: came.frame(spark).where(moment), came.rows)
        return self._and_let_go(stage, found)

    def _as_decided(self, stage: TimedStage, decided: TickRelation) -> Delta:
        """What was late when it came is late for ever, and everything else is not."""
        late, came = decided.changes, self.source.changes
        if stage.late or not late.rows:
            return self._written(late if stage.late else came)
        if came.table is not None and late.table is not None:
            return self._and_let_go(stage, Delta.local(consolidate(union(came.table, negate(late.table)))))

        def build(spark: SparkSession) -> DataFrame:
            came_frame = select(came.frame(spark), self.schema.names)
            return consolidate(union(came_frame, negate(late.frame(spark))))

        return self._and_let_go(stage, self._from_frame(build, came.rows + late.rows))

    def _from_frame(self, build: Callable[[SparkSession], DataFrame], rows: int) -> Delta:
        if self.kept:
            return self.sessions.write(build(self.sessions.large), self.schema)
        return Delta.lazy(self.schema, rows, build)

    def _written(self, found: Delta) -> Delta:
        """As changes that a trace can take: not lazy."""
        return (
            self.sessions.write(found.frame(self.sessions.large), self.schema) if self.kept and found.is_lazy else found
        )

    def _and_let_go(self, stage: TimedStage, found: Delta) -> Delta:
        found = self._written(found)
        if not stage.lets_go or not self.time.lets_go or self.own is None or not self.own.rows:
            return found
        return joined(found, leaving(self.own, stage, self.time.let_go_us or 0, self.sessions), self.sessions)

    # Rows that go out

    def _closing(self, stage: FinalStage) -> Delta:
        names = self.schema.names[:-1]
        reached = None if self.initial else self.time.before_us  # rows that close up to here were final already
        cutoff = None if self.initial else self.time.cutoff_us
        came = self.source.changed(names)
        if not stage.final:
            return self._and_older(self._some(came, ClosedRows(after_us=cutoff, or_never=True)))
        after = self.time.after_us
        if after is None:
            return Delta.nothing(self.schema)
        found = Delta.nothing(self.schema)
        if reached is not None and (cutoff is None or cutoff < reached):  # corrections of what was final
            found = self._some(came, ClosedRows(after_us=cutoff, until_us=reached))
        if reached is None or after > reached:
            every = came if self.initial else self.source.before(names).and_also(came)
            found = joined(found, self._some(every, ClosedRows(after_us=reached, until_us=after)), self.sessions)
        return self._and_older(found)

    def _some(self, rows: BoundRows, closed: ClosedRows) -> Delta:
        """The rows that close then, consolidated."""
        names = self.schema.names
        if rows.local is not None:
            return Delta.local(consolidate(closed.of(rows.local), names))
        return self.sessions.write(consolidate(rows.frame(self.sessions.large).where(closed.sql()), names), self.schema)

    def _and_older(self, found: Delta) -> Delta:
        """While a view is recomputed: what is behind the state of its inputs is as the live one has it."""
        limit = self.time.let_go_us
        if self.older is None or limit is None or not self.initial:
            return found
        old = self._some(self.older.before(self.schema.names[:-1]), ClosedRows(until_us=limit))
        new = Delta.local(ClosedRows(after_us=limit, or_never=True).of(found.read()))
        return joined(new, old, self.sessions)


@dataclass(frozen=True)
class ClosedRows:
    """Rows that close after one moment and not after another.

    >>> ClosedRows(after_us=5, until_us=9).sql()
    '(closes__ > timestamp_micros(5) AND closes__ <= timestamp_micros(9))'
    """

    after_us: int | None = None
    until_us: int | None = None
    or_never: bool = False  # those that never close, too

    def of(self, table: pa.Table) -> pa.Table:
        """Those rows of a table."""
        if self.after_us is None and self.until_us is None and self.or_never:
            return table
        moments = microseconds(table.column(CLOSES))
        mask = pc.is_valid(moments)
        if self.after_us is not None:
            mask = pc.and_(mask, pc.greater(moments, self.after_us).fill_null(False))
        if self.until_us is not None:
            mask = pc.and_(mask, pc.less_equal(moments, self.until_us).fill_null(False))
        return table.filter(pc.or_(mask, pc.is_null(moments)) if self.or_never else mask)

    def sql(self) -> str:
        """The same as a condition."""
        parts = [f"{CLOSES} > timestamp_micros({self.after_us})"] if self.after_us is not None else []
        parts += [f"{CLOSES} <= timestamp_micros({self.until_us})"] if self.until_us is not None else []
        found = f"({' AND '.join(parts) or f'{CLOSES} IS NOT NULL'})"
        return f"({found} OR {CLOSES} IS NULL)" if self.or_never else found


def joined(one: Delta, other: Delta, sessions: ViewSessions) -> Delta:
    """The sum of both, consolidated, with the columns of the first."""
    if not other.rows and not one.is_lazy:
        return one
    if not one.rows and not other.is_lazy:
        return other
    if one.table is not None and other.table is not None:
        return Delta.local(consolidate(union(one.table, other.table)))
    spark = sessions.large
    return sessions.write(consolidate(union(one.frame(spark), other.frame(spark))), one.schema)


def trimmed(changes: Delta, own: StateTrace | None, time: ViewTime, sessions: ViewSessions) -> Delta:
    """A stage's changes, and its groups that closed long enough ago taken away (state expiry)."""
    if not time.lets_go or own is None or not own.rows:
        return changes
    return joined(changes, before(own, CLOSES, (time.let_go_us or 0) + 1, sessions), sessions)
