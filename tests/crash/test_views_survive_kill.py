"""Views, and the processes that run them, killed again and again.

What it is: ticks that die at every kind of boundary (a run's file, the manifest's commit, the serving store's), in a
long-lived process because Spark takes seconds to start; and real processes that are killed with ``kill -9``.
Invariants: after each restart the views are what the rows that were sent make of them; the change feed has no gap and
no repeat; the serving store is at the manifest's tick and agrees.
Not here: the log itself under ``kill -9`` (``test_kill_nine.py``); every moment (``test_views_bank.py``).
Read next: ``view_shop.py``, ``tick_points.py``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headwater.errors import SparkEnded
from headwater.views import thresholds
from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.crash.view_shop import Replay, Shop, declare, judge, judge_from_the_beginning

ROOT = Path(__file__).parents[2]
WAYS = ("Java", "app", "both")
KILLS = 2  # each costs half a minute of starting Spark; HEADWATER_THOROUGH=3 makes six


@pytest.mark.timeout(900)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("deaths", "way"),
    [
        (10, {}),
        (12, {"SMALL_RUN_BYTES_MAX": 0}),
        (8, {"SMALL_RUN_BYTES_MAX": 0, "TASK_ROWS_MAX": 2, "LOCAL_ROWS_MAX": 1, "TAIL_ROWS_MIN": 0}),
        (8, {"SMALL_RUN_BYTES_MAX": 0, "TASK_ROWS_MAX": 0, "LOCAL_ROWS_MAX": 1, "LOOKUP_KEYS_MAX": 0}),
    ],
    ids=["small runs", "few rows", "many rows, merged at once", "many keys, exchanged"],
)
def test_a_tick_that_dies_anywhere_leaves_nothing_half_done(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, way: dict[str, int]
) -> None:
    for name, size in way.items():
        monkeypatch.setattr(thresholds, name, size)
    chance = random.Random(2026)
    boundaries = 0
    with declare(quick_path / "home") as app:
        shop, replay, mortal = Shop(2026), Replay(), Mortal(app, monkeypatch)
        for number in range(many(deaths)):
            shop.trade(app)
            points = Points(crash_on=COMMITS[number // 2 % len(COMMITS)])
            if number % 2 and boundaries:
                points = Points(crash_at=chance.randrange(boundaries), power_cut=number % 4 == 1)
            died = mortal.dies(points)
            assert died or number % 2, "a tick ends with its commits"
            boundaries = max(boundaries, len(points.boundaries))
            if not died:  # the tick was shorter than those before it
                shop.trade(app)
                sooner = chance.randrange(max(1, len(points.boundaries) // 2))
                mortal.dies(Points(crash_at=sooner, power_cut=number % 4 == 1))

            if chance.random() < 0.5:  # else the next one dies on top of it
                app.tick()
                judge(app, shop, replay)
        app.tick()
        judge_from_the_beginning(app, shop)

    assert len(mortal.deaths) >= 0.9 * many(deaths)
    assert set(COMMITS[: many(deaths) // 2]) <= set(mortal.deaths)
    assert not way or any(label.startswith("run.") for label in mortal.deaths)  # small runs have no files


def kill(child: subprocess.Popen[str], way: str) -> None:
    """Kill Spark's Java, the app, or both at once; the first is told in a sentence by the app that is left."""
    if way == "Java":
        for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        _, said = child.communicate(timeout=120)
        assert "the Java process that Spark runs in has ended: killed by SIGKILL" in said
        assert "Traceback" not in said
        assert child.returncode == SparkEnded.exit_status
        return
    child.kill() if way == "app" else os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


@pytest.mark.timeout(900)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_views_are_right_after_the_processes_that_run_them_were_killed(quick_path: Path) -> None:
    chance = random.Random(1)
    home = quick_path / "home"
    kills = 0
    with declare(home) as app:
        shop, replay = Shop(1), Replay()
        for number in range(many(KILLS)):
            token = shop.trade(app)
            with running("tests.crash.view_runner", home, stderr=subprocess.PIPE) as child:
                assert child.stdout is not None
                for _ in range(3):
                    assert child.stdout.readline().startswith("tick"), "the app ended by itself"
                    token = shop.trade(app)
                if number + 1 == many(KILLS):
                    app._runtime.covering(token, 240)
                time.sleep(chance.uniform(0, 0.5))  # the random moment itself, nothing waits for it
                kill(child, WAYS[number % len(WAYS)])
                kills += 1
            replay.go_on(app)

        assert app._runtime.manifests.current().token.covers(token)
        app.tick()
        judge(app, shop, replay)
        judge_from_the_beginning(app, shop)
    assert kills >= KILLS
