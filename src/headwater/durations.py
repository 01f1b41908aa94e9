"""Durations as users write them: "10 minutes", "1h 30m", a number of seconds or a timedelta.

What it is: ``to_us`` for settings and ``to_seconds`` for arguments; ``parse_us`` for a text alone, in microseconds.
Invariants: a number is seconds; a text needs a unit for each number; anything else is refused with an example.
Not here: sizes and places of the command line (``cli/quantities.py``).
Read next: ``log/topic_settings.py``, ``views/event_time/timing.py``.
"""

from __future__ import annotations

import datetime as dt
import math
import re

from headwater.errors import InvalidDeclaration

Duration = str | float | dt.timedelta

UNITS_US = {
    "us": 1,
    "µs": 1,
    "microsecond": 1,
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
PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)")


def parse_us(text: str) -> int | None:
    """A duration's text in microseconds; None for any other text.

    >>> parse_us("10 minutes"), parse_us("1h 30m"), parse_us("250 µs"), parse_us("soon")
    (600000000, 5400000000, 250, None)
    """
    parts = PART.findall(text.lower())
    units = [UNITS_US.get(unit, UNITS_US.get(unit.removesuffix("s"))) for _, unit in parts]
    complete = "".join(number + unit for number, unit in parts) == re.sub(r"\s+", "", text.lower())
    if not parts or not complete or None in units:
        return None
    return round(sum(float(number) * (unit or 0) for (number, _), unit in zip(parts, units, strict=True)))


def to_us(duration: Duration, *, what: str = "a duration") -> int:
    """A duration in microseconds.

    >>> to_us("10 minutes"), to_us(0.5), to_us(dt.timedelta(days=1))
    (600000000, 500000, 86400000000)
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
        found = parse_us(duration)
    if found is None or not 0 <= found < math.inf:
        raise InvalidDeclaration(
            f"{what} cannot be {duration!r}",
            hint='Write "10 minutes" or "1h 30m", a number of seconds, or a timedelta.',
        )
    return round(found)


def to_text(us: int) -> str:
    """A duration as users write it, in the largest unit that fits.

    >>> to_text(180 * 86_400_000_000), to_text(90_000_000), to_text(3_600_000_000), to_text(1)
    ('180 days', '90 seconds', '1 hour', '1 us')
    """
    for unit in ("day", "hour", "minute", "second"):
        if us % UNITS_US[unit] == 0:
            number = us // UNITS_US[unit]
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{us} us"


def to_seconds(duration: Duration, *, what: str = "a duration") -> float:
    """A duration in seconds.

    >>> to_seconds("2 minutes"), to_seconds(0.5), to_seconds(dt.timedelta(hours=1))
    (120.0, 0.5, 3600.0)
    """
    return to_us(duration, what=what) / 1_000_000


def to_timeout(duration: Duration | None) -> float | None:
    """The seconds of an argument ``timeout``; None: without a limit.

    >>> to_timeout("1 minute"), to_timeout(None)
    (60.0, None)
    """
    return None if duration is None else to_seconds(duration, what="timeout")
