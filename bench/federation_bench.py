"""``python -m bench.federation_bench``: what push-down saves.

What it is: one query over a view of ours and a table of a million rows in PostgreSQL, with filters of several widths,
answered with push-down and without, in turns. A table for people and ``bench/out/federation.json`` for programs.
Invariants: both ways give the same rows, which is compared; the first turn warms both up and is not counted.
Not here: that push-down changes no answer (``tests/services/federation``).
Read next: ``src/headwater/federation/__init__.py``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import headwater as hw
from bench import report
from bench.parts import show
from bench.views.scale import Lines
from headwater.federation.stores import Fetched
from headwater.testing.postgres_server import PostgresServer

OUT = Path(__file__).parent / "out" / "federation.json"
TURNS = 5
COUNTRIES = 100
TABLE = """CREATE TABLE customers AS SELECT n AS id, 'country ' || n % {countries} AS country, 'name ' || n AS name,
    n * 0.25::float8 AS score, timestamptz '2024-01-01 00:00Z' + n * interval '1 second' AS since
    FROM generate_series(1, {rows}) AS n"""
SQL = """SELECT r.region, count(*) AS customers, sum(c.score) AS score FROM crm.customers c
    JOIN regions r ON r.country = c.country WHERE {where} GROUP BY r.region ORDER BY r.region"""
FILTERS = {
    "one row by its key": "c.id = 4711",
    "1 % of the rows, by a text": "c.country = 'country 7'",
    "a tenth, by a time and a number": "c.since >= TIMESTAMP '2024-01-01 00:00:00' AND c.id <= {tenth}",
    "all rows, two of five columns": "c.score >= 0",
}


def asked(app: hw.App, sql: str, *, push_down: bool) -> tuple[float, Fetched, list[dict[str, object]]]:
    """How long a query takes, what was fetched for it, and its answer."""
    began = time.perf_counter()
    reply = app.sql_reply(sql, push_down=push_down)
    return time.perf_counter() - began, reply.fetched[0], reply.table.to_pylist()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    rows = 1_000_000 // (10 if parser.parse_args().quick else 1)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    lines = Lines()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as home, PostgresServer() as server:
        server.execute(TABLE.format(rows=rows, countries=COUNTRIES))
        server.execute("ALTER TABLE customers ADD PRIMARY KEY (id)")
        server.execute("ANALYZE customers")
        with hw.App("bench", home=home) as app:
            regions = app.table("regions", "country STRING, region STRING", key="country")
            regions.upsert([{"country": f"country {n}", "region": f"region {n % 7}"} for n in range(COUNTRIES)])
            app.attach("crm", server.dsn)
            for title, where in FILTERS.items():
                _measure(app, title, SQL.format(where=where.format(tenth=rows // 10)), lines)
    show("federation", lines.measurements)
    report.write(lines.measurements, OUT)


def _measure(app: hw.App, title: str, sql: str, lines: Lines) -> None:
    seconds: dict[bool, list[float]] = {True: [], False: []}
    fetched: dict[bool, list[Fetched]] = {True: [], False: []}
    answers: dict[bool, object] = {}
    for turn in range(TURNS + 1):
        for push_down in (True, False):
            took, came, answers[push_down] = asked(app, sql, push_down=push_down)
            if turn:
                seconds[push_down].append(took)
                fetched[push_down].append(came)
    assert answers[True] == answers[False], "push-down changed the answer"
    for push_down, word in ((True, "with push-down"), (False, "without")):
        last = fetched[push_down][-1]
        lines.figure(f"{title}: {word}, rows fetched", last.rows, "rows")
        lines.figure(f"{title}: {word}, fetched", round(last.bytes / 1e6, 3), "MB")
        lines.figure(
            f"{title}: {word}, fetching", round(statistics.median(x.seconds for x in fetched[push_down]), 3), "s"
        )
        lines.figure(f"{title}: {word}, the query", round(statistics.median(seconds[push_down]), 3), "s")


if __name__ == "__main__":
    main()
