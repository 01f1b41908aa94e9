"""How large a run is, and the lines of its report.

What it is: ``Scale``, the sizes that every part of the benchmark reads, and ``Lines``, which collects figures and bars.
Invariants: a bar is a ratio of two figures of the same run; ``quick`` divides sizes and keeps ratios, and no bar is
claimed for it. Each figure is a median unless its name says otherwise.
Not here: what is measured (``latency.py`` and its neighbours).
Read next: ``latency.py``.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.report import Measurement


@dataclass(frozen=True)
class Scale:
    """Sizes in rows; there are always ten orders to a user."""

    latency_orders: int = 1_000_000
    small_orders: int = 100_000
    large_orders: int = 10_000_000
    tick_changes: int = 1_000
    samples: int = 40
    lots: tuple[int, ...] = (100_000, 1_000_000)
    lots_each: int = 3
    events: int = 10_000_000
    rates: tuple[float, ...] = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0)
    tpch: float = 1.0
    driver_memory: str = "4g"

    def divided(self, by: int) -> Scale:
        """The same run, smaller."""
        return Scale(
            latency_orders=self.latency_orders // by,
            small_orders=max(10_000, self.small_orders // by),
            large_orders=self.large_orders // by,
            tick_changes=max(100, self.tick_changes // by),
            samples=max(6, self.samples // 4),
            lots=tuple(lot // by for lot in self.lots),
            lots_each=1,
            events=self.events // by,
            rates=self.rates[1:],
            tpch=self.tpch / by,
            driver_memory=self.driver_memory,
        )


@dataclass
class Lines:
    """The figures of one part.

    >>> lines = Lines()
    >>> lines.figure("tick", 0.5, "s")
    >>> lines.at_most("tick beside an empty one", 0.5 / 0.25, 2.5)
    >>> [(line.name, line.value, line.holds) for line in lines.measurements]
    [('tick', 0.5, None), ('tick beside an empty one', 2.0, True)]
    """

    measurements: list[Measurement] = field(default_factory=list)

    def figure(self, name: str, value: float, unit: str) -> None:
        """Something measured."""
        self.measurements.append(Measurement(name, _short(value), unit))

    def at_most(self, name: str, ratio: float, bar: float, unit: str = "x, at most") -> None:
        """A ratio, or another figure, that must not be larger."""
        self.measurements.append(Measurement(name, _short(ratio), unit, bar, ratio <= bar))

    def at_least(self, name: str, ratio: float, bar: float) -> None:
        """A ratio that must not be smaller."""
        self.measurements.append(Measurement(name, _short(ratio), "x, at least", bar, ratio >= bar))

    def missing(self, name: str, why: str) -> None:
        """Something that could not be measured; its bar does not hold."""
        self.measurements.append(Measurement(f"{name}: not available: {why}", None, "", None, False))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the others does not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([3.0, 1.0, 2.0], 0.95)
    (2.0, 3.0)
    """
    if share == 0.5:
        return statistics.median(values)
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def _short(value: float) -> float:
    """Four digits that count."""
    return float(f"{value:.4g}") if abs(value) < 1_000 else round(value)
