"""Constructs: what a query is made of, each in the places where it means something else.

What it is: the whole queries of ``constructs.sql``, over keyed tables, a bag and a topic of events: subqueries
everywhere, set operations, outer joins, DISTINCT and FILTER, grouping sets, frames, LATERAL VIEW, QUALIFY, PIVOT.
Invariants: no answer is left open: ORDER BY is by a key. The last tick empties what can be emptied, since over no rows
many constructs have answers of their own.
Not here: random ones (``tests/compiler/queries.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.spark.trouble.rows import Row, Scenario, TableOf, Tick
from tests.spark.trouble.texts import texts
from tests.spark.trouble.trial import Case


def scenario() -> Scenario:
    """Keyed ``a`` and ``b``, a bag ``c``, events ``e``; in the end all but the events are gone."""

    def a(id: int, k: int | None, v: int | None, s: str | None) -> Row:
        return {"id": id, "k": k, "v": v, "s": s}

    def b(id: int, k: int | None, w: int | None, s: str | None) -> Row:
        return {"id": id, "k": k, "w": w, "s": s}

    first = [a(1, 1, 1, "x"), a(2, 1, 2, "X"), a(3, 2, None, "y"), a(4, None, 3, None), a(5, 3, 1, "x'y")]
    others = [b(1, 1, 1, "x"), b(2, 2, 2, "1"), b(3, None, 5, "y"), b(4, 1, None, None)]
    bag = [{"k": k, "v": v} for k, v in [(1, 1), (1, 1), (1, 2), (2, None), (None, 3), (3, -1)]]
    events = [{"k": k, "n": n} for k, n in [(1, 1), (1, 2), (2, 3), (None, 4)]]
    late = {"k": 2, "v": 7}
    more = [a(6, 1, 3, "x"), a(7, 2, 2, "Y"), a(8, 4, 0, "")]
    left = [b(5, 3, 1, "x"), b(6, 2, 2, "2")]
    changed = [a(2, 2, 5, "z"), a(4, 1, 3, None)]
    return Scenario(
        {
            "a": TableOf("id BIGINT, k INT, v BIGINT, s STRING", ("id",)),
            "b": TableOf("id BIGINT, k INT, w BIGINT, s STRING", ("id",)),
            "c": TableOf("k INT, v BIGINT"),
            "e": TableOf("k INT, n BIGINT", events=True),
        },
        [
            Tick({}, {"a": first, "b": others, "c": bag, "e": events}),
            Tick({"a": first[:1], "c": bag[:1]}, {"a": more, "b": left, "c": [bag[2], late], "e": events[:1]}),
            Tick({"a": first[4:], "b": others[:1], "c": bag[3:4]}, {"a": changed, "b": [b(2, 1, 3, "1")]}),
            Tick(
                {
                    "a": [*changed, first[2], *more],
                    "b": [b(2, 1, 3, "1"), *others[2:], *left],
                    "c": [bag[0], bag[2], bag[2], bag[4], bag[5], late],
                }
            ),
        ],
    )


def cases() -> Iterator[Case]:
    """Each query as it stands."""
    for place, sql in texts("constructs"):
        yield Case("constructs", sql, place, sql, exact=False)
