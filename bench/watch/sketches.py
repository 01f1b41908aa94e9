"""``python -m bench.watch.sketches``: sketches over rows that only come, beside the exact answers.

What it is: visits of a hundred pages, ten million of them in ten ticks and then ticks of a thousand; a view of each
question by each sketch that answers it and one by an exact aggregate, each in an app of its own: what is kept for it,
and what a tick costs. A table for people and ``bench/out/sketches.json`` for programs.
Invariants: the last answers are compared with numpy's over all rows: exact ones must be equal, estimates within the
error that the sketch states. A tick's cost is processor time, of this process and its JVM: the machine may be busy.
What is kept is what the newest manifest lists, and the log too where a view reads old rows of it again.
Not here: views by time (``bench/time_bench.py``).
Read next: ``docs/windows.md``.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headwater as hw
from bench import report
from bench.parts import show
from bench.processor_time import processor_seconds
from bench.views.scale import Lines, percentile
from headwater.views.compiler.plan import LeafContent
from headwater.views.state.run import Run

OUT = Path(__file__).parents[1] / "out" / "sketches.json"
FILLS = 10
TICKS_SECONDS_MAX = 60.0
DEVIATIONS = 5  # of the stated standard error, for the largest of a hundred pages


@dataclass(frozen=True)
class PageVisits:
    """The visits of one page."""

    users: np.ndarray
    times: np.ndarray
    items: np.ndarray


@dataclass(frozen=True)
class Way:
    """One way to answer a question. ``error`` of an answer beside the right one, in parts of what is allowed."""

    name: str
    sql: str
    error: Callable[[PageVisits, float, float], float] | None = None  # None: it is exact
    read: Callable[[dict[str, Any]], float | None] = lambda row: float(row["answer"])


@dataclass(frozen=True)
class Question:
    """One question, by sketches and exactly."""

    name: str
    truth: Callable[[PageVisits], float]
    exact: Way
    sketches: tuple[Way, ...]


def by_page(answer: str) -> str:
    """A query with one answer for each page."""
    return f"SELECT page, {answer} AS answer FROM visits GROUP BY page"


def within(deviation: float) -> Callable[[PageVisits, float, float], float]:
    """An estimate may be off by so large a part, as one standard deviation."""
    return lambda _, truth, found: abs(found - truth) / truth / (DEVIATIONS * deviation)


def _median_error(page: PageVisits, _: float, found: float) -> float:
    low, high = float(np.mean(page.times < found)), float(np.mean(page.times <= found))
    return max(low - 0.5, 0.5 - high, 0.0) / (2 * 0.0133)  # the rank's error that KLL of k = 200 states, twice


def _part_of_all(part: float) -> Callable[[PageVisits, float, float], float]:
    """An estimate may be off by a part of all rows."""
    return lambda page, truth, found: abs(found - truth) / (part * len(page.items))


def _count_of_first(row: dict[str, Any]) -> float:
    """How often Spark's count-min sketch says that item 1 came: the least of its counters, one in each row."""
    _, _, depth, width = struct.unpack_from(">iqii", row["answer"])
    numbers = np.frombuffer(row["answer"], ">i8", offset=20)
    first = []
    for number in range(depth):
        hashed = int(numbers[number])
        hashed = (hashed + (hashed >> 32)) & (2**31 - 1)
        first.append(float(numbers[depth + number * width + hashed % width]))
    return min(first)


BITMAPS = """
SELECT page, sum(bits) AS answer FROM (
  SELECT page, bitmap_bucket_number(user_id) AS bucket,
         bitmap_count(bitmap_construct_agg(bitmap_bit_position(user_id))) AS bits
  FROM visits GROUP BY page, bitmap_bucket_number(user_id)) GROUP BY page"""
