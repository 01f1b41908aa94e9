"""Encrypted backups: nothing of the home can be read in them, everything is done with the key, and nothing without."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as cli
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.errors import BackupDamaged, KeyRefused, Misuse
from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.upkeep.backup.backup_drill import DrillRecords, drill
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_schedule import BackupPlan, BackupSchedule, created_here
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.point_restore import restore_at
from headwater.upkeep.backup.repository_prune import prune
from headwater.upkeep.erasure.person_erasure import PersonErasure
from tests.every_byte import places_with

MARK = "zq-marker-zq"
MARKS = (MARK, "orders", "catalog", "parquet", "arrow", "PAR1", "SQLite", "claims-of-customers")


@pytest.fixture
def key(tmp_path: Path) -> KeySource:
    new_key_file(tmp_path / "shop.key")
    return KeySource(file=tmp_path / "shop.key")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two sealed segments and an active one, with a marker in each row, and a long name."""
    log = Log(tmp_path / "home", maintenance_interval=None)
    topic = log.topic("orders", "id BIGINT, item STRING", key="id")
    for number in range(2):
        topic.append([{"id": number * 100 + n, "item": f"{MARK} {n}"} for n in range(100)])
        topic.partition(0).roll()
    log.maintain()
    topic.append([{"id": 300, "item": MARK}])
    log.topic("claims-of-customers-" + "x" * 60, "id BIGINT").append([{"id": 1}])
    return log


def rows(home: Path) -> list[dict[str, object]]:
    with Log(home, maintenance_interval=None) as log:
        return [row for batch in log.get_topic("orders").read("earliest") for row in batch.to_pylist()]


def test_no_byte_of_a_backup_tells_what_is_in_it_and_the_key_brings_all_of_it_back(
    log: Log, tmp_path: Path, key: KeySource
) -> None:
    place = tmp_path / "backups"
    before = rows(log.home)
    create_backup(log, tmp_path / "plain")
    made = create_backup(log, place, key=key).manifest

    # The same search finds them where nothing is encrypted, in the objects and in their names.
    assert {each.rpartition(": ")[2] for each in places_with(tmp_path / "plain", *MARKS)} >= {MARK, "catalog"}
    assert any("orders" in str(path) for path in (tmp_path / "plain").rglob("*"))
    assert places_with(place, *MARKS, key.load().secret.hex()) == []
    names = [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]
    assert not [name for name in names if any(mark in name for mark in MARKS)]
    assert {name.split("/")[0] for name in names} == {"backups", "keys", "objects", "turns"}
    report = restore_home(place, tmp_path / "again", key=key)
    assert report.rows == made.rows == 202
    assert rows(tmp_path / "again") == before
    with Log(tmp_path / "again", maintenance_interval=None) as again:
        assert again.check().ok


def test_a_second_backup_writes_what_is_new(log: Log, tmp_path: Path, key: KeySource) -> None:
    place = tmp_path / "backups"
    first = create_backup(log, place, key=key).manifest
    files = {path: path.read_bytes() for path in (place / "objects").rglob("*") if path.is_file()}
    unchanged = create_backup(log, place, key=key).manifest
    log.get_topic("orders").append([{"id": 301, "item": "pot"}])
    third = create_backup(log, place, key=key).manifest

    assert (first.written_objects, unchanged.written_objects, third.written_objects) == (len(files), 0, 1)
    assert {path: path.read_bytes() for path in files} == files


def test_without_the_key_or_with_another_one_nothing_is_done_and_a_sentence_says_why(
    log: Log, tmp_path: Path, key: KeySource
) -> None:
    place, other = tmp_path / "backups", KeySource(file=tmp_path / "other.key")
    held = new_key_file(tmp_path / "other.key").id
    create_backup(log, place, key=key)
    shown, used = f"file://{place}", key.load().id
    for given, said in (
        (None, f"the backups at {shown} are encrypted with key {used}, and no key was given"),
        (other, f"the backups at {shown} were made with key {used}; {tmp_path}/other.key holds {held}"),
    ):
        for work in (
            lambda given=given: create_backup(log, place, key=given),
            lambda given=given: restore_home(place, tmp_path / "no", key=given),
            lambda given=given: restore_at(place, tmp_path / "no", at_us=1, key=given),
            lambda given=given: drill(place, key=given),
            lambda given=given: BackupRepository.at(place, given),
        ):
            with pytest.raises(KeyRefused) as error:
                work()
            assert error.value.message == said

    assert not (tmp_path / "no").exists()
    assert len(BackupRepository.at(place, key).ids()) == 1


