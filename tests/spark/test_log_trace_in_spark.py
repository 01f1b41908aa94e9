"""Log traces read by Spark: the topic's rows, whatever became of its files meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.home import Log
from headwater.views.state.delta import Delta
from headwater.views.state.log_trace import LogTrace
from tests.spark.topics import append_orders, orders, seal

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_each_row_of_the_range_weighs_one(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log)
    append_orders(topic, 30)
    trace = LogTrace(topic, {0: 5}, {0: 25}, folder=tmp_path / "state")

    rows = trace.frame(registered, ["id", "_offset"]).collect()

    assert sorted(tuple(row) for row in rows) == [(number, number, 1) for number in range(5, 25)]


def test_a_frame_is_made_anew_when_the_tail_was_sealed(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log)
    append_orders(topic, 20)
    trace = LogTrace(topic, {0: 0}, {0: 20}, folder=tmp_path / "state")
    first = trace.bag(registered, ["id"])
    same = first.inputFiles()
    seal(topic)

    second = trace.bag(registered, ["id"])

    assert same == []
    assert len(second.inputFiles()) == 1
    assert sorted(row["id"] for row in second.collect()) == list(range(20))


def test_changes_are_added_to_the_bag(registered: SparkSession, log: Log, tmp_path: Path):
    topic = orders(log)
    append_orders(topic, 3)
    trace = LogTrace(topic, {0: 0}, {0: 3}, folder=tmp_path / "state")
    more = pa.table({"id": [7], "amount": [1.0], "at": pa.nulls(1, topic.schema.field("at").type), "_weight": [2]})

    bag = trace.bag(registered, ["id"], Delta.local(more), restrict=lambda frame: frame.where("id > 0"))

    assert sorted(row["id"] for row in bag.collect()) == [1, 2, 7, 7]
