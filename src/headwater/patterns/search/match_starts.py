"""Starts: at which rows a match can begin, how far it may go, and what the watermark has decided.

What it is: ``Starts``, arrays over all rows: whether conditions hold, the deadline of an attempt that begins there,
whether it can match, what it has looked at if it fails.
Invariants: a row that cannot start a match has no search; without conditions over the match, one that can start does.
Deadlines rise with the rows of a partition, so that the watermark decides earlier attempts first.
Not here: the searches themselves (``row_search.py``, ``lockstep_search.py``).
Read next: ``match_oracle.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.patterns.clause.pattern_scanner import refuse
from headwater.patterns.expressions.condition_split import VariableCondition
from headwater.patterns.search.automaton import ACCEPT
from headwater.patterns.search.match_oracle import NEVER, ROWS_MAX, Oracle, consult, is_small
from headwater.patterns.search.row_search import RowSearch

if TYPE_CHECKING:
    from headwater.patterns.pattern_program import PatternProgram
    from headwater.patterns.search.row_matcher import History

NO_WAKE = np.iinfo(np.int64).max


class Starts:
    """The rows as places where an attempt begins."""

    def __init__(
        self,
        program: PatternProgram,
        rows: pa.Table,
        bounds: np.ndarray,
        watermark_us: int | None,
        first_of_partition: np.ndarray | None,
        *,
        in_lockstep: bool | None,
    ) -> None:
        self.program, self.bounds = program, bounds
        clause, automaton = program.clause, program.automaton
        size = rows.num_rows
        sizes = np.diff(bounds)
        if size > ROWS_MAX:
            raise ValueError(f"{size} rows at once; match at most {ROWS_MAX}, by partitions")
        self.here = np.arange(size, dtype=np.int32)
        self.stop = np.repeat(bounds[1:].astype(np.int32), sizes)
        self.holds = [
            np.ones(size, bool) if condition.column is None else self.truth(rows.column(condition.column), condition)
            for condition in program.conditions
        ]
        self.absent = None
        if clause.absent is not None:
            folded = [name.casefold() for name in program.variables]
            self.absent = folded.index(clause.absent.casefold())
        history = any(condition.glue for condition in program.conditions)
        self.is_first = np.zeros(size, bool)
        whole = np.ones(len(sizes), bool) if first_of_partition is None else np.asarray(first_of_partition, bool)
        self.is_first[bounds[:-1][(sizes > 0) & whole]] = True
        self.oracle: Oracle | None = None
        if is_small(automaton):
            self.oracle = consult(automaton, self.holds, bounds, waits=self.absent is not None, lockstep=in_lockstep)
        self.soonest, self.alive, self.latest = self.beginnings()
        self.read_time(rows, watermark_us)
        self.ends_from = self.absence_bound()
        self.exact = self.oracle is not None and not history and self.fixed_ends()
        # Whether some thread of an attempt may have taken every row up to the deadline.
        self.waits_at_deadline = (self.alive >= self.deadline) & (self.alive >= 0)
        self.can_start = self.feasible()
        self.next_start = next_true(self.can_start)

    def truth(self, column: pa.ChunkedArray, condition: VariableCondition) -> np.ndarray:
        """Where a condition is true; null is not."""
        if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
            name = self.program.variables[condition.variable]
            item = next(each for each in self.program.clause.define if each.name.casefold() == name.casefold())
            message = f"the condition of {name} is of type {column.type}, not true or false"
            refuse(self.program.clause.text, item.piece.span, message, "Compare it with something.")
        return np.asarray(column.cast(pa.bool_()).fill_null(False).combine_chunks())

    def beginnings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For an attempt at each row: its soonest end, the last row a thread can take, its latest end."""
        automaton = self.program.automaton
        anywhere = self.beginning(automaton.follow[automaton.beginning(first_of_partition=False)])
        ways = automaton.follow[automaton.beginning(first_of_partition=True)]
        if ways == automaton.follow[automaton.beginning(first_of_partition=False)] or not self.is_first.any():
            return anywhere
        at_first = self.beginning(ways)
        soonest, alive, latest = (
            np.where(self.is_first, first, other) for first, other in zip(at_first, anywhere, strict=True)
        )
        return soonest, alive, latest

    def beginning(self, ways: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        oracle, size = self.oracle, len(self.stop)
        tables: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for way in ways:
            if way >= 0 and oracle is not None:
                late = oracle.alive if oracle.latest is None else oracle.latest
                tables.append((oracle.soonest[way], oracle.alive[way], late[way]))
            elif way >= 0:  # without an oracle: whatever can take the row may end anywhere
                holds = self.holds[self.program.automaton.variable[way]]
                last = np.where(holds, self.stop - 1, np.int32(-1))
                tables.append((np.where(holds, self.here, NEVER), last, last))
            elif way == ACCEPT:
                tables.append((self.here - 1, np.full(size, -1, np.int32), self.here - 1))
        if not tables:
            nothing = np.full(size, -1, np.int32)
            return np.full(size, NEVER, np.int32), nothing, nothing
        soonest, alive, latest = tables[0]
        for soon, last, late in tables[1:]:
            soonest, alive, latest = np.minimum(soonest, soon), np.maximum(alive, last), np.maximum(latest, late)
        return soonest, alive, latest

    def read_time(self, rows: pa.Table, watermark_us: int | None) -> None:
        """The deadline row of each start, and whether the watermark has passed its deadline."""
        within, size = self.program.clause.within_us, len(self.stop)
        self.deadline = self.stop - 1
        self.time: np.ndarray | None = None
        self.passed: np.ndarray | None = None
        self.decided = np.zeros(size, bool)
        if within is None or self.program.time_column is None:
            return
        item = self.program.clause.order_by[0]
        column = rows.column(self.program.time_column)
        if not pa.types.is_temporal(column.type) or pa.types.is_time(column.type) or pa.types.is_duration(column.type):
            refuse(
                self.program.clause.text,
                item.piece.span,
                f"WITHIN needs rows in the order of a time, and the first ORDER BY item is of type {column.type}",
                "Order by a TIMESTAMP first, such as timestamp_seconds(at).",
            )
        self.time = microseconds(column, nulls_first=item.nulls_first)
        asked = np.nonzero(self.alive >= 0)[0]
        self.deadline[asked] = last_at_or_before(self.time, self.deadline_us(asked), asked, self.stop[asked])
        if watermark_us is not None:
            self.decided = self.time < watermark_us - within
        self.passed = self.decided

    def deadline_us(self, first: np.ndarray) -> np.ndarray:
        """When attempts at some rows end at the latest."""
        within = self.program.clause.within_us
        assert self.time is not None
        assert within is not None
        limit = np.iinfo(np.int64).max
        deadline: np.ndarray = np.minimum(self.time[first], limit - within) + within
        return deadline

    def absence_bound(self) -> np.ndarray | None:
        """The last row of the absent variable before each start's deadline: a match must not end before it."""
        if self.absent is None:
            return None
        seen = np.where(self.holds[self.absent], self.here, np.int32(-1))
        last: np.ndarray = np.maximum.accumulate(seen)[self.deadline] if len(seen) else seen
        return last

    def fixed_ends(self) -> bool:
        """Whether the oracle decides absences too: every match from a place ends at one row."""
        if self.oracle is None or self.oracle.latest is None:
            return True
        soonest, latest = self.oracle.soonest, self.oracle.latest
        return bool(np.all((soonest == latest) | (soonest == NEVER))) and not self.program.automaton.has_empty_match

    def feasible(self) -> np.ndarray:
        fits: np.ndarray = self.soonest <= self.deadline
        if self.ends_from is not None:
            self.waiting = fits & ~self.decided
            fits = fits & self.decided
            absent = self.absent
            if absent is not None and self.program.conditions[absent].glue is None:
                fits &= self.latest >= self.ends_from
        elif self.program.clause.timed_out and not self.exact:
            fits = fits | (self.alive >= self.deadline)  # the search one by one finds partial matches too
        return fits

    def reach_of_failures(self) -> np.ndarray:
        """The end of the rows that an attempt at each row has looked at, if it fails."""
        # A thread that took a row looked at the next one, or at the end; the deadline's row is the last it takes.
        reach: np.ndarray = np.minimum(self.alive, self.deadline)
        reach += 2
        idle = self.alive < 0
        reach[idle] = self.here[idle] + 1
        if self.ends_from is not None:
            fits = self.soonest <= self.deadline
            reach[fits] = np.maximum(reach[fits], self.reach_of_absence(self.here[fits]))
        return reach

    def reach_of_absence(self, first: np.ndarray) -> np.ndarray:
        """An absence has looked at every row up to the deadline and at the one behind."""
        if self.ends_from is None or not len(first):
            return np.zeros(len(first), np.int64)
        reach: np.ndarray = np.minimum(self.deadline[first] + 2, self.stop[first] + 1)
        return reach

    def undecided(self, failed: np.ndarray) -> np.ndarray:
        """The failed attempts that the watermark may yet turn into a match or a timed-out one."""
        waiting = np.zeros(len(failed), bool)
        if self.ends_from is not None:
            waiting = failed & self.waiting
        elif self.program.clause.timed_out:
            waiting = failed & self.waits_at_deadline & ~self.decided
        return waiting

    def keep_undecided(self, reach: np.ndarray, failed: np.ndarray) -> None:
        """No boundary behind an undecided attempt is clean."""
        waiting = self.undecided(failed)
        reach[waiting] = self.stop[waiting] + 1

    def wake_us(self, failed: np.ndarray) -> np.ndarray:
        """The first undecided deadline of each partition."""
        wake = np.full(len(self.bounds) - 1, NO_WAKE, np.int64)
        waiting = self.undecided(failed)
        first = np.nonzero(waiting)[0]
        if self.time is not None and len(first):
            partition = np.searchsorted(self.bounds, first, side="right") - 1
            np.minimum.at(wake, partition, self.deadline_us(first))
        return wake

    def row_search(self, start: int, stop: int, history: History | None, budget: int) -> RowSearch:
        """The search over the rows of one partition."""
        oracle = self.oracle
        tables = {}
        if oracle is not None:
            tables = {"soonest": oracle.soonest, "alive": oracle.alive}
            absent = self.absent
            if oracle.latest is not None and absent is not None and self.program.conditions[absent].glue is None:
                tables["latest"] = oracle.latest
        return RowSearch(
            self.program.automaton,
            start,
            stop,
            holds=[each[start:stop].tolist() for each in self.holds] if oracle is None else [],
            glue=history.glue if history is not None else [],
            memory=history.memory if history is not None else None,
            budget=budget,
            **{name: [row.tolist() for row in table[:, start:stop]] for name, table in tables.items()},
        )


def next_true(flags: np.ndarray) -> np.ndarray:
    """For each place, and the end, the first true one from there on; the length where there is none.

    >>> next_true(np.array([False, True, False]))
    array([1, 1, 3, 3], dtype=int32)
    """
    size = len(flags)
    true = np.append(np.nonzero(flags)[0], size)
    # As often as there are places from the true one before it, exclusive, up to it.
    found: np.ndarray = np.repeat(true.astype(np.int32), np.diff(true, prepend=-1))
    return found


def microseconds(column: pa.ChunkedArray, *, nulls_first: bool) -> np.ndarray:
    """Times as microseconds; a null is before or after all others, as the rows are sorted."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    whole = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    extreme = np.iinfo(np.int64).min if nulls_first else np.iinfo(np.int64).max
    times: np.ndarray = whole.fill_null(extreme).combine_chunks().to_numpy(zero_copy_only=False)
    return times


def last_at_or_before(time: np.ndarray, until: np.ndarray, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """For each of some rows the last row of its partition whose time is not after ``until``, by bisection.

    >>> last_at_or_before(np.array([1, 2, 9, 9]), np.array([3, 9]), np.array([0, 1]), np.array([4, 4]))
    array([1, 3], dtype=int32)
    """
    low, high = first.astype(np.int32), stop.astype(np.int32) - 1
    while (low < high).any():
        middle = (low + high + 1) >> 1
        fits = time[middle] <= until
        low = np.where(fits, middle, low)
        high = np.where(fits, high, np.maximum(middle - 1, low))
    return low
