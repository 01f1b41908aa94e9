"""Views that are paused and resumed by processes that die at any moment.

What it is: the tick in which a view fails, and the resuming after the row was corrected, that die at every commit and
at moments between, in a long-lived process because Spark takes seconds to start; and real processes that are killed
with ``kill -9`` around both.
Invariants: after each restart the view that failed and its reader are what the rows of the last good tick make of
them, and the other one what all rows do; resumed, all three are what all rows make of them, and nothing is lost.
Not here: pauses that live (``tests/spark/test_paused_views.py``).
Read next: ``pause_shop.py``, ``tick_points.py``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.pause_shop import VIEWS, counts, declare, expected, judge
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.crash.view_shop import Replay

DEATHS = 8  # the commits by turns with moments at random


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


@pytest.mark.timeout(900)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_processes_that_are_killed_around_a_pause_and_its_end_lose_nothing(quick_path: Path) -> None:
    chance, home, replay = random.Random(14), quick_path / "home", Replay(VIEWS)
    orders = {place: (10 * place, 1 + place % 3) for place in range(1, 6)}
    for number in range(many(1)):
        poison = 100 + number
        with declare(home) as app:  # it ticks only when the other process is gone, and so is not shut out
            for place, (amount, parts) in orders.items():
                app.get_table("orders").upsert([{"id": place, "amount": amount, "parts": parts}])
            with running("tests.crash.pause_shop", home, "run", stdin=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline().startswith("tick"), "the app ended by itself"
                app.get_table("orders").upsert([{"id": poison, "amount": 7, "parts": 0}])
                time.sleep(chance.uniform(0, 1))  # the random moment itself, nothing waits for it
                os.killpg(child.pid, signal.SIGKILL)
            app.tick()
            assert {view.name for view in app.views if view.paused is not None} == {"shares", "total"}
            judge(app, {**expected(orders), "parts": counts({**orders, poison: (7, 0)})}, replay)

        orders[poison] = (7, 2)
        with declare(home) as app:
            app.get_table("orders").upsert([{"id": poison, "amount": 7, "parts": 2}])
            with running("tests.crash.pause_shop", home, "resume", stdin=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == "resuming\n"
                time.sleep(chance.uniform(0, 1.5))
                os.killpg(child.pid, signal.SIGKILL)
            app.tick()
            if app.get_view("shares").paused is not None:
                app.get_view("shares").resume()
            judge(app, expected(orders), replay)
