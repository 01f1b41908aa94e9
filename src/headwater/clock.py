"""Clocks: the machine's clock, injected, and the correction of device clocks.

What it is: ``Clock``, the only source of the present time, so that tests drive it by hand; and ``correct``, which
trusts a device about durations and not about times.
Invariants: ``now_us`` is microseconds since 1970-01-01 UTC; ``monotonic`` never goes back; a corrected time is never
after the time of receipt, and at most ``bound_ms`` before it.
Not here: event time (a column), the correction of appended rows (``log/schema/clock_correction.py``).
Read next: ``testing/manual_clock.py``; ``docs/time.md``.
"""

from __future__ import annotations

import datetime as dt
import time

BOUND_MS = 30 * 24 * 3600 * 1000  # the longest accepted delay on a device


class Clock:
    """The machine's clock.

    >>> clock = Clock()
    >>> clock.now_us() > 1_700_000_000_000_000
    True
    >>> before = clock.monotonic()
    >>> clock.sleep(0.001)
    >>> clock.monotonic() > before
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
    """Microseconds as a short text in UTC.

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


def correct(occurred: str, sent: str, received: str, *, bound_ms: int = BOUND_MS) -> str:
    """SQL for the time at which something happened, by the receiver's clock, from three columns (or expressions).

    The device knows the delay: sent less occurred. The event happened that long before it was received. A delay below
    zero or above ``bound_ms`` is cut to these bounds. Where ``sent`` is null the device's clock is taken as right;
    where ``occurred`` is null the event happened when it was received.

    >>> import headwater as hw
    >>> print(hw.clock.correct("occurred_at", "sent_at", "received_at", bound_ms=60_000))
    (received_at - least(greatest(coalesce(sent_at - occurred_at, received_at - occurred_at, INTERVAL '0' SECOND), \
INTERVAL '0' SECOND), INTERVAL '60' SECOND))
    """
    none, most = "INTERVAL '0' SECOND", f"INTERVAL '{bound_ms / 1000:g}' SECOND"
    elapsed = f"coalesce({sent} - {occurred}, {received} - {occurred}, {none})"
    return f"({received} - least(greatest({elapsed}, {none}), {most}))"
