"""Our own side: the ways in which the log is appended to and read, each a call that returns one sample.

Invariants: each sample of a throughput starts with an empty home (the retained pair excepted, which is about what
is there already); opening, declaring and a first batch come before the clock; the number of rows that arrived is
checked after it. Rows come in the form a caller has them: Arrow batches, dicts, one dict at a time.
Not here: rounds and medians (``log_bench.py``), the other systems (``peers/``).
Read next: ``bench/report.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from bench.log.order_rows import DDL, Rows
from bench.log.peers.peer import stopwatch
from headwater.log.home import Log
from headwater.log.topic import Topic

_ARROW_ROWS = 10_000
_DICT_ROWS = 1_000
_PROCESS_SECONDS_MAX = 300.0
_SEALING_SECONDS_MAX = 300.0
_RETAINED_SEGMENTS = 2_000
_RETAINED_SEGMENT_ROWS = 50
_RETAINED_SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """So many rows in so many seconds."""

    name: str
    rows: int
    seconds: float


@dataclass(frozen=True)
class Material:
    """The rows in hand. Arrow appends go over the batches ``repeats`` times, or they would be over too soon to time."""

    rows: Rows
    repeats: int = 5

    @cached_property
    def batches(self) -> list[Any]:
        """All rows as Arrow batches of 10 000."""
        return self.rows.batches(_ARROW_ROWS)


def append_arrow(directory: Path, material: Material, *, name: str, **settings: Any) -> Sample:
    """Append Arrow batches of 10 000 rows, one call each."""
    with _empty_topic(directory, **settings) as topic:
        topic.append(material.batches[0])
        append = topic.append
        with stopwatch() as watch:
            for _ in range(material.repeats):
                for batch in material.batches:
                    append(batch)
        rows = material.rows.count * material.repeats
        _check_rows(topic, rows + material.batches[0].num_rows)
    return Sample(name, rows, watch.seconds)


def append_dicts(directory: Path, material: Material, *, name: str, **settings: Any) -> Sample:
    """Append lists of 1 000 dicts, one call each."""
    dicts = material.rows.dicts
    with _empty_topic(directory, **settings) as topic:
        topic.append(dicts[:1])
        append = topic.append
        with stopwatch() as watch:
            for start in range(0, len(dicts), _DICT_ROWS):
                append(dicts[start : start + _DICT_ROWS])
        _check_rows(topic, len(dicts) + 1)
    return Sample(name, len(dicts), watch.seconds)


def append_row_by_row(directory: Path, material: Material, *, name: str, **settings: Any) -> Sample:
    """Send dicts one at a time through the buffered producer, and flush."""
    dicts = material.rows.dicts
    with _empty_topic(directory, **settings) as topic:
        topic.append(dicts[:1])
        producer = topic.producer()
        send = producer.send
        with stopwatch() as watch:
            for row in dicts:
                send(row)
            producer.flush()
        producer.close()
        _check_rows(topic, len(dicts) + 1)
    return Sample(name, len(dicts), watch.seconds)


class ReadScenarios:
    """Two homes that are written once and read many times: one still in Arrow segments, one sealed to Parquet."""

    def __init__(self, directory: Path, material: Material) -> None:
        self._material = material
        self._stack = contextlib.ExitStack()
        # One segment that is never full, or the background would seal it while it is measured.
        self.arrow = self._stack.enter_context(_empty_topic(directory, segment_bytes_max=1 << 40))
        self.sealed = self._stack.enter_context(_empty_topic(directory))
        for topic in (self.arrow, self.sealed):
            for _ in range(material.repeats):
                for batch in material.batches:
                    topic.append(batch)
        # A segment is closed by the append after it is full: with a tiny limit, one more row closes the last one.
        self.sealed.log.topic("orders", DDL, segment_bytes_max=1)
        self.sealed.append(material.rows.dicts[:1])
        _seal(self.sealed, up_to=material.rows.count * material.repeats)

    def read(self, topic: Topic, *, name: str) -> Sample:
        """Read all rows as Arrow batches, every column, and sum one of them."""
        expected = self._material.rows.count * self._material.repeats
        count, checksum = 0, 0
        with stopwatch() as watch:
            for batch in topic.read("earliest", stop=expected):
                count += batch.num_rows
                checksum += pc.sum(batch.data.column("order_id")).as_py()
        _check("rows read", count, expected)
        _check("sum of order_id", checksum, self._material.rows.checksum * self._material.repeats)
        return Sample(name, count, watch.seconds)

    def close(self) -> None:
        """Remove both homes."""
        self._stack.close()


class RetainedScenario:
    """Appends to a home that keeps thousands of sealed segments, in turn with a home that keeps none."""

    def __init__(self, directory: Path, material: Material, *, empty_name: str, full_name: str) -> None:
        self._material = material
        self._stack = contextlib.ExitStack()
        empty = self._stack.enter_context(_empty_topic(directory))
        full = self._stack.enter_context(_empty_topic(directory, segment_bytes_max=1))
        piece = material.batches[0].slice(0, _RETAINED_SEGMENT_ROWS)
        for _ in range(_RETAINED_SEGMENTS + 1):
            full.append(piece)
        sealed = _seal(full, up_to=_RETAINED_SEGMENTS * _RETAINED_SEGMENT_ROWS)
        _check("segments retained", sealed, _RETAINED_SEGMENTS)
        # From here on both have the same settings, and both grow alike.
        full.log.topic("orders", DDL, segment_bytes_max=empty.settings.segment_bytes_max)
        self._pair = ((empty_name, empty), (full_name, full))

    def samples(self) -> list[Sample]:
        """Some samples of each, by turns."""
        found = []
        for _ in range(_RETAINED_SAMPLES):
            for name, topic in self._pair:
                with stopwatch() as watch:
                    for batch in self._material.batches:
                        topic.append(batch)
                found.append(Sample(name, self._material.rows.count, watch.seconds))
        return found

    def close(self) -> None:
        """Remove both homes."""
        self._stack.close()


def append_from_processes(directory: Path, material: Material, *, name: str, processes: int) -> Sample:
    """Let several processes append Arrow batches to one topic of 4 partitions, from one barrier to the next."""
    context = multiprocessing.get_context("spawn")
    total = material.rows.count * material.repeats
    repeats = max(1, material.repeats // processes)
    rows_each = total // processes // repeats
    with _empty_topic(directory, partitions=4) as topic:
        start, end = context.Barrier(processes + 1), context.Barrier(processes + 1)
        home = str(topic.log.home)
        workers = [
            context.Process(target=_append_in_process, args=(home, rows_each, number, repeats, start, end), daemon=True)
            for number in range(processes)
        ]
        try:
            for worker in workers:
                worker.start()
            start.wait(_PROCESS_SECONDS_MAX)
            began = time.perf_counter()
            end.wait(_PROCESS_SECONDS_MAX)
            seconds = time.perf_counter() - began
            for worker in workers:
                worker.join(_PROCESS_SECONDS_MAX)
        finally:
            for worker in workers:
                if worker.is_alive():
                    worker.kill()
        _check_rows(topic, rows_each * repeats * processes + processes)
    return Sample(name, rows_each * repeats * processes, seconds)


def _append_in_process(home: str, count: int, number: int, repeats: int, start: Barrier, end: Barrier) -> None:
    try:
        rows = Rows(count=count, first_id=number * count)
        batches = rows.batches(_ARROW_ROWS)
        with Log(home) as log:
            topic = log.get_topic("orders")
            topic.append(batches[0].slice(0, 1))
            start.wait(_PROCESS_SECONDS_MAX)
            for _ in range(repeats):
                for batch in batches:
                    topic.append(batch)
            end.wait(_PROCESS_SECONDS_MAX)
    except BaseException:
        # The others must not wait for one that will not come.
        start.abort()
        end.abort()
        raise


@contextlib.contextmanager
def _empty_topic(directory: Path, **settings: Any) -> Iterator[Topic]:
    """The topic ``orders`` in a new home, which is removed at the end."""
    home = tempfile.mkdtemp(prefix="headwater-", dir=directory)
    try:
        with Log(home) as log:
            yield log.topic("orders", DDL, event_time="at", **settings)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _seal(topic: Topic, *, up_to: int) -> int:
    """Seal partition 0 up to an offset; returns in how many files. Asked more than once, because ``maintain`` passes a
    partition by while the log's own thread is sealing it."""
    deadline = time.monotonic() + _SEALING_SECONDS_MAX
    while (found := topic.files({0: 0}, {0: up_to})).tails:
        if time.monotonic() > deadline:
            raise AssertionError(f"{topic} was not sealed within {_SEALING_SECONDS_MAX:.0f} seconds")
        topic.log.maintain()
    return len(found.files)


def _check_rows(topic: Topic, expected: int) -> None:
    _check("rows in the log", sum(topic.end_offsets().values()), expected)


def _check(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found}, expected {expected}")
