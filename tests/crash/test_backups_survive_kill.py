"""Backups and restores killed with ``kill -9``, in real processes, at many of their file operations.

What it is: a process that makes a backup, or restores one, kills itself at its Nth sync or rename, for rising N.
Invariants: the backups that were there stay whole; a killed one is none, or a whole one if its manifest had its name;
the next finds what was copied. A killed restore leaves no home, or a whole one, and the same call finishes it without
fetching the files again that it has.
Not here: what a backup holds (``tests/unit/upkeep/backup/``).
Read next: ``src/headwater/upkeep/backup/backup_writer.py``.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import pytest

from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.log.home import Log
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from tests.crash.killed_work import kill_at

STEP = max(1, 4 // int(os.environ.get("HEADWATER_THOROUGH", "1")))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Executor]:
    """A process that has imported everything and opened nothing."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def back_up(home: str, place: str, key: str) -> None:
    with Log(home, maintenance_interval=None) as log:
        create_backup(log, place, key=source(key))


def source(key: str) -> KeySource | None:
    return KeySource(file=Path(key)) if key else None


def open_place(place: str, key: str) -> None:
    BackupRepository.at(place, source(key), make=True)


def restore(place: str, home: str) -> None:
    restore_home(place, home)


def sample(home: Path) -> None:
    with Log(home, maintenance_interval=None) as log:
        topic = log.topic("orders", "id BIGINT, item STRING", key="id", partitions=2)
        for number in range(4):
            topic.append([{"id": number * 100 + n, "item": "x" * 20} for n in range(100)])
            for partition in range(2):
                topic.partition(partition).roll()
            if number < 2:
                log.maintain()
        topic.append([{"id": 1, "item": "last"}])


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_killed_backup_leaves_the_last_good_one_and_is_gone_on_with(
    quick_path: Path, nursery: Executor, encrypted: bool
) -> None:
    home, place, file = quick_path / "home", quick_path / "backups", quick_path / "shop.key"
    if encrypted:
        new_key_file(file)
        at = 1
        while not nursery.submit(kill_at, open_place, at, str(place), str(file)).result():
            at += 1  # killed while the place gets its keys: the next one goes on
    key = str(file) if encrypted else ""
    sample(home)
    with Log(home, maintenance_interval=None) as log:
        good = create_backup(log, place, key=source(key)).manifest
        log.topic("more", "n BIGINT", key="n", partitions=12).append([{"n": n} for n in range(50)])
    repository = BackupRepository.at(place, source(key))
    at, kills, most = 1, 0, 0
    while not nursery.submit(kill_at, back_up, at, str(home), str(place), key).result():
        assert repository.ids()[:1] == [good.id]
        assert repository.verify().ok
        if len(repository.ids()) > 1:  # killed after its manifest had its name: it counts, and is whole
            break
        objects = len(repository.objects())
        assert objects >= most
        at, kills, most = at + max(1, STEP // 2), kills + 1, objects

    second = repository.newest()
    named = {piece.name for piece in second.pieces()} - {piece.name for piece in good.pieces()}
    assert kills >= 5
    assert second.token.frontier["more"] != {}
    assert second.written_objects < len(named)  # what the killed ones had copied was there
    assert repository.verify().ok
    report = restore_home(place, quick_path / "again", key=source(key))
    with Log(report.home, maintenance_interval=None) as again:
        assert again.check().ok
        assert sum(again.get_topic("more").end_offsets().values()) == 50


def test_a_killed_restore_leaves_no_home_and_is_gone_on_with(quick_path: Path, nursery: Executor) -> None:
    home, place, target = quick_path / "home", quick_path / "backups", quick_path / "again"
    sample(home)
    with Log(home, maintenance_interval=None) as log:
        made = create_backup(log, place).manifest
        before = {topic.name: topic.end_offsets() for topic in log.topics()}
    at, kills = 1, 0
    while not nursery.submit(kill_at, restore, at, str(place), str(target)).result():
        if (target / "headwater.json").exists():  # killed after that had its name: the home is whole
            break
        at, kills = at + max(1, STEP // 2), kills + 1
        if kills == 5:
            report = restore_home(place, quick_path / "fresh")
            assert report.kept_bytes == 0

    with Log(target, maintenance_interval=None) as again:
        assert again.check().ok
        assert {topic.name: topic.end_offsets() for topic in again.topics()} == before == made.token.frontier
    assert kills >= 5
    assert not (target / "restoring.json").exists()
    assert not list((target / "topics").rglob("*.tmp"))
