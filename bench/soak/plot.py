"""A picture of samples: small line plots under each other, as SVG.

What it is: ``drawn`` makes the text of an SVG from panels of lines over the same time.
Invariants: every panel begins at zero, so that a flat line is flat, and ends above what comes after the first tenth:
the start of a process would make all else small, and is cut off. A line's name has its colour. The picture needs no
script and no font but the reader's.
Not here: what is drawn (``bench/soak_bench.py``).
Read next: ``bench/soak_bench.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 960, 64, 16, 110, 46, 40
COLOURS = ("#1f6f8b", "#d1495b", "#66a182", "#8d6a9f")
MARKS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Line:
    """One line: its name, and a value for each time."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """Lines of one unit."""

    unit: str
    lines: Sequence[Line]


def drawn(title: str, minutes: Sequence[float], panels: Sequence[Panel]) -> str:
    """The picture's text.

    >>> text = drawn("a soak", [0.0, 1.0], [Panel("MB", [Line("Python", [1.0, 2.0])])])
    >>> text.startswith("<svg"), "Python" in text, text.count("<polyline")
    (True, True, 1)
    """
    height = TOP + len(panels) * (PANEL + GAP) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'  <title id="title">{escape(title)}</title>',
        f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'  <text x="{LEFT}" y="20" font-size="15" fill="#23313a">{escape(title)}</text>',
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, minutes, TOP + place * (PANEL + GAP) + 18, last=place == len(panels) - 1)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, minutes: Sequence[float], top: float, *, last: bool) -> list[str]:
    later = [value for line in panel.lines for value in line.values[len(line.values) // 10 :]]
    most = _round(max(later, default=1.0) or 1.0)
    span = max(minutes[-1], 1e-9) if minutes else 1.0
    parts, x = [], LEFT
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        name = f"{line.name}, {panel.unit}" if panel.unit and line is panel.lines[-1] else line.name
        parts.append(f'  <text x="{x:.0f}" y="{top - 6:.0f}" fill="{colour}">{escape(name)}</text>')
        x += 8 * len(name) + 18
    for share in (0.0, 0.5, 1.0):
        y = top + PANEL * (1 - share)
        parts.append(f'  <line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dde3e6"/>')
        parts.append(
            f'  <text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#5b6b73">{_number(most * share)}</text>'
        )
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        points = " ".join(
            f"{LEFT + (WIDTH - LEFT - RIGHT) * at / span:.1f},{top + PANEL * (1 - min(1.0, value / most)):.1f}"
            for at, value in zip(minutes, line.values, strict=True)
        )
        parts.append(f'  <polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    if last:
        for share in (0.0, 0.5, 1.0):
            at = LEFT + (WIDTH - LEFT - RIGHT) * share
            anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
            text = f"{span * share:,.3g} minutes" if share else "0"
            parts.append(
                f'  <text x="{at:.0f}" y="{top + PANEL + 18:.0f}" text-anchor="{anchor}" fill="#5b6b73">{text}</text>'
            )
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _round(value: float) -> float:
    """The next round number from here on."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(mark * power for mark in MARKS if mark * power >= value)
