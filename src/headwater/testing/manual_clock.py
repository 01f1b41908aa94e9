"""A clock that a test moves by hand.

What it is: the hand-driven counterpart of ``headwater.clock.Clock``, for leases, sessions and retention.
Invariants: ``now_us`` and ``monotonic`` move together, and never back.
Not here: waiting for other processes; a test that needs them uses the real clock.
Read next: ``headwater/clock.py``.
"""

from __future__ import annotations

import threading

from headwater.clock import Clock

# A moment that is easy to recognise in a failing test: 2030-01-01T00:00:00Z.
START_US = 1_893_456_000_000_000


class ManualClock(Clock):
    """Time stands still until ``advance``.

    >>> clock = ManualClock(now_us=1_000_000)
    >>> clock.advance(2.5)
    >>> clock.now_us(), clock.monotonic()
    (3500000, 2.5)
    """

    def __init__(self, *, now_us: int = START_US) -> None:
        self._lock = threading.Lock()
        self._start_us = now_us
        self._elapsed_us = 0

    def now_us(self) -> int:
        """Microseconds since the epoch, as far as this clock was moved."""
        return self._start_us + self._elapsed_us

    def monotonic(self) -> float:
        """Seconds this clock was moved since it was made."""
        return self._elapsed_us / 1_000_000

    def sleep(self, seconds: float) -> None:
        """Move on by ``seconds`` at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``.

        >>> ManualClock().advance(-1)
        Traceback (most recent call last):
            ...
        ValueError: a clock does not go back: -1
        """
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        with self._lock:
            self._elapsed_us += round(seconds * 1_000_000)
