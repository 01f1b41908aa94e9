"""The search of many attempts at once, where the oracle is exact.

What it is: ``lockstep``: one walker a partition (or one a start, where matches may overlap freely), all of them taking
one row at a time as numpy arrays. A walker asks the oracle and never goes back.
Invariants: finds what ``row_search.py`` finds, in the same order; for patterns whose conditions look at one row only.
Not here: which starts can match (``row_matcher.py``).
Read next: ``row_matcher.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headwater.patterns.search.automaton import ACCEPT, ACCEPT_AT_END, Automaton
from headwater.patterns.search.match_oracle import Oracle

NOTHING = -3


@dataclass
class Found:
    """Matches: first row, end (behind the last row), where the search goes on, rows looked at, and their positions."""

    start: np.ndarray
    stop: np.ndarray
    resume: np.ndarray
    reach: np.ndarray
    path: np.ndarray  # the positions of all matches, one after the other


@dataclass
class Walk:
    """What all walkers of a search share.

    ``deadline``: the last row that a match may take, by its first row. ``ends_from``: the row before which it may not
    end. ``next_start``: the first row from here on at which a match begins. ``skips``: for each position, whether the
    search may go on there; ``skip``: after a match, as the clause says.
    """

    automaton: Automaton
    oracle: Oracle
    deadline: np.ndarray
    ends_from: np.ndarray | None
    next_start: np.ndarray
    is_first: np.ndarray  # rows that are the first of their whole partition
    skip: str
    skips: np.ndarray
    refuse_skip: Callable[[int, int], None]  # (first row, row skipped to or -1)


def follow_table(automaton: Automaton) -> np.ndarray:
    """The lists of the automaton as one table, padded."""
    width = max((len(each) for each in automaton.follow), default=0) or 1
    table = np.full((len(automaton.follow), width), NOTHING, np.int64)
    for at, each in enumerate(automaton.follow):
        table[at, : len(each)] = each
    return table


class Walkers:
    """The walkers that are under way, as parallel arrays."""

    def __init__(self, walk: Walk, cursor: np.ndarray, stop: np.ndarray, *, once: bool, to_deadline: bool) -> None:
        self.walk, self.once, self.to_deadline = walk, once, to_deadline
        self.table = follow_table(walk.automaton)
        self.matches = 0
        self.events: list[tuple[np.ndarray, np.ndarray]] = []  # (match, position) of each row taken
        self.ended: list[tuple[np.ndarray, ...]] = []
        self.row = self.position = self.first = self.last = self.low = self.reach = self.skip_row = self.match = cursor
        self.stop = stop
        self.seek(cursor)

    def seek(self, cursor: np.ndarray) -> None:
        """Begin the next match of each walker; walkers without one leave."""
        walk = self.walk
        start = walk.next_start[cursor]
        keep = start < self.stop
        start, self.stop = start[keep], self.stop[keep]
        self.first, self.row = start, start - 1
        self.position = walk.automaton.positions + 1 - walk.is_first[start].astype(np.int64)
        self.last = walk.deadline[start]
        self.low = walk.ends_from[start] if walk.ends_from is not None else np.full(len(start), -1, np.int64)
        self.reach = start.copy()
        self.skip_row = np.full(len(start), -1, np.int64)
        self.match = np.arange(self.matches, self.matches + len(start))
        self.matches += len(start)

    def choose(self) -> np.ndarray:
        """For each walker the first way that leads to a match."""
        oracle = self.walk.oracle
        chosen = np.full(len(self.row), NOTHING, np.int64)
        pending = np.arange(len(self.row))
        for column in range(self.table.shape[1]):
            to = self.table[self.position[pending], column]
            row, after, last = self.row[pending], self.row[pending] + 1, self.last[pending]
            takes = to >= 0
            inside = takes & (after < self.stop[pending])
            at, place = np.where(inside, to, 0), np.where(inside, after, 0)
            alive = oracle.alive[at, place]
            if self.to_deadline:
                fits = inside & (alive >= last)
            else:
                fits = inside & (oracle.soonest[at, place] <= last)
                if oracle.latest is not None:
                    fits &= oracle.soonest[at, place] >= self.low[pending]
            looked = np.where(takes | (to == ACCEPT_AT_END), after + 1, 0)
            dead = inside & ~fits
            looked = np.where(dead, np.maximum(looked, np.minimum(alive, last) + 2), looked)
            self.reach[pending] = np.maximum(self.reach[pending], looked)
            if not self.to_deadline:
                ends = (to == ACCEPT) | ((to == ACCEPT_AT_END) & (after == self.stop[pending]))
                fits |= ends & (row >= self.low[pending])
            chosen[pending[fits]] = to[fits]
            pending = pending[~fits]
            if not len(pending):
                break
        return chosen

    def keep(self, mask: np.ndarray) -> None:
        for name in ("row", "position", "first", "last", "low", "reach", "skip_row", "match", "stop"):
            setattr(self, name, getattr(self, name)[mask])

    def step(self) -> None:
        """Every walker takes a row, or ends its match and begins the next one."""
        chosen = self.choose()
        takes = chosen >= 0
        self.events.append((self.match[takes], chosen[takes]))
        self.row = self.row + takes
        self.position = np.where(takes, chosen, self.position)
        if self.walk.skip in ("first", "last"):
            hit = takes & self.walk.skips[np.where(takes, chosen, 0)]
            if self.walk.skip == "first":
                hit &= self.skip_row < 0
            self.skip_row = np.where(hit, self.row, self.skip_row)
        ends = takes & (self.row == self.last) if self.to_deadline else ~takes
        if ends.any():
            self.finish(ends)

    def finish(self, ends: np.ndarray) -> None:
        first, stop = self.first[ends], self.row[ends] + 1
        resume = self.resume(first, stop, self.skip_row[ends])
        # Behind the last row stands the end of the partition, which is looked at by asking for one row more.
        reach = np.minimum(np.maximum(self.reach[ends], stop), self.stop[ends] + 1)
        self.ended.append((self.match[ends], first, stop, resume, reach))
        going = Walkers.__new__(Walkers)
        going.__dict__.update(self.__dict__)
        self.keep(~ends)
        if self.once:
            return
        going.stop = going.stop[ends]
        going.seek(resume)
        self.matches = going.matches
        for name in ("row", "position", "first", "last", "low", "reach", "skip_row", "match", "stop"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(going, name))))

    def resume(self, first: np.ndarray, stop: np.ndarray, skip_row: np.ndarray) -> np.ndarray:
        """Where the search goes on; after an empty match at the next row."""
        if self.walk.skip == "next" or self.to_deadline:
            return first + 1
        if self.walk.skip == "past last":
            past: np.ndarray = np.maximum(stop, first + 1)
            return past
        wrong = np.nonzero((stop > first) & ((skip_row < 0) | (skip_row == first)))[0]
        if len(wrong):
            at = wrong[np.argmin(first[wrong])]
            self.walk.refuse_skip(int(first[at]), int(skip_row[at]))
        return np.where(stop > first, skip_row, first + 1)

    def found(self) -> Found:
        """All matches, in the order of their first rows."""
        if not self.ended:
            none = np.zeros(0, np.int64)
            return Found(none, none, none, none, none)
        match, first, stop, resume, reach = (np.concatenate(each) for each in zip(*self.ended, strict=True))
        events = [each for each in self.events if len(each[0])]
        owner = np.concatenate([each[0] for each in events]) if events else np.zeros(0, np.int64)
        path = np.concatenate([each[1] for each in events]) if events else np.zeros(0, np.int64)
        order = np.argsort(first, kind="stable")
        rank = np.empty(self.matches, np.int64)
        rank[match[order]] = np.arange(len(order))
        return Found(
            first[order], stop[order], resume[order], reach[order], path[np.argsort(rank[owner], kind="stable")]
        )


def lockstep(
    walk: Walk, cursor: np.ndarray, stop: np.ndarray, *, once: bool, to_deadline: bool = False, rows_max: int
) -> Found | None:
    """The matches of all walkers; None where they take more rows than ``rows_max`` together."""
    walkers = Walkers(walk, cursor, stop, once=once, to_deadline=to_deadline)
    taken = 0
    while len(walkers.row):
        walkers.step()
        taken += len(walkers.events[-1][0])
        if taken > rows_max:
            return None
    return walkers.found()
