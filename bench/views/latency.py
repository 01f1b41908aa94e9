"""Line a: how long an append takes to be visible in the serving store, beside an empty microbatch.

What it is: an app that runs, appends of 1 000 changes, each of one kind (of 20 appends, 10 are new orders, 6 new
amounts, 3 deletions, and 1 moves a tenth as many users), and the wait until the serving store covers each; the same for
five views; and appends of 1 000 rows to a topic whose microbatch does nothing at all.
Invariants: all in one process and one Spark, with the same settings for the streaming query, which has nothing to do
when an append comes; the first samples warm up and are not counted; the view is checked at the end.
Not here: the time of a tick without Structured Streaming (``growth.py``).
Read next: ``growth.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.views.scale import Lines, Scale, percentile
from bench.views.shop import ORDERS_DDL, Shop
from bench.views.shop_app import FIVE_VIEWS, ShopApp, opened
from headwater.views import register
from headwater.views.runner import SETTINGS

WARM_UPS = 60
SECONDS_MAX = 120.0
NEW, AMOUNT, DELETE, MOVE = "new orders", "new amounts", "deletions", "users moving"
KINDS = (
    NEW,
    AMOUNT,
    NEW,
    DELETE,
    NEW,
    AMOUNT,
    NEW,
    MOVE,
    NEW,
    AMOUNT,
)  # and once more, with a deletion in place of a move


def measure(scale: Scale, folder: Path) -> Lines:
    """Latency of one view and of five, beside the empty microbatch."""
    lines = Lines()
    with opened(folder / "one", scale, orders=scale.latency_orders) as one:
        empty = microbatches(one, folder, scale)
        single = delays(one, scale)
        lines.figure("first fill of the view", one.load_seconds, "s")
    with opened(folder / "five", scale, orders=scale.latency_orders, views=FIVE_VIEWS) as five:
        several = delays(five, scale)
    for name, took in (("empty microbatch", empty), ("one view", single), ("five views", several)):
        for title, share in (("p50", 0.5), ("p95", 0.95)):
            lines.figure(f"append to visible, {name}, {title}", percentile(took, share) * 1e3, "ms")
    lines.at_most("one view beside an empty microbatch, p50", percentile(single, 0.5) / percentile(empty, 0.5), 2.5)
    lines.at_most("one view beside an empty microbatch, p95", percentile(single, 0.95) / percentile(empty, 0.95), 4.0)
    lines.at_most("five views beside an empty microbatch, p50", percentile(several, 0.5) / percentile(empty, 0.5), 5.0)
    return lines


def delays(shop: ShopApp, scale: Scale) -> list[float]:
    """Seconds from before each append until the serving store covers it."""
    took = []
    runner = shop.app.operation.start()
    try:
        for append in appends(shop, scale.tick_changes):
            runner.settle()
            began = time.perf_counter()
            token = append()
            if not shop.app.operation.serving.wait(token, SECONDS_MAX):
                raise TimeoutError(f"{token} was not visible after {SECONDS_MAX:.0f} s")
            took.append(time.perf_counter() - began)
            if len(took) == scale.samples + WARM_UPS:
                break
    finally:
        shop.app.stop()
    shop.tick_all()
    shop.check()
    return took[WARM_UPS:]


def appends(shop: ShopApp, count: int) -> Iterator:
    """For ever: calls that append changes of one kind and return their token."""
    turn = 0
    while True:
        kind = KINDS[turn % len(KINDS)]
        if kind == MOVE and turn // len(KINDS) % 2:
            kind = DELETE
        turn += 1
        changes = one_kind(shop.shop, kind, count)
        if kind == DELETE:
            yield lambda rows=changes: shop.orders.delete(rows)
        elif kind == MOVE:
            yield lambda rows=changes: shop.users.upsert(rows)
        else:
            yield lambda rows=changes: shop.orders.upsert(rows)


def one_kind(shop: Shop, kind: str, count: int) -> pa.Table:
    """So many changes of one kind (a tenth of it when users move), made to the shop as well."""
    if kind == NEW:
        return shop.draw_of(new=count).put
    if kind == AMOUNT:
        return shop.draw_of(amounts=count).put
    if kind == DELETE:
        return shop.draw_of(deleted=count).deleted.select(["order_id"])
    return shop.draw_of(moved=max(1, count // 10)).moved


def microbatches(shop: ShopApp, folder: Path, scale: Scale) -> list[float]:
    """Seconds from before each append until a ``foreachBatch`` that does nothing was called for it."""
    spark = shop.app.operation.spark.newSession()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    register(spark)
    topic = shop.app.topic("ticks", ORDERS_DDL)
    called = threading.Event()
    source = spark.readStream.format("headwater").option("home", str(topic.log.home)).option("topic", topic.name)
    writer = source.load().writeStream.option("checkpointLocation", str(folder / "empty"))
    query = writer.foreachBatch(lambda _frame, _number: called.set()).start()
    numbers = np.arange(scale.tick_changes)
    rows = pa.table({"order_id": numbers, "user_id": numbers, "amount": numbers.astype(float)})
    took = []
    try:
        for _ in range(scale.samples + WARM_UPS):
            query.processAllAvailable()
            called.clear()
            began = time.perf_counter()
            topic.append(rows)
            if not called.wait(SECONDS_MAX):
                raise TimeoutError(f"no microbatch came: {query.exception()}")
            took.append(time.perf_counter() - began)
    finally:
        query.stop()
    return took[WARM_UPS:]
