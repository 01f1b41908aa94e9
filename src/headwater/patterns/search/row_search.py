"""The search of one attempt: the first way through the automaton that the rows allow.

What it is: ``RowSearch``, which tries the ways in the order of preference, goes back where one fails, and remembers
which places failed; it asks the oracle, where there is one, before it takes a row.
Invariants: an attempt ends after ``budget`` steps at most, with an error that says what to do; ``reach`` is the end of
the rows that an attempt has looked at, one more than the partition's end if it has looked for a row behind the last.
Not here: many attempts at once (``lockstep_search.py``); where the next attempt begins (``row_matcher.py``).
Read next: ``row_matcher.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.patterns.expressions.glue import Evaluated
from headwater.patterns.expressions.thread_memory import Memory, ThreadMemory
from headwater.patterns.search.automaton import ACCEPT_AT_END, Automaton

Path = list[int]


class OutOfSteps(Exception):
    """An attempt has used its budget."""


class RowSearch:
    """Attempts over the rows ``start:stop`` of one partition."""

    def __init__(
        self,
        automaton: Automaton,
        start: int,
        stop: int,
        *,
        holds: list[list[bool]],
        glue: list[Evaluated | None],
        memory: ThreadMemory | None,
        soonest: list[list[int]] | None = None,
        alive: list[list[int]] | None = None,
        latest: list[list[int]] | None = None,
        budget: int,
    ) -> None:
        self.automaton, self.start, self.stop = automaton, start, stop
        self.holds, self.glue, self.memory = holds, glue, memory
        self.soonest, self.alive, self.latest = soonest, alive, latest
        self.budget = budget
        self.reach = 0
        self.steps = 0

    def attempt(
        self,
        first: int,
        last: int,
        *,
        beginning: int,
        number: int,
        ends_from: int = -1,
        may_end: Callable[[int, Memory, int], bool] | None = None,
        to_deadline: bool = False,
    ) -> Path | None:
        """The positions of the preferred match that begins at ``first`` and takes no row after ``last``; None: none.

        ``ends_from``: it must end there or later. ``may_end`` is asked (with the row it ends at, the memory and the
        match number) before it ends. ``to_deadline``: not a match but a partial one is wanted, which takes every row up
        to ``last``.
        """
        automaton, base, stop = self.automaton, self.start, self.stop
        follow, variable = automaton.follow, automaton.variable
        soonest, alive, latest, memories = self.soonest, self.alive, self.latest, self.memory
        remembers = soonest is None or memories is not None or may_end is not None or ends_from >= 0
        failed: set[tuple[int, int, Memory]] = set()
        memory: Memory = memories.empty if memories is not None else ()
        # A frame: the last row taken, the position there, what the thread remembers, the next way to try.
        stack: list[list[Any]] = [[first - 1, beginning, memory, 0]]
        path: Path = []
        reach, steps, budget = first, 0, self.budget
        try:
            while stack:
                frame = stack[-1]
                row, position, memory, way = frame
                ways = follow[position]
                if way == len(ways):
                    if remembers:
                        failed.add((row, position, memory))
                    stack.pop()
                    if path:
                        path.pop()
                    continue
                frame[3] = way + 1
                to = ways[way]
                if to < 0:
                    if to == ACCEPT_AT_END:
                        reach = max(reach, row + 2)
                        if row != stop - 1:
                            continue
                    if to_deadline or row < ends_from or (may_end is not None and not may_end(row, memory, number)):
                        continue
                    return path
                after = row + 1
                if after + 1 > reach:
                    reach = after + 1
                if after > last or after >= stop:
                    continue
                at = after - base
                if soonest is not None and alive is not None:
                    useless = alive[to][at] < last if to_deadline else soonest[to][at] > last
                    if not useless and latest is not None and latest[to][at] < ends_from:
                        useless = True
                    if useless:
                        reach = max(reach, min(alive[to][at], last) + 2)
                        continue
                elif not self.holds[variable[to]][at]:
                    continue
                steps += 1
                if steps > budget:
                    raise OutOfSteps
                taken = memory
                if memories is not None:
                    taken = memories.take(memory, after, variable[to])
                    condition = self.glue[variable[to]]
                    if condition is not None and condition(after, memories.values(taken), number) is not True:
                        continue
                if remembers and (after, to, taken) in failed:
                    continue
                path.append(to)
                if to_deadline and after == last:
                    return path
                stack.append([after, to, taken, 0])
            return None
        finally:
            self.reach = min(reach, stop + 1)
            self.steps += steps
