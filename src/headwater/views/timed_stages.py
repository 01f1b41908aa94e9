"""Running timed stages: rows are judged when they come in, and left alone when they are final.

What it is: ``TimedRun``, which is to ``TimedStage`` and ``ClosingStage`` what ``StageRun`` is to the others; and
``trimmed``, which lets go of groups that nothing can touch any more.
Invariants: whether a row is late is decided once, by the watermark before its tick, and kept: a rebuild follows what
was decided (``decided``). What is let go never shows: the rows that a view shows stay when the state behind them goes.
Not here: until when state is needed (``times.py``); which rows leave (``letting_go.py``); other kinds (``stages.py``).
Read next: ``letting_go.py``, ``times.py``, ``stages.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.changes import Changes
from headwater.views.compiler.closing import CLOSES
from headwater.views.compiler.plan import WEIGHT, ClosingStage, Superseded, TimedStage
from headwater.views.equality import negated
from headwater.views.letting_go import before, leaving, microseconds
from headwater.views.native import quoted
from headwater.views.netting import net
from headwater.views.shapes import Shape
from headwater.views.sources import Rows, Source, Unwritten, netted
from headwater.views.times import ViewTime
from headwater.views.workbench import Workbench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Result = Changes | Unwritten


class TimedRun:
    """One timed stage in one tick."""

    def __init__(
        self, stage: TimedStage | ClosingStage, shape: Shape, source: Source, own: Any, bench: Workbench,
        time: ViewTime, *, fresh: bool, kept: bool, decided: Source | None = None, older: Source | None = None,
    ) -> None:  # fmt: skip
        self.stage = stage
        self.schema = pa.schema([*shape.state, pa.field(WEIGHT, pa.int64())])
        self.source = source.as_new() if fresh else source
        self.own: Any = None if fresh else own
        self.bench = bench
        self.time = time
        self.fresh = fresh
        self.kept = kept
        self.decided = decided if decided is None or not fresh else decided.as_new()
        self.older = older  # the live view, while it is computed anew

    def run(self) -> Result:
        """The stage's changes."""
        if isinstance(self.stage, ClosingStage):
            return self._closing(self.stage)
        return self._judged(self.stage)

    # Rows that come in

    def _judged(self, stage: TimedStage) -> Result:
        if self.decided is not None:
            return self._as_decided(stage, self.decided)
        cutoff = None if self.fresh or isinstance(stage.leaving, Superseded) else self.time.cutoff_us
        came = self.source.changes
        if cutoff is None:
            found: Result = Changes.nothing(self.schema) if stage.late else came
        elif came.table is not None:
            times = microseconds(came.table.column(stage.time))
            late = pc.less(times, cutoff).fill_null(False)
            found = Changes.local(came.table.filter(late if stage.late else pc.invert(late)))
        else:
            sign = "<" if stage.late else ">="
            moment = f"CAST({quoted(stage.time)} AS TIMESTAMP) {sign} timestamp_micros({cutoff})"
            found = self._from_frame(lambda spark: came.frame(spark).where(moment), came.rows)
        return self._and_let_go(stage, found)

    def _as_decided(self, stage: TimedStage, decided: Source) -> Result:
        """What was late when it came is late for ever, and everything else is not."""
        late, came = decided.changes, self.source.changes
        if stage.late or not late.rows:
            return self._written(late if stage.late else came)
        if came.table is not None and late.table is not None:
            both = pa.concat_tables([came.table, negated(late.table).cast(came.table.schema)])
            return self._and_let_go(stage, Changes.local(net(both)))

        def build(spark: Any) -> DataFrame:
            names = self.schema.names
            taken = late.frame(spark).selectExpr(*map(quoted, names[:-1]), f"-{WEIGHT} AS {WEIGHT}")
            return netted(came.frame(spark).select(*names).unionByName(taken), names[:-1])

        return self._and_let_go(stage, self._from_frame(build, came.rows + late.rows))

    def _from_frame(self, build: Any, rows: int) -> Result:
        if self.kept:
            return self.bench.write(build(self.bench.large).select(*self.schema.names), self.schema)
        return Unwritten(Rows(self.schema, rows, None, build))

    def _written(self, found: Result) -> Result:
        """As changes that a pile can take."""
        if not self.kept or isinstance(found, Changes):
            return found
        return self.bench.write(found.frame(self.bench.large).select(*self.schema.names), self.schema)

    def _and_let_go(self, stage: TimedStage, found: Result) -> Result:
        found = self._written(found)
        if not stage.lets_go or not self.time.lets_go or self.own is None or not self.own.rows:
            return found
        return joined(found, leaving(self.own, stage, self.time.let_go_us or 0, self.bench), self)

    # Rows that go out

    def _closing(self, stage: ClosingStage) -> Result:
        names = self.schema.names[:-1]
        reached = None if self.fresh else self.time.before_us  # rows that close up to here were final already
        cutoff = None if self.fresh else self.time.cutoff_us
        came = self.source.changed(names)
        if not stage.final:
            return self._and_older(self._some(came, Closed(after_us=cutoff, or_never=True)))
        after = self.time.after_us
        if after is None:
            return Changes.nothing(self.schema)
        found = Changes.nothing(self.schema)
        if reached is not None and (cutoff is None or cutoff < reached):  # corrections of what was final
            found = self._some(came, Closed(after_us=cutoff, until_us=reached))
        if reached is None or after > reached:
            every = came if self.fresh else self.source.before(names).and_also(came)
            found = joined(found, self._some(every, Closed(after_us=reached, until_us=after)), self)
        return self._and_older(found)

    def _some(self, rows: Rows, closed: Closed) -> Changes:
        """The rows that close then, netted."""
        names = self.schema.names
        if rows.local is not None:
            return Changes.local(net(closed.of(rows.local).select(names)))
        frame = rows.frame(self.bench.large).where(closed.sql()).select(*names)
        return self.bench.write(netted(frame, names[:-1]), self.schema)

    def _and_older(self, found: Changes) -> Changes:
        """While a view is computed anew: what is behind the state of its inputs is as the live one has it."""
        limit = self.time.let_go_us
        if self.older is None or limit is None or not self.fresh:
            return found
        old = self._some(self.older.before(self.schema.names[:-1]), Closed(until_us=limit))
        new = Changes.local(Closed(after_us=limit, or_never=True).of(found.read()))
        return joined(new, old, self)


