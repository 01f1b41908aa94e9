"""How large a run is, and its bars.

What it is: ``Scale``, the sizes that every part reads; ``BARS``, and ``bars``, which holds them against the figures.
Invariants: a bar is our rate over the best rate of a peer's variants, in one run; a peer without a rate does not
hold. A bar is asked only when both its parts ran. No bar is claimed for a smaller run.
Not here: what is measured (``own.py`` and its neighbours).
Read next: ``server/realtime/status_events.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.report import Bar, Measurement, Samples

OURS = "own: Headwater"
RATE = "events/s"
WARM_UPS = 2  # of what runs in Spark: its JVM was still twice as slow in the second run as in the third


@dataclass(frozen=True)
class Scale:
    """Events for Spark, ours and its own; events for the peers that need minutes for as many; and counted runs."""

    events: int = 10_000_000
    peer_events: int = 2_000_000
    runs: int = 3
    driver_memory: str = "4g"

    def with_events(self, events: int) -> Scale:
        """The same run over so many events."""
        return Scale(events, min(events, self.peer_events), self.runs, self.driver_memory)


# (what it is called, the beginning of the peer's figures, at least so many times its rate)
BARS = (
    ("beside Structured Streaming reading Parquet", "streaming: Parquet", 2.0),
    ("beside Structured Streaming reading JSON", "streaming: JSON", 5.0),
    ("beside Flink SQL reading JSON", "flink: ", 20.0),
    ("beside Pathway reading JSON", "pathway: ", 20.0),
)


def bars(found: Sequence[Measurement], parts: Collection[str]) -> list[Measurement]:
    """How the bars of these parts stand, given the figures of the run.

    >>> found = [Measurement(OURS, 6.0, RATE), Measurement("flink: windows", 0.2, RATE)]
    >>> [(line.name, line.value, line.holds) for line in bars(found, ["own", "flink"])]
    [('beside Flink SQL reading JSON', 30.0, True)]
    """
    if "own" not in parts:
        return []
    rates = {line.name: [line.value] for line in found if line.unit == RATE and line.value is not None}
    samples = Samples(rates)
    lines = []
    for name, beginning, least in BARS:
        if beginning.partition(":")[0] in parts:
            against = tuple(title for title in rates if title.startswith(beginning))
            lines.append(samples.ratio(Bar(name, OURS, against, least)))
    return lines
