"""Abandoned groups: they are told of, they can be deleted, they expire; and they do not stop producers for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import Backpressure, UnknownGroup
from headwater.log.home import Log
from headwater.log.maintenance.alerts import Alert, lasting
from headwater.log.topic import Topic
from headwater.testing import ManualClock
from tests.unit.command_line import CommandLine

DAY_S = 24 * 3600


@pytest.fixture
def told() -> list[Alert]:
    return []


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock, told: list[Alert]) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=clock, on_alert=told.append, maintenance_interval=None) as log:
        yield log


def full(log: Log, **settings: object) -> Topic:
    """A topic whose producers wait for a group that nobody is in."""
    topic = log.topic("jobs", "x INT", overflow="block", overflow_rows_max=10, block_timeout="20 ms", **settings)
    topic.consumer("billing").close()
    topic.append([{"x": n} for n in range(10)])
    return topic


def test_producers_go_on_once_the_command_that_the_error_names_was_given(log: Log) -> None:
    topic = full(log)

    with pytest.raises(Backpressure) as refused:
        topic.append([{"x": 10}])
    command = refused.value.hint.split("headwater ")[1]
    CommandLine(log.home)(*command.split())
    topic.append([{"x": 10}])

    assert command == "group delete billing --topic jobs"
    assert "It has no member since" in refused.value.detail
    assert topic.end_offsets() == {0: 11}
    with pytest.raises(UnknownGroup):
        topic.group("billing")


def test_producers_do_not_wait_for_a_group_that_has_expired(log: Log, clock: ManualClock) -> None:
    topic = full(log, group_expiry="7 days")
    clock.advance(7 * DAY_S - 1)
    with pytest.raises(Backpressure):
        topic.append([{"x": 10}])

    clock.advance(1)  # before any maintenance
    topic.append([{"x": 10}])

    assert topic.end_offsets() == {0: 11}


def test_an_expired_group_is_removed_and_the_alert_tells_its_end(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    topic = full(log)

    clock.advance(60)
    log.maintain()
    clock.advance(30 * DAY_S)
    log.maintain()

    assert [(alert.kind, alert.state, alert.group) for alert in told] == [
        ("group_abandoned", "begin", "billing"),
        ("group_abandoned", "end", "billing"),
    ]
    assert "headwater group delete billing --topic jobs" in told[0].message
    assert "It expired and was removed" in told[1].message
    assert topic.groups() == []


def test_a_member_that_comes_back_ends_the_alert(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = full(log)
    clock.advance(60)
    log.maintain()

    with topic.consumer("billing"):
        log.maintain()

    assert [alert.state for alert in told] == ["begin", "end"]
    assert told[1].message.endswith("It has a member again.")
    assert lasting(log) == []


def test_deleting_the_group_ends_the_alert(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = full(log)
    clock.advance(60)
    log.maintain()

    topic.group("billing").delete()
    log.maintain()

    assert told[1].message.endswith("It was deleted.")


def test_a_killed_member_counts_as_silent_from_its_last_heartbeat(log: Log, clock: ManualClock) -> None:
    topic = log.topic("jobs", "x INT", overflow="block", overflow_rows_max=1, block_timeout="20 ms", group_expiry="1 h")
    dead = topic.consumer("billing", background=False)  # never closed, never beats again
    topic.append([{"x": 1}])

    clock.advance(3599)
    with pytest.raises(Backpressure):
        topic.append([{"x": 2}])
    clock.advance(1)
    topic.append([{"x": 2}])

    assert dead.member in {member.id for member in topic.group("billing").describe().members}


def test_a_group_that_has_read_everything_or_holds_nothing_back_is_never_removed(
    log: Log, clock: ManualClock, told: list[Alert]
) -> None:
    done = full(log)
    done.group("billing").reset("latest")
    plain = log.topic("plain", "x INT")
    plain.consumer("seasonal").close()
    plain.append([{"x": 1}])

    clock.advance(365 * DAY_S)
    log.maintain()

    assert [group.name for group in done.groups()] == ["billing"]
    assert [group.name for group in plain.groups()] == ["seasonal"]
    assert [(alert.topic, alert.group) for alert in told] == [("plain", "seasonal")]


def test_a_group_without_expiry_is_told_of_and_stays(log: Log, clock: ManualClock, told: list[Alert]) -> None:
    topic = full(log, group_expiry=None)

    clock.advance(365 * DAY_S)
    log.maintain()

    assert [alert.kind for alert in told] == ["group_abandoned"]
    with pytest.raises(Backpressure):
        topic.append([{"x": 10}])


def test_a_work_group_is_abandoned_like_any_other(log: Log) -> None:
    topic = log.topic("jobs", "x INT", overflow="block", overflow_rows_max=1, block_timeout="20 ms")
    topic.worker("packers").close()
    topic.append([{"x": 1}])

    with pytest.raises(Backpressure, match='group "packers" is 1 rows behind') as refused:
        topic.append([{"x": 2}])

    assert refused.value.hint.endswith("headwater group delete packers --topic jobs")