@dataclass(frozen=True)
class Closed:
    """Rows that close after one moment and not after another.

    >>> Closed(after_us=5, until_us=9).sql()
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


def joined(one: Result, other: Result, run: TimedRun) -> Changes:
    """Both, netted."""
    if not other.rows and isinstance(one, Changes):
        return one
    if not one.rows and isinstance(other, Changes):
        return other
    if one.table is not None and other.table is not None:
        names = run.schema.names
        return Changes.local(net(pa.concat_tables([one.table.select(names), other.table.select(names)])))
    spark = run.bench.large
    names = run.schema.names
    both = one.frame(spark).select(*names).unionByName(other.frame(spark).select(*names))
    return run.bench.write(netted(both, names[:-1]), run.schema)


def trimmed(changes: Changes, own: Any, time: ViewTime, bench: Workbench) -> Changes:
    """A stage's changes, and its groups that closed long enough ago taken away."""
    if not time.lets_go or own is None or not own.rows:
        return changes
    gone = before(own, CLOSES, (time.let_go_us or 0) + 1, bench)
    if not gone.rows:
        return changes
    if changes.table is not None and gone.table is not None:
        names = changes.schema.names
        return Changes.local(
            net(pa.concat_tables([changes.table, gone.table.select(names).cast(changes.table.schema)]))
        )
    names = changes.schema.names
    both = changes.frame(bench.large).unionByName(gone.frame(bench.large).select(*names))
    return bench.write(netted(both, names[:-1]), changes.schema)
