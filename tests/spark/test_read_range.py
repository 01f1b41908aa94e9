"""``read_range``: exact, whatever mixture of whole files, parts of files and tails holds the range."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from headwater.errors import CorruptSegment, OffsetOutOfRange
from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.views.source.data_source import read_range
from headwater.views.spark import topic_scan
from tests.spark.topics import NOON, append_orders, by_place, orders, rows_of, seal

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headwater.log.topic import Topic

COLUMNS = ["id", "amount", "at", "_partition", "_offset", "_appended_at"]


def mixed(log: Log) -> Topic:
    """Two partitions, each with two sealed files of 20 rows and a tail of 20."""
    topic = orders(log, partitions=2)
    append_orders(topic, 40)
    seal(topic)
    append_orders(topic, 40, first=40)
    seal(topic)
    append_orders(topic, 40, first=80)
    return topic


RANGES: list[tuple[dict[int, int], dict[int, int]]] = [
    ({0: 0, 1: 0}, {0: 60, 1: 60}),
    ({0: 3, 1: 0}, {0: 57, 1: 40}),
    ({0: 25, 1: 59}, {0: 30, 1: 60}),
    ({0: 5, 1: 5}, {0: 5, 1: 5}),
    ({1: 19}, {1: 41}),
]


@pytest.mark.parametrize("local_rows_max", [0, 15, 20_000])
def test_a_range_is_what_the_topic_holds(
    registered: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch, local_rows_max: int
):
    monkeypatch.setattr(topic_scan, "LOCAL_ROWS_MAX", local_rows_max)
    topic = mixed(log)

    for start, stop in RANGES:
        frame = read_range(registered, topic, start, stop)

        expected = list(topic.rows(start, stop=stop, partitions=list(stop), columns=COLUMNS))
        assert frame.columns == COLUMNS
        assert by_place(rows_of(frame)) == by_place(expected), (start, stop)


def test_every_session_of_a_process_reads_tails_through_workers(
    registered: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topic_scan, "LOCAL_ROWS_MAX", 0)
    topic = orders(log)
    append_orders(topic, 10)

    sessions = [registered, registered.newSession(), registered, registered.newSession()]

    # The views' own sessions, and that of ``verify``, are several in one thread.
    assert [read_range(session, topic, {0: 0}, {0: 10}).count() for session in sessions] == [10] * 4


def test_columns_come_in_the_order_asked_for(registered: SparkSession, log: Log):
    topic = mixed(log)

    frame = read_range(registered, topic, {0: 0, 1: 0}, {0: 50, 1: 50}, ["_partition", "amount"])

    assert frame.columns == ["_partition", "amount"]
    assert frame.groupBy("_partition").count().orderBy("_partition").collect() == [(0, 50), (1, 50)]


def test_a_partition_number_alone_can_be_read(registered: SparkSession, log: Log):
    topic = mixed(log)

    assert read_range(registered, topic, {0: 0, 1: 0}, {0: 20, 1: 20}, ["_partition"]).count() == 40


def test_tombstones_are_marked_in_files_and_tails(registered: SparkSession, log: Log):
    topic = log.topic("users", "id INT, name STRING NOT NULL", key="id")
    topic.append([{"id": 1, "name": "Ada"}])
    topic.delete([{"id": 1}])
    seal(topic)
    topic.delete([{"id": 2}])

    frame = read_range(registered, topic, {0: 0}, {0: 3}, ["id", "name", "_deleted", "_offset"])

    assert sorted(frame.collect(), key=lambda row: row["_offset"]) == [
        (1, "Ada", False, 0),
        (1, None, True, 1),
        (2, None, True, 2),
    ]


def test_old_and_local_times_are_not_shifted(registered: SparkSession, log: Log):
    topic = log.topic("times", "day DATE, local TIMESTAMP_NTZ, at TIMESTAMP")
    long_ago = dt.datetime(1500, 3, 1, 12)
    rows = [
        {"day": long_ago.date(), "local": long_ago, "at": long_ago.replace(tzinfo=dt.UTC)},
        {"day": NOON.date(), "local": NOON.replace(tzinfo=None), "at": NOON},
    ]
    topic.append(rows)
    seal(topic)
    topic.append(rows)

    registered.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = read_range(registered, topic, {0: 0}, {0: 4}).selectExpr(
            "string(day) AS day", "string(local) AS local", "unix_micros(at) AS at", "typeof(local) AS type"
        )
        texts = {tuple(row) for row in frame.collect()}
    finally:
        registered.conf.set("spark.sql.session.timeZone", "UTC")

    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert texts == {
        (str(row["day"]), str(row["local"]), (row["at"] - epoch) // dt.timedelta(microseconds=1), "timestamp_ntz")
        for row in rows
    }


def test_a_home_may_have_an_odd_path(registered: SparkSession, tmp_path: Path):
    with Log(tmp_path / "a b" / "{c}[d]*?") as log:
        topic = mixed(log)

        assert read_range(registered, topic, {0: 0, 1: 0}, {0: 40, 1: 40}).count() == 80


def test_an_offset_outside_the_topic_is_refused(registered: SparkSession, log: Log):
    topic = mixed(log)

    with pytest.raises(OffsetOutOfRange, match="offset 61 is after the end"):
        read_range(registered, topic, {0: 0}, {0: 61})


def flip_a_value(path: Path) -> None:
    """Change one bit of a value. The rows of ``damageable`` are random, so that most bytes of the file are values."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def damageable(log: Log) -> Topic:
    import numpy
    import pyarrow as pa

    topic = log.topic("noise", "amount DOUBLE")
    topic.append(pa.table({"amount": numpy.random.default_rng(7).random(20_000)}))
    seal(topic)
    return topic