ITEMS = "SELECT page, item, count(*) AS n FROM visits GROUP BY page, item"
QUESTIONS = (
    Question(
        "different users",
        lambda page: float(len(np.unique(page.users))),
        Way("count(DISTINCT)", by_page("count(DISTINCT user_id)")),
        (
            Way("HLL", by_page("hll_sketch_estimate(hll_sketch_agg(user_id))"), within(1.04 / math.sqrt(2**12))),
            Way("theta", by_page("theta_sketch_estimate(theta_sketch_agg(user_id))"), within(1 / math.sqrt(2**12))),
            Way("approx_count_distinct", by_page("approx_count_distinct(user_id)"), within(0.05)),
            Way("bitmaps", BITMAPS),
        ),
    ),
    Question(
        "median time",
        lambda page: float(np.percentile(page.times, 50)),
        Way("percentile", by_page("percentile(ms, 0.5)")),
        (Way("KLL", by_page("kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(ms), 0.5D)"), _median_error),),
    ),
    Question(
        "rows of the most frequent item",
        lambda page: float(np.bincount(page.items).max()),
        Way("max(count(*))", f"SELECT page, max(n) AS answer FROM ({ITEMS}) GROUP BY page"),
        (Way("top-k", by_page("approx_top_k(item, 1)[0].count"), _part_of_all(3.5 / 10_000)),),
    ),
    Question(
        "rows of an item",
        lambda page: float(np.sum(page.items == 1)),
        Way("count(*) of each", ITEMS, None, lambda row: float(row["n"]) if row["item"] == 1 else None),
        (
            Way(
                "count-min",
                by_page("count_min_sketch(item, 0.001D, 0.99D, 7)"),
                _part_of_all(DEVIATIONS * 0.001),
                _count_of_first,
            ),
        ),
    ),
)


class Visits:
    """The visits so far."""

    def __init__(self, pages: int) -> None:
        self.random = np.random.default_rng(7)
        self.parts: list[pa.Table] = []
        self.pages = pages

    def more(self, count: int) -> pa.Table:
        """Visits that come."""
        made = pa.table(
            {
                "page": self.random.integers(0, self.pages, count),
                "user_id": self.random.integers(1, 1_000_000, count),
                "ms": self.random.lognormal(6, 1, count).astype(np.int64),
                "item": np.minimum(self.random.zipf(1.3, count), 50_000).astype(np.int64),
            }
        )
        self.parts.append(made)
        return made

    def by_page(self) -> list[PageVisits]:
        """The visits of each page."""
        every = pa.concat_tables(self.parts)
        page, *others = (every.column(name).to_numpy() for name in ("page", "user_id", "ms", "item"))
        order = np.argsort(page, kind="stable")
        bounds = np.searchsorted(page[order], np.arange(1, self.pages))
        return [PageVisits(*part) for part in zip(*(np.split(each[order], bounds) for each in others), strict=True)]


@dataclass(frozen=True)
class Cost:
    """What one view took."""

    state_mb: float
    log_mb: float  # 0 where no old row is read again
    fill_s: float
    tick_s: float  # on the clock
    tick_processor_s: float
    rows_read: float


