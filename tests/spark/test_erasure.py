"""Erasure of a person from an app: views follow by a retraction, and no byte of the home keeps a value.

What it is: one app with a person's marker in tables, an event topic with a join, late rows, final windows, dead
letters, an aggregate over people, files of other systems and a log for people; the person is erased.
Invariants: ``verify`` agrees before and after; what is expected of the views is the same SQL over the other people's
rows; what is left is searched without any code of ours (``tests/every_byte.py``).
Not here: crashes in the log (``tests/crash/test_erasure_boundaries.py``).
Read next: ``upkeep/erasure/person_erasure.py``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import OffsetOutOfRange
from headwater.log.home import Log
from headwater.testing import Crash, CrashingFiles, ManualClock
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.person_erasure import PersonErasure
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with
from tests.spark.timed_model import moment

pytestmark = pytest.mark.usefixtures("spark")

STEP = max(1, 18 // int(os.environ.get("HEADWATER_THOROUGH", "1")))
MARK, ID = "zq-marker-zq", "zq-person-zq"
BY_ID = hw.Personal("user_id", by="id")
OF_USERS = {"id": hw.Personal("user_id"), "name": BY_ID}
OF_ORDERS = {"user": hw.Personal("user_id"), "address": hw.Personal("user_id", by="user")}
VIEWS = {
    "names": "SELECT id, name, country FROM users",
    "countries": "SELECT country, count(*) AS people, max(name) AS last FROM users GROUP BY country",
    "bought": "SELECT o.id, u.name, o.address FROM orders o JOIN users u ON o.user = u.id",
    "per_user": "SELECT user, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY user",
    "placed": "SELECT user, address, _offset AS place FROM orders",
    "carts": "SELECT user, item, count(*) AS n FROM cart GROUP BY user, item",
}
AS_OF = "SELECT v.user, h.street FROM visits v JOIN homes FOR SYSTEM_TIME AS OF v.at AS h ON v.user = h.user"
TIMED = (
    "SELECT window.start AS minute, user, count(*) AS n, max(address) AS address FROM visits "
    "GROUP BY window(at, '1 minute'), user"
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", home=tmp_path / "home") as app:
        app._log = Log(tmp_path / "home", clock=ManualClock(), maintenance_interval=None)
        yield app


def declare(app: hw.App) -> dict[str, Any]:
    tables = {
        "users": app.table("users", "id STRING, name STRING, country STRING", key="id", privacy=OF_USERS),
        "cart": app.table("cart", "user STRING, item STRING", privacy={"user": OF_ORDERS["user"]}),
        "orders": app.topic("orders", "id BIGINT, user STRING, address STRING, amount BIGINT", privacy=OF_ORDERS),
        "visits": app.topic("visits", "user STRING, address STRING, at TIMESTAMP", event_time="at", privacy=OF_ORDERS),
    }
    for name, sql in VIEWS.items():
        app.view(name, sql)
    of_homes = {"user": hw.Personal("user_id"), "street": hw.Personal("user_id", by="user")}
    tables["homes"] = app.table(
        "homes", "user STRING, street STRING, at TIMESTAMP", key="user", event_time="at", privacy=of_homes
    )
    app.view("visited", AS_OF)
    app.view("minutes", TIMED, late="drop")
    app.view("final", TIMED, emit="final")
    return tables


def put(tables: dict[str, Any], people: list[str], turn: int) -> None:
    tables["users"].upsert(
        [{"id": who, "name": MARK if who == ID else f"{who}{turn}", "country": "DE"} for who in people]
    )
    tables["homes"].upsert(
        [{"user": who, "street": MARK if who == ID else who, "at": moment(100 * turn)} for who in people]
    )
    tables["cart"].insert([{"user": who, "item": f"i{turn}"} for who in people])
    tables["orders"].append(
        [
            {"id": 10 * turn + n, "user": who, "address": MARK if who == ID else "a", "amount": n}
            for n, who in enumerate(people)
        ]
    )
    tables["visits"].append(
        [
            {"user": who, "address": MARK if who == ID else "a", "at": moment(100 * turn + n)}
            for n, who in enumerate(people)
        ]
    )


def contents(app: hw.App, names: list[str]) -> dict[str, list[Any]]:
    return {name: sorted(map(str, app.sql(f"SELECT * FROM {name}").to_pylist())) for name in names}


def test_a_person_leaves_every_place_and_the_views_are_those_of_the_others(app: hw.App, tmp_path: Path) -> None:
    tables = declare(app)
    copy, files = tmp_path / "copies" / "names.db", tmp_path / "copies" / "bought"
    copy.parent.mkdir()
    app.sink("names", hw.sinks.SQLite(copy))
    app.sink("bought", hw.sinks.Parquet(files))
    app.sink("names", hw.sinks.Search(tmp_path / "copies" / "search", text=["name"]))
    app.sink("names", hw.sinks.Delta(str(tmp_path / "copies" / "delta")))
    for turn in range(4):
        put(tables, ["ann", ID, "bob"], turn)
        app.tick()
        if turn == 1:
            for table in tables.values():
                getattr(table, "topic", table).partition(0).roll()
            app.log.local.maintain()
    tables["visits"].append([{"user": ID, "address": MARK, "at": moment(0)}])  # too late
    app.tick()
    with tables["orders"].worker("mailers") as worker:
        _, theirs = worker.take(2, timeout=10)
        worker.reject([theirs], reason=f"no {MARK}")
    (app._runtime.folder / "engine.log").write_text(f"could not mail {MARK}\n")
    folders = {place.split("/")[0] for place in places_with(tmp_path, MARK, ID)}
    assert folders == {"home", "copies"}
    assert {each.view: each.equal for each in app.verify()} == dict.fromkeys(
        [*VIEWS, "visited", "minutes", "final"], True
    )

    certificate = app.erase(user_id=ID, markers=[MARK])

    assert places_with(tmp_path, MARK, ID) == [], str(certificate)
    states = {place.place: str(place.state) for place in certificate.places}
    assert states.pop("groups of orders") == "impossible"
    assert set(states.values()) == {"done"}, str(certificate)
    assert [each.view for each in app.verify() if not each.equal] == []
    assert [row["id"] for row in app.get_view("names").rows()] == ["ann", "bob"]
    assert app.get_view("per_user").get(None) == [{"user": None, "orders": 4, "amount": 4}]
    with closing(sqlite3.connect(copy)) as db:
        assert sorted(db.execute("SELECT id FROM names").fetchall()) == [("ann",), ("bob",)]
    assert app.log.local.check().problems == ()
    put(tables, ["ann", "bob"], 9)
    app.tick()
    assert [each.view for each in app.verify() if not each.equal] == []


def small(home: Path, **options: Any) -> hw.App:
    app = hw.App("shop", home=home)
    app._log = QuietLog(home, maintenance_interval=None, **options)
    app.table("users", "id STRING, name STRING, country STRING", key="id", privacy=OF_USERS)
    app.topic("orders", "id BIGINT, user STRING, address STRING, amount BIGINT", privacy=OF_ORDERS)
    for name in ("names", "bought", "per_user"):
        app.view(name, VIEWS[name])
    return app


def fill(app: hw.App) -> None:
    app.get_table("users").upsert([{"id": who, "name": MARK, "country": "DE"} for who in ("ann", ID)])
    app.get_topic("orders").append(
        [{"id": n, "user": who, "address": MARK + who, "amount": n} for n, who in enumerate(("ann", ID))]
    )
    app.tick()


def is_sound(app: hw.App) -> bool:
    return all(each.equal for each in app.verify()) and [row["id"] for row in app.get_view("names").rows()] == ["ann"]


def test_an_app_that_runs_later_tells_its_readers_of_the_deletions_and_forgets_a_minute_after(tmp_path: Path) -> None:
    clock = ManualClock()
    with small(tmp_path / "home", clock=clock) as app:
        fill(app)
        place = str(tmp_path / "backups")
        create_backup(app.log.local, place)
        shutil.copytree(place, tmp_path / "copy")

        certificate = PersonErasure(app.log.local, "user_id", ID, backups=[place], wait_s=0).run()

        assert [str(each.state) for each in certificate.places if each.place == "views of shop"] == ["pending"]
        app.tick()
        assert app.get_view("names").history(1).num_rows == 2
        manifest = app._runtime.manifests.current()
        gone = app._runtime.committed.changes_in(manifest, "names").to_pylist()
        assert gone == [{"id": ID, "name": MARK, "country": "DE", "_weight": -1}]
        clock.advance(61)
        app.tick()
        assert is_sound(app)
        with pytest.raises(OffsetOutOfRange, match="is not kept"):
            app.get_view("names").history(1)
    assert places_with(tmp_path / "home", ID) == []
    assert places_with(tmp_path / "backups", ID) == []
    assert places_with(tmp_path / "copy", ID) != []
    shutil.copytree(tmp_path / "backups" / "erasures", tmp_path / "copy" / "erasures")

    rewritten = restore_home(place, tmp_path / "again")
    replayed = restore_home(tmp_path / "copy", tmp_path / "replayed")  # a copy that nobody has rewritten

    assert (rewritten.apps, replayed.apps) == ({}, {"shop": 1})  # views are computed anew, or corrected
    assert places_with(tmp_path / "again", ID) == []
    for home in (rewritten.home, replayed.home):
        with small(home, clock=clock) as app:
            assert places_with(home / "topics", ID) == []
            app.tick()
            clock.advance(61)
            app.tick()
            assert is_sound(app)
        assert places_with(home, ID) == []


def test_an_erasure_that_is_killed_in_the_views_is_ended_by_the_next_process(tmp_path: Path) -> None:
    with small(tmp_path / "made") as app:
        fill(app)
    boundary, crashed = 5, True
    while crashed:
        home, files = tmp_path / str(boundary), CrashingFiles(crash_at=boundary)
        shutil.copytree(tmp_path / "made", home)
        try:
            app = small(home, files=files)
            app.erase(user_id=ID)
            crashed = False
        except Crash:
            pass
        finally:
            app._runtime.close()
        with small(home) as app:
            app.erase(user_id=ID)
            assert is_sound(app), files.boundaries[-1]
        assert places_with(home, ID) == [], files.boundaries[-1]
        boundary += STEP
    assert boundary > 2 * STEP
