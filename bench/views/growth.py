"""Lines b and c: what a tick costs as the data grows, and beside computing everything anew.

What it is: ticks of 1 000 mixed changes at 100 thousand and at 10 million orders; at the larger size, ticks of lots
from 0.001 % to 100 % of the orders, each beside Spark's full computation over the same rows in plain Parquet files.
Invariants: the plain files hold the rows of that moment and no more, in as many files as there are cores, and the full
computation is a median of five after a warm-up; the view is checked after every lot. Lots grow, so the state that a
large lot meets is one that many small ones left.
Not here: latency with Structured Streaming (``latency.py``).
Read next: ``throughput.py``.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.views.memory import peak_of
from bench.views.scale import Lines, Scale
from bench.views.shop import REVENUE, Shop, as_answer
from bench.views.shop_app import ShopApp, opened

WARM_UPS = 5
TICKS = 15
COMPUTATIONS = 5


def measure(scale: Scale, folder: Path) -> Lines:
    """Ticks at both sizes, then the gain at the larger one."""
    lines = Lines()
    with opened(folder / "small", scale, orders=scale.small_orders) as small:
        small_seconds, small_rows = ticks(small, scale)
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
        gain(large, scale, folder, lines, large_seconds)
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
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


def gain(shop: ShopApp, scale: Scale, folder: Path, lines: Lines, tick_seconds: float) -> None:
    """Ticks of growing lots beside the full computation over the rows that each one leaves."""
    full = recomputed(shop, folder / "plain")
    lines.figure("full computation over plain Parquet", full * 1e3, "ms")
    lines.at_least(f"gain of a tick of {scale.tick_changes:,} changes", full / tick_seconds, 5.0)
    least, at = None, 0.0
    for rate in scale.rates:
        count = max(20, int(scale.large_orders * rate))
        shop.give(shop.shop.draw(count))
        seconds, rows = shop.tick_all()
        shop.check()
        full = recomputed(shop, folder / "plain")
        lines.figure(f"tick of {rate:.3%} of the orders ({count:,} changes)", seconds * 1e3, "ms")
        lines.figure("rows read by it", rows, "rows")
        lines.figure("the full computation then", full * 1e3, "ms")
        if least is None or full / seconds < least:
            least, at = full / seconds, rate
    assert least is not None
    lines.at_least(f"gain at the worst rate ({at:.3%})", least, 1.0)


def recomputed(shop: ShopApp, folder: Path) -> float:
    """The median seconds in which Spark computes the view from plain files, and collects it."""
    write_plain(shop.shop, folder)
    spark = shop.app.operation.spark.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    for name in ("orders", "users"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    took = []
    for _ in range(COMPUTATIONS + 1):
        began = time.perf_counter()
        found = spark.sql(REVENUE).toArrow()
        took.append(time.perf_counter() - began)
        if as_answer(found) != shop.shop.answer():
            raise AssertionError("the full computation gave another answer; its time would mean nothing")
    return statistics.median(took[1:])


def write_plain(shop: Shop, folder: Path) -> None:
    """The shop's current rows as Parquet, one file for each core."""
    orders = pa.concat_tables(shop.order_batches())
    cores = os.cpu_count() or 1
    for name, rows in (("orders", orders), ("users", shop.users())):
        (folder / name).mkdir(parents=True, exist_ok=True)
        each = -(-rows.num_rows // cores)
        for part in range(cores):
            pq.write_table(rows.slice(part * each, each), folder / name / f"{part}.parquet", compression="zstd")
