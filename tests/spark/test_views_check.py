"""``headwater check`` looks at ``views/`` too: every state file, the manifests and the serving store.

What it is: a home with an app that has ticked; one thing in it is damaged, and the check names it.
Invariants: the check runs without Spark; damage of a derived file is told and never repaired in silence.
Not here: segments and the catalog (``tests/unit/log/maintenance/test_home_check.py``).
Read next: ``views/lifecycle/views_check.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.views import thresholds
from tests.unit.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("spark")

STORE = "views/shop/serving.sqlite"
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two views, of a table and of a stream, after some ticks."""
    home = tmp_path_factory.mktemp("made") / "home"
    with hw.App("shop", home=home) as app:
        orders = app.table("orders", "id BIGINT, country STRING, amount DECIMAL(9,2), at TIMESTAMP", key="id")
        app.view("revenue", "SELECT country, sum(amount) AS total, max(at) AS last FROM orders GROUP BY country")
        app.view("large", "SELECT id, amount, named_struct('c', country) AS place FROM orders WHERE amount > 5")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)  # these runs are files, the last ones are not
            for n in range(3):
                orders.upsert(
                    [{"id": 10 * n + i, "country": f"C{i}", "amount": Decimal(i), "at": NOON} for i in range(10)]
                )
                app.tick()
        orders.delete([{"id": 9}])
        app.tick()
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home"))


def checked(home: Path) -> dict[str, str]:
    """The problems that the command finds: message by place."""
    report = json.loads(CommandLine(home)("check", "--json").stdout)
    assert report["ok"] == (not report["problems"])
    return {problem["where"]: problem["message"] for problem in report["problems"]}


def state_files(home: Path, view: str) -> list[Path]:
    return sorted((home / "views" / "shop").glob(f"{view}-*/*.parquet"))


def test_a_damaged_small_run_in_the_catalog_is_found_and_named(home: Path) -> None:
    with sqlite3.connect(home / "catalog.sqlite") as db:
        ((folder, name),) = db.execute("SELECT folder, name FROM small_runs WHERE folder LIKE 'large-%'").fetchall()
        db.execute("UPDATE small_runs SET rows = substr(rows, 2) WHERE name = ? AND folder = ?", (name, folder))

    (message,) = checked(home).values()

    assert f"the rows of run {name} are damaged" in message
    assert 'the rows of "large"' in message
    with sqlite3.connect(home / "catalog.sqlite") as db:
        db.execute("DELETE FROM small_runs WHERE name = ? AND folder = ?", (name, folder))
    (message,) = checked(home).values()
    assert f"the rows of run {name} are missing" in message


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(bytes(content))


def test_a_sound_home_is_clean(home: Path) -> None:
    report = CommandLine(home).json("check")

    assert report["problems"] == []
    assert report["state_files"] > len(state_files(home, "revenue"))
    assert f"{report['state_files']} files of views" in CommandLine(home)("check").stdout


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_flipped_byte_of_a_state_file_is_found_and_named(home: Path, place: int) -> None:
    path = state_files(home, "revenue")[-1]
    flip(path, place)

    found = CommandLine(home)("check")

    assert found.exit_code == 5
    assert str(path.relative_to(home)) in found.stdout.replace("\n", "")


def test_a_missing_or_shortened_state_file_is_found_and_named(home: Path) -> None:
    gone, short = state_files(home, "revenue")[-1], state_files(home, "large")[-1]
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])

    problems = checked(home)

    assert problems[str(gone.relative_to(home))].startswith('the state file is missing; it holds the rows of "revenue"')
    assert "bytes, and was written with" in problems[str(short.relative_to(home))]


def test_a_missing_serving_store_is_found(home: Path) -> None:
    (home / "views" / "shop" / "serving.sqlite").unlink()

    assert checked(home) == {STORE: "the serving store is missing"}


