"""How large a run over patterns is, and its bars.

What it is: ``PatternScale``, the sizes that both sides read, and ``bars``, our rates beside Flink's.
Invariants: a bar is our rate over Flink's for the same pattern, in one run: by the clock, and by processor time, which
can be compared on a machine that others use too. A pattern that Flink has no rate for does not hold. A bar is asked
only when both sides ran.
Not here: what is measured (``pattern_ticks.py``, ``peers/``).
Read next: ``payments.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.report import Bar, Measurement, Samples
from bench.watch.payments import PATTERNS, PAYMENTS_A_CARD

RATE = "events/s"
PROCESSOR_RATE = "events/processor s"
LEAST = 3.0


@dataclass(frozen=True)
class PatternScale:
    """Events in one catch-up, the sizes of the ticks on top of it and how many of each, and counted runs.

    >>> PatternScale().cards, PatternScale(200_000).cards, PatternScale(200_000).every
    (10000, 400, 511000)
    """

    events: int = 5_000_000
    ticks: tuple[tuple[int, int], ...] = ((1_000, 11), (100_000, 3))
    runs: int = 2
    driver_memory: str = "4g"

    @property
    def cards(self) -> int:
        """Of 500 payments each."""
        return max(1, self.events // PAYMENTS_A_CARD)

    @property
    def every(self) -> int:
        """The events of the catch-up and of all ticks."""
        return self.events + sum(rows * ticks for rows, ticks in self.ticks)


def bars(found: Sequence[Measurement], parts: Collection[str]) -> list[Measurement]:
    """How the bars stand, given the figures of the run.

    >>> title = PATTERNS[0].title
    >>> found = [Measurement(f"own: {title}", 6.0, RATE), Measurement(f"flink: {title}", 1.5, RATE)]
    >>> [(line.value, line.holds) for line in bars(found, ["own", "flink"])][:2]
    [(4.0, True), (None, False)]
    """
    if not {"own", "flink"} <= set(parts):
        return []
    lines = []
    for unit in (RATE, PROCESSOR_RATE):
        samples = Samples({line.name: [line.value] for line in found if line.unit == unit and line.value is not None})
        for each in PATTERNS:
            bar = Bar(f"{each.title} beside Flink SQL, {unit}", f"own: {each.title}", (f"flink: {each.title}",), LEAST)
            lines.append(samples.ratio(bar))
    # By pattern, and by the clock before processor time.
    return [line for pair in zip(lines[: len(PATTERNS)], lines[len(PATTERNS) :], strict=True) for line in pair]
