"""Filters that Spark pushes into a bounded read.

What it is: ``Pushed``, which of the query's filters the log can answer, and what they mean for offsets and files.
Invariants: filters on ``_offset`` and ``_partition`` are answered exactly, so Spark need not look again; filters on
times only leave out whole sealed files that cannot hold a match, and Spark applies them to the rest.
Not here: where pushing is asked for (``source.py``).
Read next: ``ranges.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headwater.clock import to_us
from headwater.log.filelist import FileList, SealedFile
from headwater.log.settings import PARTITIONS_MAX
from headwater.log.topic import Topic
from headwater.views.ranges import Bounds

NEVER_NULL = ("_appended_at", "_offset", "_partition")
LIMIT = 2**63 - 1  # beyond every offset, and every moment in microseconds
PARTITION_MAX = PARTITIONS_MAX - 1


@dataclass(frozen=True)
class Span:
    """Moments from ``low_us`` to ``high_us``, both included."""

    low_us: int = -LIMIT
    high_us: int = LIMIT

    def meets(self, low_us: int | None, high_us: int | None) -> bool:
        """Whether something between these two may be inside. Nothing is known about None."""
        if low_us is None or high_us is None:
            return True
        return low_us <= self.high_us and high_us >= self.low_us


EVERYWHERE = Bounds()
ALWAYS = Span()


@dataclass(frozen=True)
class Pushed:
    """What the log does with a query's filters.

    >>> pushed = Pushed.of([GreaterThanOrEqual(("_offset",), 7), EqualTo(("country",), "DE")], event_time="at")
    >>> pushed.bounds.low, pushed.left_to_spark
    (7, [EqualTo(attribute=('country',), value='DE')])
    """

    bounds: Bounds = EVERYWHERE
    happened: Span = ALWAYS  # by the event-time column
    appended: Span = ALWAYS
    left_to_spark: list[Filter] = field(default_factory=list)

    @staticmethod
    def of(filters: Iterable[Filter], *, event_time: str | None) -> Pushed:
        """Sort the filters by who answers them; they are joined by AND."""
        pushed = Pushed()
        left: list[Filter] = []
        for one in filters:
            name = _column(one)
            if name == "_offset" and (interval := _interval(one, whole=True)):
                bounds = pushed.bounds
                bounds = replace(bounds, low=max(bounds.low, interval[0]), high=min(bounds.high, interval[1] + 1))
                pushed = replace(pushed, bounds=bounds)
            elif name == "_partition" and (numbers := _numbers(one)) is not None:
                known = pushed.bounds.partitions
                numbers = numbers if known is None else numbers & known
                pushed = replace(pushed, bounds=replace(pushed.bounds, partitions=numbers))
            elif isinstance(one, IsNotNull) and name in NEVER_NULL:
                pass
            else:
                left.append(one)
                interval = _interval(one, whole=False)
                if interval and name == "_appended_at":
                    pushed = replace(pushed, appended=_narrower(pushed.appended, interval))
                elif interval and name is not None and name == event_time:
                    pushed = replace(pushed, happened=_narrower(pushed.happened, interval))
        return replace(pushed, left_to_spark=left)

    def prune(self, topic: Topic, listing: FileList) -> FileList:
        """Leave out the sealed files whose times cannot match. Tails stay: they are small, and still growing."""
        if self.happened == ALWAYS and self.appended == ALWAYS:
            return listing
        return replace(listing, files=tuple(file for file in listing.files if self._may_match(topic, file)))

    def _may_match(self, topic: Topic, file: SealedFile) -> bool:
        segment = topic.log.registry.sealed_at(
            topic.id, file.partition, topic.reader(file.partition).directory, file.start
        )
        if segment is None or segment.path != file.path:  # compacted in between
            return True
        return self.happened.meets(segment.time_min, segment.time_max) and self.appended.meets(
            segment.appended_min, segment.appended_max
        )


def _column(one: Filter) -> str | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else None


def _interval(one: Filter, *, whole: bool) -> tuple[int, int] | None:
    """The smallest and largest number (or moment) that passes; None when it is not that kind of filter."""
    value = _number(getattr(one, "value", None), whole=whole)
    if value is None:
        return None
    # Moments are only pruned by, so an open end may be taken as closed; offsets are whole, so it can be exact.
    step = 1 if whole else 0
    if isinstance(one, EqualTo):
        return value, value
    if isinstance(one, GreaterThan):
        return value + step, LIMIT - 1
    if isinstance(one, GreaterThanOrEqual):
        return value, LIMIT - 1
    if isinstance(one, LessThan):
        return -LIMIT, value - step
    if isinstance(one, LessThanOrEqual):
        return -LIMIT, value
    return None


def _number(value: Any, *, whole: bool) -> int | None:
    if whole:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, dt.datetime):
        return to_us(value)
    if isinstance(value, dt.date):
        return to_us(dt.datetime(value.year, value.month, value.day))
    return None


def _numbers(one: Filter) -> frozenset[int] | None:
    """The partitions that pass."""
    if isinstance(one, EqualTo):
        values = (one.value,)
    elif isinstance(one, In):
        values = one.value
    else:
        interval = _interval(one, whole=True)
        if interval is None:
            return None
        # Bounded by the largest number of partitions that a topic can have.
        return frozenset(range(max(0, interval[0]), min(interval[1], PARTITION_MAX) + 1))
    return frozenset(value for value in values if value is not None)


def _narrower(span: Span, interval: tuple[int, int]) -> Span:
    return Span(max(span.low_us, interval[0]), min(span.high_us, interval[1]))
