"""Erasure in backups: every backup and every point in time is there after it, without the person.

What it is: a home whose backups have the person in sealed and open segments, in dead letters, in a table that is keyed
by the person, under proofs; the person is erased, and every point is restored.
Invariants: what is expected of a point is what was read from the log at that moment, with the person's values taken
out by hand; bytes are searched without any code of ours (``tests/every_byte.py``), decrypted where they are encrypted.
Not here: kills (``tests/crash/test_erasure_in_backups_survives_kill.py``), S3
(``tests/services/test_backup_on_s3.py``).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.upkeep.backup.backup_drill import drill
from headwater.upkeep.backup.backup_places import BackupPlaces
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.point_restore import restore_at
from headwater.upkeep.erasure.erased_places import ErasureRetries
from headwater.upkeep.erasure.person_erasure import PersonErasure, look_for
from tests.every_byte import places_with

MARK, ID, OTHER = "zq-marker-zq", "zq-person-zq", "bob-stays-here"
OF_USERS = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}
OF_ORDERS = {"user": hw.Personal("user_id"), "address": hw.Personal("user_id", by="user")}
TURNS = 5
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Busy:
    """A home with backups, and what its log was at some moments."""

    log: Log
    clock: ManualClock
    place: str
    key: KeySource | None
    points: list[tuple[int, Rows]]

    @property
    def repository(self) -> BackupRepository:
        return BackupRepository.at(self.place, self.key)

    def erase(self, **options: Any) -> dict[str, str]:
        keys = {} if self.key is None else {self.place: self.key}
        done = PersonErasure(self.log, "user_id", ID, backups=[self.place], keys=keys, **options).run()
        return {each.place: str(each.state) for each in done.places}


def rows_of(log: Log) -> Rows:
    return {
        name: [row for batch in log.get_topic(name).read("earliest") for row in batch.to_pylist()]
        for name in ("users", "orders", "signed")
    }


def without(rows: Rows) -> Rows:
    """What the log would be without the person: what docs/erasure.md says, done by hand."""
    blank = [{**row, "user": None, "address": None} if row["user"] == ID else row for row in rows["orders"]]
    signed = [{**row, "user": None, "address": None} if row["user"] == ID else row for row in rows["signed"]]
    return {"users": [row for row in rows["users"] if row["id"] != ID], "orders": blank, "signed": signed}


def declare(log: Log) -> None:
    log.topic("users", "id STRING, name STRING", key="id", privacy=OF_USERS)
    log.topic("orders", "id BIGINT, user STRING, address STRING", partitions=2, privacy=OF_ORDERS)
    log.topic("signed", "id BIGINT, user STRING, address STRING", proof=True, privacy=OF_ORDERS)


def put(log: Log, turn: int) -> None:
    people = [(ID, MARK), (OTHER, "street")]
    log.get_topic("users").append([{"id": who, "name": f"{name} {turn}"} for who, name in people])
    orders = [{"id": 10 * turn + n, "user": who, "address": at} for n, (who, at) in enumerate(people)]
    log.get_topic("orders").append(orders[:1])
    log.get_topic("orders").append(orders[1:])
    log.get_topic("signed").append(orders)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def busy(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    key = None
    if request.param:
        new_key_file(tmp_path / "shop.key")
        key = KeySource(file=tmp_path / "shop.key")
    clock, points = ManualClock(), list[tuple[int, Rows]]()
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        declare(log)
        log.topic("other", "n BIGINT").append([{"n": 1}])
        tasks = log.topic("tasks", "user STRING", privacy={"user": OF_USERS["id"]})
        tasks.append([{"user": ID}, {"user": OTHER}])
        with tasks.worker("hands", ordered_by="user") as worker:
            worker.release(worker.take(2, timeout=10), delay="1 day")  # the catalog knows by which value they wait
        for turn in range(TURNS):
            put(log, turn)
            if turn == 1:
                with log.get_topic("orders").worker("mailers") as worker:
                    taken = worker.take(4, timeout=10)
                    worker.reject([each for each in taken if each.row["user"] == ID][:1], reason=f"no {MARK}")
            points.append((clock.now_us(), rows_of(log)))
            clock.advance(60)
            if turn in (1, 3):
                for topic in log.topics():
                    for number in range(topic.settings.partitions):
                        topic.partition(number).roll()
                log.maintain()
            if turn != 2:  # this turn is a point in time only
                create_backup(log, tmp_path / "backups", key=key)
            clock.advance(60)
        yield Busy(log, clock, str(tmp_path / "backups"), key, points)


def dumped(busy: Busy, target: Path) -> Path:
    """Every object as it is read, decrypted; and every byte as it lies there."""
    shutil.rmtree(target, ignore_errors=True)
    for folder in ("backups/", "objects/", "erasures/", "erased/", "turns/", "removals/"):
        for each in busy.repository.store.list(folder):
            path = target / "read" / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(busy.repository.store.get(each.name) or b"")
    shutil.copytree(busy.place, target / "raw")
    return target


def test_every_backup_and_every_point_is_there_without_the_person(busy: Busy, tmp_path: Path) -> None:
    before = busy.repository.manifests()
    assert {each.split("/")[1] for each in places_with(dumped(busy, tmp_path / "dump") / "read", MARK, ID)} >= {
        "segments",
        "tails",
        "databases",
    }

    states = busy.erase(markers=[MARK])

    assert set(states.values()) == {"done", "impossible"}, states
    after = busy.repository.manifests()
    assert [(each.id, each.cut_us, each.token) for each in after] == [(e.id, e.cut_us, e.token) for e in before]
    assert busy.repository.verify().ok
    assert places_with(dumped(busy, tmp_path / "dump"), MARK, ID) == []
    assert look_for(busy.log, "user_id", ID, [MARK], backups={busy.place: busy.key}).ok
    for number, (at_us, rows) in enumerate(busy.points):
        report = restore_at(busy.place, tmp_path / f"point-{number}", at_us=at_us, key=busy.key)
        with Log(report.home, maintenance_interval=None) as log:
            assert rows_of(log) == without(rows), number
            assert log.check().ok
        assert places_with(report.home, MARK, ID) == []
    for number, manifest in enumerate(after):
        report = restore_home(busy.place, tmp_path / f"whole-{number}", backup=manifest.id, key=busy.key)
        assert report.rows == manifest.rows
        with Log(report.home, maintenance_interval=None) as log:
            assert log.check().problems == ()
            assert {topic.name: topic.end_offsets() for topic in log.topics()} == before[number].token.frontier
    assert drill(busy.place, key=busy.key, scratch=tmp_path).ok


def test_a_second_erasure_writes_nothing_and_the_next_backup_only_what_is_new(busy: Busy) -> None:
    busy.erase()
    files = {
        path: path.read_bytes() for path in Path(busy.place).rglob("*") if path.is_file() and "turns" not in str(path)
    }
    first = create_backup(busy.log, busy.place, key=busy.key).manifest
    size = sum(piece.bytes for piece in first.pieces())
    unchanged = create_backup(busy.log, busy.place, key=busy.key).manifest
    busy.log.get_topic("other").append([{"n": 2}])
    third = create_backup(busy.log, busy.place, key=busy.key).manifest
    again = busy.erase()

    sealed = {piece.name for piece in first.pieces() if "/segments/" in piece.name}
    shared = {piece.name for manifest in busy.repository.manifests()[:-3] for piece in manifest.pieces()}
    assert len(sealed & shared) >= 3  # the home's segments were rewritten to the same bytes as those of the backups
    assert first.written_bytes < size
    assert (unchanged.written_objects, third.written_objects) == (0, 1)
    assert again["backups at " + busy.place] == "done"
    assert {path for path, data in files.items() if path.read_bytes() != data} == set()


def test_a_place_that_does_not_answer_is_pending_told_and_ended_later(busy: Busy, tmp_path: Path) -> None:
    away = tmp_path / "not mounted"
    Path(busy.place).rename(away)

    states = busy.erase()
    told = look_for(busy.log, "user_id", ID, [MARK], backups={busy.place: busy.key})
    retries = ErasureRetries(lambda: busy.log, {busy.place: busy.key})
    retries.step()

    assert states["backups at " + busy.place] == "pending"
    assert not told.ok
    assert ["the erasure is pending" in each for each in told.unread] == [True]
    away.rename(busy.place)
    assert places_with(dumped(busy, tmp_path / "dump") / "read", ID) != []
    retries.step()
    assert places_with(dumped(busy, tmp_path / "dump"), MARK, ID) == []
    assert look_for(busy.log, "user_id", ID, [MARK], backups={busy.place: busy.key}).ok
    assert set(BackupPlaces(busy.log.catalog).known().values()) == {None}
    assert len(busy.repository.ids()) == TURNS - 1
