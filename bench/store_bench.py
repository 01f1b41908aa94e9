"""What state on an object store costs: a tick's commit, and the beginning on a machine that knows nothing.

What it is: ticks of 1 and of 200 views, of which one moves, committed in the catalog, in a folder and on S3Proxy by
turns; then another machine takes over after a thousand kept ticks. And whole ticks of an app: one changed row.
Invariants: the catalog, the commits and the stores are those of the product; the three take turns, tick by tick, so
that what else the machine does falls on all of them. Figures are medians.
Not here: what a tick does besides (``views_bench.py``).
Read next: ``src/headwater/views/state/remote/store_manifests.py``; ``docs/scale.md``.

    make bench-store ARGS="--ticks 300"
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.remote.store_manifests import StoreManifests
from headwater.views.state.run import Run
from headwater.views.state.small_runs import SmallRuns
from tests.services.s3_server import CREDENTIALS, S3Server

KINDS = ("catalog", "folder", "S3")
COLUMNS = "country STRING, revenue DOUBLE, orders BIGINT, _g0 STRING, _n BIGINT, _a0 BIGINT, _a1 BIGINT"
SQL = "SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders FROM orders o JOIN users u ON u.id = o.user_id"
ROWS = pa.table({"country": ["DE", "DE", "FR", "FR"], "revenue": [1.5, 2.5, 3.5, 4.5], "_weight": [-1, 1, -1, 1]})
KEPT = 1_000


class AppHistory:
    """An app of so many views, one of which moves with each tick, by a small run of four rows."""

    def __init__(self, manifests: Manifests, views: int) -> None:
        self.manifests = manifests
        self.epoch = manifests.take_over()
        self.small = SmallRuns(manifests.catalog, "shop")
        about: Any = {"fingerprint": "37cb98a3", "columns": COLUMNS, "key": ["country"], "sql": SQL, "created_tick": 1}
        self.views = {f"revenue_{number}": about for number in range(views)}
        self.relations: dict[str, Any] = {}
        for name in self.views:
            self.relations[name] = {"identity": "37cb98a3", "schema": COLUMNS, "key": ["_g0"], "runs": []}
        self.tick = 0

    def commit(self) -> tuple[float, float]:
        """One more tick; the seconds of its commit, by the clock and of the processor."""
        self.tick += 1
        moved, run = "revenue_0", f"{self.tick:012d}-{self.epoch}"
        content = self.small.keep(folder_name(moved, "37cb98a3"), run, ROWS)
        entry = self.relations[moved]
        runs = [*entry["runs"], Run(run, (), 4, self.tick, self.tick, -1, 1, content).to_json()][-8:]
        self.relations = {**self.relations, moved: {**entry, "runs": runs}}
        manifest = Manifest(
            self.tick, self.epoch, {"orders": {0: self.tick}}, self.tick, self.relations, self.views, 4, {"orders": 1}
        )
        began, busy = time.perf_counter(), time.process_time()
        self.manifests.commit(manifest, first_kept=self.tick - KEPT, small=self.small)
        taken = time.perf_counter() - began, time.process_time() - busy
        if self.manifests.tidy_due:
            self.manifests.tidy()
        return taken


def commits(place: Path, server: S3Server, views: int, ticks: int) -> None:
    """Commits by turns, and the take-over by another machine."""
    address = {"folder": f"file://{place}/state-{views}", "S3": server.address(f"commits-{views}")}
    logs = {kind: hw.Log(place / f"{kind}-{views}") for kind in KINDS}
    histories = {"catalog": AppHistory(Manifests(logs["catalog"].catalog, "shop"), views)}
    for kind, text in address.items():
        manifests = StoreManifests(logs[kind].catalog, "shop", ObjectAddress.parse(text), log_id="7f")
        histories[kind] = AppHistory(manifests, views)
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(ticks):
        for kind in KINDS:
            taken[kind].append(histories[kind].commit())
    for kind in KINDS:
        wall, busy = (statistics.median(each) * 1e3 for each in zip(*taken[kind][10:], strict=True))
        print(
            f"{views:4d} views, 1 moves, {kind:8s} commit {wall:6.2f} ms, of the processor {busy:5.2f} ms", flush=True
        )
    sizes = sorted(found.bytes for found in ObjectAddress.parse(address["folder"]).open().list("commits/"))
    checkpoints = [found.bytes for found in ObjectAddress.parse(address["folder"]).open().list("checkpoints/")]
    print(f"{views:4d} views: a commit has {sizes[len(sizes) // 2]:,} bytes, a checkpoint {max(checkpoints):,}")
    for kind, text in address.items():
        with hw.Log(place / f"new-{kind}-{views}") as log:
            began = time.perf_counter()
            fresh = StoreManifests(log.catalog, "shop", ObjectAddress.parse(text), log_id="7f")
            fresh.take_over()
            seconds = time.perf_counter() - began
            print(
                f"{views:4d} views, {kind}: a new machine reads {len(fresh.kept())} ticks in {seconds:.2f} s",
                flush=True,
            )
    for log in logs.values():
        log.close()


def whole_ticks(place: Path, server: S3Server, ticks: int) -> None:
    """Ticks of an app, one changed row of 100 000."""
    states = {"catalog": None, "folder": f"file://{place}/state-app", "S3": server.address("app")}
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    apps, act = {}, dict[str, Callable[[int], None]]()
    for kind, state in states.items():
        app = apps[kind] = hw.App("shop", home=place / f"app-{kind}", state=state)
        orders = app.table("orders", "id BIGINT, country STRING, amount BIGINT", key="id")
        app.view("revenue", "SELECT country, sum(amount) AS revenue, count(*) AS orders FROM orders GROUP BY country")
        orders.upsert([{"id": n, "country": f"C{n % 50}", "amount": n} for n in range(100_000)])
        app.tick()

        def one(n: int, orders: Any = orders, app: hw.App = app, kind: str = kind) -> None:
            orders.upsert([{"id": n, "country": "C7", "amount": n}])
            began, busy = time.perf_counter(), time.process_time()
            app.tick()
            taken[kind].append((time.perf_counter() - began, time.process_time() - busy))

        act[kind] = one
    for n in range(ticks):
        for kind in KINDS:
            act[kind](n)
    for kind in KINDS:
        wall, busy = (statistics.median(each) * 1e3 for each in zip(*taken[kind][20:], strict=True))
        print(f"a tick of one changed row, {kind:8s} {wall:6.1f} ms, of Python's processor {busy:5.1f} ms", flush=True)
    for app in apps.values():
        app.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ticks", type=int, default=1_100)
    given = parser.parse_args()
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        server = S3Server(place)
        server.start()
        try:
            for views in (1, 200):
                commits(place, server, views, given.ticks)
            whole_ticks(place, server, min(given.ticks, 200))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
