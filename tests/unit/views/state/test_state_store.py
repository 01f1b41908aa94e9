"""The state store without Spark: merges from tick to tick.

Not here: pruning (``test_manifest.py``); what a merge writes (``test_merge.py``).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.views import thresholds
from headwater.views.state.algebra import weighted_schema, with_weight
from headwater.views.state.state_store import StateStore
from headwater.views.state.trace import Trace
from headwater.views.tick.exchange import exchanged

SCHEMA = weighted_schema(pa.schema([("id", pa.int64()), ("amount", pa.int64())]))


def test_a_large_tick_finds_the_merge_of_the_one_before_while_it_is_still_being_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)
    go_on = threading.Event()
    with Log(tmp_path) as log:
        store = StateStore(tmp_path / "views", log.files, cast(Any, None))
        store._shapes = {"orders": ("first", SCHEMA, ("id",))}
        store._merger.submit(go_on.wait)  # nothing is sorted before somebody says so
        trace = store._trace("orders", [])
        for tick in range(1, 5):
            new = with_weight(pa.table({"id": np.arange(100) + 20 * tick, "amount": np.full(100, tick)}), 1)
            changes = exchanged(trace, new.select(["id"]), new, keeps=True)
            store.write_and_merge("orders", changes, tick, 1)
            after = store._new["orders"].with_run(store._pending["orders"][0])
            store.adopt({"orders": after}, cast(Any, store._prepared))  # as the commit does
            store.begin_merges({"orders": after})
            settled = store.settle_merges({"orders": after})["orders"]
            assert isinstance(settled, Trace)
            trace = settled

            rows = pa.Table.from_batches(trace.read(), trace.schema)
            assert len(trace.runs) == 1
            assert sorted(rows["id"].to_pylist()) == list(range(20, 20 * tick + 100))

        go_on.set()
        store.close()
    assert trace.lookup(["id"], pa.table({"id": [85]}), ["amount"]).to_pylist() == [{"amount": 4, "_weight": 1}]
