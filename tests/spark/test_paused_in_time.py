"""Pauses of views that know the time: tables as they were, late rows, windows that are final.

What it is: a record that is read AS OF is set aside; views with ``late=`` and ``emit="final"`` are paused, and resumed
after rows came that the watermark of their last good tick judges.
Invariants: what is expected follows from the records by hand, and is what ``verify`` makes of the log.
Not here: pauses without time (``test_paused_views.py``).
Read next: ``docs/failures.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.testing import ManualClock
from tests.spark.timed_model import moment

pytestmark = pytest.mark.usefixtures("spark")
CONVERTED = (
    "SELECT o.id, o.amount DIV r.divisor AS amount"
    " FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency"
)
MINUTES = (
    "SELECT window.start AS minute, sum(60 DIV parts) AS total, count(*) AS n FROM clicks"
    " GROUP BY window(at, '1 minute')"
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", home=tmp_path / "home", on_error="pause") as app:
        app._log = Log(tmp_path / "home", clock=ManualClock(), maintenance_interval=None)
        yield app


def ordered(app: hw.App, view: str) -> list[tuple[Any, ...]]:
    rows = sorted(tuple(row.values()) for row in app.sql(f"SELECT * FROM {view}").to_pylist())
    served = app._runtime.serving.query(f'SELECT * FROM "{view}"').to_pylist()
    assert sorted(tuple(row.values()) for row in served) == rows
    return rows


@pytest.mark.parametrize("topic", ["rates", "orders"])
def test_a_record_that_is_read_as_of_a_moment_is_set_aside(app: hw.App, topic: str) -> None:
    rates = app.table("rates", "currency STRING, divisor INT, since TIMESTAMP", key="currency", event_time="since")
    orders = app.topic("orders", "id BIGINT, currency STRING, amount INT, at TIMESTAMP", key="id", event_time="at")
    app.view("converted", CONVERTED)
    app.view("total", "SELECT sum(amount) AS amount FROM converted")
    app.view("now", "SELECT currency, divisor FROM rates")
    rates.upsert([{"currency": "USD", "divisor": 2, "since": moment(0)}])
    orders.append([{"id": 1, "currency": "USD", "amount": 10, "at": moment(10)}])
    app.tick()
    rates.upsert([{"currency": "USD", "divisor": 0, "since": moment(20)}])
    orders.append([{"id": 2, "currency": "USD", "amount": 20, "at": moment(30)}])
    app.tick()
    assert [view.name for view in app.views if view.paused is not None] == ["converted", "total"]
    assert (ordered(app, "converted"), ordered(app, "now")) == ([(1, 5)], [("USD", 0)])

    (culprit,) = app.get_view("converted").diagnose().culprits
    assert {place.topic for place, _ in culprit.records} == {"rates", "orders"}  # they fail together
    app._runtime.set_aside([place for place, _ in culprit.records if place.topic == topic], reason="no divisor")
    app.get_view("converted").resume()

    if topic == "rates":  # the version before it counts again, as it is and as it was
        assert ordered(app, "converted") == [(1, 5), (2, 10)]
        assert (ordered(app, "total"), ordered(app, "now")) == ([(15,)], [("USD", 2)])
    else:
        assert ordered(app, "converted") == [(1, 5)]
        assert (ordered(app, "total"), ordered(app, "now")) == ([(5,)], [("USD", 0)])
    assert all(found.equal for found in app.verify())
    rates.upsert([{"currency": "USD", "divisor": 3, "since": moment(40)}])
    app.tick()  # by itself: a tick with both would meet the version of before, too, and take it back again
    orders.append([{"id": 3, "currency": "USD", "amount": 30, "at": moment(50)}])
    orders.append([{"id": 4, "currency": "USD", "amount": 40, "at": moment(15)}])
    app.tick()
    more = [(2, 10), (3, 10), (4, 20)] if topic == "rates" else [(3, 10), (4, 20)]
    assert ordered(app, "converted") == [(1, 5), *more]
    assert all(found.equal for found in app.verify())


def clicks(*given: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [{"id": number, "parts": parts, "at": moment(second)} for number, parts, second in given]


def test_views_that_judge_late_rows_are_resumed_as_by_one_large_tick(app: hw.App) -> None:
    topic = app.topic("clicks", "id BIGINT, parts INT, at TIMESTAMP", key="id", event_time="at")
    app.view("dropping", MINUTES, late="drop")
    app.view("final", MINUTES, emit="final")
    app.view("plain", "SELECT count(*) AS n FROM clicks")

    def shown(view: str) -> dict[str, tuple[int, int]]:
        return {minute.strftime("%H:%M"): (total, n) for minute, total, n in ordered(app, view)}

    topic.append(clicks((1, 1, 10), (2, 2, 70)))
    app.tick()
    assert (shown("dropping"), shown("final")) == ({"12:00": (60, 1), "12:01": (30, 1)}, {"12:00": (60, 1)})
    topic.append(clicks((3, 0, 80)))
    app.tick()
    assert [view.name for view in app.views if view.paused is not None] == ["dropping", "final"]
    topic.append(clicks((4, 3, 200)))
    app.tick()
    # Both are behind the log's watermark; by that of the views, who stand still, the second is late and the first not.
    topic.append(clicks((5, 4, 75), (6, 5, 30)))
    app.tick()
    topic.append(clicks((3, 6, 80)))
    app.tick()
    assert ordered(app, "plain") == [(6,)]
    assert shown("dropping") == {"12:00": (60, 1), "12:01": (30, 1)}

    app.get_view("dropping").resume()
    app.get_view("final").resume()

    in_time = {"12:00": (60, 1), "12:01": (30 + 10 + 15, 3), "12:03": (20, 1)}
    assert shown("dropping") == in_time
    assert shown("final") == {"12:00": (60, 1)}
    topic.append(clicks((7, 1, 260)))
    app.tick()
    assert shown("dropping") == {**in_time, "12:04": (60, 1)}
    assert shown("final") == in_time  # what was closed meanwhile, and nothing of what is open
    topic.append(clicks((8, 1, 90)))  # and now it is late
    app.tick()
    assert shown("dropping") == {**in_time, "12:04": (60, 1)}
    assert all(found.equal for found in app.verify())
