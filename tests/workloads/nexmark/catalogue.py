"""Nexmark's queries: q0 to q22 as Spark SQL over the event streams.

What it is: the texts, and for the few that sqlglot cannot turn into DuckDB's dialect (Spark's ``window``), the same
question written for DuckDB by hand.
Invariants: a query is here as a view, or in ``REFUSED`` with the reason. Adapted are: q6 (the winning bid is the
highest within the auction's time, and all auctions count as closed: a view has no clock), q10 (rows as they would be
laid out in files; carrying them there is a sink's work), q11 (sessions by window functions), q13 (the side input is
a table), q14 (the user's function is written as an expression), q21 (Spark's regexp_extract gives '' for no match).
Not here: the events (``server/realtime/status_events.py``).
Read next: ``tests/spark/test_nexmark.py``.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent

# Not functions of their input: the answer depends on when it is asked.
REFUSED = {"q12": "it groups by processing time"}


def queries() -> dict[str, str]:
    """The texts by name, without those that must be refused."""
    return {name: sql for name, sql in _texts("queries").items() if name not in REFUSED}


def refused() -> dict[str, str]:
    """The texts that must be refused."""
    return {name: sql for name, sql in _texts("queries").items() if name in REFUSED}


def for_duckdb() -> dict[str, str]:
    """The same questions in DuckDB's dialect, where translating does not do."""
    return _texts("duckdb")


def _texts(folder: str) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((HERE / folder).glob("q*.sql"))}
