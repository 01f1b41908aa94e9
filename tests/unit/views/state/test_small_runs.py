"""Small runs of ticks that come to nothing: they are let go.

Not here: small runs that are committed and read again (``tests/spark/test_views_check.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_store import StateStore

SCHEMA = weighted_schema(pa.schema([("id", pa.int64())]))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with Log(tmp_path) as log:
        store = StateStore(tmp_path / "views", log.files, cast(Any, None), SmallRuns(log.catalog, "shop"))
        store._shapes = dict.fromkeys(("orders", "share", "counts"), ("first", SCHEMA, ("id",)))
        yield store
        store.close()


def waiting(store: StateStore) -> list[str]:
    """The folders of small runs that wait for a manifest to list them."""
    assert store.small is not None
    return [folder for folder, _ in store.small._pending]


def changes() -> Delta:
    return Delta.local(pa.table({"id": [1], "_weight": [1]}, schema=SCHEMA))


def test_a_view_that_fails_tick_after_tick_leaves_nothing_in_memory(store: StateStore) -> None:
    for tick in range(1, 5):
        store.forget()
        for name in ("share", "counts"):
            store.write(name, changes(), tick, 1)
        store.discard(["share"])

    assert waiting(store) == ["counts-first"]


def test_a_tick_that_fails_leaves_nothing_in_memory(store: StateStore) -> None:
    store.write("orders", changes(), 1, 1)
    store.write("counts", changes(), 1, 1)
    store.forget()

    assert waiting(store) == []


def test_rows_that_were_let_go_do_not_count_as_waiting(store: StateStore) -> None:
    assert store.small is not None
    for tick in range(1, 4):
        store.write("orders", changes(), tick, 1)
        store.forget()

    assert store.small._pending_bytes == 0
