"""Matching: the attempts of a pattern over sorted rows, one after the other in each partition.

What it is: ``match_rows``. It reads the conditions' columns, asks the oracle where matches can begin, runs the search
(in lockstep over many partitions, or one by one), goes on after each match as the clause says, and finds the clean
boundaries.
Invariants: the answer does not depend on which search ran; a match that waits for the watermark is none before; every
attempt is bounded.
Not here: the searches (``lockstep_search.py``, ``row_search.py``), the output rows (``match_result.py``).
Read next: ``match_starts.py``, ``match_result.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import localcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.errors import PatternFailed
from headwater.patterns.expressions.glue import Evaluated, compile_glue
from headwater.patterns.expressions.glue_types import python_values, type_of
from headwater.patterns.expressions.thread_memory import Memory, ThreadMemory
from headwater.patterns.match_result import EMPTY, MATCHED, TIMED_OUT, Boundaries, MatchPaths, MatchResult
from headwater.patterns.member_aggregates import DIGITS
from headwater.patterns.search.lockstep_search import Found, Walk, lockstep
from headwater.patterns.search.match_oracle import long_partitions
from headwater.patterns.search.match_starts import Starts
from headwater.patterns.search.row_search import OutOfSteps, RowSearch

if TYPE_CHECKING:
    from headwater.patterns.pattern_program import PatternProgram

DEFAULT_BUDGET = 1_000_000
ROWS_TAKEN_MAX = 200_000_000  # by all matches of one call: some 3 GB of positions


@dataclass
class History:
    """Conditions that look at the match: their functions, and what a thread must remember for them."""

    memory: ThreadMemory
    glue: list[Evaluated | None]


def match_rows(
    program: PatternProgram,
    rows: pa.Table,
    bounds: np.ndarray,
    *,
    watermark_us: int | None,
    matches_before: Mapping[int, int],
    first_of_partition: np.ndarray | None,
    budget: int,
    keys: Callable[[int], str] | None,
    in_lockstep: bool | None = None,
) -> MatchResult:
    """The answer of a program over rows; ``in_lockstep`` forces one of the two searches, for tests."""
    bounds = np.asarray(bounds, np.int64)
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != rows.num_rows or (np.diff(bounds) < 0).any():
        raise ValueError(f"bounds must rise from 0 to {rows.num_rows}, the number of rows")
    starts = Starts(program, rows, bounds, watermark_us, first_of_partition, in_lockstep=in_lockstep)
    with localcontext() as context:
        context.prec = DIGITS
        return RowMatcher(program, rows, bounds, starts, matches_before, budget, keys, in_lockstep).run()


class RowMatcher:
    """The attempts of one call."""

    def __init__(
        self,
        program: PatternProgram,
        rows: pa.Table,
        bounds: np.ndarray,
        starts: Starts,
        matches_before: Mapping[int, int],
        budget: int,
        keys: Callable[[int], str] | None,
        in_lockstep: bool | None,
    ) -> None:
        self.program, self.rows, self.bounds, self.starts = program, rows, bounds, starts
        self.matches_before, self.budget, self.keys = matches_before, budget, keys
        self.in_lockstep = in_lockstep
        self.automaton, self.clause = program.automaton, program.clause
        self.reach = starts.reach_of_failures()
        self.steps = 0
        self.attempted_row = 0
        self.history = self.read_history()
        self.skip_variables = self.variables_to_skip_to()

    def read_history(self) -> History | None:
        """The conditions over several rows, over the columns at hand."""
        if not any(condition.glue for condition in self.program.conditions):
            return None
        used = {tracker.column for tracker in self.program.trackers}
        todo = [condition.glue for condition in self.program.conditions if condition.glue is not None]
        while todo:
            node = todo.pop()
            used.add(node.column or None)
            todo += node.parts
        columns = {name: python_values(self.rows.column(name)) for name in used if name is not None}
        types = {name: type_of(self.rows.column(name).type) for name in columns}
        memory = ThreadMemory(self.program.trackers, self.program.variables, columns, types)
        glue = [
            None
            if condition.glue is None
            else compile_glue(self.clause.text, condition.glue, columns, types, memory.types)
            for condition in self.program.conditions
        ]
        return History(memory, glue)

    def variables_to_skip_to(self) -> set[int]:
        name = self.clause.skip.variable
        if name is None:
            return set()
        codes = {each.casefold(): at for at, each in enumerate(self.program.variables)}
        members = {
            item.name.casefold(): {codes[member.name.casefold()] for member in item.members}
            for item in self.clause.subsets
        }
        return members.get(name.casefold()) or {codes[name.casefold()]}

    def run(self) -> MatchResult:
        found, partial = self.search()
        attempted = self.attempted(found)
        partials = [*partial, *self.timed_out_in_lockstep(found, attempted)]
        self.reach[found.start] = np.maximum(found.reach, self.starts.reach_of_absence(found.start))
        failed = attempted.copy()
        failed[found.start] = False
        self.starts.keep_undecided(self.reach, failed)
        boundaries = self.boundaries(attempted, failed)
        matches = self.numbered(found, partials)
        unmatched = np.zeros(0, np.int64)
        if self.clause.unmatched_rows:
            unmatched = np.nonzero(failed & ~covered(found.start, found.stop, self.rows.num_rows))[0]
        return MatchResult(self.program, self.bounds, matches, unmatched, boundaries, self.steps)

    def search(self) -> tuple[Found, list[Found]]:
        """All matches, and the timed-out ones that the search one by one has found."""
        sizes = np.diff(self.bounds)
        together = np.zeros(0, np.int64)
        alone = np.arange(len(sizes))
        if self.starts.exact and self.in_lockstep is not False:
            alone = long_partitions(sizes) if self.in_lockstep is None else alone[:0]
            together = np.setdiff1d(np.arange(len(sizes)), alone)
        parts, partial = [], []
        if len(together):
            parts.append(self.together(together))
        for partition in alone:
            if self.starts.next_start[self.bounds[partition]] < self.bounds[partition + 1]:
                matches, waiting = self.alone(int(partition))
                parts.append(matches)
                partial.append(waiting)
        return merged(parts), partial

    def together(self, partitions: np.ndarray) -> Found:
        cursor, stop = self.bounds[partitions], self.bounds[partitions + 1]
        once = self.clause.skip.kind == "next" and not self.automaton.has_empty_match
        if once:  # each start is on its own
            chosen = np.zeros(len(self.bounds) - 1, bool)
            chosen[partitions] = True
            cursor = np.nonzero(self.starts.can_start & np.repeat(chosen, np.diff(self.bounds)))[0]
            stop = self.starts.stop[cursor]
        found = lockstep(self.walk(), cursor, stop, once=once, rows_max=ROWS_TAKEN_MAX)
        if found is None:
            self.refuse_size()
        assert found is not None
        self.steps += len(found.path)
        return found

    def walk(self) -> Walk:
        starts = self.starts
        assert starts.oracle is not None
        skips = np.array([code in self.skip_variables for code in self.automaton.variable] or [False])
        return Walk(
            self.automaton,
            starts.oracle,
            starts.deadline,
            starts.ends_from,
            starts.next_start,
            starts.is_first,
            self.clause.skip.kind,
            skips,
            self.refuse_skip,
        )

    def timed_out_in_lockstep(self, found: Found, attempted: np.ndarray) -> list[Found]:
        """The partial matches that the deadline has ended, where the oracle knows them."""
        if not self.clause.timed_out or not self.starts.exact:
            return []
        failed = attempted.copy()
        failed[found.start] = False
        first = np.nonzero(failed & self.starts.waits_at_deadline & self.starts.decided)[0]
        if not len(first):
            return []
        walk = self.walk()
        walk.next_start = np.arange(self.rows.num_rows + 1)
        partial = lockstep(walk, first, self.starts.stop[first], once=True, to_deadline=True, rows_max=ROWS_TAKEN_MAX)
        if partial is None:
            self.refuse_size()
        assert partial is not None
        self.reach[partial.start] = np.maximum(self.reach[partial.start], partial.reach)
        return [partial]

    def alone(self, partition: int) -> tuple[Found, Found]:
        """The matches and the timed-out matches of one partition, one attempt after the other."""
        start, stop = int(self.bounds[partition]), int(self.bounds[partition + 1])
        starts = self.starts
        search = starts.row_search(start, stop, self.history, self.budget)
        number = self.matches_before.get(partition, 0) + 1
        found, partial = Collected(), Collected()
        # Plain lists: an element of an array costs as much as a step of the search.
        next_start, deadline = starts.next_start[start:stop].tolist(), starts.deadline[start:stop].tolist()
        times_out = self.clause.timed_out and not starts.exact
        cursor = start
        with self.bounded(partition):
            while cursor < stop:
                first = self.attempted_row = next_start[cursor - start]
                if first >= stop:
                    break
                last = deadline[first - start]
                path = self.attempt(search, first, last, number)
                if path is None:
                    if times_out and starts.waits_at_deadline[first]:
                        self.add_timed_out(search, first, last, number, partial)
                    cursor = first + 1
                    continue
                end = first + len(path)
                cursor = self.resume(first, end, path)
                found.add(first, end, cursor, int(self.reach[first]), path)
                number += 1
        self.steps += search.steps
        return found.found(), partial.found()

    def attempt(self, search: RowSearch, first: int, last: int, number: int) -> list[int] | None:
        """The positions of the match that begins at a row, if there is one."""
        starts = self.starts
        beginning = self.automaton.beginning(first_of_partition=bool(starts.is_first[first]))
        if starts.ends_from is None:
            path = search.attempt(first, last, beginning=beginning, number=number)
            self.reach[first] = search.reach
            return path
        asks_memory = self.may_end_asks_memory()
        path = search.attempt(
            first,
            last,
            beginning=beginning,
            number=number,
            ends_from=-1 if asks_memory else int(starts.ends_from[first]),
            may_end=self.no_absent_row(last) if asks_memory else None,
        )
        self.reach[first] = max(search.reach, int(starts.reach_of_absence(np.array([first]))[0]))
        return path

    def add_timed_out(self, search: RowSearch, first: int, last: int, number: int, partial: Collected) -> None:
        """The partial match that the deadline has ended, if one has taken every row up to it."""
        beginning = self.automaton.beginning(first_of_partition=bool(self.starts.is_first[first]))
        path = search.attempt(first, last, beginning=beginning, number=number, to_deadline=True)
        self.reach[first] = max(self.reach[first], search.reach)
        if path is not None and self.starts.decided[first]:
            partial.add(first, first + len(path), first + 1, search.reach, path)

    def may_end_asks_memory(self) -> bool:
        absent = self.starts.absent
        return absent is not None and self.history is not None and self.history.glue[absent] is not None

    def no_absent_row(self, last: int) -> Callable[[int, Memory, int], bool]:
        """Whether no row from the end of a match to its deadline is the absent variable's, as the match sees it."""
        history, absent = self.history, self.starts.absent
        assert history is not None
        assert absent is not None
        condition, holds = history.glue[absent], self.starts.holds[absent]
        assert condition is not None

        def may_end(row: int, memory: Memory, number: int) -> bool:
            for after in (np.nonzero(holds[row + 1 : last + 1])[0] + row + 1).tolist():
                taken = history.memory.take(memory, after, absent)
                if condition(after, history.memory.values(taken), number) is True:
                    return False
            return True

        return may_end

    def resume(self, first: int, end: int, path: list[int]) -> int:
        """Where the search goes on after a match."""
        kind = self.clause.skip.kind
        if end == first or kind == "next":
            return first + 1
        if kind == "past last":
            return end
        mine = [at for at, position in enumerate(path) if self.automaton.variable[position] in self.skip_variables]
        target = -1 if not mine else first + (mine[0] if kind == "first" else mine[-1])
        if target in (-1, first):
            self.refuse_skip(first, target)
        return target

    def attempted(self, found: Found) -> np.ndarray:
        """The rows at which an attempt began: all but those that a match has skipped."""
        attempted: np.ndarray = ~covered(found.start + 1, found.resume, self.rows.num_rows)
        return attempted

    def boundaries(self, attempted: np.ndarray, failed: np.ndarray) -> Boundaries:
        starts, stop = self.starts, self.starts.stop
        reach = self.reach * attempted
        if self.program.next_rows:
            reach = np.where(attempted, np.minimum(reach + self.program.next_rows, stop + 1), 0)
        settled = reach
        # Behind the deadline no row is taken; only $ asks whether one is there.
        if starts.passed is not None and not self.automaton.asks_for_the_end:
            bounded = starts.deadline + 1 + self.program.next_rows
            settled = np.where(starts.passed, np.minimum(reach, bounded), reach)
        clean, clean_end = self.clean(attempted, reach)
        is_settled, settled_end = self.clean(attempted, settled)
        return Boundaries(clean, clean_end, is_settled, settled_end, starts.wake_us(failed), reach)

    def clean(self, attempted: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = len(reach)
        furthest = np.zeros(size + 1, reach.dtype)
        np.maximum.accumulate(reach, out=furthest[1:])
        clean = attempted & (furthest[:size] <= self.starts.here)
        sizes = np.diff(self.bounds)
        clean[self.bounds[:-1][sizes > 0]] = True
        # A partition before reaches at most one row into this one.
        ends = np.where(sizes > 0, furthest[self.bounds[1:]] <= self.bounds[1:], True)
        return clean, ends

    def numbered(self, found: Found, partials: list[Found]) -> MatchPaths:
        partition = np.searchsorted(self.bounds, found.start, side="right") - 1
        rank = np.arange(len(partition)) - np.searchsorted(partition, partition, side="left")
        before = np.array([self.matches_before.get(int(each), 0) for each in np.unique(partition)], np.int64)
        number = rank + 1
        if len(before) and self.matches_before:
            number = number + before[np.searchsorted(np.unique(partition), partition)]
        kind = np.where(found.stop > found.start, MATCHED, EMPTY)
        partial = merged(partials)
        if not len(partial.start):
            return MatchPaths(found.start, found.stop, kind, number, found.path)
        both = merged([found, partial])
        is_partial = np.isin(both.start, partial.start)
        kinds, numbers = np.full(len(both.start), TIMED_OUT), np.zeros(len(both.start), np.int64)
        kinds[~is_partial], numbers[~is_partial] = kind, number
        return MatchPaths(both.start, both.stop, kinds, numbers, both.path)

    def place(self, partition: int, row: int) -> str:
        key = f"partition {self.keys(partition)}" if self.keys is not None else f"partition {partition}"
        return f"{key}, row {row - int(self.bounds[partition]) + 1}"

    @property
    def pattern_text(self) -> str:
        return "PATTERN " + self.clause.text[slice(*self.clause.pattern_span)]

    @contextmanager
    def bounded(self, partition: int) -> Iterator[None]:
        """Errors of an attempt name its pattern, partition and row."""
        try:
            yield
        except OutOfSteps:
            raise PatternFailed(
                f"{self.pattern_text}: the attempt at {self.place(partition, self.attempted_row)} needs more than "
                f"{self.budget:,} steps",
                detail="Conditions that look at the match can make it try every way of mapping the rows.",
                hint="Add WITHIN, bound a quantifier ({,20}), or compare with the row alone or with PREV.",
            ) from None
        except PatternFailed as error:
            if not error.message.startswith(self.pattern_text):
                error.data["place"] = self.place(partition, self.attempted_row)
                error.message = f"{self.pattern_text}, attempt at {error.data['place']}: {error.message}"
            raise

    def refuse_skip(self, first: int, target: int) -> None:
        partition = int(np.searchsorted(self.bounds, first, side="right")) - 1
        rule = f"AFTER MATCH SKIP TO {self.clause.skip.kind.upper()} {self.clause.skip.variable}"
        why = "has no such row" if target < 0 else "would go on at its first row, for ever"
        raise PatternFailed(
            f"{self.pattern_text}: {rule}: the match at {self.place(partition, first)} {why}",
            hint="Skip TO NEXT ROW or PAST LAST ROW, or to a variable that every match has behind its first row.",
        )

    def refuse_size(self) -> None:
        raise PatternFailed(
            f"{self.pattern_text}: its matches have more than {ROWS_TAKEN_MAX:,} rows together",
            detail="AFTER MATCH SKIP TO NEXT ROW gives a match from every row on, and they overlap.",
            hint="Skip PAST LAST ROW, add WITHIN, or make the quantifiers reluctant (*?).",
        )


def covered(start: np.ndarray, stop: np.ndarray, size: int) -> np.ndarray:
    """Which of so many rows lie in some range.

    >>> covered(np.array([1, 1]), np.array([2, 3]), 4)
    array([False,  True,  True, False])
    """
    change = np.bincount(start, minlength=size + 1) - np.bincount(stop, minlength=size + 1)
    inside: np.ndarray = np.cumsum(change[:size], dtype=np.int32) > 0
    return inside


class Collected:
    """Matches found one by one."""

    def __init__(self) -> None:
        self.lists: tuple[list[Any], ...] = ([], [], [], [], [])

    def add(self, start: int, stop: int, resume: int, reach: int, path: list[int]) -> None:
        for each, value in zip(self.lists, (start, stop, resume, reach), strict=False):
            each.append(value)
        self.lists[4].extend(path)

    def found(self) -> Found:
        return Found(*(np.array(each, np.int64) for each in self.lists))


def merged(parts: list[Found]) -> Found:
    """Several lists of matches as one, in the order of their first rows."""
    parts = [part for part in parts if len(part.start)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Collected().found()
    start, stop, resume, reach, path = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "stop", "resume", "reach", "path")
    )
    order = np.argsort(start, kind="stable")
    sizes = stop - start
    begin = (np.cumsum(sizes) - sizes)[order]
    sizes = sizes[order]
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Found(start[order], stop[order], resume[order], reach[order], path[np.repeat(begin, sizes) + within])
