"""Copies of backups that nobody has rewritten hold the person, and a restore of them erases the person again."""

from __future__ import annotations

import shutil
from pathlib import Path

import headwater as hw
from headwater.log.home import Log
from headwater.upkeep.backup.backup_drill import drill
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.person_erasure import PersonErasure
from tests.every_byte import places_with

MARK = "zq-marker-zq"


def test_a_restore_of_an_older_backup_erases_again_what_a_later_backup_has_told(tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    with Log(tmp_path / "home") as log:
        of_users = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}
        users = log.topic("users", "id BIGINT, name STRING", key="id", privacy=of_users)
        users.append([{"id": 7, "name": MARK}, {"id": 8, "name": "else"}])
        older = create_backup(log, place).manifest
        users.append([{"id": 9, "name": "new"}])
        shutil.copytree(place, tmp_path / "copy")

        certificate = PersonErasure(log, "user_id", "7", backups=[place]).run()

        assert ("backups at " + place, "done") in [(each.place, str(each.state)) for each in certificate.places]
    shutil.copytree(tmp_path / "backups" / "erasures", tmp_path / "copy" / "erasures")
    again = restore_home(tmp_path / "copy", tmp_path / "again", backup=older.id)
    assert (older.rows, again.rows) == (2, 1)
    assert places_with(tmp_path / "again", MARK) == []
    with Log(tmp_path / "again") as log:
        assert [row["id"] for row in log.get_topic("users").rows()] == [8]
        assert log.check().problems == ()
    assert drill(place).ok


def test_a_place_that_was_not_named_is_known_and_one_that_is_new_is_told_by_its_first_backup(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        visits = log.topic("visits", "name STRING", privacy={"name": hw.Personal("name")})
        visits.append([{"name": MARK}])
        create_backup(log, tmp_path / "backups")
        older = create_backup(log, tmp_path / "more").manifest
        shutil.copytree(tmp_path / "more", tmp_path / "copy")
        certificate = PersonErasure(log, "name", MARK).run()
        (tmp_path / "new").mkdir()
        create_backup(log, tmp_path / "new")

    assert [each.place for each in certificate.places if each.place.startswith("backups")] == [
        f"backups at file://{tmp_path}/{name}" for name in ("backups", "more")
    ]
    assert [places_with(tmp_path / name, MARK) for name in ("backups", "more", "new")] == [[], [], []]
    assert places_with(tmp_path / "copy", MARK) != []
    shutil.copytree(tmp_path / "new" / "erasures", tmp_path / "copy" / "erasures")
    restore_home(tmp_path / "copy", tmp_path / "again", backup=older.id)
    assert places_with(tmp_path / "again", MARK) == []
