"""Alerts: told once when a condition begins, before retention acts, and when it is over; by one process of many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.log.home import Log
from headwater.log.maintenance.alerts import ALERTS_TOPIC, Alert, lasting, publish
from headwater.log.maintenance.reader_alerts import watch_readers
from headwater.log.topic import Topic
from headwater.testing import ManualClock


@pytest.fixture
def told() -> list[Alert]:
    return []


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock, told: list[Alert]) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=clock, on_alert=told.append, maintenance_interval=None) as log:
        yield log


def clicks(log: Log, **settings: Any) -> Topic:
    topic = log.topic("clicks", "x INT", **settings)
    topic.consumer("billing").close()
    return topic


def recorded(log: Log) -> list[tuple[str, str, str]]:
    return [(row["kind"], row["state"], row["group"]) for row in log.get_topic(ALERTS_TOPIC).rows()]


def test_a_group_is_warned_at_four_fifths_of_the_way_by_age(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = clicks(log, retention="100 seconds")
    topic.append([{"x": 1}, {"x": 2}])

    clock.advance(79)
    early = log.maintain().alerts
    clock.advance(1)
    due = log.maintain().alerts

    assert early == ()
    assert list(due) == told
    assert (told[0].kind, told[0].topic, told[0].group, told[0].partition) == ("lag_at_risk", "clicks", "billing", 0)
    assert told[0].detail == {"position": 0, "end": 2, "lag": 2, "part": 0.8, "by": "age"}
    assert "2 rows behind" in told[0].message
    assert topic.start_offsets() == {0: 0}


def test_a_group_is_warned_by_bytes_too(log: Log, told: list[Alert]) -> None:
    topic = clicks(log, segment_bytes_max=1000)
    for n in range(20):
        topic.append([{"x": n}] * 20)
    log.maintain()
    size = sum(p["sealed_bytes"] + p["arrow_bytes"] for p in topic.describe()["partitions"])

    log.topic("clicks", "x INT", retention_bytes=2 * size)
    log.maintain()
    quiet = list(told)
    log.topic("clicks", "x INT", retention_bytes=size * 10 // 9)
    log.maintain()

    assert quiet == []
    assert [(alert.kind, alert.detail["by"]) for alert in told] == [("lag_at_risk", "bytes")]


def test_it_is_a_row_of_the_system_topic(log: Log, clock: ManualClock) -> None:
    clicks(log, retention="1 second").append([{"x": 1}])
    clock.advance(0.9)

    log.maintain()

    rows = list(log.get_topic(ALERTS_TOPIC).rows())
    assert [(row["kind"], row["topic"], row["group"], row["partition"]) for row in rows] == [
        ("lag_at_risk", "clicks", "billing", 0)
    ]
    assert json.loads(rows[0]["detail"])["lag"] == 1
    assert log.get_topic(ALERTS_TOPIC).settings.retention_bytes == 16 << 20


def test_it_is_not_repeated_while_it_lasts_and_told_again_when_it_comes_back(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    topic = clicks(log, retention="100 seconds")
    topic.append([{"x": 1}])
    clock.advance(85)
    for _ in range(3):
        log.maintain()
    once = len(told)

    with topic.consumer("billing") as consumer:
        consumer.commit(consumer.poll(timeout=5))
    log.maintain()
    topic.append([{"x": 2}])
    clock.advance(90)
    log.maintain()

    assert once == 1
    assert recorded(log) == [
        ("lag_at_risk", "begin", "billing"),
        ("lag_at_risk", "end", "billing"),
        ("lag_at_risk", "begin", "billing"),
    ]
    assert [alert.state for alert in told] == ["begin", "end", "begin"]
    assert told[1].message == f"over: {told[0].message}. It has read on."
    assert told[1].detail == {**told[0].detail, "since": told[0].to_dict()["at"]}


def test_a_group_that_was_overtaken_is_told_how_many_rows_it_lost(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    topic = clicks(log, retention="1 second")
    topic.append([{"x": n} for n in range(7)])
    clock.advance(2)

    log.maintain()
    log.maintain()

    # Warned first, although there was only one look at it.
    assert [(alert.kind, alert.state) for alert in told] == [
        ("lag_at_risk", "begin"),
        ("lag_lost", "begin"),
        ("lag_at_risk", "end"),
    ]
    assert told[1].detail == {"position": 0, "start": 7, "rows_lost": 7}
    assert told[2].message.endswith("The rows were dropped.")


def test_a_group_that_has_read_everything_is_left_in_peace(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = clicks(log, retention="1 second")
    topic.append([{"x": 1}])
    topic.group("billing").reset("latest")
    clock.advance(2)

    log.maintain()

    assert told == []
    assert topic.start_offsets() == {0: 1}


def test_each_group_and_partition_has_its_own(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = log.topic("wide", "id INT", key="id", partitions=2, retention="1 second")
    topic.worker("work").close()
    topic.consumer("read").close()
    topic.append([{"id": n} for n in range(50)])
    clock.advance(0.9)

    log.maintain()

    assert sorted((a.group, a.partition) for a in told) == [("read", 0), ("read", 1), ("work", 0), ("work", 1)]


def test_two_processes_that_look_at_the_same_time_tell_it_once(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    topic = clicks(log, retention="1 second")
    topic.append([{"x": 1}])
    clock.advance(0.9)
    other_told: list[Alert] = []
    with Log(tmp_path / "home", clock=clock, on_alert=other_told.append, maintenance_interval=None) as other:
        watch_readers(topic)
        watch_readers(other.get_topic("clicks"))

        both = [*publish(other), *publish(log)]

    assert len(both) == len(other_told) == 1
    assert recorded(log) == [("lag_at_risk", "begin", "billing")]


def test_one_that_was_written_but_not_marked_as_told_is_not_written_twice(log: Log, clock: ManualClock) -> None:
    clicks(log, retention="1 second").append([{"x": 1}])
    clock.advance(0.9)
    watch_readers(log.get_topic("clicks"))
    outbox = [tuple(row) for row in log.catalog.read("SELECT * FROM alert_events")]
    publish(log)

    with log.catalog.write() as db:  # as if the process had died between the two
        db.executemany("INSERT INTO alert_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", outbox)
    publish(log)

    assert len(outbox) == 1
    assert recorded(log) == [("lag_at_risk", "begin", "billing")]
    assert log.catalog.read("SELECT * FROM alert_events") == []


def test_one_that_ended_before_it_was_told_is_told_all_the_same(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    topic = clicks(log, retention="1 second")
    topic.append([{"x": 1}])
    clock.advance(0.9)
    watch_readers(topic)
    topic.group("billing").reset("latest")
    watch_readers(topic)

    publish(log)

    assert [(alert.kind, alert.state) for alert in told] == [("lag_at_risk", "begin"), ("lag_at_risk", "end")]
    assert lasting(log) == []


def test_a_callback_that_fails_does_not_stop_the_care(tmp_path: Path, clock: ManualClock) -> None:
    def refuse(alert: Alert) -> None:
        raise RuntimeError(str(alert))

    with Log(tmp_path / "other", clock=clock, on_alert=refuse, maintenance_interval=None) as log:
        clicks(log, retention="1 second").append([{"x": 1}])
        clock.advance(2)

        report = log.maintain()

        assert report.ok
        assert [alert.state for alert in report.alerts] == ["begin", "begin", "end"]


def test_deleting_a_topic_ends_its_alerts(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    clicks(log, retention="1 second").append([{"x": 1}])
    clock.advance(0.9)
    log.maintain()

    log.delete_topic("clicks")

    assert lasting(log) == []
    assert told[-1].state == "end"
    assert told[-1].message.endswith("The topic was deleted.")
    assert log.check().problems == ()