def whole_store(home: Path) -> Path:
    """The serving store as one file, with nothing left beside it."""
    path = home / "views" / "shop" / "serving.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return path


def test_a_flipped_byte_of_a_served_key_is_found(home: Path) -> None:
    path = whole_store(home)
    content = path.read_bytes()

    flip(path, content.rindex(b"C3"))

    assert list(checked(home)) == [STORE]


def test_a_served_value_that_sqlite_finds_sound_is_compared_with_the_state(home: Path) -> None:
    path = whole_store(home)
    db = sqlite3.connect(path)
    (table,) = [
        name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name GLOB 'large@*' AND type = 'table'")
    ]
    changed = db.execute(f"UPDATE \"{table}\" SET place = replace(place, 'C7', 'D7')").rowcount
    db.commit()
    db.close()

    problems = checked(home)

    assert changed
    assert problems == {STORE: 'the rows of view "large" are not those of its state at tick 4'}


def test_a_store_that_sqlite_cannot_read_is_found(home: Path) -> None:
    path = whole_store(home)
    path.write_bytes(b"no database" * 1000)

    problems = checked(home)

    assert list(problems) == [STORE]
    assert problems[STORE].startswith("the serving store cannot be read")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE ticks SET manifest = substr(manifest, 1, 40) WHERE tick = 4", "the manifest of tick 4 is damaged"),
        ("DELETE FROM ticks WHERE tick = 4", "the manifest of tick 4 is missing"),
        (
            "DELETE FROM manifest_entries WHERE kind = 'view' AND name = 'large'",
            "the manifests of 4 ticks are damaged: what it says of large cannot be found, from tick 1 to tick 4",
        ),
        ("DELETE FROM manifest_runs WHERE folder LIKE 'large-%'", "cannot be found"),
        ("UPDATE manifest_runs SET run = '{' WHERE folder LIKE 'large-%'", "damaged: Expecting"),
    ],
)
def test_a_damaged_manifest_is_found(home: Path, statement: str, message: str) -> None:
    with Log(home, maintenance_interval=None) as log, log.catalog.write() as db:
        db.execute(statement)

    assert message in " ".join(checked(home).values())


def test_damage_is_alerted_until_it_is_mended(home: Path) -> None:
    path = state_files(home, "revenue")[-1]
    whole = path.read_bytes()
    flip(path, 100)
    checked(home)
    checked(home)

    path.write_bytes(whole)
    checked(home)

    with Log(home, maintenance_interval=None) as log:
        told = [(row["kind"], row["state"]) for row in log.get_topic("_alerts").rows()]
    assert told == [("view_damaged", "begin"), ("view_damaged", "end")]


def test_state_on_an_object_store_is_checked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)
    home, store = tmp_path / "home", tmp_path / "state"
    with hw.App("shop", home=home, state=f"file://{store}") as app:
        orders = app.table("orders", "id BIGINT, amount BIGINT", key="id")
        app.view("large", "SELECT id, amount FROM orders WHERE amount > 5")
        orders.upsert([{"id": n, "amount": n} for n in range(20)])
        app.tick()
    (run,) = (store / "runs").glob("large-*/*.parquet")
    copy = home / "views" / "shop" / run.parent.name / run.name

    sound = checked(home)
    copy.unlink()  # a copy may go at any time
    without = checked(home)
    copy.unlink()  # the check has fetched it, to compare what is served
    content = run.read_bytes()
    run.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    damaged = checked(home)
    run.unlink()
    missing = checked(home)
    shutil.rmtree(store)
    gone = checked(home)

    assert sound == without == {}
    place = str(copy.relative_to(home))
    assert damaged[place].startswith("the object is damaged: its checksum is another; it holds the rows of")
    assert missing[place].startswith("the object is missing; it holds the rows of")
    assert list(gone) == [f'app "shop", file://{store}']
    assert "is not the one that this app knows" in gone[f'app "shop", file://{store}']
