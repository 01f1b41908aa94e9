"""Run files that executors read and write on an object store: every type of a column, and what is damaged there."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.errors import Corruption
from headwater.objects.object_address import ObjectAddress
from headwater.views.spark.scans import local_frame
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.remote import executor_files
from headwater.views.state.remote.executor_files import ExecutorFiles
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.run import Weighed
from headwater.views.state.trace import Files, Trace

MOMENT = dt.datetime(1843, 7, 10, 12, 30, 0, 5)
ROW = {
    **{"id": 1, "small": -8, "real": 0.5, "double": float("inf"), "exact": Decimal("12.50"), "text": "Ada ü"},
    **{"bytes": b"\0", "yes": True, "day": dt.date(1582, 10, 4), "at": MOMENT.replace(tzinfo=dt.UTC), "local": MOMENT},
    **{"list": [1, None], "map": [("a", 1), ("b", None)], "nested": {"x": [{"y": "z"}]}},
}
ROWS = [{**ROW, "_weight": -2}, {**dict.fromkeys(ROW), "_weight": 3}]
SCHEMA = weighted_schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int8()),
            ("real", pa.float32()),
            ("double", pa.float64()),
            ("exact", pa.decimal128(10, 2)),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("yes", pa.bool_()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("nested", pa.struct([("x", pa.list_(pa.struct([("y", pa.string())])))])),
        ]
    )
)


@pytest.fixture
def address(tmp_path: Path) -> ObjectAddress:
    return ObjectAddress.parse(f"file://{tmp_path / 'store'}")


def written(spark: SparkSession, address: ObjectAddress, folder: str) -> Delta:
    frame = local_frame(spark, pa.Table.from_pylist(ROWS, schema=SCHEMA))
    return Delta.on_store(*ExecutorFiles(address).write(frame, folder, SCHEMA), SCHEMA)


def test_rows_of_every_type_come_back_as_they_were(spark: SparkSession, address: ObjectAddress) -> None:
    changes = written(spark, address, "users-1")

    found = changes.frame(spark).orderBy("_weight").toArrow().cast(SCHEMA).to_pylist()

    assert (changes.weighed, found) == (Weighed(2, -2, 3), ROWS)
    assert sorted(changes.read().to_pylist(), key=lambda row: row["_weight"]) == ROWS


def test_a_frame_that_executors_read_is_never_taken_for_a_small_one(
    spark: SparkSession, address: ObjectAddress
) -> None:
    frame = written(spark, address, "users-1").frame(spark)

    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()

    assert int(str(size)) > 1 << 40, "Spark would send all of it to every executor, through the driver"


def test_two_traces_take_the_same_changes_each_with_a_file_of_its_own(
    spark: SparkSession, address: ObjectAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_files, "on_cluster", lambda _: True)
    changes = written(spark, address, "users-1")
    folders = [tmp_path / "users-1", tmp_path / "people-1"]
    empty = [Trace(folder, SCHEMA, files=Files(), cache=RunCache(address, Files())) for folder in folders]

    traces = [trace.with_run(trace.write(changes, tick=1, epoch=1)) for trace in empty]
    for stored in changes.stored.files if changes.stored is not None else ():
        address.open().delete(stored.name)

    with pytest.raises(Corruption, match=r"the object runs/users-1/\w+.parquet at .* is missing"):
        traces[0].check(spark)
    traces[1].check(spark)
    assert not any(folder.exists() for folder in folders), "the driver has read rows"
    assert traces[1].frame(spark, ["id"]).count() == 2


def test_a_damaged_object_is_refused_by_the_executor_that_reads_it(spark: SparkSession, address: ObjectAddress) -> None:
    changes = written(spark, address, "users-1")
    assert changes.stored is not None
    for stored in changes.stored.files:
        path = address.path / stored.name
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    with pytest.raises(Corruption, match="is damaged\n  It was written once"):
        changes.stored.executors.check(spark, changes.stored.files)
    with pytest.raises(Exception, match="is damaged"):
        changes.frame(spark).count()
