"""Hints of error messages: the nearest known name, and the place in a text.

What it is: ``closest``, ``nearest`` and ``suggestion`` ("Did you mean …?"), and ``underline``, which marks a part of
a text with carets.
Invariants: capital and small letters are alike when names are compared; an underlined line is at most 100 wide.
Not here: the errors themselves (``errors.py``).
Read next: ``log/schema/ddl.py``, ``views/compiler/sql/refusal.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

KNOWN_MAX = 20
WIDTH = 100


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word nearest in spelling, if one is near.

    >>> closest("lenght", ["length", "left"])
    'length'
    """
    return next(iter(nearest(word, known, most=1)), None)


def nearest(word: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known words near in spelling, the nearest first.

    >>> nearest("lenght", ["length", "cents", "lengths"])
    ['length', 'lengths']
    """
    by_folded = {name.casefold(): name for name in known}
    return [by_folded[near] for near in difflib.get_close_matches(word.casefold(), by_folded, n=most)]


def suggestion(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """The nearest known name as a question, or ``otherwise``, or the list of known names.

    >>> suggestion("ammount", ["amount", "at"]), suggestion("x", ["b", "a"]), suggestion("x", [])
    ('Did you mean "amount"?', 'Known: a, b.', 'Known: none yet.')
    """
    known = list(known)
    near = closest(name, known)
    if near is not None:
        return f'Did you mean "{near}"?'
    return otherwise or "Known: " + (", ".join(sorted(known)[:KNOWN_MAX]) or "none yet") + "."


def underline(text: str, span: tuple[int, int]) -> str:
    """The line on which a span begins and, below it, carets under the span as far as that line goes.

    >>> print("  " + underline("SELECT a\\nFROM tt", (14, 16)))
      FROM tt
           ^^
    """
    start, stop = span
    first = text.rfind("\n", 0, start) + 1
    line = text[first:].split("\n", 1)[0].replace("\t", " ").rstrip()
    column = start - first
    cut = max(0, min(column - WIDTH // 2, len(line) - WIDTH))
    # A span of several lines is underlined on its first one.
    length = max(1, min(stop - start, len(line) - column, WIDTH - (column - cut)))
    # An error indents its detail by two spaces; the second line brings its own.
    return f"{line[cut : cut + WIDTH]}\n  {' ' * (column - cut)}{'^' * length}"
