"""Parquet and Delta: partitions, and the view as it was some ticks ago."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.errors import OffsetOutOfRange
from headwater.log.home import Log
from headwater.sinks import Delta, Parquet
from headwater.sinks.runner.sink_task import SinkTask
from tests.services.sinks.synthetic import SyntheticView, bag_of


@pytest.fixture
def sales() -> SyntheticView:
    view = SyntheticView("id BIGINT, country STRING, amount INT")
    view.change([{"id": n, "country": ("DE", "F/R", None)[n % 3], "amount": n} for n in range(9)])
    return view


def history(view: SyntheticView, task: SinkTask) -> dict[int, pa.Table]:
    """Three ticks, each delivered by itself, with what the view held after them."""
    task.catch_up()
    held = {view.tick: view.bag()}
    for number in range(3):
        view.change([{"id": number, "country": "DE", "amount": 100 + number}])
        task.catch_up()
        held[view.tick] = view.bag()
    task.close()
    return held


def test_parquet_keeps_the_last_ticks_and_rewrites_touched_partitions_only(
    sales: SyntheticView, tmp_path: Path, log: Log
) -> None:
    sink = Parquet(tmp_path / "sales", partition_by=["country"], kept=3)
    task = SinkTask("copy", "sales", "app", sink, sales, log)
    task.catch_up()
    first = sink.files()

    held = history(sales, task)

    ticks = sorted(held)
    assert {tick: bag_of(sink.read(tick).cast(sales.schema)) for tick in ticks[1:]} == {t: held[t] for t in ticks[1:]}
    assert bag_of(sink.read().cast(sales.schema)) == held[ticks[-1]]
    with pytest.raises(OffsetOutOfRange, match="not kept"):
        sink.read(ticks[0])
    assert {path.parent.name for path in first} == {"country=DE", "country=F%2FR", "country=__HIVE_DEFAULT_PARTITION__"}
    assert len(set(sink.files()) & set(first)) == 0  # each of the three was touched: a row left it
    listed = {path for tick in ticks[1:] for path in sink.files(tick)}
    assert set((tmp_path / "sales" / "data").rglob("*.parquet")) == listed


def test_a_partition_that_no_change_touches_keeps_its_file(sales: SyntheticView, tmp_path: Path, log: Log) -> None:
    sink = Parquet(tmp_path / "sales", partition_by=["country"])
    task = SinkTask("copy", "sales", "app", sink, sales, log)
    task.catch_up()
    before = set(sink.files())

    sales.change([{"id": 0, "country": "DE", "amount": 5}])
    task.catch_up()

    assert len(before & set(sink.files())) == 2
    assert bag_of(sink.read().cast(sales.schema)) == sales.bag()


def test_delta_travels_to_the_version_of_a_tick(sales: SyntheticView, tmp_path: Path, log: Log) -> None:
    path = str(tmp_path / "sales")
    sink = Delta(path, partition_by=["country"])

    held = history(sales, SinkTask("copy", "sales", "app", sink, sales, log))

    for tick, bag in held.items():
        table = DeltaTable(path, version=sink.version_at(tick)).to_pyarrow_table()
        assert bag_of(table.select(sales.schema.names).cast(sales.schema)) == bag
    assert DeltaTable(path).transaction_version("app/sales/copy") == sales.tick
    assert DeltaTable(path).metadata().partition_columns == ["country"]


def test_delta_goes_on_after_somebody_optimized_the_table(sales: SyntheticView, tmp_path: Path, log: Log) -> None:
    path = str(tmp_path / "sales")
    task = SinkTask("copy", "sales", "app", Delta(path), sales, log)
    history(sales, task)
    DeltaTable(path).optimize.compact()

    sales.change([{"id": 50, "country": "IT", "amount": 1}])
    later = SinkTask("copy", "sales", "app", Delta(path), sales, log)
    status = later.catch_up()

    assert status.rows == 1, "it was filled again"
    assert bag_of(DeltaTable(path).to_pyarrow_table().select(sales.schema.names).cast(sales.schema)) == sales.bag()


def test_delta_goes_on_after_its_entries_in_the_log_of_the_table_are_gone(
    sales: SyntheticView, tmp_path: Path, log: Log
) -> None:
    path = str(tmp_path / "sales")
    history(sales, SinkTask("copy", "sales", "app", Delta(path), sales, log))
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()

    sales.change([{"id": 50, "country": "IT", "amount": 1}])
    status = SinkTask("copy", "sales", "app", Delta(path), sales, log).catch_up()

    assert (str(status.state), status.error) == ("following", None)
    assert bag_of(DeltaTable(path).to_pyarrow_table().select(sales.schema.names).cast(sales.schema)) == sales.bag()
