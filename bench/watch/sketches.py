"""``python -m bench.watch.sketches``: sketches over rows that only come, beside the exact answers.

What it is: visits of a hundred pages, ten million of them in ten ticks and then ticks of a thousand; a view of each
question by a sketch and one by an exact aggregate, each in an app of its own: what is kept for it, and what a tick
costs. A table for people and ``bench/out/sketches.json`` for programs.
Invariants: the last answers are compared with numpy's over all rows: exact ones must be equal, estimates within the
error that the sketch states. A tick's cost is processor time, of this process and its JVM: the machine may be busy.
What is kept is what the newest manifest lists, and the log too where a view reads old rows of it again.
Not here: views by time (``bench/time_bench.py``).
Read next: ``docs/windows.md``.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
PAGES, FILLS = 100, 10
DEVIATIONS = 5  # of the stated standard error, for the largest of a hundred pages


@dataclass(frozen=True)
class Question:
    """One question, by a sketch and exactly."""

    name: str
    sketch: str
    exact: str
    others: tuple[tuple[str, str], ...]  # what else answers it, and how
    truth: Callable[[np.ndarray, np.ndarray], float]  # of the users and times of one page
    error: Callable[[np.ndarray, np.ndarray, float], float]  # of an answer, beside what is allowed: at most 1


def _different(users: np.ndarray, _: np.ndarray) -> float:
    return float(len(np.unique(users)))


def _different_error(users: np.ndarray, times: np.ndarray, found: float) -> float:
    exact = _different(users, times)
    return abs(found - exact) / exact / (DEVIATIONS * 1.04 / math.sqrt(2**12))


def _median(_: np.ndarray, times: np.ndarray) -> float:
    return float(np.percentile(times, 50))


def _median_error(_: np.ndarray, times: np.ndarray, found: float) -> float:
    low, high = float(np.mean(times < found)), float(np.mean(times <= found))
    return max(low - 0.5, 0.5 - high, 0.0) / (2 * 0.0133)  # the rank's error that KLL of k = 200 states, twice


QUESTIONS = (
    Question(
        "how many different users",
        "hll_sketch_estimate(hll_sketch_agg(user_id))",
        "count(DISTINCT user_id)",
        (("approx_count_distinct", "approx_count_distinct(user_id)"),),
        _different,
        _different_error,
    ),
    Question(
        "the median time",
        "kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(ms), 0.5D)",
        "percentile(ms, 0.5)",
        (),
        _median,
        _median_error,
    ),
)


class Visits:
    """The visits so far."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.pages, self.users, self.times = (np.empty(0, np.int64) for _ in range(3))

    def more(self, count: int) -> pa.Table:
        """Visits that come."""
        pages = self.random.integers(0, PAGES, count)
        users = self.random.integers(0, 1_000_000, count)
        times = self.random.lognormal(6, 1, count).astype(np.int64)
        self.pages, self.users, self.times = (
            np.concatenate(pair) for pair in ((self.pages, pages), (self.users, users), (self.times, times))
        )
        return pa.table({"page": pages, "user_id": users, "ms": times})

    def of(self, page: int) -> tuple[np.ndarray, np.ndarray]:
        """The users and times of a page."""
        wanted = self.pages == page
        return self.users[wanted], self.times[wanted]


@dataclass(frozen=True)
class Cost:
    """What one view took."""

    state_mb: float
    log_mb: float  # 0 where no old row is read again
    fill_s: float
    tick_s: float  # on the clock
    tick_processor_s: float
    rows_read: float


def measure(
    name: str, answer: str, rows: int, ticks: int, folder: Path, visits: Visits
) -> tuple[Cost, dict[int, float]]:
    """One view: filled, then ticked."""
    with hw.App("sketches", home=folder / name.replace(" ", "-"), spark={"spark.driver.memory": "2g"}) as app:
        topic = app.topic("visits", "page BIGINT, user_id BIGINT, ms BIGINT")
        view = app.view("answers", f"SELECT page, {answer} AS answer FROM visits GROUP BY page")
        began = processor_seconds()
        for _ in range(FILLS):
            topic.append(visits.more(rows // FILLS))
            app.tick()
        fill_s = processor_seconds() - began
        clock, processor, read = [], [], []
        for _ in range(ticks):
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
        return cost, {row["page"]: float(row["answer"]) for row in view.to_arrow().to_pylist()}


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


def check(question: Question, which: str, answers: dict[int, float], visits: Visits) -> float:
    """Compare the answers with numpy's; gives the largest error, in parts of what is allowed."""
    worst = 0.0
    for page in range(PAGES):
        users, times = visits.of(page)
        if which == "exact":
            truth = question.truth(users, times)
            if not math.isclose(answers[page], truth, rel_tol=1e-12):
                raise AssertionError(f"{question.name}: page {page} has {answers[page]}, and not {truth}")
        elif which == "sketch":
            worst = max(worst, question.error(users, times, answers[page]))
    return worst


def main() -> None:
    """Run, print a table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--directory", type=Path, help="where all data goes; default: the temporary one")
    given = parser.parse_args()
    lines = Lines()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:  # starts the JVM, which nobody is to pay for
        measure("warm up", QUESTIONS[0].sketch, 10_000, 5, Path(folder), Visits())
    for question in QUESTIONS:
        costs: dict[str, Cost] = {}
        for which, answer in (("sketch", question.sketch), ("exact", question.exact), *question.others):
            visits = Visits()
            with tempfile.TemporaryDirectory(prefix="headwater-bench-sketches-", dir=given.directory) as folder:
                cost, answers = measure(which, answer, given.rows, given.ticks, Path(folder), visits)
            costs[which] = cost
            name = f"{question.name}, {which}"
            lines.figure(f"{name}: state", cost.state_mb, "MB")
            lines.figure(f"{name}: log that is read again", cost.log_mb, "MB")
            lines.figure(f"{name}: {given.rows:,} rows in", cost.fill_s, "s of processor time")
            lines.figure(f"{name}: tick of 1 000 rows", cost.tick_s * 1e3, "ms")
            lines.figure(f"{name}: tick of 1 000 rows, processor", cost.tick_processor_s * 1e3, "ms")
            lines.figure(f"{name}: rows that a tick reads", cost.rows_read, "rows")
            worst = check(question, which, answers, visits)
            if which == "sketch":
                lines.at_most(f"{name}: error beside what is allowed", worst, 1.0)
            print(f"{name}: {cost}", file=sys.stderr)
        sketch, exact = costs["sketch"], costs["exact"]
        kept = (exact.state_mb + exact.log_mb) / max(sketch.state_mb, 1e-6)
        lines.at_least(
            f"{question.name}: what exact keeps beside the sketch", kept, 10.0 if given.rows >= 10**7 else 1.0
        )
        ticks = exact.tick_processor_s / max(sketch.tick_processor_s, 1e-6)
        lines.figure(f"{question.name}: processor time of an exact tick beside the sketch's", ticks, "x")
    show("sketches", lines.measurements)
    report.write(lines.measurements, OUT)
    sys.exit(0 if all(line.holds is not False for line in lines.measurements) else 1)


if __name__ == "__main__":
    main()
