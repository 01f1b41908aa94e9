"""retention="until read": rows go when every reader has read them, and at a limit anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headwater.errors import InvalidDeclaration, UnknownApp
from headwater.log.groups.readers import forget_app, write_app_positions
from headwater.log.home import Log
from headwater.log.maintenance.alerts import Alert
from headwater.log.maintenance.reader_alerts import lag_of
from headwater.log.topic import Topic
from headwater.testing import ManualClock

DAY_S = 24 * 3600


@pytest.fixture
def told() -> list[Alert]:
    return []


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock, told: list[Alert]) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=clock, on_alert=told.append, maintenance_interval=None) as log:
        yield log


def jobs(log: Log, **settings: object) -> Topic:
    """Ten segments of one row, all but the last sealed."""
    retention = settings.pop("retention", "until read, at most 10 days")
    topic = log.topic("jobs", "x INT", retention=retention, **settings)
    topic.consumer("billing").close()
    for n in range(10):
        topic.append([{"x": n}])
        topic.partition(0).roll()
    return topic


def tick_of(log: Log, topic: Topic, app: str, at: int, needed: Mapping[int, int] | None = None) -> None:
    """What the commit of an app's tick does to the catalog."""
    frontiers = [] if needed is None else [{topic.id: needed}]
    with log.catalog.write() as db:
        write_app_positions(db, app, {topic.id: {0: at}}, log.clock.now_us(), needed=frontiers)


def test_rows_go_when_every_group_has_read_them(log: Log) -> None:
    topic = jobs(log)
    topic.consumer("audit").close()
    topic.group("billing").reset(7)
    topic.group("audit").reset(4)

    log.maintain()
    first = topic.start_offsets()
    topic.group("audit").reset(9)
    log.maintain()

    assert first == {0: 4}
    assert topic.start_offsets() == {0: 7}


def test_nothing_goes_while_nobody_has_read(log: Log) -> None:
    topic = jobs(log)

    log.maintain()
    topic.group("billing").delete()
    log.maintain()

    assert topic.start_offsets() == {0: 0}


def test_an_app_is_a_reader_too(log: Log) -> None:
    topic = jobs(log)
    topic.group("billing").reset("latest")
    tick_of(log, topic, "shop", 3)

    log.maintain()

    assert topic.start_offsets() == {0: 3}


def test_rows_that_a_paused_view_or_a_rebuild_reads_again_are_kept(log: Log) -> None:
    topic = jobs(log)
    topic.group("billing").reset("latest")
    tick_of(log, topic, "shop", 8, needed={0: 2})

    log.maintain()
    kept = topic.start_offsets()
    tick_of(log, topic, "shop", 8)
    log.maintain()

    assert kept == {0: 2}
    assert topic.start_offsets() == {0: 8}
    assert [each.lag for each in lag_of(topic) if each.kind == "app"] == [2]


def test_at_the_limit_they_go_unread_after_a_warning(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = jobs(log, group_expiry=None)
    tick_of(log, topic, "shop", 6)

    clock.advance(8 * DAY_S)
    log.maintain()
    warned = [(alert.kind, alert.state, alert.group or alert.detail["app"]) for alert in told]
    clock.advance(2 * DAY_S)
    log.maintain()

    assert ("lag_at_risk", "begin", "billing") in warned
    assert ("lag_at_risk", "begin", "shop") in warned
    assert topic.start_offsets() == {0: 10}
    lost = [alert for alert in told if alert.kind == "lag_lost"]
    assert {alert.group or alert.detail["app"]: alert.detail["rows_lost"] for alert in lost} == {
        "billing": 10,
        "shop": 4,
    }
    assert 'retention of topic "jobs" has overtaken app "shop"' in lost[-1].message


def test_the_alert_about_an_app_ends_when_its_next_tick_has_read_on(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    topic = jobs(log, group_expiry=None)
    topic.group("billing").reset("latest")
    tick_of(log, topic, "shop", 6)
    clock.advance(8 * DAY_S)
    log.maintain()

    tick_of(log, topic, "shop", 10)
    log.maintain()

    about_lag = [(alert.kind, alert.state) for alert in told if alert.kind == "lag_at_risk"]
    assert about_lag == [("lag_at_risk", "begin"), ("lag_at_risk", "end")]


def test_a_limit_in_bytes_is_one_too(log: Log) -> None:
    topic = jobs(log, retention="until read", retention_bytes=1)

    log.maintain()

    assert topic.start_offsets() == {0: 10}


def test_an_expired_group_holds_nothing_back(log: Log, clock: ManualClock) -> None:
    topic = jobs(log, group_expiry="1 day")
    topic.consumer("audit", background=False)
    clock.advance(DAY_S + 60)
    with topic.consumer("audit") as consumer:
        consumer.commit({0: 5})

        log.maintain()

    assert [group.name for group in topic.groups()] == ["audit"]
    assert topic.start_offsets() == {0: 5}


def test_a_forgotten_app_holds_nothing_back(log: Log) -> None:
    topic = jobs(log)
    topic.group("billing").reset("latest")
    tick_of(log, topic, "shop", 3)

    assert forget_app(log, "shop") == ["jobs"]
    log.maintain()

    assert topic.start_offsets() == {0: 10}
    with pytest.raises(UnknownApp, match='no app "shop"'):
        forget_app(log, "shop")


def test_it_needs_a_limit(log: Log) -> None:
    with pytest.raises(InvalidDeclaration, match="needs a limit") as refused:
        log.topic("jobs", "x INT", retention="until read")

    assert "at most 30 days" in refused.value.hint


def test_a_plain_retention_declared_later_takes_its_place(log: Log) -> None:
    log.topic("jobs", "x INT", retention="until read, at most 10 days")

    again = log.topic("jobs", "x INT", retention="7 days")

    assert (again.settings.until_read, again.settings.retention_ms) == (False, 7 * DAY_S * 1000)
