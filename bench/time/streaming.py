"""Spark's own Structured Streaming over the same events: twenty files of Parquet, then twenty of JSON.

What it is: ``readStream``, a watermark of 30 s, ``groupBy(window, country)``, ``availableNow``, in update mode into
Spark's memory sink. It runs in a process and JVM of its own, with as much memory and the same garbage collector as
ours, and as many shuffle partitions as there are cores.
What is timed: what Spark says its batches with rows took (``triggerExecution``). So the query's start, and the empty
batch that follows, are not in the figure.
Invariants: the first two runs of each format warm up and are not counted; every group of every answer is checked. All
files are in one batch, Spark's own choice, so that its watermark of 30 s drops nothing.
Not here: our side (``own.py``).
Read next: ``peers/runs.py``.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from bench.time.events import DDL, Answer, Events, answer_of, check, write_json, write_parquet
from bench.time.scale import RATE, WARM_UPS, Scale
from bench.views.memory import peak_of
from bench.views.scale import Lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATERMARK = "30 seconds"


def measure(scale: Scale, folder: Path) -> Lines:
    """Events a second from Parquet and from JSON."""
    lines = Lines()
    events = Events(scale.events)
    expected = events.answer()
    write_parquet(events, folder / "parquet")
    write_json(events, folder / "json")
    spark = session(scale, folder)
    try:
        formats = {"Parquet": read_parquet, "JSON": read_json}
        took: dict[str, list[float]] = {title: [] for title in formats}
        for number in range(scale.runs + WARM_UPS):  # in turns, so that both find Spark equally warm
            for title, read in formats.items():
                stream = read(spark, folder / title.lower())
                seconds = run(spark, stream, f"{title.lower()}_{number}", folder / "checkpoints", expected)
                took[title].append(seconds)
        for title, runs in took.items():
            lines.figure(title, scale.events / statistics.median(runs[WARM_UPS:]), RATE)
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    finally:
        spark.stop()
    return lines


def session(scale: Scale, folder: Path) -> SparkSession:
    """A session of Spark's own defaults, but for these."""
    from pyspark.sql import SparkSession

    from headwater.views.spark.own_process import java_writes_to
    from headwater.views.spark.spark_session import DEFAULTS

    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": scale.driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": DEFAULTS["spark.driver.extraJavaOptions"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.appName("bench-time")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with java_writes_to(folder / "java.log"):
        spark: SparkSession = builder.getOrCreate()
    return spark


def read_parquet(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of the Parquet files."""
    return spark.readStream.schema(DDL).parquet(str(folder))


def read_json(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of the JSON files; the time is a number there."""
    from pyspark.sql import functions

    frame = spark.readStream.schema(DDL.replace("at TIMESTAMP", "at BIGINT")).json(str(folder))
    return frame.withColumn("at", functions.timestamp_millis("at"))


def run(spark: SparkSession, stream: DataFrame, name: str, checkpoints: Path, expected: Answer) -> float:
    """The seconds that Spark's batches took, with the right answer."""
    from pyspark.sql import functions

    groups = stream.withWatermark("at", WATERMARK).groupBy(functions.window("at", "1 minute"), "country")
    sums = groups.agg(functions.sum("amount").alias("amount"), functions.count("*").alias("events"))
    writer = sums.selectExpr("window.start AS minute", "country", "amount", "events").writeStream.outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoints / name)).trigger(availableNow=True)
    query = writer.format("memory").queryName(name).start()
    query.awaitTermination()
    check(answer_of(spark.table(name).toArrow()), expected)
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    spark.catalog.dropTempView(name)
    return sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
