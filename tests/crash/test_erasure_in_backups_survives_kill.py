"""An erasure in backups, killed with ``kill -9``: of each backup the old form or the new one stays.

What it is: a process that erases a person from the backups of a home kills itself at its Nth sync, rename or removal,
for rising N, each time on the backups as they were.
Invariants: at every kill all backups verify and one of them, by turns, is restored with the rows that it had, with the
person or without. The same call ends the work: the person is in no byte, unfinished files included.
Not here: what an erasure leaves of a row (``tests/unit/upkeep/test_erasure_in_backups.py``).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.erasure.log_erasure import erase_person
from headwater.log.home import Log
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.erased_places import erase_place
from tests.crash.killed_work import kill_at
from tests.every_byte import places_with

STEP = max(1, 12 // int(os.environ.get("HEADWATER_THOROUGH", "1")))
OPERATIONS = ("sync", "rename", "unlink")
MARK = "zq-marker-zq"
OF_USERS = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Executor]:
    """A process that has imported everything and opened nothing."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def erase(home: str, place: str) -> None:
    with Log(home, maintenance_interval=None) as log:
        report = erase_place(log, place)
        assert str(report.state) == "done", report.detail


def sample(home: Path, place: Path) -> None:
    with Log(home, maintenance_interval=None) as log:
        users = log.topic("users", "id BIGINT, name STRING", privacy=OF_USERS)
        for number in range(3):
            users.append([{"id": 7, "name": MARK}, {"id": 8, "name": "else"}])
            if number == 1:
                users.partition(0).roll()
                log.maintain()
            create_backup(log, place)
        erase_person(log, "user_id", "7")


def test_of_each_backup_the_old_form_or_the_new_one_stays_and_the_next_run_ends_it(
    quick_path: Path, nursery: Executor
) -> None:
    home, made, place = quick_path / "home", quick_path / "made", quick_path / "backups"
    sample(home, place)
    place.rename(made)
    ids = BackupRepository.at(made).ids()
    at, kills, forms = 1, 0, set()
    shutil.copytree(made, place)
    while not nursery.submit(kill_at, erase, at, str(home), str(place), operations=OPERATIONS).result():
        repository = BackupRepository.at(place)
        assert repository.ids() == ids
        assert repository.verify().ok
        chosen = ids[kills % len(ids)]
        shutil.rmtree(place / "erasures", ignore_errors=True)  # which a restore would replay
        report = restore_home(place, quick_path / "again", backup=chosen)
        with Log(report.home, maintenance_interval=None) as again:
            names = [row["name"] for row in again.get_topic("users").rows()]
        number = ids.index(chosen) + 1
        assert names in ([MARK, "else"] * number, [None, "else"] * number)
        forms.add(names[0])
        shutil.rmtree(report.home)

        erase(str(home), str(place))

        assert repository.ids() == ids
        assert repository.verify().ok
        assert places_with(place, MARK) == []
        assert not list((home / "erasure.scratch").glob("*/*"))
        shutil.rmtree(place)
        shutil.copytree(made, place)
        at, kills = at + STEP, kills + 1
    assert kills >= 5
    assert forms == {MARK, None}
