"""Ranges of offsets: how much a trigger takes, and which task reads what.

What it is: plain arithmetic over {partition: offset}, shared by the batch and the stream reader, and by ticks.
Invariants: ``admit`` gives exactly as many offsets as asked for while there are as many, depends on nothing but its
arguments, and leaves no partition waiting for another; ``tasks`` covers each offset of a range exactly once.
Not here: reading (``data_source.py``). No pyspark.
Read next: ``data_source.py``; ``log/storage/file_listing.py``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping

from headwater.log.storage.file_listing import Range

# A task costs some 10 ms whatever it reads, and a row group of a sealed file has 131 072 rows at most.
TASK_ROWS_MIN = 131_072
TASK_ROWS_MAX = 1_048_576
TASKS_PER_CORE = 2

Frontier = Mapping[str, Mapping[int, int]]


def admit(start: Mapping[int, int], end: Mapping[int, int], rows_max: int | None) -> dict[int, int]:
    """How far to read from ``start`` towards ``end``, with at most ``rows_max`` offsets over all partitions.

    Every partition gets the same share; what one leaves over goes to the others. What does not divide evenly goes to
    partitions by turns: the first turn depends on ``start``, so that one row per trigger still walks over all of them.

    >>> admit({0: 0, 1: 0, 2: 0}, {0: 100, 1: 2, 2: 100}, 12)
    {0: 5, 1: 2, 2: 5}
    >>> admit({0: 5, 1: 2, 2: 5}, {0: 100, 1: 2, 2: 100}, 1)
    {0: 6, 1: 2, 2: 5}
    """
    numbers = sorted(end)
    waiting = {number: max(0, end[number] - start[number]) for number in numbers}
    taken = dict.fromkeys(numbers, 0)
    left = sum(waiting.values()) if rows_max is None else min(rows_max, sum(waiting.values()))
    while left:
        open_ones = [number for number in numbers if taken[number] < waiting[number]]
        share = left // len(open_ones)
        if share == 0:
            first = sum(start.values()) % len(numbers)
            by_turns = [number for number in numbers[first:] + numbers[:first] if number in open_ones]
            for number in by_turns[:left]:
                taken[number] += 1
            break
        for number in open_ones:
            more = min(share, waiting[number] - taken[number])
            taken[number] += more
            left -= more
    return {number: start[number] + taken[number] for number in numbers}


def tasks(ranges: Iterable[Range], *, cores: int | None = None) -> list[tuple[Range, ...]]:
    """The ranges as tasks of about the same size: large ones are cut, small neighbours are joined.

    >>> tasks([Range(0, 0, 10), Range(1, 0, 400_000)], cores=1)
    [(Range(partition=0, start=0, stop=10), Range(partition=1, start=0, stop=200000)), \
(Range(partition=1, start=200000, stop=400000),)]
    """
    whole = [r for r in ranges if r.start < r.stop]
    rows = sum(r.stop - r.start for r in whole)
    wanted = TASKS_PER_CORE * (cores or os.cpu_count() or 1)
    target = min(max(-(-rows // wanted), TASK_ROWS_MIN), TASK_ROWS_MAX)
    done: list[tuple[Range, ...]] = []
    waiting: list[Range] = []
    waiting_rows = 0
    for part in (part for r in whole for part in _cut(r, target)):
        size = part.stop - part.start
        if waiting and waiting_rows + size > target * 5 // 4:
            done.append(tuple(waiting))
            waiting, waiting_rows = [], 0
        waiting.append(part)
        waiting_rows += size
    if waiting:
        done.append(tuple(waiting))
    return done


def _cut(whole: Range, target: int) -> list[Range]:
    size = whole.stop - whole.start
    count = max(1, round(size / target))
    edges = [whole.start + size * number // count for number in range(count + 1)]
    return [Range(whole.partition, low, high) for low, high in itertools.pairwise(edges)]


def distance(start: Frontier, stop: Frontier) -> int:
    """How many offsets lie between two frontiers.

    >>> distance({"orders": {0: 3}}, {"orders": {0: 5, 1: 2}})
    4
    """
    return sum(
        offset - start.get(topic, {}).get(number, 0) for topic, of in stop.items() for number, offset in of.items()
    )
