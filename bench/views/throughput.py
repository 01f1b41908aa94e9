"""Line d: mixed changes that wait in the log, beside Flink SQL and Pathway on the same data; and catching up.

What it is: lots of 100 thousand and of a million mixed changes to a shop of a million orders. For us they lie in the
log, the clock starts with the first tick and stops when nothing waits; for the peers see ``peers/runs.py``. Then ten
million events into sums by minute, beside Spark over the very same sealed files.
Invariants: the first lot warms up and is not counted; every answer is checked, ours and theirs, before its time
counts; the best of a peer's variants is what the bar is held against.
Not here: latency (``latency.py``).
Read next: ``peers/runs.py``.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headwater as hw
from bench.peer_servers import PeerUnavailable
from bench.views.memory import peak_of
from bench.views.peers.runs import PEERS, Peer, run
from bench.views.scale import Lines, Scale
from bench.views.shop_app import opened
from headwater.log.maintenance.sealing import seal_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_DDL = "order_id BIGINT, amount DOUBLE, at TIMESTAMP"
MINUTES = (
    "SELECT window(at, '1 minute').start AS minute, sum(amount) AS amount FROM events GROUP BY window(at, '1 minute')"
)
BATCH_ROWS = 200_000
SEALING_SECONDS_MAX = 300.0
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
COMPUTATIONS = 3
WARM_UPS = 5  # Java's compiler makes both sides twice as fast within their first five runs
BARS = (3.0, 8.0)  # times the better of both peers, for the smaller lot and for the larger


def measure(scale: Scale, folder: Path) -> Lines:
    """Changes a second: ours, then each peer's."""
    lines = Lines()
    for lot, bar in zip(scale.lots, BARS, strict=True):
        ours = own(scale, folder / f"own-{lot}", lot, lines)
        theirs = {}
        for number, peer in enumerate(PEERS):
            try:
                theirs[peer.title] = beside(peer, scale, folder / f"peer-{number}-{lot}", lot, lines)
            except PeerUnavailable as error:
                lines.missing(f"{lot:,} changes, {peer.title}", str(error))
        for name in ("Flink SQL", "Pathway"):
            rates = [rate for title, rate in theirs.items() if title.startswith(name)]
            if rates:
                lines.at_least(f"{lot:,} changes, beside {name}", ours / max(rates), bar)
    return lines


def own(scale: Scale, folder: Path, lot: int, lines: Lines) -> float:
    """Changes a second, the median over the lots."""
    rates, read = [], []
    with opened(folder, scale, orders=scale.latency_orders) as shop:
        for _ in range(scale.lots_each + 1):
            shop.give(shop.shop.draw(lot))
            seconds, rows = shop.tick_all()
            shop.check()
            rates.append(lot / seconds)
            read.append(rows)
        lines.figure(f"{lot:,} changes, Headwater", statistics.median(rates[1:]), "changes/s")
        lines.figure(f"{lot:,} changes, Headwater, rows read", statistics.median(read[1:]), "rows")
        lines.figure(f"{lot:,} changes, Headwater, peak memory", peak_of() / 1e9, "GB")
    return statistics.median(rates[1:])


def beside(peer: Peer, scale: Scale, folder: Path, lot: int, lines: Lines) -> float:
    """A peer's changes a second, the median over the lots."""
    orders = scale.latency_orders
    taken = run(peer, folder, orders=orders, users=orders // 10, lots=[lot] * (scale.lots_each + 1))
    rate = lot / statistics.median(taken.seconds)
    lines.figure(f"{lot:,} changes, {peer.title}", rate, "changes/s")
    lines.figure(f"{lot:,} changes, {peer.title}, peak memory", taken.peak_bytes / 1e9, "GB")
    return rate


def measure_catch_up(scale: Scale, folder: Path) -> Lines:
    """A topic that nobody has read yet, into sums by minute."""
    lines = Lines()
    with hw.App("events", home=folder, spark={"spark.driver.memory": scale.driver_memory}) as app:
        topic = app.topic("events", EVENTS_DDL, event_time="at", partitions=2)
        fill(topic, scale.events)
        listing = topic.files(topic.start_offsets(), topic.end_offsets())
        assert not listing.tails
        spark, paths = app._runtime.spark.newSession(), [str(file.path) for file in listing.files]
        plain, own = [], []
        for number in range(WARM_UPS + COMPUTATIONS):  # in turns, so that both find Spark equally warm
            seconds, expected = plain_sums(spark, paths)
            plain.append(seconds)
            own.append(caught_up_in(app, number, expected))
        by_spark, caught_up = (statistics.median(times[WARM_UPS:]) for times in (plain, own))
        lines.figure(f"catch-up over {scale.events:,} events", scale.events / caught_up, "events/s")
        lines.figure("spark.read.parquet(...).groupBy(window)", scale.events / by_spark, "events/s")
        lines.at_least("catch-up beside plain Spark", by_spark / caught_up, 0.9)
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    return lines


def caught_up_in(app: hw.App, number: int, expected: tuple[int, float]) -> float:
    """The seconds in which one more view of the sums catches up."""
    name = f"minutes_{number}"
    app.view(name, MINUTES)
    app._runtime.prepared  # compiled before the clock starts  # noqa: B018
    began = time.perf_counter()
    while app.tick().behind:
        pass
    seconds = time.perf_counter() - began
    found = app._runtime.serving.query(f"SELECT count(*) AS minutes, sum(amount) AS amount FROM {name}")
    if tuple(found.to_pylist()[0].values()) != expected:
        raise AssertionError(f"catching up gave {found.to_pylist()}, not {expected}; its time would mean nothing")
    return seconds


def fill(topic: hw.Topic, events: int) -> None:
    """So many events, a millisecond apart, sealed."""
    random = np.random.default_rng(7)
    for start in range(0, events, BATCH_ROWS):
        numbers = np.arange(start, min(start + BATCH_ROWS, events))
        amounts = random.integers(4, 4_000, len(numbers)) * 0.25
        at = pa.array(START_US + numbers * 1_000).cast(pa.timestamp("us", tz="UTC"))
        topic.append(pa.table({"order_id": numbers, "amount": amounts, "at": at}))
    seal(topic)


def seal(topic: hw.Topic) -> None:
    """All that a topic holds, into sealed files."""
    deadline = time.monotonic() + SEALING_SECONDS_MAX
    for number, end in topic.end_offsets().items():
        topic.partition(number).roll()
        while topic.log.registry.sealed_end(topic.id, number) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was not sealed in {SEALING_SECONDS_MAX:.0f} s")
            seal_partition(topic, number)


def plain_sums(spark: SparkSession, paths: list[str]) -> tuple[float, tuple[int, float]]:
    """The seconds of plain Spark over the topic's own files, and the answer's count and sum."""
    from pyspark.sql import functions

    began = time.perf_counter()
    frame = spark.read.parquet(*paths)
    rows = frame.groupBy(functions.window("at", "1 minute")).agg(functions.sum("amount").alias("amount")).toArrow()
    return time.perf_counter() - began, (rows.num_rows, sum(rows["amount"].to_pylist()))
