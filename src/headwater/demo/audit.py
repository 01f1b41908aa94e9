"""The audit: comparisons at the end of the demo.

What it is: views against PostgreSQL's own answers, sinks against views, consumed offsets against the log; each
difference is a sentence.
Invariants: nothing here is computed by Headwater's views: PostgreSQL runs the query again; SQLite and the index are
read as any program would.
Not here: recomputing views from the log, which the engine does (``serving_process.py``).
Read next: ``scenario.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from headwater.demo.example import PAGE_VIEWS
from headwater.demo.roles import COUNTED
from headwater.errors import HeadwaterError
from headwater.log.home import Log
from headwater.sinks.search_sink import SearchSink
from headwater.testing.postgres_server import PostgresServer
from headwater.views.serving.serving_store import ServingStore

# Of some views: what PostgreSQL is asked, and what is asked of the view. Both must give the same rows.
IN_THE_DATABASE = {
    "revenue": (
        """SELECT date_trunc('minute', o.at), c.country, sum(o.amount), count(*)
           FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1, 2""",
        "SELECT minute, country, revenue, orders FROM revenue",
    ),
    "customer_360": (
        """SELECT c.id, c.country, count(o.id), sum(o.amount), sum(p.amount) FROM customers c
           JOIN orders o ON o.customer_id = c.id LEFT JOIN payments p ON p.order_id = o.id GROUP BY 1, 2""",
        "SELECT id, country, orders, ordered, paid FROM customer_360 WHERE orders > 0",
    ),
    "stock_levels": (
        """SELECT p.id, p.name, s.units, r.price FROM products p
           JOIN stock s ON s.product_id = p.id JOIN prices r ON r.product_id = p.id""",
        "SELECT id, name, units, price FROM stock_levels",
    ),
    "prices_paid": (
        """SELECT o.product_id, sum(o.units * r.price) FROM orders o
           JOIN prices r ON r.product_id = o.product_id GROUP BY 1""",
        "SELECT product_id, at_the_price_of_now FROM prices_paid",
    ),
    "unit_prices": (
        "SELECT product_id, min(amount / units), max(amount / units) FROM orders GROUP BY 1",
        "SELECT product_id, lowest, highest FROM unit_prices",
    ),
}
COPIES = ("revenue", "customer_360")  # in SQLite
COPY_FILE, INDEX_FOLDER = "reports.db", "catalogue.index"
ROWS_MAX = 100_000


def database_problems(server: PostgresServer, store: ServingStore) -> list[str]:
    """The views that are not what PostgreSQL says now."""
    wrong = []
    for view, (asked, ours) in IN_THE_DATABASE.items():
        theirs = {tuple(row) for row in server.execute(asked)}
        here = {tuple(row.values()) for row in store.query(ours).to_pylist()}
        if theirs != here:
            wrong.append(f"view {view} differs from PostgreSQL's answer: {_example(theirs, here)}")
    return wrong


def sink_problems(home: Path, store: ServingStore) -> list[str]:
    """The sinks that are not what their view is."""
    wrong = []
    for view in COPIES:
        columns = [column.name for column in store.views()[view].columns]
        asked = f"SELECT {', '.join(f'CAST({name} AS TEXT) AS {name}' for name in columns)} FROM {view}"
        ours = {tuple(row.values()) for row in store.query(asked).to_pylist()}
        if _copied(home / COPY_FILE, asked) != ours:
            wrong.append(f"the copy of {view} in SQLite differs from the view")
    rows = store.query("SELECT id, name, units, price, level FROM stock_levels").to_pylist()
    if _indexed(home / INDEX_FOLDER, list(rows[0]) if rows else []) != {_plain(row) for row in rows}:
        wrong.append("the full-text index differs from the view stock_levels")
    return wrong


def _copied(path: Path, asked: str) -> set[tuple[Any, ...]]:
    if not path.exists():
        return set()
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        try:
            return set(db.execute(asked).fetchall())
        except sqlite3.OperationalError:  # no table yet
            return set()


def _indexed(path: Path, columns: Sequence[str]) -> set[tuple[Any, ...]]:
    try:
        found = SearchSink(path, text=["name", "description"], terms=["level"]).search("*", limit=ROWS_MAX)
    except HeadwaterError:  # no index yet
        return set()
    return {_plain({name: row[name] for name in columns}) for row in found}


def _plain(row: Mapping[str, Any]) -> tuple[Any, ...]:
    # JSON has a number where the view has a decimal of two digits.
    return tuple(Decimal(str(value)) if name == "price" else value for name, value in row.items())


def counted(log: Log) -> tuple[int, int]:
    """How many page views the consumers' transactions counted not at all, and how many more than once."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in log.get_topic(COUNTED).rows():
        ranges.setdefault(row["source"], []).append((row["first"], row["following"]))
    return coverage(ranges, log.get_topic(PAGE_VIEWS).end_offsets())


def coverage(seen: Mapping[int, list[tuple[int, int]]], ends: Mapping[int, int]) -> tuple[int, int]:
    """The number of offsets that were skipped, and of those that were read again.

    >>> coverage({0: [(0, 5), (3, 8)]}, {0: 9})
    (1, 2)
    """
    skipped = again = 0
    for partition, end in ends.items():
        reached = 0
        for first, following in sorted(seen.get(partition, [])):
            skipped += max(0, first - reached)
            again += max(0, min(reached, following) - first)
            reached = max(reached, following)
        skipped += max(0, end - reached)
    return skipped, again


def check_problems(log: Log) -> list[str]:
    """The problems that a check of every byte of the home finds; untidiness does not count."""
    try:
        report = log.check()
    except HeadwaterError as error:
        return [str(error)]
    return [str(problem) for problem in report.problems if problem.severity == "error"]


def _example(theirs: set[Any], here: set[Any]) -> str:
    missing, surplus = theirs - here, here - theirs
    return f"{len(missing)} rows are missing, as {next(iter(missing), '-')}; {len(surplus)} are too many"
