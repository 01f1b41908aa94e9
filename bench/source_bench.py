"""``python -m bench.source_bench``: reading a topic with Spark, beside plain Parquet files of the same rows.

What it is: a windowed sum over orders of about 100 bytes, read through ``format("headwater")``, through ``read_range``
and by ``spark.read.parquet`` over the very same sealed files; what the checksums cost; and how long an appended row
takes to reach ``foreachBatch``.
Invariants: every way of reading must give the same sum, or the run fails; figures are medians; no bar is set here.
Not here: the log without Spark (``bench/log_bench.py``).
Read next: ``docs/spark.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headwater as hw
from bench import report
from bench.log.order_rows import DDL, Rows
from bench.report import Measurement, Samples
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.checksums import checksum_of
from headwater.views import register
from headwater.views.source.data_source import read_range
from headwater.views.spark.topic_scan import READ_OPTIONS

OUT = Path(__file__).parent / "out" / "source.json"
BATCH_ROWS = 10_000
WARM_UPS = 3
SECONDS_MAX = 60.0


def main() -> None:
    """Measure, print a table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--appends", type=int, default=40, help="how many appends the latency is measured over")
    arguments = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory() as folder, hw.Log(Path(folder) / "home") as log:
        orders = filled(log, arguments.rows)
        samples = throughput(spark, orders, arguments.runs)
        lines = [*checksums(orders), fixed_cost(spark, orders, arguments.runs)]
        lines += latency(spark, log, Path(folder) / "checkpoint", arguments.appends)
    spark.stop()
    report.show(samples, [], Console(), title="A windowed sum over a topic, with Spark")
    show(lines)
    report.write([*samples.measurements([]), *lines], OUT)


def session():
    """A Spark of this machine's cores that keeps quiet."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def filled(log: hw.Log, rows: int) -> hw.Topic:
    """A topic with so many rows, all of them sealed."""
    orders = log.topic("orders", DDL, event_time="at", partitions=2)
    made = 0
    while made < rows:
        count = min(200_000, rows - made)
        for batch in Rows(count=count, first_id=made).batches(BATCH_ROWS):
            orders.append(batch)
        made += count
    for number, end in orders.end_offsets().items():
        orders.partition(number).roll()
        wait_until(lambda number=number, end=end: sealed(orders, number) == end)
    return orders


def sealed(topic: hw.Topic, number: int) -> int:
    """Seal what can be sealed; how far the sealed part of a partition reaches."""
    seal_partition(topic, number)
    return topic.log.registry.sealed_end(topic.id, number)


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again until it holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("it took too long")
        time.sleep(0.01)


def throughput(spark, orders: hw.Topic, runs: int) -> Samples:
    """A windowed sum by every way of reading, the ways taking turns."""
    start, stop = orders.start_offsets(), orders.end_offsets()
    rows = sum(stop.values()) - sum(start.values())
    listing = orders.files(start, stop)
    assert not listing.tails
    paths = [str(file.path) for file in listing.files]
    unchecked = {**READ_OPTIONS, "parquet.page.verify-checksum.enabled": "false"}

    def source():  # a new reader each time: options given to a reader stay with it
        return spark.read.format("headwater").option("home", str(orders.log.home)).option("topic", "orders")

    ways = {
        "spark.read.parquet": lambda: spark.read.parquet(*paths),
        "spark.read.parquet, page checksums off": lambda: spark.read.options(**unchecked).schema(DDL).parquet(*paths),
        "spark.read.parquet, page checksums on": lambda: spark.read.options(**READ_OPTIONS).schema(DDL).parquet(*paths),
        "read_range": lambda: read_range(spark, orders, start, stop),
        "format headwater": lambda: source().load(),
        "format headwater, columns=at,amount": lambda: source().option("columns", "at,amount").load(),
    }
    samples = Samples()
    sums = set()
    for run in range(runs + WARM_UPS):
        for name, way in ways.items():
            began = time.perf_counter()
            sums.add(windowed(way()))
            if run >= WARM_UPS:  # the first rounds warm up the JVM, the page cache and the workers
                samples.add(name, rows=rows, seconds=time.perf_counter() - began)
    assert len(sums) == 1, f"the ways disagree: {sums}"
    return samples


def checksums(orders: hw.Topic) -> list[Measurement]:
    """What read_range does once per process before Spark may read the files."""
    files = orders.files(orders.start_offsets(), orders.end_offsets()).files
    began = time.perf_counter()
    for file in files:
        checksum_of(file.path)
    took = time.perf_counter() - began
    return [
        Measurement("sealed files", len(files), "files"),
        Measurement("sealed files", round(sum(file.path.stat().st_size for file in files) / 1e6, 1), "MB"),
        Measurement("their whole-file checksums, once per process", round(took * 1e3, 1), "ms"),
    ]


def fixed_cost(spark, orders: hw.Topic, runs: int) -> Measurement:
    """What the same query costs over no rows at all: how much of the figures above is Spark's own."""
    end = orders.end_offsets()
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        windowed(read_range(spark, orders, end, end))
        took.append(time.perf_counter() - began)
    return Measurement("the windowed sum over no rows", round(statistics.median(took) * 1e3, 1), "ms")


def windowed(frame) -> tuple[int, float | None]:
    """Sums by minute and their control: how many windows, and the sum over all."""
    from pyspark.sql import functions

    by_minute = frame.groupBy(functions.window("at", "1 minute")).agg(functions.sum("amount").alias("amount"))
    windows, amount = by_minute.agg(functions.count("*"), functions.sum("amount")).collect()[0]
    return windows, amount and round(amount, 2)


def latency(spark, log: hw.Log, checkpoint: Path, appends: int) -> list[Measurement]:
    """Append to ``foreachBatch``, one append at a time, without and with the rows being read."""
    lines = []
    for name, collect in {"called": False, "rows collected": True}.items():
        topic = log.topic(f"latency-{collect}", DDL, event_time="at", partitions=2)
        times = sorted(delays(spark, topic, checkpoint / topic.name, appends, collect=collect))
        for rank, share in {"p50": 0.5, "p95": 0.95}.items():
            value = times[int(len(times) * share)]
            lines.append(Measurement(f"append to foreachBatch, {name}, {rank}", round(value * 1e3, 1), "ms"))
    return lines


def delays(spark, topic: hw.Topic, checkpoint: Path, appends: int, *, collect: bool) -> list[float]:
    """The seconds from before each append until the sink has seen it."""
    seen = threading.Event()

    def sink(frame, _number: int) -> None:
        if collect:
            frame.collect()
        seen.set()

    reader = spark.readStream.format("headwater").option("home", str(topic.log.home)).option("topic", topic.name)
    writer = reader.load().writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(sink).start()
    took = []
    try:
        for number in range(appends + WARM_UPS):
            query.processAllAvailable()
            seen.clear()
            batch = Rows(count=100, first_id=number * 100).batch
            began = time.perf_counter()
            topic.append(batch)
            if not seen.wait(SECONDS_MAX):
                raise TimeoutError(f"nothing came: {query.exception()}")
            took.append(time.perf_counter() - began)
    finally:
        query.stop()
    return took[WARM_UPS:]


def show(lines: list[Measurement]) -> None:
    """Print the table for people."""
    table = Table(title="Besides", title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for line in lines:
        table.add_row(line.name, f"{line.value:,}", line.unit)
    Console().print(table)


if __name__ == "__main__":
    main()
