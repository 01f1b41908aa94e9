"""Sizes, durations and places, as people write them.

What it is: ``10GiB``, ``7d``, ``earliest`` and ``2026-01-31T10:00Z`` turned into numbers and times, and back into text.
Invariants: a number without a unit is never guessed at where a unit matters; what cannot be read is refused with an
example of what can. Sizes are powers of 1024 with or without the ``i``, as disks' users expect.
Not here: what the quantities are for (``cli/log/topic_commands.py``, ``cli/log/group_commands.py``).
Read next: ``command_options.py``.
"""

from __future__ import annotations

import datetime as dt
import re

from headwater.durations import UNITS_US, parse_us
from headwater.errors import InvalidDeclaration

SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
NEVER = ("none", "forever", "unlimited")


def parse_duration(text: str) -> dt.timedelta:
    """A duration.

    >>> parse_duration("7d"), parse_duration("1.5s")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=1, microseconds=500000))
    """
    return dt.timedelta(milliseconds=parse_duration_ms(text))


def parse_seconds(text: str, option: str, *, at_least: str) -> float:
    """The seconds of an option that limits a wait.

    >>> parse_seconds("2 minutes", "--query-timeout", at_least="100ms")
    120.0
    >>> parse_seconds("20ms", "--idle-timeout", at_least="1s")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: --idle-timeout is at least 1s, not 20ms
    """
    milliseconds = parse_duration_ms(text)
    if milliseconds < parse_duration_ms(at_least):
        raise InvalidDeclaration(f"{option} is at least {at_least}, not {text}")
    return milliseconds / 1000


def parse_duration_ms(text: str) -> int:
    """A duration in milliseconds.

    >>> parse_duration_ms("7d"), parse_duration_ms("1.5s"), parse_duration_ms("1h 30m")
    (604800000, 1500, 5400000)
    """
    microseconds = parse_us(text)
    if microseconds is None:
        raise InvalidDeclaration(
            f"{text!r} is not a duration", hint="Write a number and its unit: 500ms, 30s, 15m, 24h, 7d, 2w."
        )
    return round(microseconds / 1000)


def parse_size(text: str) -> int:
    """A size in bytes.

    >>> parse_size("10GiB"), parse_size("64 MB"), parse_size("1000")
    (10737418240, 67108864, 1000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if found is None:
        raise InvalidDeclaration(f"{text!r} is not a size", hint="Write it as 500000, 64KiB, 128MiB or 10GiB.")
    return round(float(found[1]) * SIZE_UNITS[found[2]])


def is_never(text: str) -> bool:
    """Whether a limit is taken away: ``--retention forever``."""
    return text.strip().lower() in NEVER


def parse_place(text: str, *, now: dt.datetime | None = None) -> str | int | dt.datetime:
    """A place in a topic: earliest, latest, an offset, a time, or a duration ago.

    >>> parse_place("earliest"), parse_place("120")
    ('earliest', 120)
    >>> parse_place("2026-01-31T10:00Z")
    datetime.datetime(2026, 1, 31, 10, 0, tzinfo=datetime.timezone.utc)
    >>> parse_place("15m", now=dt.datetime(2026, 1, 31, 10, 0, tzinfo=dt.UTC)).isoformat()
    '2026-01-31T09:45:00+00:00'
    """
    word = text.strip()
    if word in ("earliest", "latest"):
        return word
    if word.isdigit():
        return int(word)
    if re.fullmatch(r"-?(\d+(\.\d+)?(ms|[smhdw]))+", word):
        return (now or dt.datetime.now(dt.UTC)) - dt.timedelta(milliseconds=parse_duration_ms(word.removeprefix("-")))
    try:
        moment = dt.datetime.fromisoformat(word)
    except ValueError:
        raise InvalidDeclaration(
            f"{text!r} is not a place in a topic",
            hint="Use earliest, latest, an offset (120), a time (2026-01-31T10:00Z), or how long ago (15m).",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


def show_bytes(count: float) -> str:
    """A size for people.

    >>> show_bytes(512), show_bytes(1536), show_bytes(10 << 30)
    ('512 B', '1.5 KiB', '10 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def show_count(count: float) -> str:
    """A large number for people, three digits of it.

    >>> show_count(950), show_count(12_345), show_count(3_210_000)
    ('950', '12.3 k', '3.21 M')
    """
    for unit in ("", " k", " M"):
        if abs(count) < 1000:
            return f"{count:.3g}{unit}" if unit else f"{count:.0f}"
        count /= 1000
    return f"{count:.3g} G"


def show_duration_ms(milliseconds: int | None) -> str:
    """A duration in its largest fitting unit.

    >>> show_duration_ms(604_800_000), show_duration_ms(90_000), show_duration_ms(50), show_duration_ms(None)
    ('7d', '90s', '50ms', 'forever')
    """
    if milliseconds is None:
        return "forever"
    for unit in ("d", "h", "m", "s"):
        size = UNITS_US[unit] // 1000
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
