"""Purposes that end in an app: views follow by ordinary changes, sinks and serving too, and no byte keeps a value.

What it is: one app over a table and topics with columns that end, with joins, groups, windows that are final, and
sinks; time passes, purposes end.
Invariants: ``verify`` agrees; what is expected of views is written down by hand; what is left is searched without any
code of ours. A view that reads nothing that has ended is not touched.
Not here: the log alone (``tests/unit/log/erasure/test_log_expiry.py``).
Read next: ``upkeep/erasure/purpose_expiry.py``.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with
from tests.spark.test_erasure import STEP
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("spark")

OLD, NEW = "zq-old-zq", "zq-new-zq"
DAY_S = 86_400
SHIPPING = hw.Personal("user_id", by="user", purpose="shipping")
OF_ORDERS = {"user": hw.Personal("user_id"), "address": SHIPPING}
VIEWS = {
    "addresses": "SELECT id, address FROM orders",
    "labels": "SELECT o.id, h.street, upper(o.address) AS label FROM orders o JOIN homes h ON o.user = h.user",
    "streets": "SELECT street, count(*) AS people FROM homes GROUP BY street",
    "per_user": "SELECT user, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY user",
}
FINAL = (
    "SELECT window.start AS day, count(*) AS n, {} AS most FROM orders "
    "WHERE at IS NOT NULL GROUP BY window(at, '1 day')"
)


def declare(home: Path, clock: ManualClock, **options: Any) -> hw.App:
    app = hw.App("shop", home=home)
    app._log = QuietLog(home, clock=clock, maintenance_interval=None, **options)
    app.topic(
        "orders",
        "id BIGINT, user STRING, address STRING, cents BIGINT, at TIMESTAMP",
        event_time="at",
        privacy=OF_ORDERS,
    )
    of_homes = {"user": hw.Personal("user_id"), "street": hw.Personal("user_id", by="user", purpose="shipping")}
    app.table("homes", "user STRING, street STRING, since TIMESTAMP", key="user", event_time="since", privacy=of_homes)
    app.purpose("shipping", keep="30 days")
    return app


def put(app: hw.App, number: int, address: str, at_us: int) -> None:
    at = dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC)
    user = f"u{number}"
    app.get_topic("orders").append([{"id": number, "user": user, "address": address, "cents": 5, "at": at}])
    app.get_table("homes").upsert([{"user": user, "street": address, "since": at}])


def is_sound(app: hw.App) -> bool:
    found = sorted(tuple(each.values()) for each in app.get_view("addresses").rows())
    return all(each.equal for each in app.verify()) and found == [(1, None), (2, NEW)]


def test_what_has_ended_leaves_every_place_and_views_change_by_ordinary_changes(tmp_path: Path) -> None:
    clock, copies = ManualClock(), tmp_path / "copies"
    with declare(tmp_path / "home", clock) as app:
        for name, sql in VIEWS.items():
            app.view(name, sql)
        app.view("days", FINAL.format("max(cents)"), emit="final")
        app.view("ended_days", FINAL.format("max(address)"), emit="final")
        copies.mkdir()
        app.sink("addresses", hw.sinks.SQLite(copies / "addresses.db"))
        app.sink("labels", hw.sinks.Parquet(copies / "labels"))
        app.sink("streets", hw.sinks.Delta(str(copies / "streets")))
        put(app, 1, OLD, clock.now_us())
        app.tick()
        clock.advance(20 * DAY_S)
        put(app, 2, NEW, clock.now_us())
        app.tick()
        assert app.expire().rows == 0
        folders = {name: app._runtime.engine.traces[name].folder for name in ("days", "ended_days", "per_user")}
        assert {place.split("/")[0] for place in places_with(tmp_path, OLD)} == {"home", "copies"}
        clock.advance(11 * DAY_S)

        report = app.expire()

        assert report.complete, str(report)
        assert report.rows == 2
        assert places_with(tmp_path, OLD, OLD.upper()) == []
        assert places_with(tmp_path, NEW) != []
        assert is_sound(app)
        labels = sorted(tuple(each.values()) for each in app.get_view("labels").rows())
        assert labels == [(1, None, None), (2, NEW, NEW.upper())]
        assert sorted(each["orders"] for each in app.get_view("per_user").rows()) == [1, 1]
        with closing(sqlite3.connect(copies / "addresses.db")) as db:
            assert sorted(db.execute("SELECT id, address FROM addresses")) == [(1, None), (2, NEW)]
        still = {name for name, folder in folders.items() if app._runtime.engine.traces[name].folder == folder}
        assert still == {"days", "per_user"}
        put(app, 3, "after", clock.now_us())
        app.tick()
        assert [each.view for each in app.verify() if not each.equal] == []
        assert app.expire().rows == 0


def test_an_app_that_runs_lets_purposes_end_by_itself_and_tells_its_readers(tmp_path: Path) -> None:
    clock = ManualClock()
    with declare(tmp_path / "home", clock) as app:
        view = app.view("addresses", VIEWS["addresses"])
        put(app, 1, OLD, clock.now_us())
        app.tick()
        clock.advance(31 * DAY_S)
        put(app, 2, NEW, clock.now_us())

        app.start()  # what is due is done at once, and ticks follow

        eventually(lambda: (1, None) in [tuple(each.values()) for each in view.rows()])
        app.stop()
        manifest = app._runtime.manifests.current()
        changes = [app._runtime.committed.changes_in(manifest, "addresses").to_pylist()]
        assert {"id": 1, "address": None, "_weight": 1} in changes[0] or view.history(1).num_rows
        assert is_sound(app)
        clock.advance(61)
        app.tick()
    assert places_with(tmp_path / "home", OLD) == []


def test_an_expiry_that_is_killed_in_the_views_is_ended_by_the_next_process(tmp_path: Path) -> None:
    made = ManualClock()
    with declare(tmp_path / "made", made) as app:
        app.view("addresses", VIEWS["addresses"])
        put(app, 1, OLD, made.now_us())
        made.advance(20 * DAY_S)
        put(app, 2, NEW, made.now_us())
        app.tick()
    made.advance(11 * DAY_S)
    boundary, crashed = 5, True
    while crashed:
        home, files = tmp_path / str(boundary), CrashingFiles(crash_at=boundary)
        shutil.copytree(tmp_path / "made", home)
        try:
            app = declare(home, made, files=files)
            app.view("addresses", VIEWS["addresses"])
            app.expire()
            crashed = False
        except Crash:
            pass
        finally:
            app._runtime.close()
        with declare(home, made) as app:
            app.view("addresses", VIEWS["addresses"])
            app.expire()
            assert is_sound(app), files.boundaries[-1]
        assert places_with(home, OLD) == [], files.boundaries[-1]
        boundary += STEP
    assert boundary > 2 * STEP
