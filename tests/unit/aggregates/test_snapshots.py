"""Snapshots of aggregates: used when they are sound, and ignored when they are not.

What it is: loading with snapshots that are whole, damaged, of other code, or of a future that did not happen.
Invariants: the state is the sum of the events, whatever the file of snapshots holds.
Not here: how fast loading is (``make bench-decide``). Read next: ``aggregates/snapshots.py``.
"""

from __future__ import annotations

import logging
import runpy
import sqlite3
from pathlib import Path

import pytest

from headwater.aggregates import event
from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.app_file import app_of
from tests.unit.aggregates.bank import Account, repository


def paid(home: Path, count: int = 25) -> AggregateRepository:
    accounts = repository(home, snapshot_every=10)
    for _ in range(count):
        accounts.send("7", "deposit", cents=1)
    return accounts


def file_of(home: Path) -> Path:
    return home / "aggregates" / "account.sqlite"


def test_loading_reads_the_events_after_the_snapshot_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid(tmp_path)
    fresh = repository(tmp_path, snapshot_every=10)
    applied = []
    monkeypatch.setattr(fresh.declared, "apply", lambda _, event: applied.append(event.version))

    fresh.get("7")

    assert applied == [21, 22, 23, 24, 25]


def test_a_process_that_only_looks_reads_no_index_and_sees_what_others_write(tmp_path: Path) -> None:
    writer = paid(tmp_path)
    looking = repository(tmp_path, snapshot_every=10)

    seen = [looking.get("7").cents]
    writer.send("7", "deposit", cents=5)
    writer.send("8", "deposit", cents=70)
    seen += [looking.get("7").cents, looking.get("7").cents]

    assert seen == [25, 30, 30]
    assert looking.store.index("7").position == 0
    assert looking.get("8").cents == 70  # without a snapshot it has to be looked for
    assert looking.send("7", "deposit", cents=5).version == 27


def test_an_earlier_version_is_computed_from_the_events_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid(tmp_path)  # with a snapshot of version 20
    fresh = repository(tmp_path, snapshot_every=10)
    applied: list[int | None] = []
    apply = fresh.states.apply
    monkeypatch.setattr(
        fresh.states, "apply", lambda loaded, event: (applied.append(event.version), apply(loaded, event))
    )

    found = [fresh.get("7", version=version).cents for version in (3, 22, 20)]

    assert found == [3, 22, 20]
    assert applied == [1, 2, 3, 21, 22]


def test_a_state_from_a_snapshot_is_the_sum_of_the_events(tmp_path: Path) -> None:
    paid(tmp_path)

    fresh = repository(tmp_path, snapshot_every=10)

    assert (fresh.get("7").cents, fresh.version("7"), fresh.verify()) == (25, 25, [])


def test_a_snapshot_of_other_code_is_ignored(tmp_path: Path) -> None:
    class Doubling(Account):
        @event
        def deposited(self, cents: int, note: str | None = None) -> None:
            self.cents += 2 * cents
            self.notes += [note] if note else []

    paid(tmp_path)

    assert repository(tmp_path, Doubling).get("7").cents == 50


@pytest.mark.parametrize("damage", ["a byte of the state", "the file", "not there"])
def test_a_damaged_snapshot_is_told_and_the_events_are_read(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = paid(tmp_path)
    accounts.close()
    if damage == "a byte of the state":
        with sqlite3.connect(file_of(tmp_path)) as db:
            [(state,)] = db.execute("SELECT state FROM snapshots").fetchall()
            db.execute("UPDATE snapshots SET state = ?", (state[:20] + bytes([state[20] ^ 1]) + state[21:],))
        db.close()
    else:
        for path in file_of(tmp_path).parent.iterdir():
            path.unlink()
        if damage == "the file":
            file_of(tmp_path).write_bytes(b"this is no database, though it has a page's length" * 100)

    with caplog.at_level(logging.WARNING, logger="headwater.aggregates"):
        fresh = repository(tmp_path, snapshot_every=10)
        found = fresh.get("7").cents

    assert found == 25
    assert any("events are read instead" in record.message for record in caplog.records) == (damage != "not there")
    assert fresh.send("7", "deposit", cents=5).version == 26


def test_a_snapshot_of_events_that_are_not_there_is_ignored(tmp_path: Path) -> None:
    paid(tmp_path / "first")
    other = tmp_path / "second"  # a home that was restored from an older copy, say
    repository(other).send("7", "deposit", cents=1)
    file_of(other).parent.mkdir(exist_ok=True)
    for path in file_of(tmp_path / "first").parent.iterdir():
        (other / "aggregates" / path.name).write_bytes(path.read_bytes())

    assert repository(other).get("7").cents == 1


def test_a_state_that_cannot_be_pickled_is_only_slower(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Account):
        @event
        def deposited(self, cents: int, note: str | None = None) -> None:
            self.cents += cents
            self.notes += [note] if note else []

        def __reduce_ex__(self, protocol: object) -> object:
            raise TypeError("not this one")

        def __deepcopy__(self, memo: object) -> Odd:
            copied = Odd()
            copied.cents = self.cents
            return copied

    accounts = repository(tmp_path, Odd, snapshot_every=2)

    for _ in range(5):
        accounts.send("7", "deposit", cents=1)

    assert repository(tmp_path, Odd).get("7").cents == 5
    assert any("cannot be pickled (not this one)" in record.message for record in caplog.records)


APP_FILE = """
import headwater as hw
from headwater.aggregates import command, event

class Line:
    def __init__(self, cents: int) -> None:
        self.cents = cents

class Basket:
    def __init__(self) -> None:
        self.lines: list[Line] = []

    @command
    def put(self, cents: int) -> None:
        self.was_put(cents)

    @event
    def was_put(self, cents: int) -> None:
        self.lines.append(Line(cents))

app = hw.App("shop", home=HOME)
baskets = app.aggregate("basket", Basket, partitions=1, snapshot_every=2)
if __name__ == "__main__":
    for cents in range(1, 5):
        baskets.send("7", "put", cents=cents)
"""


def test_a_snapshot_is_read_whatever_the_apps_file_was_called_as_it_was_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(APP_FILE.replace("HOME", repr(str(tmp_path / "home"))))
    runpy.run_path(str(file), run_name="__main__")["app"].close()  # as python runs it

    with app_of(file) as app:
        baskets = app.get_aggregate("basket")
        found = baskets.states.snapshots.find("7")
        state = baskets.get("7")
        baskets.send("7", "put", cents=5)

    assert found is not None
    assert found.version == 4
    assert [line.cents for line in state.lines] == [1, 2, 3, 4]
    assert [record.message for record in caplog.records] == []
