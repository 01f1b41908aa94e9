"""``python -m bench.ticks_bench``: a million ticks, simulated: does anything grow with the number of ticks?

What it is: the state of an app (a keyed table and a view over it) driven tick by tick through the real state store,
manifests, merges and pruning, without Spark and without waiting: what ticks would compute is computed here. Most ticks
change one row, one in a thousand 5 000 rows, one in twenty thousand 50 000. Every ten thousand ticks: files, bytes of
the catalog, runs, bytes that merges wrote, the processor time of a tick's thread, of its commit and of a pruning; for
people and in ``bench/out/ticks.json``.
Invariants: the number of orders stays the same, so that whatever grows grows with the ticks. In one of ten ticks the
old rows are looked up in the state, and compared with what is known here; at the end the whole content is. Commits are
durable, and so are runs. A file that is no longer listed stays for five seconds instead of five minutes: ticks are
simulated some twenty times faster than twenty a second.
Not here: what ticks take with Spark (``bench/views_bench.py``); memory over hours (``bench/soak_bench.py``).
Read next: ``src/headwater/views/state/manifest.py``, ``src/headwater/views/state/merge.py``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import headwater as hw
from bench import report
from bench.report import Measurement
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state import state_store
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_store import StateStore
from headwater.views.state.state_trace import Traces
from headwater.views.state.trace import Trace
from headwater.views.tick import engine

OUT = Path(__file__).parent / "out" / "ticks.json"
TICKS, ORDERS, COUNTRIES = 1_000_000, 100_000, 50
LARGE = ((20_000, 50_000), (1_000, 5_000))  # every so many ticks, so many rows
LOOKUP_TICKS = 10
RELEASED_SECONDS = 5
SETTLED = 10_000  # ticks after which nothing should grow any more
TOLERATED = 1.25
ORDER_COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
VIEW_COLUMNS = pa.schema([("country", pa.int64()), ("total", pa.int64())])
ABOUT: Any = {
    "fingerprint": "f1",
    "build_id": "",
    "columns": "country BIGINT, total BIGINT",
    "key": ["country"],
    "kind": "accumulate",
    "sql": "SELECT id % 50 AS country, sum(amount) AS total FROM orders GROUP BY id % 50",
    "timing": {},
    "created_tick": 1,
}


@dataclass(frozen=True)
class TickSample:
    """What is there after a tick, and what the ticks before it took."""

    tick: int
    files: int
    file_megabytes: float
    catalog_megabytes: float
    runs: int
    manifest_rows: int
    memory_megabytes: float
    tick_ms: float
    commit_ms: float
    prune_ms: float
    merged_bytes_a_row: float


@dataclass
class Counted:
    """What was counted since the last sample."""

    ticks: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    prunings: list[float] = field(default_factory=list)
    rows: int = 0
    merged_bytes: int = 0


class Simulation:
    """An app of one table and one view, without Spark."""

    def __init__(
        self,
        log: hw.Log,
        *,
        orders: int = ORDERS,
        kept: int = engine.TICKS_KEPT,
        large: Sequence[tuple[int, int]] = LARGE,
    ) -> None:
        self.log, self.kept, self.large = log, kept, large
        self.random = np.random.default_rng(7)
        self.manifests = Manifests(log.catalog, "shop")
        self.epoch = self.manifests.take_over()
        self.folder = log.home / "views" / "shop"
        self.folder.mkdir(parents=True)
        small = SmallRuns(log.catalog, "shop")
        self.store = StateStore(self.folder, log.files, cast(Any, None), small)  # Spark is for large merges only
        self.prepared = cast(Any, _prepared({"orders": ORDER_COLUMNS, "revenue": VIEW_COLUMNS}))
        self.traces: Traces = self.store.open(Manifest(), self.prepared, self.epoch)
        self.amounts = self.random.integers(1, 1_000, orders)
        self.tick_number = 0
        self.counted = Counted()
        ids = np.arange(orders)
        self.totals = np.bincount(ids % COUNTRIES, self.amounts, COUNTRIES).astype(np.int64)
        self._advance(
            {
                "orders": _weighted(ORDER_COLUMNS, ids, self.amounts.copy(), 1),
                "revenue": _weighted(VIEW_COLUMNS, np.arange(COUNTRIES), self.totals.copy(), 1),
            }
        )

    def tick(self) -> None:
        """Change some orders, as many as this tick's number asks for."""
        began = time.thread_time()
        number = self.tick_number + 1
        rows = next((rows for every, rows in self.large if number % every == 0), 1)
        ids = np.sort(self.random.choice(len(self.amounts), min(rows, len(self.amounts)), replace=False))
        before, groups = self.amounts[ids], np.unique(ids % COUNTRIES)
        if number % LOOKUP_TICKS == 0:
            self._look_up("orders", ids, before)
            self._look_up("revenue", groups, self.totals[groups])
        after = self.random.integers(1, 1_000, len(ids))
        moved = np.bincount(ids % COUNTRIES, after - before, COUNTRIES).astype(np.int64)[groups]
        then = self.totals[groups]
        self.amounts[ids] = after
        self.totals[groups] += moved
        self._advance(
            {
                "orders": _changes(ORDER_COLUMNS, ids, before, after),
                "revenue": _changes(VIEW_COLUMNS, groups, then, then + moved),
            }
        )
        self.counted.rows += len(ids)
        self.counted.ticks.append(time.thread_time() - began)

    def _look_up(self, name: str, keys: Any, values: Any) -> None:
        """Look rows up as the engine does, so that arrangements are kept, and compare them."""
        trace = self.traces[name]
        assert isinstance(trace, Trace)
        key, value, _ = trace.schema.names
        found = trace.lookup([key], pa.table({key: keys}), [key, value]).sort_by(key)
        same = np.array_equal(found.column(key), keys) and np.array_equal(found.column(value), values)
        if not same or found.column(WEIGHT).to_pylist() != [1] * len(keys):
            raise AssertionError(f"rows of {name} in the state after tick {self.tick_number} are {found.to_pylist()}")

    def _advance(self, changes: dict[str, pa.Table]) -> None:
        """One tick, as the engine makes it."""
        self.traces = self._settled()
        self.store.forget()
        self.tick_number += 1
        number = self.tick_number
        for name, table in changes.items():
            if table.num_rows:
                self.store.write(name, Delta.local(table), number, self.epoch)
        traces = self.store.next(self.traces, self.prepared, {})
        manifest = Manifest(
            number,
            self.epoch,
            {"orders": {0: number}},
            committed_us=self.log.clock.now_us(),
            views={"revenue": ABOUT},
            relations=self.store.describe(traces, self.prepared),
            rows_in=len(changes["orders"]),
        )
        began = time.thread_time()
        self.manifests.commit(manifest, first_kept=number - self.kept, small=self.store.small)
        self.counted.commits.append(time.thread_time() - began)
        self.traces = traces
        self.store.adopt(traces, self.prepared)
        self.store.begin_merges(traces)
        if number % engine.PRUNE_TICKS == 0:
            began = time.thread_time()
            released = self.manifests.take_released()
            self.store.prune(self.manifests.listed(), traces, released)  # beside the ticks otherwise; here it is timed
            self.counted.prunings.append(time.thread_time() - began)

    def _settled(self) -> Traces:
        before = {name: trace.runs for name, trace in self.traces.items() if isinstance(trace, Trace)}
        traces = self.store.settle_merges(self.traces)
        for name, trace in traces.items():
            if isinstance(trace, Trace) and trace.runs is not before.get(name):
                self.counted.merged_bytes += sum(run.bytes for run in trace.runs if run not in before[name])
        return traces

    def sample(self) -> TickSample:
        """What is there now; counting begins anew."""
        counted, self.counted = self.counted, Counted()
        files = [path.stat() for path in self.folder.rglob("*") if path.is_file()]
        read = self.log.catalog.read
        rows = sum(
            read(f"SELECT count(*) FROM {name}")[0][0] for name in ("manifest_entries", "manifest_runs", "ticks")
        )
        return TickSample(
            self.tick_number,
            len(files),
            sum(each.st_size for each in files) / 1e6,
            sum(path.stat().st_size for path in self.log.home.glob("catalog*")) / 1e6,
            sum(len(trace.runs) for trace in self.traces.values() if isinstance(trace, Trace)),
            rows,
            psutil.Process().memory_info().rss / 1e6,
            _median_ms(counted.ticks),
            _median_ms(counted.commits),
            _median_ms(counted.prunings),
            counted.merged_bytes / max(1, counted.rows),
        )

    def check(self) -> None:
        """Compare the content of the state with what is known here."""
        for name, values in (("orders", self.amounts), ("revenue", self.totals)):
            trace = self.traces[name]
            assert isinstance(trace, Trace)
            found = trace.content().sort_by(trace.schema.names[0])
            same = np.array_equal(found.column(0), np.arange(len(values))) and np.array_equal(found.column(1), values)
            if not same or set(found.column(WEIGHT).to_pylist()) != {1}:
                raise AssertionError(f"the content of {name} is not what ticks have made of it")

    def close(self) -> None:
        """Stop merging."""
        self.store.close()


