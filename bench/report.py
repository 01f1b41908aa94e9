"""What was measured: medians, ratios and bars, as a table for people and a list for programs.

Invariants: a figure is the median of its samples; a ratio is a median over another median of the same run; a bar
whose peer or figure is missing does not hold. Every record of the list has name, value, unit, bar and holds.
Not here: what the bars are (``bench/log_bench.py``).
Read next: ``bench/log_bench.py``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.log.order_rows import PAYLOAD_BYTES


@dataclass(frozen=True)
class Measurement:
    """One line of a report; ``bar`` and ``holds`` are None where nothing is demanded.

    >>> Measurement("read", 2.0, "records/s").holds is None
    True
    """

    name: str
    value: float | None
    unit: str
    bar: float | None = None
    holds: bool | None = None


@dataclass(frozen=True)
class Bar:
    """The median of ``ours`` beside the best median of ``against``; with ``least``, a demand on that ratio."""

    name: str
    ours: str
    against: tuple[str, ...]
    least: float | None = None


@dataclass
class Samples:
    """Rates by name, in the order in which the names came first.

    >>> samples = Samples()
    >>> for seconds in (1.0, 2.0, 4.0):
    ...     samples.add("append", rows=100, seconds=seconds)
    >>> samples.median("append")
    50.0
    >>> samples.ratio(Bar("twice", "append", ("append",), 2.0))
    Measurement(name='twice', value=1.0, unit='x append', bar=2.0, holds=False)
    """

    rates: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, *, rows: int, seconds: float) -> None:
        """One run of ``name`` did ``rows`` in ``seconds``."""
        self.rates.setdefault(name, []).append(rows / seconds)

    def median(self, name: str) -> float | None:
        """The median rate, or None when it was never measured."""
        return statistics.median(self.rates[name]) if name in self.rates else None

    def ratio(self, bar: Bar) -> Measurement:
        """How a bar stands: our median over the best of the others."""
        ours = self.median(bar.ours)
        others = {name: median for name in bar.against if (median := self.median(name)) is not None}
        if ours is None or not others:
            return Measurement(bar.name, None, "x: nothing to compare with", bar.least, _holds(0.0, bar))
        best = max(others, key=lambda name: others[name])
        value = ours / others[best]
        return Measurement(bar.name, round(value, 3), f"x {best}", bar.least, _holds(value, bar))

    def measurements(self, bars: Sequence[Bar]) -> list[Measurement]:
        """Everything: each rate in records/s and MB/s, then the bars, then what could not be measured."""
        lines = []
        for name, rates in self.rates.items():
            rate = statistics.median(rates)
            lines.append(Measurement(name, round(rate, 1), "records/s"))
            lines.append(Measurement(name, round(rate * PAYLOAD_BYTES / 1e6, 2), "MB/s"))
        lines += [self.ratio(bar) for bar in bars]
        lines += [Measurement(f"{name}: not available: {why}", None, "") for name, why in self.missing.items()]
        return lines


def write(measurements: Sequence[Measurement], path: Path) -> None:
    """Write the list for programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_json(measurements) + "\n")


def to_json(measurements: Sequence[Measurement]) -> str:
    """The list for programs, as text.

    >>> print(to_json([Measurement("read", 2.0, "records/s")]))
    [
      {"name": "read", "value": 2.0, "unit": "records/s", "bar": null, "holds": null}
    ]
    """
    return "[\n" + ",\n".join("  " + json.dumps(asdict(line)) for line in measurements) + "\n]"


def show(samples: Samples, bars: Sequence[Bar], console: Console, *, title: str) -> None:
    """Print the tables for people: the rates with their spread, then the bars."""
    rates = Table(title=title, title_justify="left")
    rates.add_column("what")
    for heading in ("records/s", "MB/s", "slowest – fastest", "runs"):
        rates.add_column(heading, justify="right")
    for name, values in samples.rates.items():
        rate = statistics.median(values)
        spread = f"{min(values):,.0f} – {max(values):,.0f}"
        rates.add_row(name, f"{rate:,.0f}", f"{rate * PAYLOAD_BYTES / 1e6:,.1f}", spread, str(len(values)))
    for name, why in samples.missing.items():
        rates.add_row(name, *[f"not available: {why}", "", "", ""], style="yellow")
    console.print(rates)
    if bars:
        console.print(_bars_table(samples, bars))


def _bars_table(samples: Samples, bars: Sequence[Bar]) -> Table:
    table = Table(title="Bars", title_justify="left")
    table.add_column("what")
    table.add_column("ratio", justify="right")
    table.add_column("at least", justify="right")
    table.add_column("holds")
    table.add_column("beside")
    for bar in bars:
        line = samples.ratio(bar)
        ratio = "–" if line.value is None else f"{line.value:,.2f}x"
        least = "" if bar.least is None else f"{bar.least:g}x"
        verdict = {True: "[green]yes", False: "[bold red]no", None: ""}[line.holds]
        table.add_row(line.name, ratio, least, verdict, line.unit.removeprefix("x "))
    return table


def _holds(ratio: float, bar: Bar) -> bool | None:
    return None if bar.least is None else ratio >= bar.least
