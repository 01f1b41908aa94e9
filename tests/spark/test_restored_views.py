"""Views of a restored home: they go on from the backup's tick, verify, and their sinks refill; and drills."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.upkeep.backup_commands import verifier
from headwater.log.home import Log
from headwater.upkeep.backup.backup_drill import DrillRecords, drill
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.point_restore import restore_at

FILE = """
import headwater as hw
app = hw.App("shop", home={home!r})
users = app.table("users", "id BIGINT, country STRING", key="id")
orders = app.table("orders", "id BIGINT, user_id BIGINT, amount BIGINT", key="id")
clicks = app.topic("clicks", "page STRING", retention_bytes=1)
app.view("revenue", "SELECT u.country, sum(o.amount) AS revenue FROM orders o JOIN users u ON o.user_id = u.id"
         " GROUP BY u.country")
app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
app.sink("revenue", hw.sinks.SQLite({sink!r}))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(FILE.format(home=str(tmp_path / "home"), sink=str(tmp_path / "copy.sqlite")))
    return path


def revenue(app: hw.App) -> dict[str, int]:
    return {row["country"]: row["revenue"] for row in app.get_view("revenue").rows()}


def delivered(tmp_path: Path) -> dict[str, int]:
    with sqlite3.connect(tmp_path / "copy.sqlite") as db:
        return dict(db.execute("SELECT country, revenue FROM revenue").fetchall())


@pytest.mark.usefixtures("spark")
def test_views_go_on_from_the_backup_verify_and_their_sinks_refill(file: Path, tmp_path: Path) -> None:
    from headwater.app_file import app_of

    place = tmp_path / "backups"
    with app_of(file) as app:
        log = app.log
        assert isinstance(log, Log)
        users, orders, clicks = app.get_table("users"), app.get_table("orders"), app.get_topic("clicks")
        users.upsert([{"id": n, "country": "DE" if n % 2 else "AT"} for n in range(2000)])
        orders.upsert([{"id": n, "user_id": n, "amount": n} for n in range(20_000)])
        clicks.append([{"page": "home"}] * 100)
        app.tick()
        clicks.partition(0).roll()
        log.maintain()  # retention takes the clicks: they are in the state of the view alone
        first = create_backup(log, place).manifest
        before = revenue(app)
        users.upsert([{"id": 2, "country": "DE"}])
        log.cut(log.topics())
        between = log.clock.now_us()
        orders.upsert([{"id": 1, "user_id": 1, "amount": 1_000_000}])
        app.tick()
        create_backup(log, place)
        orders.upsert([{"id": 3, "user_id": 3, "amount": 5_000_000}])
        app.tick()
        old_tick, after = first.apps["shop"].tick, revenue(app)
        assert delivered(tmp_path) == after
    assert any(file.path.startswith("views/shop/") for file in first.files)

    # The newest: the sink, which has a later tick of the lost home, gets what the restored one has.
    report = restore_home(place, tmp_path / "newest")
    with app_of(file, home=report.home) as app:
        app.tick()
        assert (
            revenue(app) == {"AT": before["AT"] - 2, "DE": before["DE"] + 2 + 999_999} == delivered(tmp_path) != after
        )
        assert list(app.get_view("pages").rows()) == [{"page": "home", "clicks": 100}]
        assert all(each.equal for each in app.verify() if each.view == "revenue")
        app.get_table("orders").upsert([{"id": 5, "user_id": 5, "amount": 7}])
        app.tick()
        assert revenue(app) == {"AT": before["AT"] - 2, "DE": before["DE"] + 2 + 999_999 + 2} == delivered(tmp_path)
    # A point between the two: the state of the first backup, and the rows after it.
    point = restore_at(place, tmp_path / "point", at_us=between)
    assert point.apps == {"shop": old_tick}
    with app_of(file, home=point.home) as app:
        app.tick()
        assert revenue(app) == {"AT": before["AT"] - 2, "DE": before["DE"] + 2}
        assert list(app.get_view("pages").rows()) == [{"page": "home", "clicks": 100}]


@pytest.mark.usefixtures("spark")
def test_a_drill_restores_verifies_and_finds_a_flipped_byte(file: Path, tmp_path: Path) -> None:
    from headwater.app_file import app_of

    place = tmp_path / "backups"
    with app_of(file) as app:
        log = app.log
        assert isinstance(log, Log)
        app.get_table("users").upsert([{"id": n, "country": "DE"} for n in range(20_000)])
        app.get_table("orders").upsert([{"id": n, "user_id": n, "amount": 1} for n in range(20_000)])
        app.tick()
        create_backup(log, place)
        app.get_table("orders").upsert([{"id": 1, "user_id": 1, "amount": 5}])
        create_backup(log, place)
    before = sorted(tmp_path.iterdir())
    good = drill(place, verify=verifier(file), chance=random.Random(1), scratch=tmp_path)
    with Log(tmp_path / "home") as home:
        DrillRecords(home).note(good)

    assert good.problems == ()
    assert [(point.what, point.views) for point in good.points] == [("newest", 2), ("point", 2)]
    assert sorted(tmp_path.iterdir()) == before  # the scratch homes are gone, and no sink was written
    damaged = next(name for name in BackupRepository.at(place).objects() if "/runs/" in name)
    content = bytearray((place / damaged).read_bytes())
    content[len(content) // 3] ^= 4
    (place / damaged).write_bytes(content)
    bad = drill(place, chance=random.Random(1), scratch=tmp_path)
    with Log(tmp_path / "home") as home:
        records = DrillRecords(home)
        records.note(bad)
        alerts = [row for batch in home.get_topic("_alerts").read("earliest") for row in batch.to_pylist()]
        assert records.last() == {**bad.to_dict(), "points": [], "problems": list(bad.problems)}
        assert records.last(good=True) is not None
    assert damaged in bad.problems[0]
    assert [(row["kind"], row["state"]) for row in alerts] == [("backup_drill", "begin")]