def _prepared(relations: dict[str, pa.Schema]) -> SimpleNamespace:
    """What the state store asks of prepared views: one stage each, which keeps a state."""
    return SimpleNamespace(
        inputs={},
        views={
            name: SimpleNamespace(
                identity="f1",
                plan=SimpleNamespace(stages=[SimpleNamespace(name=name)]),
                keeps={name: True},
                shapes={name: SimpleNamespace(state=schema)},
            )
            for name, schema in relations.items()
        },
    )


def _weighted(columns: pa.Schema, keys: Any, values: Any, weight: int) -> pa.Table:
    weights = np.full(len(keys), weight, dtype=np.int64)
    return pa.table([pa.array(keys), pa.array(values), pa.array(weights)], schema=weighted_schema(columns))


def _changes(columns: pa.Schema, keys: Any, before: Any, after: Any) -> pa.Table:
    return pa.concat_tables([_weighted(columns, keys, before, -1), _weighted(columns, keys, after, 1)]).combine_chunks()


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e3 if seconds else 0.0


COLUMNS = {  # heading: attribute, unit, whether it must stay flat
    "files": ("files", "", True),
    "their MB": ("file_megabytes", "MB", True),
    "catalog MB": ("catalog_megabytes", "MB", True),
    "runs": ("runs", "", True),
    "rows of manifests": ("manifest_rows", "", True),
    "memory MB": ("memory_megabytes", "MB", True),
    "tick ms": ("tick_ms", "ms", False),
    "commit ms": ("commit_ms", "ms", False),
    "pruning ms": ("prune_ms", "ms", False),
    "merged bytes a row": ("merged_bytes_a_row", "bytes", True),
}


