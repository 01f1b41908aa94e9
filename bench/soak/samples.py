"""Samples of a running app: memory, handles, threads, files, the catalog, the time of ticks; and how much each grows.

What it is: ``Sampler`` looks at this process, its JVM and the home; ``growth`` fits a line to what it saw.
Invariants: a growth is the median of the slopes between all pairs of samples (Theil and Sen), over the last two thirds:
what rises and falls with merges and garbage collections is no growth. The heap after a collection is taken after a
collection that is asked for, once a minute; the samples between carry the last one. How much memory Java's heap takes
is the collector's choice, up to ``spark.driver.memory``, and goes up and down with the load: what Java has beside its
heap is told apart. Processor time a tick is that of Python and Java, whatever they spent it on.
Not here: the app (``steady_shop.py``), the picture (``plot.py``).
Read next: ``bench/soak_bench.py``.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.processor_time import processor_seconds
from bench.views.scale import percentile

COLLECT_EVERY_S = 60.0
MEGABYTE = 1e6


@dataclass(frozen=True)
class SoakSample:
    """What was there at one moment, and the ticks since the last one."""

    seconds: float
    tick: int
    ticks_a_second: float
    tick_ms: float
    tick_ms_p95: float
    tick_processor_ms: float
    python_megabytes: float
    java_megabytes: float
    java_beside_heap_megabytes: float
    heap_megabytes: float  # after a garbage collection
    handles: int
    threads: int
    view_files: int
    log_files: int
    catalog_megabytes: float
    serving_megabytes: float
    log_megabytes: float


class Sampler:
    """Looks at a running app every some seconds, in a thread of its own."""

    def __init__(self, spark: Any, home: Path, *, every: float) -> None:
        self.spark, self.home, self.every = spark, home, every
        self.samples: list[SoakSample] = []
        self._process = psutil.Process()
        self._ticks: list[float] = []
        self._tick, self._heap, self._collected = 0, 0.0, -COLLECT_EVERY_S
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()
        self._spent = processor_seconds()

    def ticked(self, number: int, seconds: float) -> None:
        """A tick was made."""
        with self._lock:
            self._tick = number
            self._ticks.append(seconds)

    def look(self) -> SoakSample:
        """One more sample."""
        now = time.monotonic()
        with self._lock:
            ticks, self._ticks = self._ticks, []
        java = self._process.children(recursive=True)
        java_megabytes = sum(each.memory_info().rss for each in java) / MEGABYTE
        heap_held = self._heap_usage().getCommitted() / MEGABYTE
        spent = processor_seconds()
        if now - self._collected >= COLLECT_EVERY_S:
            self._heap, self._collected = self._collect(), now
        views, topics = _below(self.home / "views"), _below(self.home / "topics")
        sample = SoakSample(
            seconds=now - self._began,
            tick=self._tick,
            ticks_a_second=len(ticks) / (now - self._last),
            tick_ms=statistics.median(ticks) * 1e3 if ticks else 0.0,
            tick_ms_p95=percentile(ticks, 0.95) * 1e3 if ticks else 0.0,
            tick_processor_ms=(spent - self._spent) / len(ticks) * 1e3 if ticks else 0.0,
            python_megabytes=self._process.memory_info().rss / MEGABYTE,
            java_megabytes=java_megabytes,
            java_beside_heap_megabytes=java_megabytes - heap_held,
            heap_megabytes=self._heap,
            handles=sum(each.num_fds() for each in (self._process, *java)),
            threads=sum(each.num_threads() for each in (self._process, *java)),
            view_files=len(views),
            log_files=len(topics),
            catalog_megabytes=sum(path.stat().st_size for path in self.home.glob("catalog*")) / MEGABYTE,
            serving_megabytes=sum(size for name, size in views if name.startswith("serving.sqlite")) / MEGABYTE,
            log_megabytes=sum(size for _, size in topics) / MEGABYTE,
        )
        self.samples.append(sample)
        self._last, self._spent = now, spent
        return sample

    def _collect(self) -> float:
        self.spark._jvm.java.lang.System.gc()
        used: int = self._heap_usage().getUsed()
        return used / MEGABYTE

    def _heap_usage(self) -> Any:
        return self.spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()


def _below(folder: Path) -> list[tuple[str, int]]:
    """The files below a folder: name and size; one that goes meanwhile is left out."""
    return list(_walk(folder))


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield name, os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue


@dataclass(frozen=True)
class Growth:
    """How much a figure grows: in an hour, in its unit and as a part of its median."""

    median: float
    an_hour: float

    @property
    def percent_an_hour(self) -> float:
        """In hundredths of the median; 0 of nothing."""
        return 100 * self.an_hour / self.median if self.median else 0.0


def growth(samples: Sequence[SoakSample], attribute: str) -> Growth:
    """How much an attribute grows over the last two thirds of the samples.

    >>> steady = [SoakSample(10.0 * n, *[0] * 16) for n in range(30)]
    >>> growth(steady, "handles")
    Growth(median=0.0, an_hour=0.0)
    """
    judged = samples[len(samples) // 3 :]
    times = [sample.seconds for sample in judged]
    values = [float(getattr(sample, attribute)) for sample in judged]
    slopes = [
        (values[later] - values[earlier]) / (times[later] - times[earlier])
        for earlier in range(len(judged))
        for later in range(earlier + 1, len(judged))
    ]
    return Growth(statistics.median(values), 3600 * statistics.median(slopes) if slopes else 0.0)


def last_beside_second(samples: Sequence[SoakSample], attribute: str) -> float:
    """The median of the last tenth beside that of the second tenth.

    >>> samples = [SoakSample(n, 0, 0, 10.0 if n < 50 else 20.0, *[0] * 13) for n in range(100)]
    >>> last_beside_second(samples, "tick_ms")
    2.0
    """
    tenth = max(1, len(samples) // 10)
    second, last = samples[tenth : 2 * tenth], samples[-tenth:]
    before = statistics.median(getattr(sample, attribute) for sample in second)
    return statistics.median(getattr(sample, attribute) for sample in last) / before if before else 1.0
