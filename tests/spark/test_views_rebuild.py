"""Views that are computed anew beside the live ones.

What it is: rebuilds of the same query, while ticks go on, of damaged state, of views that others read.
Invariants: the live view answers until the swap; after it every view is what its query gives; the change feed has what
the rebuild changed and nothing else; what fails leaves everything as it was.
Not here: crashes (``tests/crash/test_views_rebuild_crashes.py``); the command (``tests/unit/test_cli_view.py``).
Read next: ``headwater/views/rebuild.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.views.rebuild import Rebuild

pytestmark = pytest.mark.usefixtures("spark")
REVENUE = """
    SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN users u ON o.user_id = u.id GROUP BY u.country"""
LARGEST = "SELECT max(revenue) AS revenue FROM revenue"
DEAREST = "SELECT user_id, max(amount) AS amount FROM orders GROUP BY user_id"


def declare(home: Path, revenue: str = REVENUE) -> hw.App:
    app = hw.App("shop", home=home)
    app.table("orders", "id BIGINT, user_id BIGINT, amount BIGINT", key="id")
    app.table("users", "id BIGINT, country STRING", key="id")
    app.topic("visits", "user_id BIGINT, pages INT")
    app.view("revenue", revenue)
    app.view("largest", LARGEST)
    app.view("dearest", DEAREST)
    app.view("seen", "SELECT v.user_id, v.pages, u.country FROM visits v LEFT JOIN users u ON v.user_id = u.id")
    return app


def shop(home: Path) -> hw.App:
    """A shop after two ticks."""
    app = declare(home)
    app.table("users").upsert([{"id": n, "country": "DE" if n % 2 else "FR"} for n in range(6)])
    app.table("orders").upsert([{"id": n, "user_id": n % 7, "amount": n} for n in range(60)])
    app.topic("visits").append([{"user_id": n % 8, "pages": n} for n in range(20)])
    app.tick()
    change(app, 1)
    app.tick()
    return app


def change(app: hw.App, step: int) -> None:
    """A little of everything: new rows, corrections, deletes."""
    app.table("orders").upsert([{"id": 100 + step, "user_id": step % 6, "amount": 1000 + step}])
    app.table("orders").upsert([{"id": step, "user_id": (step + 1) % 6, "amount": 5}])
    app.table("orders").delete([{"id": 30 + step}])
    app.table("users").upsert([{"id": step % 6, "country": f"C{step % 3}"}])
    app.topic("visits").append([{"user_id": step % 8, "pages": step}])


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def assert_sound(app: hw.App) -> None:
    """Every view is what its query gives, and the serving store and the sum of the feed say the same."""
    assert all(found.equal for found in app.operation.verify())
    for view in app.views:
        state = rows(view.rows())
        assert rows(app.operation.serving.query(f'SELECT * FROM "{view.name}"')) == state
        assert fed(view) == state


def fed(view: Any) -> list[tuple[Any, ...]]:
    """What a reader of the feed has made of it."""
    held: list[tuple[Any, ...]] = []
    for table in view.changes():
        for row in table.to_pylist():
            kind = row["_change_type"]
            values = tuple(value for name, value in row.items() if not name.startswith("_"))
            (held.append if kind in ("insert", "update_postimage") else held.remove)(values)
    return sorted(held, key=repr)


class Between:
    """Does something at certain moments of a rebuild, which is where ticks would come in by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, filled: Any, rounds: int = 1) -> None:
        self.calls = 0
        follow, fill = Rebuild._follow, Rebuild._fill

        def filling(rebuild: Rebuild) -> None:
            fill(rebuild)
            filled()

        monkeypatch.setattr(Rebuild, "_fill", filling)
        del follow, rounds


@pytest.mark.parametrize("view", ["revenue", "largest", "dearest", "seen"])
def test_a_rebuild_of_a_sound_view_changes_nothing_that_anybody_sees(tmp_path: Path, view: str) -> None:
    with shop(tmp_path) as app:
        before = {each.name: rows(each.rows()) for each in app.views}
        state = app.operation.manifests.current().relations[view]

        report = app.rebuild(view)

        assert (report.views, report.tick, report.changes, report.born) == ((view,), 3, {view: 0}, ())
        assert {each.name: rows(each.rows()) for each in app.views} == before
        assert app.operation.manifests.current().relations[view]["identity"] != state["identity"]
        assert list(app.view(view).changes(from_tick=3)) == []
        assert_sound(app)
        change(app, 2)
        app.tick()
        assert_sound(app)


def test_ticks_go_on_while_a_view_is_rebuilt_and_are_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(tmp_path) as app:
        seen: list[int] = []
        fill = Rebuild._fill

        def fill_and_tick(rebuild: Rebuild) -> None:
            fill(rebuild)
            for step in (2, 3, 4):
                change(app, step)
                seen.append(app.tick().tick)
                assert rows(app.operation.serving.query("SELECT * FROM revenue")) == rows(app.view("revenue").rows())

        monkeypatch.setattr(Rebuild, "_fill", fill_and_tick)
        for view in ("revenue", "seen"):
            report = app.rebuild(view)

            assert (report.changes, report.born, report.ticks_meanwhile) == ({view: 0}, (), 3)
            assert_sound(app)

        assert seen == [3, 4, 5, 7, 8, 9]
        change(app, 5)
        app.tick()
        assert_sound(app)
