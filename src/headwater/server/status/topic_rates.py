"""Rates: how many rows a second came into each topic, now and over the last minutes.

What it is: ``TopicRates``, samples of the topics' ends, one a second, in a ring.
Invariants: memory is bounded: a fixed number of samples for each topic; a topic that was deleted and made again begins
without samples.
Not here: the rest of the status (``status_reader.py``).
Read next: ``status_reader.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

SAMPLES = 120
NOW_SAMPLES = 5  # the present rate is that of the last so many seconds


class TopicRates:
    """Samples of how many rows each topic has ever had.

    >>> rates = TopicRates()
    >>> for second in range(4):
    ...     rates.sample(float(second), {"orders": 100 * second})
    >>> rates.now("orders"), rates.history("orders")
    (100.0, [100.0, 100.0, 100.0])
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=SAMPLES + 1)

    def sample(self, at: float, ends: Mapping[str, int]) -> None:
        """Take the sum of the end offsets of each topic, at a moment in seconds."""
        self._samples.append((at, dict(ends)))

    def now(self, topic: str) -> float:
        """Rows a second, over the last seconds."""
        known = [(at, ends[topic]) for at, ends in list(self._samples)[-NOW_SAMPLES - 1 :] if topic in ends]
        if len(known) < 2:
            return 0.0
        return _rate(known[0], known[-1])

    def history(self, topic: str) -> list[float]:
        """Rows a second, between each sample and the next, the latest at the end."""
        known = [(at, ends[topic]) for at, ends in list(self._samples) if topic in ends]
        return [_rate(one, other) for one, other in pairwise(known)]


def _rate(one: tuple[float, int], other: tuple[float, int]) -> float:
    seconds = other[0] - one[0]
    return round(max(0, other[1] - one[1]) / seconds, 1) if seconds > 0 else 0.0