def judged(samples: Sequence[TickSample]) -> list[Measurement]:
    """The median of the last third beside that of the first third after ``SETTLED`` ticks, of everything.

    Sizes rise and fall with merges, so a third is taken and not one sample.
    """
    settled = [sample for sample in samples if sample.tick >= SETTLED] or list(samples)
    third = max(1, len(settled) // 3)
    found = []
    for heading, (attribute, unit, flat) in COLUMNS.items():
        first, last = (
            statistics.median(getattr(sample, attribute) for sample in part)
            for part in (settled[:third], settled[-third:])
        )
        ratio = last / first if first else 1.0
        found.append(Measurement(f"{heading}, first third", round(first, 3), unit))
        found.append(Measurement(f"{heading}, last third", round(last, 3), unit))
        name = f"{heading}, last third beside the first"
        bar = (TOLERATED, ratio <= TOLERATED) if flat else (None, None)
        found.append(Measurement(name, round(ratio, 3), "x, at most" if flat else "x", *bar))
    return found


def show(samples: Sequence[TickSample], found: Sequence[Measurement], console: Console) -> None:
    """Print the tables for people: some of the samples, then what is judged."""
    table = Table(title="what is there, tick by tick", title_justify="left")
    for heading in ("tick", *COLUMNS):
        table.add_column(heading, justify="right")
    step = max(1, len(samples) // 20)
    for sample in samples[step - 1 :: step]:
        values = (getattr(sample, attribute) for attribute, _, _ in COLUMNS.values())
        table.add_row(f"{sample.tick:,}", *(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values))
    console.print(table)
    for line in found:
        if line.unit.startswith("x"):
            told = {True: "holds", False: "[bold red]does not hold", None: "no bar"}[line.holds]
            console.print(f"{line.name}: {line.value} ({told})")


def run(
    home: Path, ticks: int, console: Console, *, minutes: float, orders: int = ORDERS
) -> tuple[list[TickSample], list[Measurement]]:
    """So many ticks, or as many as fit into the time; a sample a hundred times, at least every ten thousand ticks."""
    every = max(1, min(10_000, ticks // 100))
    with hw.Log(home, maintenance_interval=None) as log:
        simulation, samples = Simulation(log, orders=orders), []
        began = time.monotonic()
        try:
            while simulation.tick_number < ticks and time.monotonic() - began < minutes * 60:
                simulation.tick()
                if simulation.tick_number % every == 0:
                    samples.append(simulation.sample())
                    if len(samples) % 10 == 0:
                        console.print(
                            f"{simulation.tick_number:,} ticks, {time.monotonic() - began:,.0f} s: {samples[-1]}"
                        )
            simulation.check()
        finally:
            simulation.close()
    return samples, judged(samples)


def main() -> None:
    """Run the simulation, print the tables, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ticks", type=int, default=TICKS)
    parser.add_argument("--minutes", type=float, default=180, help="end after so long, with the ticks that were made")
    given = parser.parse_args()
    state_store.RELEASED_SECONDS_MAX = RELEASED_SECONDS
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-ticks-") as folder:
        samples, found = run(Path(folder) / "home", given.ticks, console, minutes=given.minutes)
    show(samples, found, console)
    report.write(found, OUT)


if __name__ == "__main__":
    main()
