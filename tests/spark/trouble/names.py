"""Names of all spellings: of tables, columns, aliases, and none at all.

What it is: the queries of ``names.sql``, over tables whose names and columns are odd.
Invariants: each is a query that Spark answers; the columns of the view must have Spark's names, also where the query
gives none.
Not here: names inside expressions that need care (``literals.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from tests.spark.trouble.rows import Row, Scenario, TableOf, Tick
from tests.spark.trouble.texts import texts
from tests.spark.trouble.trial import Case

ODD = """
    id BIGINT, `Mixed` INT, `with space` STRING, `dotted.name` INT, `back``tick` INT, `größe` INT, `order` INT,
    `date` DATE, `timestamp` STRING, `user` STRING, `current_date` STRING, `select` INT, `Group` STRING, `1st` INT,
    `a-b` INT, `x_` INT, `st` STRUCT<`Inner`: INT, `odd name`: STRING, b: STRUCT<c: INT>>, `end` INT, `interval` INT,
    `left` STRING, `values` INT, `quote'd` INT
"""
MORE = ("SELECT id, v FROM u -- a comment; with 'quotes'\nWHERE v > 0 /* and ` another */", "select\n\tID\nfrom\n\tU")


def scenario() -> Scenario:
    """The odd table with a key, and ``u``, a bag."""

    def odd(number: int) -> Row:
        return {
            "id": number,
            "Mixed": number % 3,
            "with space": f"a {number}",
            "dotted.name": number,
            "back`tick": number % 2,
            "größe": number % 4,
            "order": -number,
            "date": dt.date(2016, 1, 1 + number),
            "timestamp": "x",
            "user": f"u{number % 2}",
            "current_date": "today",
            "select": number,
            "Group": "g",
            "1st": 1,
            "a-b": number % 2,
            "x_": None,
            "end": 9,
            "interval": number,
            "st": {"Inner": number, "odd name": "n", "b": {"c": number % 3}},
            "left": "links",
            "values": 3,
            "quote'd": number,
        }

    u = [{"id": number, "v": number % 3 or None} for number in range(6)]
    return Scenario(
        {"odd": TableOf(ODD, ("id",)), "u": TableOf("id BIGINT, v BIGINT")},
        [
            Tick({}, {"odd": [odd(number) for number in range(4)], "u": u[:4]}),
            Tick({"odd": [odd(1)], "u": u[1:2]}, {"odd": [odd(4), odd(5)], "u": [*u[2:], u[2]]}),
            Tick({"u": u[3:4]}, {"odd": [{**odd(2), "Mixed": 7, "user": None}], "u": [{"id": 2, "v": 9}]}),
        ],
    )


def cases() -> Iterator[Case]:
    """Each query as it stands."""
    for place, sql in [*texts("names"), *(("layout", sql) for sql in MORE)]:
        yield Case("names", sql, place, sql, exact=False)
