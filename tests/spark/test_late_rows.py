"""Rows that come late: idle producers, the side topic after a crash, alerts, and a restart that nobody notices."""

from __future__ import annotations

import datetime as dt

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.log.maintenance.alerts import lasting
from headwater.testing import ManualClock
from headwater.views.event_time.late_rows import LateTopic
from tests.spark.timed_model import moment

COUNTS = "SELECT window.start AS minute, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')"

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def opened(tmp_path):
    clock, apps = ManualClock(), []

    def open_app(**declared):
        for app in apps:
            app.close()
        app = hw.App("timed", home=tmp_path / "home")
        app._log = Log(tmp_path / "home", clock=clock, maintenance_interval=None)
        app.clock = clock
        app.clicks = app.topic("clicks", "id BIGINT, at TIMESTAMP", event_time="at", idle="10 seconds")
        app.view("minutes", COUNTS, **declared)
        apps.append(app)
        return app

    yield open_app
    apps[-1].close()


def minutes(app) -> dict[str, int]:
    return {row["minute"].strftime("%H:%M"): row["n"] for row in app.sql("SELECT * FROM minutes").to_pylist()}


def at(*seconds: int) -> list[dict[str, object]]:
    return [{"id": second, "at": moment(second)} for second in seconds]


def test_windows_close_when_one_of_three_producers_falls_silent(opened):
    app = opened(emit="final")
    one, two, silent = (app.clicks.producer(name) for name in ("one", "two", "silent"))
    one.append(at(10, 70))
    two.append(at(20, 75))
    silent.append(at(30))
    app.tick()
    assert minutes(app) == {}

    app.clock.advance(11)
    one.append(at(130))
    two.append(at(131))
    app.tick()
    app.tick()
    assert minutes(app) == {"12:00": 3, "12:01": 2}

    silent.append(at(40, 140))  # it is back: its old row is late, and its new one is not
    app.tick()
    one.append(at(200))
    two.append(at(200))
    silent.append(at(200))
    app.tick()
    assert minutes(app) == {"12:00": 3, "12:01": 2, "12:02": 3}
    assert app.get_view("minutes").late_rows() == [{"topic": "clicks", "producer": "silent", "rows": 1}]


def test_two_producers_an_hour_apart_do_not_make_each_other_late(opened):
    app = opened(late="drop")
    ahead, behind = app.clicks.producer("ahead"), app.clicks.producer("behind")

    for second in range(0, 300, 60):
        ahead.append(at(3600 + second))
        behind.append(at(second))
        app.tick()

    assert app.get_view("minutes").late_rows() == []
    assert minutes(app) == {f"{hour}:0{minute}": 1 for hour in (12, 13) for minute in range(5)}
    assert app.get_view("minutes").watermark() == "2026-01-01T12:04:00.000Z"


def test_late_rows_are_set_aside_once_also_when_the_process_dies_after_the_commit(opened, monkeypatch):
    app = opened(late="drop")
    app.clicks.append(at(100))
    app.tick()
    app.clicks.append(at(1, 2))

    with monkeypatch.context() as broken:
        broken.setattr(LateTopic, "_side", lambda *_: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            app.tick()
    app = opened(late="drop")
    app.tick()
    app = opened(late="drop")
    app.tick()

    assert [row["id"] for row in app.get_topic("minutes.late").rows()] == [1, 2]
    assert app.get_view("minutes").late_rows() == [{"topic": "clicks", "producer": "(no name)", "rows": 2}]


def test_many_late_rows_raise_an_alert_that_ends(opened):
    app = opened(late="drop", late_alert=0.05)
    app.clicks.append(at(*range(1000, 1200)))
    app.tick()
    assert "_alerts" not in [topic.name for topic in app.log.topics()]

    app.clicks.append(at(*range(50)))
    app.tick()
    app.clicks.append(at(1))
    app.tick()

    told = list(app.log.get_topic("_alerts").rows())
    assert [(row["kind"], row["topic"]) for row in told] == [("late_rows", "clicks")]
    assert '20.0% of the recent rows of topic "clicks" came too late for view "minutes"' in told[0]["message"]

    app.clicks.append(at(*range(2000, 7000)))
    app.tick()
    told = list(app.log.get_topic("_alerts").rows())
    assert [(row["kind"], row["state"]) for row in told] == [("late_rows", "begin"), ("late_rows", "end")]
    assert lasting(app.log) == []


def test_a_redeploy_makes_neither_dip_nor_spike(opened):
    app = opened(horizon="5 minutes")
    sent = 0

    def stream(until: int) -> None:
        nonlocal sent
        app.clicks.append(at(*range(sent, until)))
        sent = until

    for until in (150, 290):
        stream(until)
        app.tick()
    stream(700)  # while nobody runs the app
    app = opened(horizon="5 minutes")
    for until in (701, 900):
        stream(until)
        app.tick(rows_max=100)
        while app.tick(rows_max=100).behind:
            pass

    assert minutes(app) == {f"12:{minute:02d}": 60 for minute in range(15)}


def test_a_heartbeat_waits_for_the_rows_that_it_speaks_of(opened):
    app = opened(late="drop")
    app.clicks.append(at(10))
    app.tick()
    app.clicks.append(at(*range(20, 40)))
    app.clicks.heartbeat(moment(3600))

    while app.tick(rows_max=7).behind:
        pass

    assert app.get_view("minutes").late_rows() == []
    assert app.get_view("minutes").watermark() == "2026-01-01T13:00:00.000Z"
    assert minutes(app) == {"12:00": 21}


def test_corrections_come_by_the_feed_and_final_rows_once(opened):
    app = opened(emit="final")
    for seconds in ((1, 70), (2, 130), (3, 200), (250,)):
        app.clicks.append(at(*seconds))
        app.tick()

    changes = [row for table in app.get_view("minutes").changes() for row in table.to_pylist()]

    assert [(row["_change_type"], row["minute"].strftime("%H:%M")) for row in changes] == [
        ("insert", "12:00"),
        ("insert", "12:01"),
        ("insert", "12:02"),
        ("insert", "12:03"),
    ]
    assert dt.datetime.fromisoformat(app.get_view("minutes").watermark()) == moment(250)


def test_groups_that_closed_are_let_go_and_still_shown(opened):
    app = opened(horizon="2 minutes")
    for minute in range(30):
        app.clicks.append(at(minute * 60, minute * 60 + 30))
        app.tick()

    kept = app._runtime.engine.traces["minutes$open"].content()

    assert kept.num_rows <= 6  # two minutes, one that is open, one more for the reach, and what the next step takes
    assert minutes(app) == {f"12:{minute:02d}": 2 for minute in range(30)}
    assert [found.view for found in app.verify() if not found.equal] == []


def test_a_topic_with_retention_is_not_copied_for_views_that_let_go(opened):
    app = opened(horizon="2 minutes")
    app.topic("clicks", "id BIGINT, at TIMESTAMP", event_time="at", idle="10 seconds", retention_bytes=1 << 20)
    for minute in range(6):
        app.clicks.append(at(*range(minute * 60, minute * 60 + 60)))
        app.tick()

    assert "clicks" not in app._runtime.engine.manifest.relations
    assert minutes(app) == {f"12:{minute:02d}": 60 for minute in range(6)}
