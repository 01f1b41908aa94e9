"""Literals and operators of all spellings, over the columns of ``rows.py``.

What it is: the expressions of ``literals.sql``, each with a spelling that a parser may read or write otherwise than
Spark; in SELECT together, and those whose binding matters in WHERE too.
Invariants: Spark accepts every expression (``test_literals.py`` fails on one that it does not); columns stand bare.
Not here: calls of functions by the dozen (``calls.py``); names (``views/compiler/frontend/name_resolution.py``).
Read next: ``nesting.py``, which puts these into each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.spark.trouble import rows
from tests.spark.trouble.texts import texts
from tests.spark.trouble.trial import Case, Part

COLUMNS_MAX = 8

MORE = ("'line\nbreak'", "--1\n1")  # over several lines
BINDING = 110  # the first of the operators are those whose binding matters


def scenario() -> rows.Scenario:
    """The typed rows."""
    return rows.typed_rows()


def every() -> list[str]:
    """All expressions."""
    return list(dict.fromkeys([*(text for _, text in texts("literals")), *MORE]))


def cases() -> Iterator[Case]:
    """In SELECT, several at a time; and by themselves where spelling and binding matter most."""
    sections: dict[str, list[str]] = {"over several lines": list(MORE)}
    for section, text in texts("literals"):
        sections.setdefault(section, []).append(text)
    for section, some in sections.items():
        for case in selects(some):
            yield replace(case, place=section)
    for text in sections["operators"][:BINDING]:
        yield Case("literals", text, "WHERE", f"SELECT id FROM t WHERE ({text}) IS NOT NULL AND coalesce(k, 1) > 0")
    for text in (*sections["texts"], *sections["times"][:40]):
        yield Case("literals", text, "GROUP BY", f"SELECT {text} AS c, count(*) AS n FROM g GROUP BY {text}, k")


def selects(texts: Sequence[str]) -> Iterator[Case]:
    """Several expressions in one SELECT."""
    for first in range(0, len(texts), COLUMNS_MAX):
        some = texts[first : first + COLUMNS_MAX]
        parts = tuple(
            Part(f"c{n}", text, Case("literals", text, "SELECT", f"SELECT id, {text} AS c FROM t"))
            for n, text in enumerate(some)
        )
        columns = ", ".join(f"{text} AS c{n}" for n, text in enumerate(some))
        yield Case("literals", "many", "SELECT", f"SELECT id, {columns} FROM t", parts=parts)