def test_a_damaged_file_is_refused_before_spark_sees_it(registered: SparkSession, log: Log):
    topic = damageable(log)
    file = topic.files({0: 0}, {0: 20_000}).files[0]
    flip_a_value(file.path)

    with pytest.raises(CorruptSegment) as caught:
        read_range(registered, topic, {0: 0}, {0: 20_000})

    assert str(file.path) in str(caught.value)


def test_a_file_that_is_damaged_later_is_refused_by_spark(registered: SparkSession, log: Log):
    topic = damageable(log)
    frame = read_range(registered, topic, {0: 0}, {0: 20_000})
    before = frame.selectExpr("sum(amount)").collect()
    path = topic.files({0: 0}, {0: 20_000}).files[0].path
    flip_a_value(path)

    # Without page checksums Spark would return the changed value as data: that is why read_range turns them on.
    unchecked = registered.read.parquet(str(path)).selectExpr("sum(amount)").collect()
    with pytest.raises(Exception, match="CRC checksum"):
        frame.selectExpr("sum(amount)").collect()

    assert unchecked != before


def test_event_metadata_is_read_by_name_from_files_and_tails(registered: SparkSession, log: Log):
    topic = log.topic("t", "n BIGINT")
    topic.append([{"n": 1}])
    seal(topic)
    topic.append([{"n": 2}], metadata=Metadata(actor="anna", correlation_id="c"))
    topic.append([{"n": 3}])
    seal(topic)
    topic.append([{"n": 4}], metadata=Metadata(actor="bob"))
    columns = ["n", "_actor", "_correlation_id", "_causation_id"]

    ranged = read_range(registered, topic, {0: 0}, {0: 4}, columns)
    reader = registered.read.format("headwater").option("home", str(log.home)).option("topic", "t")
    named = reader.option("columns", ",".join(columns)).load()

    expected = [(1, None, None, None), (2, "anna", "c", None), (3, None, None, None), (4, "bob", None, None)]
    assert sorted(tuple(row) for row in ranged.collect()) == expected
    assert sorted(tuple(row) for row in named.collect()) == expected
