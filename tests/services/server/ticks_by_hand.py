"""Ticks without Spark: committed as the engine does it, by the test.

What it is: ``HandTicks``: a run, then a manifest, then the serving store, for the view ``revenue`` of ``shop_app.py``.
Invariants: ``rows`` is the sum of all changes; ``past`` has it at every tick.
Not here: real ticks (``test_engine.py``).
Read next: ``test_subscriptions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headwater.log.home import Log
from headwater.views.serving.serving_store import ServingStore
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.trace import Trace

DDL = "country STRING, total BIGINT"
SCHEMA = pa.schema([("country", pa.string()), ("total", pa.int64()), ("_weight", pa.int64())])


class HandTicks:
    """The app's engine, as far as one view shows it."""

    def __init__(self, log: Log) -> None:
        self.folder = log.home / "views" / "shop"
        self.manifests = Manifests(log.catalog, "shop")
        self.epoch = self.manifests.take_over()
        self.files = log.files
        self.store = ServingStore(self.folder / "serving.sqlite")
        self.rows: dict[str, int] = {}
        self.past: dict[int, dict[str, int]] = {}
        self.declare_anew()

    def declare_anew(self) -> None:
        """Another query: the next tick fills the view from nothing."""
        self.born = self.manifests.tick() + 1
        self.identity = f"query-{self.born}"
        self.trace = Trace(self.folder / f"revenue-{self.identity}", SCHEMA, files=self.files)
        self.store.declare("revenue", [("country", "STRING"), ("total", "BIGINT")], ["country"], self.identity)
        self.store.swap("revenue")
        self.rows = {}

    def commit(
        self,
        changes: Mapping[str, int | None] | None = None,
        *,
        first_kept: int = 0,
        paused: Mapping[str, Any] | None = None,
    ) -> int:
        """One tick: these countries have these totals now; None takes one away."""
        tick = self.manifests.tick() + 1
        weighted = []
        for country, total in (changes or {}).items():
            if country in self.rows:
                weighted.append({"country": country, "total": self.rows.pop(country), "_weight": -1})
            if total is not None:
                weighted.append({"country": country, "total": total, "_weight": 1})
                self.rows[country] = total
        table = pa.Table.from_pylist(weighted, SCHEMA)
        if weighted:
            moved = Delta.local(table)
            self.trace = self.trace.with_run(self.trace.write(moved, tick=tick, epoch=self.epoch), moved)
        about = {"columns": DDL, "key": ["country"], "created_tick": self.born, "fingerprint": self.identity}
        entry = {"identity": self.identity, "schema": DDL, "runs": [run.to_json() for run in self.trace.runs]}
        manifest = Manifest(
            tick,
            self.epoch,
            {"orders": {0: tick, 1: 0}},
            committed_us=tick * 1_000_000,
            relations={"revenue": entry},
            views={"revenue": about},
            paused=paused or {},
        )
        self.manifests.commit(manifest, first_kept=first_kept)
        self.past[tick] = dict(self.rows)
        self.store.apply(tick, self.epoch, manifest.frontier, {"revenue": table})
        return tick

    def close(self) -> None:
        """Give the store back."""
        self.store.close()
