"""Stored searches, and the processes that keep them, killed again and again.

What it is: ticks that die at their writes and commits, in one process; and a real process under ``kill -9``.
Invariants: after each restart the matches are those that brute force finds over what was sent.
Not here: the other views (``test_views_survive_kill.py``). Read next: ``search_runner.py``.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from headwater.searches.index_file import index_path
from headwater.views import thresholds
from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.search_runner import declare
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.workloads.stored_searches import World


def found(app: object) -> list[tuple[str, int]]:
    return sorted((row["search"], row["document"]) for row in app.get_view("watch").rows())  # type: ignore[attr-defined]


@pytest.mark.usefixtures("spark")
def test_a_tick_that_dies_anywhere_leaves_no_half_of_its_matches(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "KEPT_SEARCHES_MIN", 1)
    world, chance, boundaries = World(random.Random(5)), random.Random(5), 1
    app, articles, watch = declare(quick_path / "home")
    with app:
        mortal = Mortal(app, monkeypatch)
        for number in range(many(10)):
            world.change(articles, watch)
            world.change(articles, watch)
            points = Points(crash_on=COMMITS[number // 2 % len(COMMITS)])
            if number % 2:
                points = Points(crash_at=chance.randrange(boundaries), power_cut=number % 4 == 1)
            mortal.dies(points)
            boundaries = max(boundaries, len(points.boundaries))
            if chance.random() < 0.6:
                app.tick()
                assert found(app) == world.matches(), number
        assert index_path(quick_path / "home" / "views" / "news", "watch").exists()
        app.tick()
        assert found(app) == world.matches()
        assert all(each.equal for each in app.verify())
    assert len(mortal.deaths) >= many(5)


@pytest.mark.timeout(600)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_the_matches_are_right_after_the_process_that_keeps_them_was_killed(quick_path: Path) -> None:
    world, chance = World(random.Random(9)), random.Random(9)
    app, articles, watch = declare(quick_path / "home")
    with app:
        for _ in range(many(1)):
            with running("tests.crash.search_runner", quick_path / "home") as child:
                assert child.stdout is not None
                for _ in range(3):
                    world.send(articles, watch)
                    assert child.stdout.readline().startswith("tick"), "the app ended by itself"
                world.send(articles, watch)
                time.sleep(chance.uniform(0, 0.3))  # the random moment itself, nothing waits for it
                child.kill()
                assert child.wait() == -signal.SIGKILL
        assert index_path(quick_path / "home" / "views" / "news", "watch").exists()
        app.tick()
        assert found(app) == world.matches()
        assert all(each.equal for each in app.verify())
