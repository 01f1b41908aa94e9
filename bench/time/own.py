"""Our side: a topic that nobody has read yet, into sums by minute and country; and plain Spark over the same files.

What it is: the events are appended through the log and sealed, as they would be. One view after the other is filled
from them: the clock starts when everything waits in the log and stops when the view is served. Beside it stands the
limit: ``spark.read.parquet(...).groupBy(window)`` over the very same sealed files.
What they take is told in seconds of the clock, and in processor time of Python and Java, compilers included, which can
be compared on a busy machine too.
Invariants: the first two views of each kind and the first two plain queries warm up and are not counted; a view
is compiled before the clock starts; every group of every answer is checked.
Not here: the peers (``streaming.py``, ``peers/``).
Read next: ``streaming.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

import headwater as hw
from bench.processor_time import processor_seconds
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
Result = TypeVar("Result")


def measure(scale: Scale, folder: Path) -> Lines:
    """Events a second, and processor time: views that correct, views of final rows only, and plain Spark."""
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
        took: dict[str, list[Took]] = {"now": [], "final": [], "plain": []}
        for number in range(scale.runs + WARM_UPS):  # in turns, so that all find Spark equally warm
            took["now"].append(filled_in(app, f"now_{number}", everything))
            took["final"].append(filled_in(app, f"final_{number}", final, emit="final"))
            took["plain"].append(plain(spark, paths, everything))
        counted = {name: runs[WARM_UPS:] for name, runs in took.items()}
        seconds = {name: statistics.median(each.seconds for each in runs) for name, runs in counted.items()}
        processor = {name: statistics.median(each.processor for each in runs) for name, runs in counted.items()}
        lines.figure("Headwater", scale.events / seconds["now"], RATE)
        lines.figure('Headwater, emit="final"', scale.events / seconds["final"], RATE)
        lines.figure("plain Spark over the sealed files", scale.events / seconds["plain"], RATE)
        lines.at_least("beside plain Spark", seconds["plain"] / seconds["now"], PLAIN_BAR)
        lines.figure("processor time, Headwater", processor["now"], "s")
        lines.figure("processor time, plain Spark", processor["plain"], "s")
        lines.figure("beside plain Spark, by processor time", processor["plain"] / processor["now"], "x")
        lines.figure("sealed files", len(paths), "files")
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    return lines


@dataclass(frozen=True)
class Took:
    """What something took: seconds of the clock, and of the processors."""

    seconds: float
    processor: float

    @classmethod
    def by(cls, work: Callable[[], Result]) -> tuple[Took, Result]:
        """What some work takes, and its result."""
        began, spent = time.perf_counter(), processor_seconds()
        result = work()
        return cls(time.perf_counter() - began, processor_seconds() - spent), result


def filled_in(app: hw.App, name: str, expected: Answer, *, emit: str = "now") -> Took:
    """What one more view takes to have everything that waits."""
    app.view(name, SUMS, emit=emit)
    app._runtime.prepared  # compiled before the clock starts  # noqa: B018

    def work() -> None:
        while app.tick().behind:
            pass

    took, _ = Took.by(work)
    check(answer_of(app._runtime.serving.query(f"SELECT * FROM {name}")), expected)
    return took


def sealed(topic: hw.Topic) -> list[str]:
    """The topic's files, all of which are sealed."""
    listing = topic.files(topic.start_offsets(), topic.end_offsets())
    assert not listing.tails
    return [str(file.path) for file in listing.files]


def plain(spark: SparkSession, paths: list[str], expected: Answer) -> Took:
    """What plain Spark takes over the sealed files."""
    from pyspark.sql import functions

    def work() -> pa.Table:
        groups = spark.read.parquet(*paths).groupBy(functions.window("at", "1 minute").start.alias("minute"), "country")
        return groups.agg(functions.sum("amount").alias("amount"), functions.count("*").alias("events")).toArrow()

    took, rows = Took.by(work)
    check(answer_of(rows), expected)
    return took
