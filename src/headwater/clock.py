"""Time, injected.

What it is: the one place where the present moment comes from, so that tests drive it by hand.
Invariants: ``now_us`` is microseconds since 1970-01-01 UTC; ``monotonic`` never goes back.
Not here: event time (a column), device clock correction (a later chapter).
Read next: ``testing/clock.py`` for the hand-driven one.
"""

from __future__ import annotations

import datetime as dt
import time


class Clock:
    """The machine's clock.

    >>> Clock().now_us() > 1_700_000_000_000_000
    True
    """

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; for time-outs."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def format_us(us: int) -> str:
    """Microseconds as a short UTC text.

    >>> format_us(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = dt.datetime.fromtimestamp(us / 1_000_000, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def to_us(moment: dt.datetime) -> int:
    """A datetime as microseconds; a naive one is taken as UTC.

    >>> to_us(dt.datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
