"""Our side: a topic that nobody has read yet, into sums by minute and country; and plain Spark over the same files.

What it is: the events are appended through the log and sealed, as they would be. One view after the other is filled
from them: the clock starts when everything waits in the log and stops when the view is served. Beside it stands the
limit: ``spark.read.parquet(...).groupBy(window)`` over the very same sealed files.
Invariants: the first two views of each kind and the first two plain queries warm up and are not counted; a view
is compiled before the clock starts; every group of every answer is checked.
Not here: the peers (``streaming.py``, ``peers/``).
Read next: ``streaming.py``.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import headwater as hw
from bench.time.events import DDL, LATE_MS_MAX, Answer, Events, answer_of, check
from bench.time.scale import RATE, WARM_UPS, Scale
from bench.views.memory import peak_of
from bench.views.scale import Lines
from bench.views.throughput import seal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = """
    SELECT window(at, '1 minute').start AS minute, country, sum(amount) AS amount, count(*) AS events
    FROM events GROUP BY window(at, '1 minute'), country"""
APPEND_ROWS = 200_000
PLAIN_BAR = 0.85


def measure(scale: Scale, folder: Path) -> Lines:
    """Events a second: views that correct, views of final rows only, and plain Spark."""
    lines = Lines()
    events = Events(scale.events)
    with hw.App("events", home=folder, spark={"spark.driver.memory": scale.driver_memory}) as app:
        topic = app.topic("events", DDL, event_time="at", lateness=LATE_MS_MAX / 1000)
        for start in range(0, scale.events, APPEND_ROWS):
            topic.append(events.table.slice(start, APPEND_ROWS))
        seal(topic)
        everything, final = events.answer(), events.final_answer()
        paths = sealed(topic)
        spark = app._runtime.spark.newSession()
        took: dict[str, list[float]] = {"now": [], "final": [], "plain": []}
        for number in range(scale.runs + WARM_UPS):  # in turns, so that all find Spark equally warm
            took["now"].append(filled_in(app, f"now_{number}", everything))
            took["final"].append(filled_in(app, f"final_{number}", final, emit="final"))
            took["plain"].append(plain(spark, paths, everything))
        seconds = {name: statistics.median(runs[WARM_UPS:]) for name, runs in took.items()}
        lines.figure("Headwater", scale.events / seconds["now"], RATE)
        lines.figure('Headwater, emit="final"', scale.events / seconds["final"], RATE)
        lines.figure("plain Spark over the sealed files", scale.events / seconds["plain"], RATE)
        lines.at_least("beside plain Spark", seconds["plain"] / seconds["now"], PLAIN_BAR)
        lines.figure("sealed files", len(paths), "files")
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    return lines


def filled_in(app: hw.App, name: str, expected: Answer, *, emit: str = "now") -> float:
    """The seconds in which one more view takes everything that waits."""
    app.view(name, SUMS, emit=emit)
    app._runtime.prepared  # compiled before the clock starts  # noqa: B018
    began = time.perf_counter()
    while app.tick().behind:
        pass
    seconds = time.perf_counter() - began
    check(answer_of(app._runtime.serving.query(f"SELECT * FROM {name}")), expected)
    return seconds


def sealed(topic: hw.Topic) -> list[str]:
    """The topic's files, all of which are sealed."""
    listing = topic.files(topic.start_offsets(), topic.end_offsets())
    assert not listing.tails
    return [str(file.path) for file in listing.files]


def plain(spark: SparkSession, paths: list[str], expected: Answer) -> float:
    """The seconds of plain Spark over the sealed files."""
    from pyspark.sql import functions

    began = time.perf_counter()
    groups = spark.read.parquet(*paths).groupBy(functions.window("at", "1 minute").start.alias("minute"), "country")
    rows = groups.agg(functions.sum("amount").alias("amount"), functions.count("*").alias("events")).toArrow()
    seconds = time.perf_counter() - began
    check(answer_of(rows), expected)
    return seconds
