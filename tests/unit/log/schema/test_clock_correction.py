"""Device clocks: the corrected time is stamped on append, and never absurd."""

from __future__ import annotations

import datetime as dt

import pytest

from headwater.clock import BOUND_MS
from headwater.errors import DeclarationConflict, InvalidDeclaration
from headwater.log.home import Log
from headwater.testing import ManualClock

SCHEMA = "user BIGINT, occurred_at TIMESTAMP, sent_at TIMESTAMP"
TIMED = {"event_time": "at", "clock": ("occurred_at", "sent_at")}
NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path, clock=ManualClock(), maintenance_interval=None) as opened:
        yield opened


def appended(log, occurred, sent):
    topic = log.topic("clicks", SCHEMA, **TIMED)
    topic.append([{"user": 1, "occurred_at": occurred, "sent_at": sent}])
    return list(topic.rows())[-1]


def ago(**parts) -> dt.datetime:
    return NOW - dt.timedelta(**parts)


@pytest.mark.parametrize(
    ("occurred", "sent", "corrected"),
    [
        (ago(seconds=9), ago(seconds=5), ago(seconds=4)),  # five seconds slow, or on the way
        (ago(hours=-1, seconds=4), ago(hours=-1), ago(seconds=4)),  # an hour fast
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC), ago(minutes=1)),
        (ago(seconds=1), ago(seconds=5), NOW),  # happened after it was sent
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), ago(seconds=0), ago(milliseconds=BOUND_MS)),  # the clock was set
        (ago(seconds=9), None, ago(seconds=9)),
        (ago(seconds=-9), None, NOW),
        (None, ago(seconds=9), NOW),
        (None, None, NOW),
    ],
)
def test_the_time_on_the_device_counts_and_not_its_clock(log, occurred, sent, corrected):
    row = appended(log, occurred, sent)

    assert row["at"] == corrected
    assert (row["occurred_at"], row["sent_at"], row["received_at"]) == (occurred, sent, NOW)
    assert row["clock_offset_ms"] == (None if sent is None else (NOW - sent) // dt.timedelta(milliseconds=1))


def test_json_lines_are_stamped_too_and_the_schema_may_grow(log):
    topic = log.topic("clicks", SCHEMA, **TIMED)
    topic.append_json('{"user": 1, "occurred_at": "2029-12-31T23:59:56Z", "sent_at": "2030-01-01T00:00:00Z"}')
    grown = log.topic("clicks", SCHEMA + ", page STRING", **TIMED)
    grown.append([{"user": 2, "occurred_at": None, "sent_at": None, "page": "/"}])

    assert [row["at"] for row in grown.rows()] == [ago(seconds=4), NOW]


def test_what_is_filled_cannot_be_brought(log):
    topic = log.topic("clicks", SCHEMA, **TIMED)

    with pytest.raises(Exception, match="received_at"):
        topic.append([{"user": 1, "received_at": NOW}])


def test_the_columns_must_be_times(log):
    with pytest.raises(InvalidDeclaration) as missing:
        log.topic("clicks", "sent_at TIMESTAMP", **TIMED)
    with pytest.raises(InvalidDeclaration) as itself:
        log.topic("clicks", SCHEMA, event_time="sent_at", clock=("occurred_at", "sent_at"))

    assert 'clock names the column "occurred_at", which is not a TIMESTAMP column' in str(missing.value)
    assert "another one that Headwater fills" in str(itself.value)


def test_the_clock_is_for_ever(log):
    log.topic("clicks", SCHEMA, **TIMED)

    with pytest.raises(DeclarationConflict, match="clock of topic"):
        log.topic("clicks", SCHEMA, event_time="at", clock=("sent_at", "occurred_at"))
