"""StatsD lines: the parser of metrics.

What it is: ``parse`` reads one line (``page.views:1|c|@0.1|#country:de``) into the columns of a topic: counters, gauges
with their changes, timers, histograms, distributions and sets, with sample rate and DogStatsD's tags.
Invariants: any bytes give metrics or ``None``, never an error; a value is a finite number, or the member of a set.
Not here: UDP (``statsd_inlet.py``), aggregation (views). Read next: ``statsd_inlet.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

TYPES = frozenset({"c", "g", "ms", "h", "d", "s"})
LINE_BYTES_MAX = 8192
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

SCHEMA = (
    "metric STRING, type STRING, value DOUBLE, delta BOOLEAN, member STRING, sample_rate DOUBLE, "
    "tags MAP<STRING, STRING>, received_at TIMESTAMP"
)


class Metric(NamedTuple):
    """One value of one metric. ``delta``: a gauge moves by ``value``, else it is set; ``member``: of a set."""

    metric: str
    type: str
    value: float | None
    delta: bool
    member: str | None
    sample_rate: float
    tags: dict[str, str]


def parse(line: bytes) -> list[Metric] | None:
    """The metrics of a line (several, where it packs values as ``name:1:2:3|ms``); None when it is invalid.

    >>> parse(b"page.views:1|c|@0.1|#country:de,beta")
    [Metric(metric='page.views', type='c', value=1.0, delta=False, member=None, sample_rate=0.1, \
tags={'country': 'de', 'beta': ''})]
    >>> [(one.value, one.delta) for one in parse(b"fuel:-3|g") + parse(b"fuel:3|g")]
    [(-3.0, True), (3.0, False)]
    >>> [one.value for one in parse(b"query:12:15.5|ms")]
    [12.0, 15.5]
    >>> parse(b"users:ada|s")[0].member
    'ada'
    >>> parse(b"no metric")
    """
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        text = line.decode("utf-8").strip("\r ")
    except UnicodeDecodeError:
        return None
    head, *sections = text.split("|")
    name, colon, values = head.partition(":")
    if not colon or not name or not sections or sections[0] not in TYPES:
        return None
    options = _options(sections[1:])
    if options is None:
        return None
    rate, tags = options
    kind = sections[0]
    if kind == "s":
        return [Metric(name, kind, None, False, values, rate, tags)] if values else None
    found = []
    for value in values.split(":"):
        number = _number(value)
        if number is None:
            return None
        found.append(Metric(name, kind, number, kind == "g" and value[0] in "+-", None, rate, tags))
    return found


def _options(sections: list[str]) -> tuple[float, dict[str, str]] | None:
    """Sample rate and tags; unknown sections (DogStatsD's container and time) are skipped."""
    rate, tags = 1.0, {}
    for section in sections:
        if section.startswith("@"):
            found = _number(section[1:])
            if found is None or not 0 < found <= 1:
                return None
            rate = found
        elif section.startswith("#"):
            for tag in section[1:].split(","):
                if tag:
                    name, _, value = tag.partition(":")
                    tags[name] = value
    return rate, tags


def _number(text: str) -> float | None:
    if NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None