def test_a_flipped_cut_missing_or_swapped_object_is_found_by_verify_restore_and_drill(
    log: Log, tmp_path: Path, key: KeySource
) -> None:
    place = tmp_path / "backups"
    create_backup(log, place, key=key)
    repository = BackupRepository.at(place, key)
    files = sorted(path for path in place.rglob("*") if path.is_file() and "turns" not in str(path))
    whole = {path: path.read_bytes() for path in files}
    assert len(files) >= 8
    for number, path in enumerate(files):
        data = whole[path]
        flipped = bytearray(data)
        flipped[(number * 7919) % len(data)] ^= 0x10
        same_kind = [each for each in files if each.parts[-3:-2] == path.parts[-3:-2] and each != path]
        forms = [bytes(flipped), data[: len(data) // 2], *(whole[each] for each in same_kind[:1])]
        for form in forms:
            path.write_bytes(form)
            found = repository.verify()
            path.write_bytes(data)
            assert len(found.problems) == 1, path
    assert repository.verify().ok

    damaged = next(path for path in files if "objects" in str(path) and len(whole[path]) > 1000)
    damaged.write_bytes(whole[damaged][:-20])
    report = drill(place, key=key, chance=random.Random(1), scratch=tmp_path)
    with pytest.raises(BackupDamaged):
        restore_home(place, tmp_path / "no", key=key)

    assert not report.ok
    assert "is damaged" in report.problems[0]
    assert not (tmp_path / "no" / "headwater.json").exists()


def test_points_in_time_prunes_and_drills_work_with_the_key(tmp_path: Path, key: KeySource) -> None:
    clock, place, moments = ManualClock(), tmp_path / "backups", []
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        topic = log.topic("orders", "id BIGINT, item STRING")
        for number in range(4):
            topic.append([{"id": number, "item": MARK}])
            moments.append(clock.now_us())
            clock.advance(3600)
            create_backup(log, place, key=key)
            clock.advance(60)
    report = restore_at(place, tmp_path / "point", at_us=moments[1], key=key)
    removed = prune(BackupRepository.at(place, key), "2").removed

    assert [row["id"] for row in rows(report.home)] == [0, 1]
    assert len(removed) == 2
    assert BackupRepository.at(place, key).verify().ok
    assert drill(place, key=key, chance=random.Random(1), scratch=tmp_path).ok


def test_a_rotated_key_opens_every_backup_and_the_old_one_none(log: Log, tmp_path: Path, key: KeySource) -> None:
    place = tmp_path / "backups"
    create_backup(log, place, key=key)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    new = new_key_file(tmp_path / "new.key")

    BackupRepository.at(place, key).rotate_key(new)

    changed = {path.parent.name for path, data in before.items() if not path.exists() or path.read_bytes() != data}
    assert changed == {"keys", "turns"}
    with pytest.raises(KeyRefused, match="were made with key"):
        restore_home(place, tmp_path / "no", key=key)
    restore_home(place, tmp_path / "again", key=KeySource(file=tmp_path / "new.key"))
    assert len(rows(tmp_path / "again")) == 201
    create_backup(log, tmp_path / "plain")
    with pytest.raises(KeyRefused, match="there are no encrypted backups"):
        BackupRepository.at(tmp_path / "plain").rotate_key(new)


def test_a_plan_with_a_key_encrypts_drills_and_tells_of_a_key_that_is_gone(tmp_path: Path, key: KeySource) -> None:
    clock, place = ManualClock(), tmp_path / "backups"
    plan = BackupPlan(str(place), every_s=3600.0, keep="1", drill_s=7200.0, key=key)
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        log.topic("orders", "id BIGINT, item STRING").append([{"id": 1, "item": MARK}])
        for _ in range(2):
            BackupSchedule(lambda: log, plan, lambda: None, created_here).step()
            clock.advance(3600)
        made = BackupRepository.at(place, key).ids()
        assert key.file is not None
        key.file.rename(tmp_path / "gone.key")
        BackupSchedule(lambda: log, plan, lambda: None, created_here).step()
        told = [row for batch in log.get_topic("_alerts").read("earliest") for row in batch.to_pylist()]
        last = DrillRecords(log).last(good=True)

    assert len(made) == 1
    assert places_with(place, *MARKS) == []
    assert last is not None
    assert last["ok"]
    assert {row["kind"] for row in told} == {"backup", "backup_drill"}
    assert "shop.key cannot be read" in told[0]["message"]


def test_an_app_declares_its_key(tmp_path: Path) -> None:
    app = hw.App("shop", home=tmp_path / "home")
    app.backup("/backup/shop", key_command="vault kv get -field=key secret/shop")

    assert app._services.backups["/backup/shop"].key == KeySource(command="vault kv get -field=key secret/shop")
    with pytest.raises(Misuse, match="not from both"):
        app.backup("/backup/shop", key_file="a", key_command="b")


def test_an_erasure_is_told_to_encrypted_backups_with_the_key_and_is_pending_without(
    tmp_path: Path, key: KeySource
) -> None:
    place = str(tmp_path / "backups")
    with Log(tmp_path / "home") as log:
        visits = log.topic("visits", "name STRING", privacy={"name": hw.Personal("name")})
        visits.append([{"name": MARK}])
        older = create_backup(log, place, key=key).manifest
        without = PersonErasure(log, "name", MARK, backups=[place]).run()
        assert restore_home(place, tmp_path / "still", key=key).rows == 1
        told = PersonErasure(log, "name", MARK, backups=[place], keys={place: key}).run()

    (pending,) = (each for each in without.places if each.place.startswith("backups"))
    assert str(pending.state) == "pending"
    assert "no key was given" in pending.detail
    (kept,) = (each for each in told.places if each.place.startswith("backups"))
    assert kept.detail.startswith("1 of 1 rewritten, 1 rows; ")
    restore_home(place, tmp_path / "again", backup=older.id, key=key)
    assert places_with(tmp_path / "again", MARK) == []
    assert places_with(tmp_path / "backups", MARK, told.hash) == []


def test_the_command_line_makes_rotates_and_uses_keys(log: Log, tmp_path: Path) -> None:
    place, old, new = str(tmp_path / "backups"), str(tmp_path / "old.key"), str(tmp_path / "new.key")
    home = str(log.home)
    log.close()

    def run(*words: str, status: int = 0) -> dict[str, object]:
        result = CliRunner().invoke(cli, [*words, "--json"])
        assert result.exit_code == status, result.stderr
        return dict(json.loads(result.stdout if status == 0 else result.stderr)) if "ls" not in words else {}

    made = [run("backup", "new-key", each)["key"] for each in (old, new)]
    run("backup", "create", "--to", place, "--home", home, "--key-file", old)
    run("backup", "drill", "--from", place, "--home", home, "--key-command", f"cat {old}")
    assert run("backup", "ls", "--from", place, "--key-file", old) == {}
    assert run("backup", "verify", "--from", place, "--key-file", old)["ok"]
    told = run("backup", "verify", "--from", place, "--key-file", new, status=2)
    assert (told["code"], made[0] in str(told["message"])) == ("key_refused", True)
    words = ("backup", "rotate-key", "--from", place, "--key-file", old)
    assert "both keys are needed" in str(run(*words, status=2)["message"])
    assert run(*words, "--new-key-file", new)["key"] == made[1]
    assert run("backup", "prune", "--from", place, "--keep", "1", "--key-file", new)["removed"] == []
    report = run("restore", "--from", place, "--to", str(tmp_path / "again"), "--key-file", new)
    assert report["rows"] == 202
