"""Durations, as people write them in a program.

What it is: ``to_us``: "10 minutes", "1h 30m", a number of seconds or a timedelta, in microseconds.
Invariants: a number is seconds; what cannot be read is refused with an example of what can.
Not here: the command line's sizes and places (``cli/quantities.py``).
Read next: ``views/event_time/timing.py``.
"""

from __future__ import annotations

import datetime as dt
import re

from headwater.errors import InvalidDeclaration

UNITS_US = {
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
}


def to_us(duration: str | float | dt.timedelta, *, what: str = "a duration") -> int:
    """A duration in microseconds.

    >>> to_us("10 minutes"), to_us("1h 30m"), to_us(0.5), to_us(dt.timedelta(days=1))
    (600000000, 5400000000, 500000, 86400000000)
    >>> to_us("soon", what="horizon")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: horizon cannot be 'soon'
      Hint: Write "10 minutes" or "1h 30m", a number of seconds, or a timedelta.
    """
    found: float | None = None
    if isinstance(duration, dt.timedelta):
        found = duration / dt.timedelta(microseconds=1)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        found = duration * 1_000_000
    elif isinstance(duration, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", duration.lower())
        units = [UNITS_US.get(unit, UNITS_US.get(unit.removesuffix("s"))) for _, unit in parts]
        whole = "".join(number + unit for number, unit in parts) == re.sub(r"\s+", "", duration.lower())
        if parts and whole and None not in units:
            found = sum(float(number) * (unit or 0) for (number, _), unit in zip(parts, units, strict=True))
    if found is None or found < 0 or found != found:
        raise InvalidDeclaration(
            f"{what} cannot be {duration!r}",
            hint='Write "10 minutes" or "1h 30m", a number of seconds, or a timedelta.',
        )
    return round(found)
