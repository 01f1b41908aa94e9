"""Ticks on a Spark cluster and ticks of a Spark in the process: the same app, the same changes.

What it is: the shop of ``bench/views`` (a join and sums over tables with keys), filled, then given lots of several
sizes; with Spark's ``local[*]``, and on a standalone cluster of a master and one or two workers on this machine. Each
is a part of its own: a process has one Spark.
What is timed: the seconds from a tick's start to its commit, and the processor seconds of everything: driver, JVM,
executors, their Python. Two cores serve both, so the cluster's clock shows what a cluster costs, not what it gains.
Invariants: the answer is checked after every lot; the first lot of each size warms up and is not counted.
Not here: the shop (``bench/views/shop_app.py``). Read next: ``sizing.py``.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

from bench.processor_time import processor_seconds
from bench.scale.sizes import Sizes
from bench.views.memory import peak_of
from bench.views.scale import Lines, Scale
from bench.views.shop_app import ShopApp, opened
from headwater.testing.spark_cluster import SparkCluster

EXECUTORS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "2"}


def measure_local(sizes: Sizes, folder: Path) -> Lines:
    """Ticks with Spark in the process."""
    return measured(sizes, folder, {})


def measure_cluster(sizes: Sizes, folder: Path, workers: int = 2) -> Lines:
    """Ticks on a master and two workers."""
    with SparkCluster(workers=workers, worker_memory="1500m") as cluster:
        return measured(sizes, folder, {"spark.master": cluster.url, **EXECUTORS})


def measure_one_worker(sizes: Sizes, folder: Path) -> Lines:
    """The largest ticks on one worker: what two of them cost more."""
    return measure_cluster(replace(sizes, changes=sizes.changes[-1:]), folder, workers=1)


def measured(sizes: Sizes, folder: Path, spark: dict[str, str]) -> Lines:
    """The first fill, then lots of each size."""
    lines = Lines()
    scale = Scale(driver_memory=sizes.driver_memory)
    with opened(folder / "home", scale, orders=sizes.rows, spark=spark) as shop:
        lines.figure(f"first fill, {sizes.rows:,} orders", shop.load_seconds, "s")
        for changes in sizes.changes:
            clock, processor = ticks(shop, changes, sizes.ticks)
            lines.figure(f"{changes:,} changes", clock * 1000, "ms")
            lines.figure(f"{changes:,} changes, processor", processor * 1000, "ms")
        lines.figure("peak memory of all processes", peak_of() / 1e9, "GB")
    return lines


def ticks(shop: ShopApp, changes: int, count: int) -> tuple[float, float]:
    """The medians of the clock and of the processor, over some lots."""
    took, spent = [], []
    for _ in range(count + 1):
        shop.give(shop.shop.draw(changes))
        before = processor_seconds()
        seconds, _ = shop.tick_all()
        took.append(seconds)
        spent.append(processor_seconds() - before)
        shop.check()
    return statistics.median(took[1:]), statistics.median(spent[1:])
