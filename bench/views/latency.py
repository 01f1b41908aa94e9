"""Line a: how long an append takes to be visible in the serving store, beside an empty microbatch.

What it is: an app that runs, appends of 1 000 changes, each of one kind (of 20 appends, 10 are new orders, 6 new
amounts, 3 deletions, and 1 moves a tenth as many users), and the wait until the serving store covers each; the same for
five views; and appends of 1 000 rows to a topic whose microbatch does nothing at all.
Invariants: all in one process and one Spark, with the same settings for the streaming query, which has nothing to do
when an append comes: each comes a moment after the one before was visible. The two take turns, since a shared machine
is quicker in one minute than in another; the first samples warm up and are not counted; views are checked at the end.
Not here: the time of a tick without Structured Streaming (``growth.py``).
Read next: ``growth.py``.
"""

from __future__ import annotations

import itertools
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

ROUNDS = 5
# The quickest that Structured Streaming can be asked to be.
SETTINGS = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
}
FIRST_WARM_UPS = 60
WARM_UPS = 5
PAUSE_S = 0.1
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
    """Latency of one view and of five, each beside the empty microbatch."""
    lines = Lines()
    for name, views, bars in (("one view", None, (2.5, 4.0)), ("five views", FIVE_VIEWS, (5.0, None))):
        empty, full = [], []
        with opened(folder / name, scale, orders=scale.latency_orders, views=views) as shop:
            lines.figure(f"first fill of {name}", shop.load_seconds, "s")
            turns = appends(shop, scale.tick_changes)
            for number in range(ROUNDS):
                warm_ups = WARM_UPS if number else FIRST_WARM_UPS
                count = warm_ups + -(-scale.samples // ROUNDS)
                empty += microbatches(shop, folder / f"{name} {number}", scale, count)[warm_ups:]
                full += delays(shop, turns, count)[warm_ups:]
            shop.tick_all()
            shop.check()
        for title, share, bar in (("p50", 0.5, bars[0]), ("p95", 0.95, bars[1])):
            lines.figure(f"append to visible, empty microbatch, {title}", percentile(empty, share) * 1e3, "ms")
            lines.figure(f"append to visible, {name}, {title}", percentile(full, share) * 1e3, "ms")
            if bar is not None:
                ratio = percentile(full, share) / percentile(empty, share)
                lines.at_most(f"{name} beside an empty microbatch, {title}", ratio, bar)
    return lines


def delays(shop: ShopApp, turns: Iterator, count: int) -> list[float]:
    """Seconds from before each append until the serving store covers it."""
    took = []
    shop.app._runtime.start()
    try:
        for append in itertools.islice(turns, count):
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            token = append()
            if not shop.app._runtime.serving.wait(token, SECONDS_MAX):
                raise TimeoutError(f"{token} was not visible after {SECONDS_MAX:.0f} s")
            took.append(time.perf_counter() - began)
    finally:
        shop.app.stop()
    return took


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


def microbatches(shop: ShopApp, folder: Path, scale: Scale, count: int) -> list[float]:
    """Seconds from before each append until a ``foreachBatch`` that does nothing was called for it."""
    spark = shop.app._runtime.spark.newSession()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    register(spark)
    topic = shop.app.topic("ticks", ORDERS_DDL)
    called = threading.Event()
    source = spark.readStream.format("headwater").option("home", str(topic.log.home)).option("topic", topic.name)
    writer = source.load().writeStream.option("checkpointLocation", str(folder))
    query = writer.foreachBatch(lambda _frame, _number: called.set()).start()
    numbers = np.arange(scale.tick_changes)
    rows = pa.table({"order_id": numbers, "user_id": numbers, "amount": numbers.astype(float)})
    took = []
    try:
        for _ in range(count):
            time.sleep(PAUSE_S)
            called.clear()
            began = time.perf_counter()
            topic.append(rows)
            if not called.wait(SECONDS_MAX):
                raise TimeoutError(f"no microbatch came: {query.exception()}")
            took.append(time.perf_counter() - began)
    finally:
        query.stop()
    return took
