"""Nesting: expressions of ``literals.py`` put into each other at random, two deep.

What it is: in one expression a column is replaced by another expression of the column's type.
Invariants: what Spark's analyser does not accept, or what raises on most contents, is left out; the same choice gives
the same expressions.
Not here: the places in a query (``calls.py``).
Read next: ``calls.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.spark.trouble import calls
from tests.spark.trouble.arguments import Call, Search, over
from tests.spark.trouble.calls import NOT_STORABLE, Guard
from tests.spark.trouble.literals import every
from tests.spark.trouble.registry import TOKEN
from tests.spark.trouble.rows import COLUMNS
from tests.spark.trouble.trial import Case

TYPES = {
    "int": ("i", "k"),
    "string": ("s", "w"),
    "date": ("dt",),
    "timestamp_ntz": ("nt",),
    "boolean": ("o",),
    "double": ("d",),
    "array<int>": ("ai",),
    "timestamp": ("ts",),
    "bigint": ("n",),
}
ATTEMPTS = 40  # for each expression that is wanted


def marked(text: str) -> str:
    """An expression with its columns written as in ``arguments.py``.

    >>> marked("upper(s) || 's' || st.b")
    "upper(§s) || 's' || §st.b"
    """
    made = ""
    for token in TOKEN.findall(text):
        made += f"§{token}" if token in COLUMNS and not made.endswith((".", "`")) else token
    return made


def nested(search: Search, guard: Guard, choice: random.Random, count: int) -> list[Call]:
    """Up to ``count`` expressions, each with another one inside."""
    texts, found, tries = [marked(text) for text in every()], [], 0
    while len(found) < count and tries < ATTEMPTS * count:
        tries += 1
        inner, outer = choice.choice(texts), choice.choice(texts)
        type = search.type_of(inner)
        column = choice.choice([f"§{name}" for name in TYPES.get(type or "", ())] or [""])
        if not column or column not in outer:
            continue
        text = outer.replace(column, f"({inner})", 1)
        result = search.type_of(over(text, "a"), "t a")
        if result is None or NOT_STORABLE.search(result):
            continue
        guarded = guard.guarded(text)
        if guarded is not None:
            found.append(Call(f"{outer} of {inner}", guarded, result))
    return found


def cases(made: Sequence[Call], choice: random.Random) -> Iterator[Case]:
    """The expressions together in SELECT, and each in the other places."""
    for case in [*calls.selects(made, choice), *(case for call in made for case in calls.places(call, choice))]:
        parts = tuple(replace(part, case=replace(part.case, family="nested")) for part in case.parts)
        yield replace(case, family="nested", parts=parts)
