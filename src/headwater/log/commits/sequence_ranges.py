"""Sequence ranges: which numbers of a producer a partition has.

What it is: ``SequenceRanges``, the stored sequences of one producer in one partition (``log/storage/framing.py``: a
caller's number and the frame's place in its batch).
Invariants: a number that was written is recognised; one that was skipped is not, and may still come. Only so many
ranges are remembered: of a number below them it is not known whether it was written, and it is refused.
Not here: the check at an append (``log/storage/partition_writer.py``). Read next: ``partition_writer.py``.
"""

from __future__ import annotations

import bisect
import heapq
import json

RANGES_MAX = 4096  # skipped numbers that are remembered, per producer and partition
CHUNKS_PER_SEQUENCE = 1 << 16  # a stored sequence is the caller's number times this, plus the frame's number


class SequenceRanges:
    """The numbers that a producer has written.

    >>> seen = SequenceRanges()
    >>> for number in (1, 2, 7):
    ...     seen.add(number * CHUNKS_PER_SEQUENCE)
    >>> [number in seen for number in (1, 2, 5, 7)], seen.last_number
    ([True, True, False, True], 7)
    >>> SequenceRanges.parse(str(seen)).last_number
    7
    """

    def __init__(self, ranges_max: int | None = None) -> None:
        self._ranges_max = RANGES_MAX if ranges_max is None else ranges_max
        self.last = -1  # the highest stored sequence: a large batch may come in several appends
        self.known_from = 0  # of smaller numbers it is not known whether they were written
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def last_number(self) -> int:
        """The highest number of the caller's, -1 for none."""
        return self.last // CHUNKS_PER_SEQUENCE

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def add(self, stored: int) -> None:
        """Note a stored sequence."""
        self.last = max(self.last, stored)
        number = stored // CHUNKS_PER_SEQUENCE
        if self._ends and self._ends[-1] == number:  # the ordinary cases: the next one, or a later one
            self._ends[-1] = number + 1
        elif not self._ends or number > self._ends[-1]:
            self._starts.append(number)
            self._ends.append(number + 1)
            if len(self._starts) > 2 * self._ranges_max:
                self._join([])
        elif number not in self:
            self._join([(number, number + 1)])

    def merge(self, other: SequenceRanges) -> None:
        """Take over what another one knows."""
        self.last = max(self.last, other.last)
        self.known_from = max(self.known_from, other.known_from)
        self._join(list(zip(other._starts, other._ends, strict=True)))

    def _join(self, more: list[tuple[int, int]]) -> None:
        joined: list[list[int]] = []
        for start, end in heapq.merge(zip(self._starts, self._ends, strict=True), more):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        if len(joined) > self._ranges_max:
            joined = joined[-self._ranges_max :]
            self.known_from = max(self.known_from, joined[0][0])
        self._starts, self._ends = [start for start, _ in joined], [end for _, end in joined]

    @staticmethod
    def parse(text: str, *, ranges_max: int | None = None) -> SequenceRanges:
        """The ranges that ``str`` wrote."""
        found = SequenceRanges(ranges_max)
        found.last, found.known_from, found._starts, found._ends = json.loads(text)
        return found

    def __str__(self) -> str:
        return json.dumps([self.last, self.known_from, self._starts, self._ends])
