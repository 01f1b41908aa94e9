"""Views that are paused and resumed by processes that die at any moment.

What it is: the tick in which a view fails, and the resuming after the row was corrected, that die at every commit and
at moments between.
Invariants: after each restart the view that failed and its reader are what the rows of the last good tick make of
them, and the other one what all rows do; resumed, all three are what all rows make of them, and nothing is lost.
Not here: pauses that live (``tests/spark/test_paused_views.py``).
Read next: ``tick_points.py``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import headwater as hw
from headwater.views.serving.serving_store import ServingStore, store_path
from tests.crash.ledger import many
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.crash.view_shop import Bag, Replay, bag

VIEWS = ("shares", "total", "parts")
DEATHS = 8  # the commits by turns with moments at random


def declare(home: Path) -> hw.App:
    app = hw.App("shop", home=home, on_error="pause")
    app.table("orders", "id BIGINT, amount BIGINT, parts BIGINT", key="id")
    app.view("shares", "SELECT id, amount DIV parts AS share FROM orders")
    app.view("total", "SELECT sum(share) AS share, count(*) AS orders FROM shares")
    app.view("parts", "SELECT parts, count(*) AS orders FROM orders GROUP BY parts")
    return app


def expected(orders: Mapping[int, tuple[int, int]]) -> dict[str, Bag]:
    """What the views should show of these orders, none of which has no parts."""
    shares = {(number, amount // parts): 1 for number, (amount, parts) in orders.items()}
    return {
        "shares": Counter(shares),
        "total": Counter([(sum(share for _, share in shares), len(shares))]),
        "parts": counts(orders),
    }


def counts(orders: Mapping[int, tuple[int, int]]) -> Bag:
    return Counter(Counter(parts for _, parts in orders.values()).items())


def judge(app: hw.App, wanted: Mapping[str, Bag], replay: Replay) -> None:
    """State, serving store and change feed are what is wanted."""
    replay.go_on(app)
    with ServingStore(store_path(app.log.home, app.name)) as store:
        assert {view: bag(store.query(f"SELECT * FROM {view}")) for view in VIEWS} == wanted
    assert replay.rows == wanted
    assert all(found.equal for found in app.verify())


@pytest.mark.timeout(900)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_a_pause_and_its_end_that_die_anywhere_lose_nothing(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(2026)
    boundaries = 1
    with declare(quick_path / "home") as app:
        orders = {number: (10 * number, 1 + number % 3) for number in range(1, 6)}

        def send(number: int, amount: int, parts: int) -> None:
            app.get_table("orders").upsert([{"id": number, "amount": amount, "parts": parts}])
            orders[number] = (amount, parts)

        for number, (amount, parts) in list(orders.items()):
            send(number, amount, parts)
        app.tick()
        replay, mortal = Replay(VIEWS), Mortal(app, monkeypatch)
        for number in range(many(DEATHS)):
            good = expected(orders)
            send(100 + number, 7, 0)
            points = Points(crash_on=COMMITS[number // 2 % len(COMMITS)])
            if number % 2:
                points = Points(crash_at=chance.randrange(boundaries), power_cut=number % 4 == 1)
            mortal.dies(points)
            boundaries = max(boundaries, len(points.boundaries))
            app.tick()
            assert {view.name for view in app.views if view.paused is not None} == {"shares", "total"}
            judge(app, {**good, "parts": counts(orders)}, replay)

            send(100 + number, 7, 2)
            app.tick()
            points = Points(crash_on=COMMITS[number // 2 % len(COMMITS)])
            if number % 2:
                points = Points(crash_at=chance.randrange(boundaries))
            mortal.dies(points, lambda app: app.get_view("shares").resume())
            if app.get_view("shares").paused is not None:
                app.get_view("shares").resume()
            app.tick()
            judge(app, expected(orders), replay)

    assert len(mortal.deaths) >= many(DEATHS)
    assert set(COMMITS) <= set(mortal.deaths)
