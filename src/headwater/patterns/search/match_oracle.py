"""The oracle: for every row and position, how soon and how late a match that stands there can end.

What it is: ``Oracle``, filled by one pass over the rows from the last to the first. ``soonest[p, i]`` is the first row
at which a match can end that has taken row ``i`` at position ``p``; ``alive[p, i]`` is the last row that any thread
from there can take; ``latest`` is the last end, where an absence asks for it.
Invariants: conditions that look at the match count as true here, so that the oracle never rules out a match; without
such conditions it is exact: a search that asks it never goes back. Its cost is rows × edges, whatever the pattern.
Not here: deadlines (``row_matcher.py``), the search (``row_search.py``, ``lockstep_search.py``).
Read next: ``lockstep_search.py``.

The pass goes over all partitions at once: the last rows of each, then the rows before them. A few partitions that are
much longer than the others would leave arrays of a few elements; those are done by a plain loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.patterns.search.automaton import ACCEPT, ACCEPT_AT_END, Automaton

NEVER = np.iinfo(np.int32).max  # no row: above every row number
ROWS_MAX = int(NEVER) // 2 - 8  # the sum of two row numbers fits
POSITIONS_MAX = 64
EDGES_MAX = 256
# A step of all partitions together costs some 60 µs, one row of one partition in a plain loop some 2 µs.
STEP_COST, ROW_COST = 60.0, 2.0
TOGETHER_MAX = 2_048  # partitions in one pass: so many rows' cache lines stay in the cache until the rows before them


@dataclass
class Oracle:
    """The three tables, by position and row."""

    soonest: np.ndarray
    alive: np.ndarray
    latest: np.ndarray | None


def long_partitions(sizes: np.ndarray) -> np.ndarray:
    """The partitions that are cheaper one by one than together with the rest, as numbers.

    >>> long_partitions(np.array([500] * 5000 + [400_000])), long_partitions(np.array([3, 2]))
    (array([5000]), array([0, 1]))
    """
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order].astype(np.float64)
    one_by_one = np.concatenate(([0.0], np.cumsum(ordered))) * ROW_COST
    together = np.concatenate((ordered, [0.0])) * STEP_COST
    return np.sort(order[: int(np.argmin(one_by_one + together))])


def is_small(automaton: Automaton) -> bool:
    """Whether the tables of an automaton are worth their memory."""
    return automaton.positions <= POSITIONS_MAX and automaton.edges <= EDGES_MAX


def consult(
    automaton: Automaton, holds: list[np.ndarray], bounds: np.ndarray, *, waits: bool, lockstep: bool | None = None
) -> Oracle:
    """The oracle of an automaton; ``holds`` has, for each variable, whether its condition may hold at each row."""
    rows = int(bounds[-1])
    shape = (rows, max(automaton.positions, 1))  # the positions of a row lie side by side: one cache line a row
    # Every row is filled below; half-size row numbers and pages that are touched once make the pass twice as fast.
    oracle = Oracle(
        np.empty(shape, np.int32).T, np.empty(shape, np.int32).T, np.empty(shape, np.int32).T if waits else None
    )
    sizes = np.diff(bounds)
    alone = long_partitions(sizes) if lockstep is None else np.arange(0 if lockstep else len(sizes))
    for partition in alone:
        fill_alone(oracle, automaton, holds, int(bounds[partition]), int(bounds[partition + 1]))
    together = np.setdiff1d(np.arange(len(sizes)), alone)
    for at in range(0, len(together), TOGETHER_MAX):
        some = together[at : at + TOGETHER_MAX]
        fill_together(oracle, automaton, holds, bounds[some], bounds[some + 1])
    return oracle


def fill_together(
    oracle: Oracle, automaton: Automaton, holds: list[np.ndarray], starts: np.ndarray, stops: np.ndarray
) -> None:
    """The k-th rows from the end of all partitions at once, for k = 0, 1, …"""
    order = np.argsort(-(stops - starts), kind="stable")
    starts, stops = starts[order], stops[order]
    sizes = stops - starts
    # How many partitions have more than k rows.
    counts = np.searchsorted(-sizes, -np.arange(int(sizes[0]) if len(sizes) else 0), side="left")
    follow = [[each for each in automaton.follow[p] if each >= 0] for p in range(automaton.positions)]
    accepts = [ACCEPT in automaton.follow[p] for p in range(automaton.positions)]
    at_end = [ACCEPT_AT_END in automaton.follow[p] for p in range(automaton.positions)]
    width = len(starts)
    soon = np.full((automaton.positions, width), NEVER, np.int32)
    last = np.full((automaton.positions, width), -1, np.int32)
    late = np.full((automaton.positions, width), -1, np.int32)
    for k, count in enumerate(counts):
        row = (stops[:count] - 1 - k).astype(np.int32)
        here = [each[row] for each in holds]
        next_soon, next_last, next_late = soon[:, :count], last[:, :count], late[:, :count]
        soon, last = np.empty_like(next_soon), np.empty_like(next_last)
        late = np.empty_like(next_late) if oracle.latest is not None else late
        for p in range(automaton.positions):
            found: np.ndarray | int = NEVER
            furthest, ends = row, np.full(count, -1, np.int32) if oracle.latest is not None else row
            ends_here = accepts[p] or (k == 0 and at_end[p])
            if k and follow[p]:
                furthest = np.maximum(row, fold(np.maximum, next_last, follow[p]))
                if not ends_here:
                    found = fold(np.minimum, next_soon, follow[p])
                if oracle.latest is not None:
                    ends = fold(np.maximum, next_late, follow[p])
            if ends_here:
                found = row
                ends = np.maximum(row, ends)
            true = here[automaton.variable[p]]
            soon[p] = np.where(true, found, NEVER)
            last[p] = np.where(true, furthest, -1)
            if oracle.latest is not None:
                late[p] = np.where(true, ends, -1)
        oracle.soonest[: automaton.positions, row] = soon
        oracle.alive[: automaton.positions, row] = last
        if oracle.latest is not None:
            oracle.latest[: automaton.positions, row] = late


def fold(operation: np.ufunc, table: np.ndarray, positions: list[int]) -> np.ndarray:
    """The least or the greatest of some rows of a table."""
    found: np.ndarray = table[positions[0]]
    for each in positions[1:]:
        found = operation(found, table[each])
    return found


def fill_alone(oracle: Oracle, automaton: Automaton, holds: list[np.ndarray], start: int, stop: int) -> None:
    """One partition, by a plain loop."""
    count = automaton.positions
    true = [holds[automaton.variable[p]][start:stop].tolist() for p in range(count)]
    follow = [[each for each in automaton.follow[p] if each >= 0] for p in range(count)]
    accepts = [ACCEPT in automaton.follow[p] for p in range(count)]
    at_end = [ACCEPT_AT_END in automaton.follow[p] for p in range(count)]
    size, never = stop - start, int(NEVER)
    soonest = [[never] * size for _ in range(count)]
    alive = [[-1] * size for _ in range(count)]
    latest = [[-1] * size for _ in range(count)] if oracle.latest is not None else None
    soon, last, late = [never] * count, [-1] * count, [-1] * count
    for at in range(size - 1, -1, -1):
        row = start + at
        new_soon, new_last, new_late = [never] * count, [-1] * count, [-1] * count
        for p in range(count):
            if not true[p][at]:
                continue
            found, furthest, ends = never, row, -1
            for q in follow[p]:
                if soon[q] < found:
                    found = soon[q]
                if last[q] > furthest:
                    furthest = last[q]
                if late[q] > ends:
                    ends = late[q]
            if accepts[p] or (at_end[p] and at == size - 1):
                found = row
                ends = max(row, ends)
            new_soon[p] = soonest[p][at] = found
            new_last[p] = alive[p][at] = furthest
            new_late[p] = ends
            if latest is not None:
                latest[p][at] = ends
        soon, last, late = new_soon, new_last, new_late
    for p in range(count):
        oracle.soonest[p, start:stop] = soonest[p]
        oracle.alive[p, start:stop] = alive[p]
        if oracle.latest is not None and latest is not None:
            oracle.latest[p, start:stop] = latest[p]
