"""The driver's memory while many rows pass through ticks on a cluster.

What it is: a log on Kafka, a Spark cluster of two workers and state on S3Proxy. Rounds of rows are appended, half
of them changes of a keyed table, and the app ticks until it has them all. The memory of the driver, Python and Java,
is looked at ten times a second; the views are compared with what was appended.
Invariants: the driver, the appending process and the servers are processes of their own; a peak is of the resident
memory that the kernel tells.
Not here: latency and throughput.
Read next: ``docs/cluster.md``; ``src/headwater/views/state/remote/executor_files.py``.

    python -m bench.scale.driver_memory --rows 10000000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import headwater as hw
from bench.scale.sizes import Sizes
from bench.views.scale import Lines
from headwater.testing.spark_cluster import SparkCluster
from tests.services.kafka_broker import KafkaBroker
from tests.services.s3_server import CREDENTIALS, S3Server

ROUND_ROWS = 2_000_000
BATCH_ROWS = 100_000
KEYED_PART = 2  # one row of so many is of the keyed table
HEAP = "512m"
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": HEAP,
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
}


def declared(home: Path, log: str, **options: Any) -> hw.App:
    """The app: sums over a table and over a stream, and the sums of very many users, which are not served."""
    app = hw.App("shop", home=str(home), log=log, **options)
    app.table("orders", "id BIGINT, user_id BIGINT, cents BIGINT", key="id")
    app.topic("clicks", "user_id BIGINT, page STRING, n BIGINT")
    app.view(
        "revenue", "SELECT user_id % 100 AS part, sum(cents) AS cents, count(*) AS orders FROM orders GROUP BY ALL"
    )
    app.view("pages", "SELECT page, sum(n) AS n, count(*) AS clicks FROM clicks GROUP BY page")
    app.view("spent", "SELECT user_id, sum(cents) AS cents FROM orders GROUP BY user_id", serve=False)
    return app


# What is appended


def orders_of(start: int, rows: int) -> pa.Table:
    """Changes of a table: two thirds are new orders, one third changes one that is there."""
    numbers = np.arange(start, start + rows, dtype=np.int64)
    ids = np.where(numbers % 3 == 2, numbers // 2, numbers)
    return pa.table({"id": ids, "user_id": ids * 7 % 1_000_003, "cents": numbers % 10_000})


def clicks_of(start: int, rows: int) -> pa.Table:
    """Rows of a stream."""
    numbers = np.arange(start, start + rows, dtype=np.int64)
    pages = pa.array([f"page {number}" for number in range(500)])
    return pa.table({"user_id": numbers % 1_000_003, "page": pages.take(pa.array(numbers % 500)), "n": numbers % 10})


def appending(home: Path, log: str) -> None:
    """A process that appends the rounds it is told of, and tells when each is done."""
    app = declared(home, log)
    orders, clicks = app.log.get_topic("orders"), app.log.get_topic("clicks")
    for line in sys.stdin:
        first, rows = map(int, line.split())
        for start in range(first, first + rows, BATCH_ROWS):
            keyed = BATCH_ROWS // KEYED_PART
            orders.append(orders_of(start // KEYED_PART, keyed))
            clicks.append(clicks_of(start - start // KEYED_PART, BATCH_ROWS - keyed))
        print("done", flush=True)


def expected(rows: int) -> dict[str, int]:
    """What the views hold after so many rows."""
    keyed = rows // KEYED_PART
    orders = orders_of(0, keyed)
    last: np.ndarray = np.full(keyed, -1, np.int64)
    last[orders["id"].to_numpy()] = orders["cents"].to_numpy()  # the last one counts
    there = last >= 0
    n = np.arange(rows - keyed, dtype=np.int64) % 10
    return {"orders": int(there.sum()), "cents": int(last[there].sum()), "clicks": rows - keyed, "n": int(n.sum())}


# The driver


def driving(home: Path, log: str, state: str, master: str) -> None:
    """The driver: it ticks until nothing waits, and tells what its Java uses."""
    # Executors of this machine run the interpreter of this one, which has every package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    app = declared(home, log, state=state, spark={**SPARK, "spark.master": master})
    for _ in sys.stdin:
        ticks, began = 0, time.perf_counter()
        while (report := app.tick()).moved:
            ticks += 1
            if not report.behind:
                break
        spark = app._runtime.spark
        java: Any = spark.sparkContext._jvm
        used = java.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
        told = {"ticks": ticks, "seconds": time.perf_counter() - began, "heap": used}
        told |= app.sql("SELECT sum(orders) AS orders, sum(cents) AS cents FROM revenue").to_pylist()[0]
        told |= app.sql("SELECT sum(clicks) AS clicks, sum(n) AS n FROM pages").to_pylist()[0]
        print(json.dumps(told), flush=True)
    app.close()


class MemoryWatch(threading.Thread):
    """The resident memory of the driver's two processes, looked at ten times a second."""

    def __init__(self, python: int) -> None:
        super().__init__(daemon=True)
        self.python = python
        self.peaks = {"python": 0, "java": 0, "together": 0}

    def run(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            python = psutil.Process(self.python)
            while True:
                java = [child for child in python.children() if "java" in child.name()]
                found = {"python": python.memory_info().rss, "java": sum(each.memory_info().rss for each in java)}
                found["together"] = sum(found.values())
                self.peaks = {name: max(self.peaks[name], value) for name, value in found.items()}
                time.sleep(0.1)

    def take(self) -> dict[str, int]:
        """The peaks since this was asked last."""
        peaks, self.peaks = self.peaks, {"python": 0, "java": 0, "together": 0}
        return peaks


# From beginning to end


def measure(sizes: Sizes, folder: Path) -> Lines:
    """The peaks after half of the rows and after all of them."""
    lines = Lines()
    peaks = measured(sizes.memory_rows, folder)
    for passed in (max(1, len(peaks) // 2), len(peaks)):
        most = max(peaks[:passed], key=lambda each: each["together"])
        for name, value in most.items():
            lines.figure(f"driver's memory, {passed * ROUND_ROWS / 1e6:.0f} M rows, {name}", value / 1e9, "GB")
    return lines


def measured(rows: int, place: Path) -> list[dict[str, int]]:
    """Append and tick, round by round, with a line for each; gives the peaks of each."""
    found: list[dict[str, int]] = []
    with ExitStack() as stack:
        os.environ.update(CREDENTIALS)
        (place / "kafka").mkdir()
        kafka, s3 = KafkaBroker(place / "kafka"), S3Server(place / "s3")
        stack.callback(kafka.kill)
        kafka.start()
        stack.callback(s3.stop)
        s3.start()
        cluster = stack.enter_context(SparkCluster(worker_memory="1500m"))
        log = f"kafka://{kafka.servers}?prefix=shop."
        home = str(place / "home")
        appender = _process("append", home, log)
        stack.callback(_ended, appender)
        _told(appender, f"0 {ROUND_ROWS}")
        driver = _process("drive", home, log, s3.address("shop"), cluster.url)
        stack.callback(_ended, driver)
        watch = MemoryWatch(driver.pid)
        watch.start()
        print(f"driver with a heap of {HEAP}; rows in millions, memory in MB")
        print("  rows  ticks  seconds  Python  Java  together  Java's heap in use", flush=True)
        for passed in range(ROUND_ROWS, rows + 1, ROUND_ROWS):
            if passed > ROUND_ROWS:
                _told(appender, f"{passed - ROUND_ROWS} {ROUND_ROWS}")
            about = json.loads(_told(driver, "tick"))
            wanted = expected(passed)
            assert {name: about[name] for name in wanted} == wanted, (about, wanted)
            found.append(watch.take())
            peaks = {name: value / 1e6 for name, value in found[-1].items()}
            print(
                f"{passed / 1e6:6.0f} {about['ticks']:6d} {about['seconds']:8.1f} {peaks['python']:7.0f}"
                f" {peaks['java']:5.0f} {peaks['together']:9.0f} {about['heap'] / 1e6:19.0f}",
                flush=True,
            )
    return found


def _process(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.scale.driver_memory", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _told(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer, f"it ended with {process.wait()}"
    return answer


def _ended(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def main() -> None:
    if sys.argv[1:2] == ["append"]:
        appending(Path(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["drive"]:
        driving(Path(sys.argv[2]), *sys.argv[3:])
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
        parser.add_argument("--rows", type=int, default=10_000_000, help="how many rows pass, in rounds of 2 million")
        with tempfile.TemporaryDirectory(prefix="headwater-memory-") as folder:
            measured(parser.parse_args().rows, Path(folder))


if __name__ == "__main__":
    main()
