"""TPC-H: all 22 queries as views over one database, refreshed, beside running the 22 queries anew.

What it is: the tables at scale factor 1, one app with 22 views, refresh ticks of inserts, updates and deletes, to every
table (a nation that moves takes a 25th of all rows with it) and to orders and their lines; and Spark's time for all
22 queries over the same tables in plain Parquet files.
Invariants: every view is compared with DuckDB after every tick; the plain files hold the rows of the last one.
Not here: the queries, the data and the changes (``tests/workloads/tpch``).
Read next: ``tests/workloads/tpch/schema.py``.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pyarrow.parquet as pq

import headwater as hw
from bench.views.memory import peak_of
from bench.views.scale import Lines, Scale
from tests.workloads.bags import difference
from tests.workloads.loading import Loaded
from tests.workloads.oracle import Oracle
from tests.workloads.tables import Changes
from tests.workloads.tpch import schema as tpch
from tests.workloads.tpch.refresh import Refresh

WARM_UPS, TICKS, COMPUTATIONS = 1, 3, 1
ORDERS_SHARE = 0.0002  # of the orders, new in each tick; about ten times as many rows change


def measure(scale: Scale, folder: Path) -> Lines:
    """First fill, refresh ticks, and recomputation."""
    lines = Lines()
    data = tpch.generate(scale.tpch, folder / "generated")
    oracle, queries = Oracle(tpch.TABLES), tpch.queries(scale.tpch)
    first = {name: Changes(rows, rows.slice(0, 0)) for name, rows in data.items()}
    oracle.apply(first)
    orders = max(4, int(data["orders"].num_rows * ORDERS_SHARE))
    with hw.App("tpch", home=folder / "home", spark={"spark.driver.memory": scale.driver_memory}) as app:
        loaded = Loaded(app, oracle)
        loaded.follow(first)
        for name, sql in queries.items():
            app.view(name, sql)
        lines.figure(f"first fill of 22 views at scale {scale.tpch:g}", ticked(app)[0], "s")
        compare(app, oracle, queries)
        refresh, seconds = Refresh(oracle), {}
        for everywhere, named in ((True, "every table"), (False, "orders and lines")):
            taken = []
            for _ in range(WARM_UPS + TICKS):
                tick = refresh.tick(orders, everywhere=everywhere)
                loaded.follow(tick)
                taken.append((*ticked(app), sum(changes.count for changes in tick.values())))
                compare(app, oracle, queries)
            took, read, changes = (statistics.median(column) for column in zip(*taken[WARM_UPS:], strict=True))
            seconds[named] = took
            lines.figure(f"{named}: changes in a refresh tick", changes, "rows")
            lines.figure(f"{named}: refresh tick of 22 views", took, "s")
            lines.figure(f"{named}: rows read by it", read, "rows")
        full = recomputed(app, oracle, queries, folder / "plain")
        lines.figure("22 queries over plain Parquet", full, "s")
        for named, took in seconds.items():
            lines.figure(f"{named}: gain", full / took, "x")
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    return lines


def compare(app: hw.App, oracle: Oracle, queries: dict[str, str]) -> None:
    """Every view beside DuckDB's answer over the tables as they are now."""
    wrong = [
        name
        for name, sql in queries.items()
        if difference(oracle.answer(sql), app.get_view(name).to_arrow()) is not None
    ]
    if wrong:
        raise AssertionError(f"{', '.join(wrong)} differ from DuckDB; the times would mean nothing")


def ticked(app: hw.App) -> tuple[float, int]:
    """Tick until nothing waits; the seconds and the rows read."""
    began, rows_read = time.perf_counter(), 0
    while True:
        report = app.tick()
        rows_read += sum(view.rows_read for view in report.views)
        if not report.behind:
            return time.perf_counter() - began, rows_read


def recomputed(app: hw.App, oracle: Oracle, queries: dict[str, str], folder: Path) -> float:
    """The median seconds in which Spark runs all queries over plain files of the current tables."""
    folder.mkdir()
    spark = app._runtime.spark.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    for name in oracle.tables:
        pq.write_table(oracle.ask(f"SELECT * FROM {name}"), folder / f"{name}.parquet", compression="zstd")
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    took = []
    for _ in range(COMPUTATIONS + 1):
        began = time.perf_counter()
        for sql in queries.values():
            spark.sql(sql).toArrow()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])
