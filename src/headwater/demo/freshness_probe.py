"""Freshness probe: the time from a commit in the database to the views that a reader sees.

What it is: ``FreshnessProbe`` gets the commits of orders, reads the captured table for their offsets, and watches the
serving store's frontier.
Invariants: a time is never too short: it ends when this process has read the store. Commits before ``begin`` are left
out; those during an engine's absence are counted apart.
Not here: the commits (``simulator.py``).
Read next: ``scenario.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.log.topic import Topic


class FreshnessProbe:
    """How long commits take to be seen."""

    def __init__(self, orders: Topic) -> None:
        self._orders = orders
        self._next_offset = 0
        self._committed: dict[int, int] = {}  # by order: the moment, not yet found in the log
        self._found: dict[int, int] = {}  # by order: the offset, when it was found before its commit was told
        self._captured: dict[int, int] = {}  # by offset: the moment, not yet in the views
        self.took: list[tuple[int, int]] = []  # when it was committed, how long it took, both microseconds
        self.away: list[tuple[int, int]] = []  # from when to when no engine was there

    def begin(self, now_us: int) -> None:
        """Measure from now on: what was before was waiting for the first views."""
        self._committed = {order: at_us for order, at_us in self._committed.items() if at_us >= now_us}
        self._captured.clear()
        self.took.clear()

    def committed(self, orders: Sequence[int], at_us: int) -> None:
        """These orders were committed. The capture may already have delivered them."""
        for order in orders:
            if order in self._found:
                self._captured[self._found.pop(order)] = at_us
            else:
                self._committed[order] = at_us

    def look(self, reached: int, now_us: int) -> None:
        """The views contain the table up to an offset, now."""
        end = self._orders.end_offsets()[0]
        if self._next_offset < end:
            for batch in self._orders.read_partition(0, self._next_offset, columns=["_offset", "id"]):
                for row in batch.to_pylist():
                    at_us = self._committed.pop(row["id"], None)
                    if at_us is not None:
                        self._captured[row["_offset"]] = at_us
                    else:
                        self._found.setdefault(row["id"], row["_offset"])
                self._next_offset = batch.next_offset
        for offset in [each for each in self._captured if each < reached]:
            at_us = self._captured.pop(offset)
            self.took.append((at_us, now_us - at_us))

    @property
    def waiting(self) -> int:
        """How many commits are not in the views yet."""
        return len(self._committed) + len(self._captured)

    def percentiles(self, *, steady: bool) -> dict[str, Any]:
        """The median and the 95th percentile in milliseconds; ``steady``: without those that met a dead engine."""
        took = [span for at, span in self.took if not steady or not self._was_away(at, at + span)]
        if not took:
            return {"p50": None, "p95": None, "samples": 0}
        p50, p95 = np.percentile(took, [50, 95]) / 1000
        return {"p50": round(float(p50)), "p95": round(float(p95)), "samples": len(took)}

    def _was_away(self, since_us: int, until_us: int) -> bool:
        return any(since_us < back and until_us > left for left, back in self.away)
