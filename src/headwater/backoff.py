"""Exponential backoff: the pause before a failed attempt is repeated.

What it is: ``Backoff``: a first pause that doubles with each failure, up to a bound.
Invariants: no pause is longer than the bound; with jitter a pause is between half of its length and the whole of it.
Not here: waiting, which each caller does on its own event so that it can be stopped; which errors are retried.
Read next: ``sinks/runner/sink_task.py``, ``capture/capture.py``.
"""

from __future__ import annotations

import random

DOUBLINGS_MAX = 32  # beyond it a float would overflow long before anybody waits that long


class Backoff:
    """Pauses that double with each failure.

    >>> backoff = Backoff(0.1, 0.5)
    >>> [backoff.next() for _ in range(4)]
    [0.1, 0.2, 0.4, 0.5]
    >>> backoff.reset()
    >>> backoff.next(), backoff.after(failures=0)
    (0.1, 0.0)
    """

    def __init__(self, first_s: float, max_s: float, *, jitter: random.Random | None = None) -> None:
        self.first_s, self.max_s = first_s, max_s
        self._jitter = jitter  # so that many clients of one server do not come back at the same moment
        self._failures = 0

    def next(self) -> float:
        """The pause in seconds after one more failure."""
        self._failures += 1
        return self.after(self._failures)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._failures = 0

    def after(self, failures: int) -> float:
        """The pause in seconds after this many failures in a row; 0 after none."""
        if failures < 1:
            return 0.0
        bound = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX))
        return bound if self._jitter is None else bound * (0.5 + self._jitter.random() / 2)
