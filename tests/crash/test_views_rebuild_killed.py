"""Rebuilds of views that die at any moment.

What it is: rebuilds, half of them with a tick in the middle, that die at every kind of boundary: a run's file, the
commit of the manifest with the swap, the serving store's.
Invariants: after each restart the views are what the rows that were sent make of them, with the old state or the new;
the change feed has no gap and no repeat; the serving store agrees; of what was half-built nothing is left.
Not here: ticks that die (``test_views_survive_kill.py``); rebuilds that live (``tests/spark/test_views_rebuild.py``).
Read next: ``tick_points.py``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import headwater as hw
from headwater.views.lifecycle.rebuild import Rebuild
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.state_store import BUILD
from tests.crash.ledger import many
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.crash.view_shop import VIEWS, Replay, Shop, declare, judge, judge_from_the_beginning

DEATHS = 8  # the commits by turns with moments at random


def unlisted_builds(app: hw.App) -> set[str]:
    """Folders that a rebuild made and no kept manifest lists."""
    manifests = app._runtime.manifests
    listed = {
        folder_name(name, entry["identity"])
        for tick, _ in manifests.kept()
        if (manifest := manifests.at(tick)) is not None
        for name, entry in manifest.relations.items()
    }
    return {place.name for place in app._runtime.folder.iterdir() if BUILD.fullmatch(place.name)} - listed


@pytest.mark.timeout(900)  # minutes where other work takes the cores
@pytest.mark.usefixtures("spark")
def test_a_rebuild_that_dies_anywhere_leaves_the_live_view_or_the_new_one(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(2026)
    boundaries = 1
    with declare(quick_path / "home") as app:
        shop, replay, mortal = Shop(2026), Replay(), Mortal(app, monkeypatch)
        shop.trade(app)
        app.tick()
        fill = Rebuild._fill

        def fill_and_tick(rebuild: Rebuild) -> None:
            fill(rebuild)
            if number % 2:
                shop.trade(app)
                rebuild.engine.tick()

        monkeypatch.setattr(Rebuild, "_fill", fill_and_tick)
        for number in range(many(DEATHS)):
            view = VIEWS[number % len(VIEWS)]
            points = Points(crash_on=COMMITS[number // 2 % len(COMMITS)])
            if number % 2:
                points = Points(crash_at=chance.randrange(boundaries), power_cut=number % 4 == 1)
            mortal.dies(points, lambda app, view=view: app.rebuild(view))  # type: ignore[misc]
            boundaries = max(boundaries, len(points.boundaries))

            app.tick()
            judge(app, shop, replay)
            assert unlisted_builds(app) == set()
        judge_from_the_beginning(app, shop)

    assert len(mortal.deaths) >= 0.9 * many(DEATHS)
    assert set(COMMITS) <= set(mortal.deaths)
