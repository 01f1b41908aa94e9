"""An index of intervals: which of them a number lies in.

What it is: ``IntervalIndex``, a segment tree over whole numbers as arrays: each interval is entered in the few nodes
that it covers, and a number lies in the intervals of the nodes above it.
Invariants: the answer for a number costs the depth of the tree and the intervals found, not the intervals there are.
Not here: how values become whole numbers (``query_segment.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class IntervalIndex:
    """Intervals from ``low`` to ``high``, both included, of numbers from 0 up to ``size``, not included.

    >>> index = IntervalIndex(np.array([0, 2, 3]), np.array([5, 3, 9]), 10)
    >>> [found.tolist() for found in index.stabbed(np.array([3, 9]))]
    [[0, 0, 0, 1], [0, 1, 2, 2]]
    """

    def __init__(self, low: Ints, high: Ints, size: int) -> None:
        self.leaves = 1 << max(size - 1, 1).bit_length()
        self.depth = self.leaves.bit_length()
        left, right = low + self.leaves, high + 1 + self.leaves
        which = np.arange(len(low))
        nodes, entered = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while len(which):
            odd = (left & 1).astype(bool) & (left < right)
            nodes.append(left[odd])
            entered.append(which[odd])
            left = left + odd
            odd = (right & 1).astype(bool) & (left < right)
            nodes.append(right[odd] - 1)
            entered.append(which[odd])
            left, right = left >> 1, (right - odd) >> 1
            more = left < right
            left, right, which = left[more], right[more], which[more]
        node = np.concatenate(nodes)
        order = np.argsort(node, kind="stable")
        self.entries: Ints = np.concatenate(entered)[order]
        self.starts: Ints = np.searchsorted(node[order], np.arange(2 * self.leaves + 1))

    def counts(self, numbers: Ints) -> Ints:
        """In how many intervals each number lies. A negative number lies in none."""
        found = np.zeros(len(numbers), np.int64)
        node = np.where(numbers >= 0, numbers + self.leaves, 0)
        for _ in range(self.depth):
            found += self.starts[node + 1] - self.starts[node]
            node >>= 1
        return found

    def stabbed(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The places of the numbers and the intervals that they lie in, pair by pair, ordered by both."""
        places, intervals = [], []
        node = np.where(numbers >= 0, numbers + self.leaves, 0)
        for _ in range(self.depth):
            begin = self.starts[node]
            count = self.starts[node + 1] - begin
            where = np.flatnonzero(count)
            place, entry = expanded(where, begin[where], count[where])
            places.append(place)
            intervals.append(self.entries[entry])
            node = node >> 1
        place, interval = np.concatenate(places), np.concatenate(intervals)
        order = np.lexsort((interval, place))
        return place[order], interval[order]


def distinct_numbers(numbers: Ints) -> Ints:
    """The numbers, each once, in rising order. ``numpy.unique`` hashes them, which takes five times as long.

    >>> distinct_numbers(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found = np.sort(numbers)
    first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=first[1:])
    return found[first]


def expanded(items: Ints, begins: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Each item as often as its count, beside the numbers from its begin on.

    >>> [each.tolist() for each in expanded(np.array([7, 8]), np.array([0, 5]), np.array([2, 1]))]
    [[7, 7, 8], [0, 1, 5]]
    """
    total = int(counts.sum())
    ends = np.cumsum(counts)
    steps = np.arange(total) - np.repeat(ends - counts, counts)
    return np.repeat(items, counts), np.repeat(begins, counts) + steps