def measure(way: Way, rows: int, ticks: int, folder: Path, visits: Visits) -> tuple[Cost, dict[int, float]]:
    """One view: filled, then ticked, three times at least, and for a minute at most."""
    with hw.App("sketches", home=folder / "home", spark={"spark.driver.memory": "2g"}) as app:
        topic = app.topic("visits", "page BIGINT, user_id BIGINT, ms BIGINT, item BIGINT")
        view = app.view("answers", way.sql)
        began = processor_seconds()
        for _ in range(FILLS):
            topic.append(visits.more(rows // FILLS))
            app.tick()
        fill_s = processor_seconds() - began
        clock, processor, read = [], [], []
        while len(clock) < 3 or (len(clock) < ticks and sum(clock) < TICKS_SECONDS_MAX):
            topic.append(visits.more(1_000))
            before, began = processor_seconds(), time.perf_counter()
            told = app.tick()
            clock.append(time.perf_counter() - began)
            processor.append(processor_seconds() - before)
            read.append(sum(each.rows_read for each in told.views))
        assert view.plan is not None
        reads_again = any(
            leaf.relation == "visits" and leaf.content is not LeafContent.CHANGES
            for stage in view.plan.stages
            for leaf in stage.leaves
        )
        log = sum(path.stat().st_size for path in (app.log.home / "topics").rglob("*") if path.is_file())
        cost = Cost(
            kept_bytes(app) / 1e6,
            log / 1e6 if reads_again else 0.0,
            fill_s,
            percentile(clock, 0.5),
            percentile(processor, 0.5),
            percentile(read, 0.5),
        )
        answers = ((row["page"], way.read(row)) for row in view.to_arrow().to_pylist())
        return cost, {page: answer for page, answer in answers if answer is not None}


def kept_bytes(app: hw.App) -> int:
    """The bytes of all runs that the newest manifest lists, as files or, when they are few, as Arrow."""
    store, manifest = app._runtime.engine.store, app._runtime.engine.manifest
    kept = 0
    for name, entry in manifest.relations.items():
        runs = [Run.from_json(run) for run in entry["runs"]]
        kept += sum(file[1] for run in entry["runs"] for file in run["files"])
        if any(not run.files for run in runs):
            kept += store.trace_of(name, entry).content().nbytes
    return kept


def check(question: Question, way: Way, answers: dict[int, float], pages: list[PageVisits]) -> float:
    """Compare the answers with numpy's; gives the largest error, in parts of what is allowed."""
    worst = 0.0
    for number, page in enumerate(pages):
        if not len(page.users):
            continue
        truth, found = question.truth(page), answers.get(number, 0.0)
        if way.error is not None:
            worst = max(worst, way.error(page, truth, found))
        elif not math.isclose(found, truth, rel_tol=1e-12):
            raise AssertionError(f"{question.name}, {way.name}: page {number} has {found}, and not {truth}")
    return worst


def main() -> None:
    """Run, print a table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--only", help="a word of the questions that are asked; default: all")
    parser.add_argument("--directory", type=Path, help="where all data goes; default: the temporary one")
    given = parser.parse_args()
    lines = Lines()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:  # starts the JVM, which nobody is to pay for
        measure(QUESTIONS[0].sketches[0], 10_000, 5, Path(folder), Visits(given.pages))
    for question in QUESTIONS:
        if given.only and given.only not in question.name:
            continue
        costs: dict[str, Cost] = {}
        for way in (question.exact, *question.sketches):
            visits = Visits(given.pages)
            with tempfile.TemporaryDirectory(prefix="headwater-bench-sketches-", dir=given.directory) as folder:
                cost, answers = measure(way, given.rows, given.ticks, Path(folder), visits)
            costs[way.name] = cost
            name = f"{question.name}, {way.name}"
            lines.figure(f"{name}: state", cost.state_mb, "MB")
            lines.figure(f"{name}: log that is read again", cost.log_mb, "MB")
            lines.figure(f"{name}: {given.rows:,} rows in", cost.fill_s, "s of processor time")
            lines.figure(f"{name}: tick of 1 000 rows", cost.tick_s * 1e3, "ms")
            lines.figure(f"{name}: tick of 1 000 rows, processor", cost.tick_processor_s * 1e3, "ms")
            lines.figure(f"{name}: rows that a tick reads", cost.rows_read, "rows")
            worst = check(question, way, answers, visits.by_page())
            if way.error is not None:
                lines.at_most(f"{name}: error beside what is allowed", worst, 1.0)
            print(f"{name}: {cost}", file=sys.stderr, flush=True)
        exact = costs[question.exact.name]
        for way in question.sketches:
            sketch, name = costs[way.name], f"{question.name}: {question.exact.name} beside {way.name}"
            lines.figure(f"{name}, kept", (exact.state_mb + exact.log_mb) / (sketch.state_mb + sketch.log_mb), "x")
            lines.figure(f"{name}, tick", exact.tick_processor_s / max(sketch.tick_processor_s, 1e-6), "x")
        first = costs[question.sketches[0].name]
        if given.rows >= 10**7 and question.name in ("different users", "median time"):
            kept = (exact.state_mb + exact.log_mb) / first.state_mb
            lines.at_least(f"{question.name}: what exact keeps beside the sketch", kept, 10.0)
    show("sketches", lines.measurements)
    report.write(lines.measurements, OUT)
    sys.exit(0 if all(line.holds is not False for line in lines.measurements) else 1)


if __name__ == "__main__":
    main()
