"""How large a run of bench-scale is.

What it is: ``Sizes``, which every part reads.
Invariants: ``quick`` divides sizes; no bar is claimed for it.
Not here: what is measured (``sources.py`` and its neighbours).
Read next: ``sources.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Events in each topic, counted runs, and for the ticks: rows of state, changes, ticks;
    how many rows pass while the driver's memory is looked at."""

    events: int = 3_000_000
    partitions: int = 4
    runs: int = 3
    rows: int = 1_000_000
    changes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    ticks: int = 5
    driver_memory: str = "3g"
    memory_rows: int = 50_000_000

    def divided(self, by: int) -> Sizes:
        """The same run, smaller.

        >>> Sizes().divided(10).changes
        (100, 10000, 100000)
        """
        changes = tuple(max(100, each // by) for each in self.changes)
        rows = (self.events // by, self.partitions, self.runs, self.rows // by)
        return Sizes(*rows, changes, 3, self.driver_memory, self.memory_rows // by)
