"""What the manifests of kept ticks cost: a commit, a lag query, pruning, a look at the past.

What it is: histories of 10 and of 1 000 kept ticks of 1, 8 and 30 views, committed as the engine does it: each view
keeps the state of two relations, every tick adds a run to each, and eight runs become one. Without Spark: the runs'
files are there and empty.
Invariants: each figure is a median; *lag* asks for the first kept tick, *as of* for the middle of the history. The
catalog, the files and the manifests are those of the product.
Not here: what a whole tick costs (``growth.py``).
Read next: ``src/headwater/views/state/manifest.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

import headwater as hw
from bench.views.scale import Lines, Scale
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.view_reader import ViewReader
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.merge import FAN
from headwater.views.state.run import Run, RunFile
from headwater.views.state.state_store import StateStore
from headwater.views.state.trace import Trace

VIEWS, KEPT = (1, 8, 30), (10, 1000)
SAMPLES = 15
IDENTITY = "37cb98a3eaff8260"
COLUMNS = "country STRING, revenue DOUBLE, orders BIGINT, _g0 STRING, _n BIGINT, _a0 BIGINT, _a1 BIGINT, _a2 BIGINT"
SQL = "SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders FROM orders o JOIN users u ON u.id = o.user_id"
SCHEMA = weighted_schema(pa.schema([("country", pa.string()), ("revenue", pa.float64()), ("orders", pa.int64())]))


class History:
    """An app of so many views, tick after tick."""

    def __init__(self, log: hw.Log, views: int) -> None:
        self.log = log
        self.manifests = Manifests(log.catalog, "shop")
        self.epoch = self.manifests.take_over()
        self.folder = log.home / "views" / "shop"
        self.store = StateStore(self.folder, log.files, cast(Any, None))  # Spark is for large merges only
        self.views = [f"revenue_{number}" for number in range(views)]
        self.runs: dict[str, list[Run]] = {name: [] for view in self.views for name in (view, f"{view}$joined")}
        for name in self.runs:
            (self.folder / folder_name(name, IDENTITY)).mkdir(parents=True)
        self.tick, self.first_kept = 0, 1

    def commit(self, kept: int) -> float:
        """One more tick, of which so many are kept; the seconds of its commit."""
        self.tick += 1
        self.first_kept = max(1, self.tick + 1 - kept)
        for name in self.runs:
            if len(self.runs[name]) > FAN:  # a merge counts from the next tick on
                first, last, self.runs[name] = self.runs[name][0].first_tick, self.tick - 1, []
                self._add(name, f"{first:012d}-{last:012d}-b9d75e68", first, last)
            self._add(name, f"{self.tick:012d}-{self.epoch}", self.tick, self.tick)
        manifest = self._manifest()
        began = time.perf_counter()
        self.manifests.commit(manifest, first_kept=self.first_kept)
        return time.perf_counter() - began

    def _add(self, name: str, run: str, first_tick: int, last_tick: int) -> None:
        file = RunFile(f"{run}.parquet", 2154, -213188698681618561)
        (self.folder / folder_name(name, IDENTITY) / file.name).touch()
        self.runs[name].append(Run(run, (file,), 115, first_tick, last_tick, weight_min=-1))

    def _manifest(self) -> Manifest:
        about = {
            "fingerprint": IDENTITY,
            "build_id": "",
            "columns": COLUMNS,
            "key": ["country"],
            "kind": "accumulate",
            "sql": SQL,
            "created_tick": 1,
            "table": IDENTITY,
        }
        state = {"identity": IDENTITY, "schema": COLUMNS, "key": ["_g0"]}
        return Manifest(
            self.tick,
            self.epoch,
            {"orders": {0: self.tick * 100}, "users": {0: self.tick * 10}},
            committed_us=self.log.clock.now_us(),
            relations={name: {**state, "runs": [run.to_json() for run in runs]} for name, runs in self.runs.items()},
            views=dict.fromkeys(self.views, about),
            rows_in=110,
            topics={"orders": 1, "users": 2},
        )

    def lag(self) -> None:
        """What the status of a sink asks that is behind by the whole history."""
        committed = CommittedChanges(self.manifests, self.folder, self.log.files)
        reader = ViewReader(self.views[0], committed, home_id="home", epoch=lambda: self.epoch, clock=self.log.clock)
        assert reader.lag(self.first_kept).changes == 115 * (self.tick - self.first_kept)

    def prune(self) -> None:
        """What every hundredth tick does."""
        traces = {
            name: Trace(self.folder / folder_name(name, IDENTITY), SCHEMA, runs, files=self.log.files)
            for name, runs in self.runs.items()
        }
        self.store.prune(self.manifests.listed(), traces)

    def as_of(self) -> None:
        """What ``view.history(as_of=)`` asks before it reads rows."""
        ticks = [tick for tick, _ in self.manifests.kept()]
        assert self.manifests.at(ticks[len(ticks) // 2]) is not None


def measure(scale: Scale, folder: Path) -> Lines:
    """All histories; ``scale`` says how many times each question is asked."""
    lines = Lines()
    for views in VIEWS:
        for kept in KEPT:
            _measure(lines, folder / f"{views}-{kept}", views, kept, min(SAMPLES, scale.samples))
    return lines


def _measure(lines: Lines, home: Path, views: int, kept: int, samples: int) -> None:
    with hw.Log(home) as log:
        history = History(log, views)
        for _ in range(kept):
            history.commit(kept)
        commits = [history.commit(kept) for _ in range(samples)]
        what = f"{views} views, {kept} ticks"
        lines.figure(f"{what}: commit", statistics.median(commits) * 1e3, "ms")
        for name, ask in (("lag", history.lag), ("prune", history.prune), ("as of", history.as_of)):
            lines.figure(f"{what}: {name}", statistics.median(_seconds(ask) for _ in range(samples)) * 1e3, "ms")
        lines.figure(f"{what}: catalog", sum(path.stat().st_size for path in home.glob("catalog*")) / 1e6, "MB")
        history.store.close()


def _seconds(ask: Callable[[], None]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began
