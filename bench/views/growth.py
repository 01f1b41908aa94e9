"""Lines b and c: what a tick costs as the data grows, and beside computing everything anew.

What it is: ticks of 1 000 mixed changes at 100 thousand and at 10 million orders; at the larger size, ticks of lots
from 0.001 % to 100 % of the orders, each beside plain Spark: computing everything over Parquet files that hold the rows
of that moment (*computing*), and making these files from the ones before and the changes, then computing (*applying and
computing*), which is what the tick saves: it, too, begins with changes that nobody has applied yet.
Invariants: the plain files hold the rows of that moment and no more, and computing is a median of five after a warm-up;
both sides' answers are checked after every lot. Lots grow, so the state that a large lot meets is one that many small
ones left. Ticks warm up before they count, at both sizes alike. Memory is the most that was held in a tick, with the
benchmark's own rows (0.6 GB of changes at 10 million orders) and the mapped pages of sorted files.
Not here: latency with Structured Streaming (``latency.py``).
Read next: ``throughput.py``.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.views.memory import forget_peaks, peak_of
from bench.views.scale import Lines, Scale
from bench.views.shop import REVENUE, Lot, Shop, as_answer
from bench.views.shop_app import ShopApp, opened
from headwater.views.spark.spark_session import DEFAULTS

WARM_UPS = 40
TICKS = 15
COMPUTATIONS = 5
MEMORY_BAR_GB = 4.0


def measure(scale: Scale, folder: Path) -> Lines:
    """Ticks at both sizes, then the gain at the larger one."""
    lines = Lines()
    with opened(folder / "small", scale, orders=scale.small_orders) as small:
        small_seconds, small_rows = ticks(small, scale)
    scale = replace(scale, driver_memory=DEFAULTS["spark.driver.memory"])  # the memory of an app that asks for none
    with opened(folder / "large", scale, orders=scale.large_orders) as large:
        lines.figure(f"first fill at {scale.large_orders:,} orders", large.load_seconds, "s")
        large_seconds, large_rows = ticks(large, scale)
        for orders, seconds, rows in (
            (scale.small_orders, small_seconds, small_rows),
            (scale.large_orders, large_seconds, large_rows),
        ):
            lines.figure(f"tick of {scale.tick_changes:,} changes at {orders:,} orders", seconds * 1e3, "ms")
            lines.figure(f"rows read by it at {orders:,} orders", rows, "rows")
        lines.at_most("the tick at many orders beside that at few", large_seconds / small_seconds, 1.5)
        peak = gain(large, scale, folder, lines, large_seconds)
        lines.at_most("peak memory in these ticks, Python and JVM", peak / 1e9, MEMORY_BAR_GB, "GB, at most")
    return lines


def ticks(shop: ShopApp, scale: Scale) -> tuple[float, float]:
    """The median seconds of a tick, and the median of rows read."""
    taken = []
    for _ in range(TICKS + WARM_UPS):
        shop.give(shop.shop.draw(scale.tick_changes))
        taken.append(shop.tick_all())
    shop.check()
    counted = taken[WARM_UPS:]
    return statistics.median(seconds for seconds, _ in counted), statistics.median(rows for _, rows in counted)


def gain(shop: ShopApp, scale: Scale, folder: Path, lines: Lines, tick_seconds: float) -> int:
    """Ticks of growing lots beside plain Spark; gives the most memory that was held in a tick, in bytes."""
    plain = Plain(shop.app._runtime.spark, folder / "plain", shop.shop)
    full = plain.computed()
    lines.figure("computing over plain Parquet", full * 1e3, "ms")
    lines.at_least(f"gain of a tick of {scale.tick_changes:,} changes", full / tick_seconds, 5.0)
    beside_all, beside_computing, peaks = [], [], []
    for rate in scale.rates:
        count = max(20, int(scale.large_orders * rate))
        lot = shop.shop.draw(count)
        shop.give(lot)
        forget_peaks()
        seconds, rows = shop.tick_all()
        peaks.append(peak_of())
        shop.check()
        applied = plain.applied(lot)
        full = plain.computed()
        lines.figure(f"tick of {rate:.3%} of the orders ({count:,} changes)", seconds * 1e3, "ms")
        lines.figure("rows read by it", rows, "rows")
        lines.figure("Spark applying and computing", (applied + full) * 1e3, "ms")
        lines.figure("Spark computing", full * 1e3, "ms")
        beside_all.append(((applied + full) / seconds, rate))
        beside_computing.append((full / seconds, rate))
    least, rate = min(beside_all)
    lines.at_least(f"gain at the worst rate ({rate:.3%}), beside applying and computing", least, 1.0)
    least, rate = min(beside_computing)
    lines.at_least(f"gain at the worst rate ({rate:.3%}), beside computing", least, 1.0)
    return max(peaks)


class Plain:
    """The shop's current rows as plain Parquet files, kept by plain Spark."""

    def __init__(self, spark: Any, folder: Path, shop: Shop) -> None:
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
        self.folder = folder
        self.shop = shop
        self.generation = 0
        self._write(self._place("orders"), pa.concat_tables(shop.order_batches()))
        self._write(self._place("users"), shop.users())

    def applied(self, lot: Lot) -> float:
        """The seconds in which Spark makes new files from the old ones and a lot of changes."""
        for name, rows in (("put", lot.put), ("deleted", lot.deleted), ("moved", lot.moved)):
            self._write(self._place(name), rows)
        old = {path.name: self.spark.read.parquet(str(path)) for path in (self.folder / str(self.generation)).glob("*")}
        self.generation += 1
        began = time.perf_counter()
        gone = old["put"].select("order_id").union(old["deleted"].select("order_id"))
        orders = old["orders"].join(gone, "order_id", "left_anti").unionByName(old["put"])
        users = old["users"].join(old["moved"].select("id"), "id", "left_anti").unionByName(old["moved"])
        for name, frame in (("orders", orders), ("users", users)):
            frame.write.option("compression", "zstd").parquet(str(self._place(name)))
        return time.perf_counter() - began

    def computed(self) -> float:
        """The median seconds in which Spark computes the view over these files, and collects it."""
        for name in ("orders", "users"):
            self.spark.read.parquet(str(self._place(name))).createOrReplaceTempView(name)
        took = []
        for _ in range(COMPUTATIONS + 1):
            began = time.perf_counter()
            found = self.spark.sql(REVENUE).toArrow()
            took.append(time.perf_counter() - began)
            if as_answer(found) != self.shop.answer():
                raise AssertionError("plain Spark gave another answer; its time would mean nothing")
        return statistics.median(took[1:])

    def _place(self, name: str) -> Path:
        return self.folder / str(self.generation) / name

    def _write(self, folder: Path, rows: pa.Table) -> None:
        folder.mkdir(parents=True)
        each = max(1, -(-rows.num_rows // (os.cpu_count() or 1)))
        for part in range(0, max(1, rows.num_rows), each):
            pq.write_table(rows.slice(part, each), folder / f"{part}.parquet", compression="zstd")
