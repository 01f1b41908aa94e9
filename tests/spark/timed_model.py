"""What timed views should hold, by a few lines of Python: watermarks, late rows, and windows.

What it is: ``Model``, which is told what was appended and when a tick happened, and knows which rows each view takes.
Invariants: written from the documentation (``docs/time.md``), with nothing of the engine in it.
Not here: the apps (``test_timed_views.py``).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field

T0 = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
Row = tuple[int, str, int, int]  # id, country, amount, second


def moment(second: int) -> dt.datetime:
    return T0 + dt.timedelta(seconds=second)


@dataclass
class Model:
    """One topic. Times are seconds; None: never, or nothing yet."""

    lateness: int
    idle: int
    keyed: bool
    now: float = 0.0
    newest: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    watermark: int | None = None
    waiting: list[tuple[str, Row | None, int]] = field(default_factory=list)  # producer, row (None: deleted), id
    current: dict[int, Row] = field(default_factory=dict)
    taken: dict[int | None, Counter] = field(default_factory=dict)  # by horizon: the rows that count
    late: dict[int, Counter] = field(default_factory=dict)  # by horizon: late rows by producer
    beats: list[tuple[str, int]] = field(default_factory=list)

    def append(self, producer: str, rows: list[Row]) -> None:
        self.waiting += [(producer, row, row[0]) for row in rows]
        self.seen[producer] = self.now

    def delete(self, key: int) -> None:
        self.waiting.append(("", None, key))
        self.seen[""] = self.now

    def beat(self, producer: str, second: int) -> None:
        self.beats.append((producer, second))
        self.seen[producer] = self.now

    def tick(self, horizons: list[int | None]) -> None:
        changes = self._changes()
        for horizon in horizons:
            known = self.taken.setdefault(horizon, Counter())
            cutoff = None if horizon is None or self.watermark is None else self.watermark - horizon
            for row, weight in changes.items():
                if cutoff is None or row[3] >= cutoff:
                    known[row] += weight
            if horizon is not None:
                counts = self.late.setdefault(horizon, Counter())
                for producer, row, _ in self.waiting:
                    if row is not None and cutoff is not None and row[3] < cutoff:
                        counts[producer or "(no name)"] += 1
        for producer, row, _ in self.waiting:
            if row is not None:
                self.newest[producer] = max(self.newest.get(producer, row[3]), row[3])
        for producer, second in self.beats:
            self.promised[producer] = max(self.promised.get(producer, second), second)
        self.waiting, self.beats = [], []
        self._move()

    def _changes(self) -> Counter:
        found: Counter = Counter()
        if not self.keyed:
            for _, row, _ in self.waiting:
                found[row] += 1
            return found
        last = {key: row for _, row, key in self.waiting}
        for key, row in last.items():
            if key in self.current:
                found[self.current.pop(key)] -= 1
            if row is not None:
                found[row] += 1
                self.current[key] = row
        return found

    def _move(self) -> None:
        latest = max(self.seen.values(), default=0.0)
        marks = []
        for producer in self.seen:
            if latest - self.seen[producer] > self.idle:
                continue
            known = []
            if producer in self.newest:
                known.append(self.newest[producer] - self.lateness)
            if producer in self.promised:
                known.append(self.promised[producer])
            if not known:
                return
            marks.append(max(known))
        if marks:
            self.watermark = min(marks) if self.watermark is None else max(self.watermark, min(marks))

    # Views

    def windows(self, horizon: int | None, size: int, hop: int, *, final: bool) -> dict[tuple[int, str], list[int]]:
        """The amounts of each window and country."""
        found: dict[tuple[int, str], list[int]] = {}
        for (_, country, amount, second), count in self.taken.get(horizon, Counter()).items():
            start = second - second % hop
            while start > second - size:
                if not final or (self.watermark is not None and start + size <= self.watermark):
                    found.setdefault((start, country), []).extend([amount] * count)
                start -= hop
        return {key: amounts for key, amounts in found.items() if amounts}

    def sessions(self, horizon: int | None, gap: int, *, final: bool) -> dict[tuple[int, str], list[int]]:
        """The amounts of each session of a country; with ``final``, of those that have ended."""
        by_country: dict[str, list[tuple[int, int]]] = {}
        for (_, country, amount, second), count in self.taken.get(horizon, Counter()).items():
            by_country.setdefault(country, []).extend([(second, amount)] * count)
        found: dict[tuple[int, str], list[int]] = {}
        for country, rows in by_country.items():
            start = last = None
            for second, amount in sorted(rows):
                if last is None or second > last + gap:
                    start = second
                found.setdefault((start, country), []).append(amount)
                last = second
                self._ends[start, country] = last + gap
        # A row that comes exactly at a session's end still belongs to it.
        return {key: rows for key, rows in found.items() if not final or self._ends[key] < (self.watermark or 0)}

    _ends: dict[tuple[int, str], int] = field(default_factory=dict)
