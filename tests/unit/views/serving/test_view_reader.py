"""View reader: what a sink gets of committed ticks, without Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.views.serving import view_reader as module
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.view_reader import ViewHead, ViewLag, ViewReader
from tests.unit.views.serving.test_change_feed import Ticks


@pytest.fixture
def ticks(log: Log) -> Any:
    ticks = Ticks(log)
    yield ticks
    ticks.store.close()


def reader_of(ticks: Ticks, log: Log) -> ViewReader:
    committed = CommittedChanges(ticks.manifests, ticks.folder, log.files)
    return ViewReader("revenue", committed, epoch=lambda: ticks.epoch, clock=log.clock)


def head_of(reader: ViewReader) -> ViewHead:
    head = reader.head()
    assert head is not None
    return head


def all_rows(reader: ViewReader) -> Counter[Any]:
    with reader.rows() as (_, batches):
        return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def test_a_view_that_has_not_run_has_no_head(ticks: Ticks, log: Log) -> None:
    reader = reader_of(ticks, log)

    assert reader.head() is None
    ticks.commit(("DE", 1, 1))
    assert head_of(reader) == ViewHead(
        1, f"{log.identity}/1/first", pa.schema([("country", pa.string()), ("total", pa.int64())]), ("country",)
    )


def test_changes_of_several_ticks_are_netted_up_to_a_bound(ticks: Ticks, log: Log) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit(("DE", 1, -1), ("DE", 2, 1))
    ticks.commit()
    ticks.commit(("DE", 2, -1), ("DE", 3, 1), ("FR", 1, 1))
    reader = reader_of(ticks, log)
    head = head_of(reader)

    every = reader.changes(1, head, rows_max=100, ticks_max=100)
    few = reader.changes(1, head, rows_max=1, ticks_max=100)
    one = reader.changes(3, head, rows_max=100, ticks_max=1)

    assert every is not None
    assert few is not None
    assert one is not None
    assert (every.after, every.tick, every.epoch) == (1, 4, ticks.epoch)
    assert Counter(tuple(row.values()) for row in every.changes.to_pylist()) == Counter(
        [("DE", 1, -1), ("DE", 3, 1), ("FR", 1, 1)]
    )
    assert (few.tick, one.tick) == (2, 4)


def test_a_tick_without_changes_is_a_delivery_of_nothing(ticks: Ticks, log: Log) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit()
    reader = reader_of(ticks, log)

    delivery = reader.changes(1, head_of(reader), rows_max=100, ticks_max=100)

    assert delivery is not None
    assert (delivery.tick, delivery.changes.num_rows) == (2, 0)
    assert delivery.changes.column_names == ["country", "total", "_weight"]


def test_what_is_no_longer_kept_or_of_another_query_is_none(ticks: Ticks, log: Log) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit(("FR", 1, 1))
    ticks.commit(("IT", 1, 1), first_kept=3)
    reader = reader_of(ticks, log)

    assert reader.changes(1, head_of(reader), rows_max=100, ticks_max=100) is None
    assert reader.changes(2, head_of(reader), rows_max=100, ticks_max=100) is not None
    ticks.declare_anew()
    ticks.commit(("DE", 9, 1))
    assert (
        reader.changes(3, ViewHead(4, f"{log.identity}/1/first", pa.schema([]), ()), rows_max=100, ticks_max=100)
        is None
    )
    assert head_of(reader).version == f"{log.identity}/4/first"


@pytest.mark.parametrize("pass_rows", [1, 2, 3, 1000])
def test_all_rows_are_added_up_in_as_many_passes_as_memory_asks_for(
    ticks: Ticks, log: Log, monkeypatch: pytest.MonkeyPatch, pass_rows: int
) -> None:
    monkeypatch.setattr(module, "PASS_ROWS", pass_rows)
    ticks.commit(("DE", 1, 1), ("FR", 1, 2), (None, None, 1))
    positive = all_rows(reader_of(ticks, log))
    ticks.commit(("DE", 1, -1), ("DE", 2, 1), ("FR", 1, -1), ("IT", 5, 1))

    assert positive == Counter([("DE", 1), ("FR", 1), ("FR", 1), (None, None)])
    assert all_rows(reader_of(ticks, log)) == Counter([("DE", 2), ("FR", 1), ("IT", 5), (None, None)])


def test_lag_is_told_in_ticks_seconds_and_changes(ticks: Ticks, log: Log, clock: ManualClock) -> None:
    ticks.commit(("DE", 1, 1))
    ticks.commit(("DE", 1, -1), ("DE", 2, 1))
    ticks.commit(("FR", 1, 1))
    reader = reader_of(ticks, log)
    seconds = clock.now_us() / 1_000_000 - 2

    assert reader.lag(3) == ViewLag(0, 0.0, 0)
    assert reader.lag(1) == ViewLag(2, pytest.approx(max(0.0, seconds)), 3)
    ticks.commit(first_kept=3)
    assert reader.lag(1) == ViewLag(3, pytest.approx(max(0.0, seconds - 1)), None)
