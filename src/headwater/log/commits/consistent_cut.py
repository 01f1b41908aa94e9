"""Consistent cut: ends of topics at one moment, for ticks and other readers of several partitions.

What it is: ``ends``, the newest such cut; ``limited``, an older one that has at most so many rows.
Invariants: a cut holds whole appends and whole transactions. It is causally closed: with a row it holds every row whose
append had returned before that row's append began, over all topics. Both hold because a cut is the end of one cut
number in every partition (``cut_numbers.py``). A limit is exceeded where one cut number alone has more rows.
Not here: captured databases, whose transactions are bounded by markers (``log/event_time/capture_markers.py``).
Read next: ``cut_numbers.py``, ``views/tick/engine.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headwater.log.commits.append_marks import AppendMarks, Numbers

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

Stops = dict[str, dict[int, int]]


def ends(log: Log, topics: Iterable[Topic]) -> Stops:
    """See ``Log.cut``."""
    topics = list(topics)
    for topic in topics:
        topic.open_partitions()
    if len(topics) == 1 and topics[0].settings.partitions == 1:
        return {topics[0].name: topics[0].end_offsets()}  # one partition has one order
    closed = log.cut_counter.close_cut(log.settle_commits)
    return {
        topic.name: {n: topic.reader(n).end_of_cut(closed) for n in range(topic.settings.partitions)}
        for topic in topics
    }


def limited(
    topics: Sequence[Topic],
    begin: Mapping[str, Mapping[int, int]],
    end: Mapping[str, Mapping[int, int]],
    rows_max: Mapping[str, int | None],
) -> Stops:
    """The latest cut up to ``end`` at which no topic has more than its rows after ``begin``; at least one."""
    cut_numbers = [
        _last_within(topic, begin[topic.name], end[topic.name], limit)
        for topic in topics
        if (limit := rows_max.get(topic.name)) is not None
        and sum(stop - begin[topic.name].get(number, 0) for number, stop in end[topic.name].items()) > limit
    ]
    if not cut_numbers:
        return {name: dict(of) for name, of in end.items()}
    return {
        topic.name: {
            number: _end_of_cut(topic, number, begin[topic.name].get(number, 0), stop, min(cut_numbers))
            for number, stop in end[topic.name].items()
        }
        for topic in topics
    }


def _last_within(topic: Topic, begin: Mapping[int, int], end: Mapping[int, int], rows_max: int) -> int:
    """The last cut number up to which at most so many rows of a topic wait; the first that has any, if none."""
    starts = {number: begin.get(number, 0) for number, stop in end.items() if stop > begin.get(number, 0)}
    marks = {
        number: topic.reader(number).append_marks(start, min(end[number], start + rows_max + 1))
        for number, start in starts.items()
    }
    cut_numbers = np.unique(np.concatenate([found.cut_numbers for found in marks.values()]))
    taken = np.zeros(len(cut_numbers), dtype=np.int64)
    for number, start in starts.items():
        taken += _rows_until(marks[number], cut_numbers, start, end[number])
    waiting = cut_numbers[taken > 0]
    fitting = cut_numbers[(taken > 0) & (taken <= rows_max)]
    return int(fitting[-1] if len(fitting) else waiting[0])


def _rows_until(marks: AppendMarks, cut_numbers: Numbers, start: int, stop: int) -> Numbers:
    """How many offsets of a partition each of these cut numbers, and those before it, have after ``start``."""
    at = np.searchsorted(marks.cut_numbers, cut_numbers, side="right") - 1
    reached = np.where(at >= 0, marks.cut_ends[np.maximum(at, 0)], start)
    rows: Numbers = np.clip(reached, start, stop) - start
    return rows


def _end_of_cut(topic: Topic, number: int, start: int, stop: int, cut_number: int) -> int:
    """The offset after the last row of a cut, searched segment by segment from ``start`` on."""
    reader, position = topic.reader(number), start
    while position < stop:
        marks, base, following = reader.segment_marks(position)
        found = marks.end_of_cut(cut_number)
        if found is None or found < following:
            return min(stop, max(start, base if found is None else found))
        position = following
    return stop
