"""What a horizon lets go of where rows of any age may belong together: sessions, and tables as they were."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.views import thresholds
from tests.spark.timed_model import moment

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(600)]
MINUTE = 60
# In this process, and with Spark.
SETTLED = pytest.mark.parametrize("settled", [thresholds.SETTLED_ROWS_MAX, 0], ids=["few rows", "many rows"])

SESSIONS = """
    SELECT session_window.start AS start, session_window.end AS until, visitor, count(*) AS pages
    FROM visits GROUP BY session_window(at, '5 minutes'), visitor"""
PRICED = """
    SELECT o.id, o.at, p.price FROM orders o
    LEFT JOIN prices FOR SYSTEM_TIME AS OF o.at AS p ON p.product = o.product"""


@SETTLED
def test_rows_of_a_session_leave_with_it(tmp_path, monkeypatch, settled):
    monkeypatch.setattr(thresholds, "SETTLED_ROWS_MAX", settled)
    app = hw.App("web", home=tmp_path / "home")
    visits = app.topic("visits", "visitor STRING, at TIMESTAMP", event_time="at")
    app.view("sessions", SESSIONS, horizon="10 minutes")

    # One visitor stays for two hours; each other one looks at two pages and leaves.
    for part in range(8):
        rows = []
        for minute in range(part * 15, part * 15 + 15):
            rows.append({"visitor": "stays", "at": moment(minute * MINUTE)})
            rows += [{"visitor": f"v{minute}", "at": moment(minute * MINUTE + second)} for second in (0, 30)]
        visits.append(rows)
        app.tick()

    shown = app.sql("SELECT * FROM sessions").to_pylist()
    assert sorted(row["pages"] for row in shown) == [2] * 120 + [120]
    kept = app._runtime.engine.traces["sessions$in-time.visits"].content().to_pylist()
    of_others = [row["at"] for row in kept if row["visitor"] != "stays"]
    assert len(kept) - len(of_others) == 120  # its session is still open
    # Let go: ten minutes of horizon, a gap until the session is over and one more; in steps of a quarter of a gap.
    assert min(of_others) >= moment((119 - 15 - 10 - 5 - 5 - 2) * MINUTE)
    assert [found.view for found in app.verify() if not found.equal] == []
    assert app.rebuild("sessions").changes == {"sessions": 0}
    assert sorted(row["pages"] for row in app.sql("SELECT * FROM sessions").to_pylist()) == [2] * 120 + [120]
    app.close()


@SETTLED
def test_versions_leave_that_nobody_can_ask_for(tmp_path, monkeypatch, settled):
    monkeypatch.setattr(thresholds, "SETTLED_ROWS_MAX", settled)
    app = hw.App("shop", home=tmp_path / "home")
    prices = app.table("prices", "product STRING, price INT, since TIMESTAMP", key="product", event_time="since")
    orders = app.topic("orders", "id BIGINT, product STRING, at TIMESTAMP", event_time="at")
    app.view("priced", PRICED, horizon="10 minutes")
    expected = {}

    # A new price each minute, and an order half a minute later; a product that leaves for good; one that never changes.
    prices.upsert([{"product": "salt", "price": 7, "since": moment(0)}])
    prices.upsert([{"product": "gone", "price": 1, "since": moment(0)}])
    prices.delete([{"product": "gone", "since": moment(30)}])
    for part in range(6):
        for minute in range(part * 10, part * 10 + 10):
            prices.upsert([{"product": "tea", "price": minute, "since": moment(minute * MINUTE)}])
            given = [
                {"id": 3 * minute + n, "product": name, "at": moment(minute * MINUTE + 30)}
                for n, name in enumerate(("tea", "salt", "gone"))
            ]
            orders.append(given)
            expected |= {3 * minute: minute, 3 * minute + 1: 7, 3 * minute + 2: None}
        app.tick()
    # Late, and in time for the horizon: it corrects. Later than that it changes nothing that is final.
    prices.upsert([{"product": "tea", "price": 1000, "since": moment(55 * MINUTE + 10)}])
    prices.upsert([{"product": "gone", "price": 5, "since": moment(10)}])
    prices.upsert([{"product": "tea", "price": 2000, "since": moment(5 * MINUTE + 10)}])
    prices.upsert([{"product": "tea", "price": 59, "since": moment(59 * MINUTE)}])
    expected[3 * 55] = 1000
    app.tick()

    def shown():
        return {row["id"]: row["price"] for row in app.sql("SELECT * FROM priced").to_pylist()}

    assert shown() == expected
    kept = app._runtime.engine.traces["priced$remembered.prices$versions"].content().to_pylist()
    assert len([row for row in kept if row["product"] == "tea"]) < 30
    assert any(row["_deleted"] for row in kept if row["product"] == "gone")
    assert len([row for row in kept if row["product"] == "salt"]) == 1
    assert [found.view for found in app.verify() if not found.equal] == []
    assert app.rebuild("priced").changes == {"priced": 0}
    assert shown() == expected
    app.close()


def test_whatever_a_view_is_made_of_its_state_stays_flat(tmp_path):
    app = hw.App("day", home=tmp_path / "home")
    clicks = app.topic("clicks", "id BIGINT, visitor STRING, amount INT, at TIMESTAMP", event_time="at")
    by_minute = "FROM clicks GROUP BY window(at, '1 minute'), visitor"
    views = {
        "counted": f"SELECT window.start AS s, visitor, count(*) AS n {by_minute}",
        "distinct": f"SELECT window.start AS s, visitor, count(DISTINCT amount) AS n {by_minute}",
        "middle": f"SELECT window.start AS s, visitor, percentile(amount, 0.5) AS p {by_minute}",
        "plain": "SELECT id, at FROM clicks WHERE amount > 1",
        "met": "SELECT a.id, a.at AS at, b.id AS other FROM clicks a JOIN clicks b ON a.visitor = b.visitor "
        "AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE",
        "sessions": "SELECT session_window.start AS s, visitor, count(*) AS n FROM clicks "
        "GROUP BY session_window(at, '30 seconds'), visitor",
        "sessions_of_all": "SELECT session_window.end AS e, count(*) AS n FROM clicks "
        "GROUP BY session_window(at, '30 seconds')",
    }
    for name, sql in views.items():
        app.view(name, sql, horizon="5 minutes", closes="at + INTERVAL 1 MINUTE" if name == "met" else None)
    app.view("final", views["plain"], emit="final")

    def held():
        return {
            name: trace.content().num_rows
            for name, trace in app._runtime.engine.traces.items()
            if "$" in name and "$late" not in name
        }

    seen = []
    for turn in range(16):
        rows = [
            {"id": turn * 40 + n, "visitor": "ab"[n % 2], "amount": n % 7, "at": moment(turn * 240 + n * 4)}
            for n in range(40)
        ]
        clicks.append(rows)
        app.tick()
        seen.append(held())

    for name in seen[-1]:
        assert max(found[name] for found in seen[10:]) <= 1.1 * max(found[name] for found in seen[4:10]), name
    assert [found.view for found in app.verify() if not found.equal] == []
    app.close()
