"""Backups and erasures: an older backup holds the person, and a restore of it erases the person again."""

from __future__ import annotations

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

        certificate = PersonErasure(log, "user_id", "7", backups=[place]).run()

        assert ("backups at " + place, "pending") in [(each.place, str(each.state)) for each in certificate.places]
        create_backup(log, place)
    again = restore_home(place, tmp_path / "again", backup=older.id)
    assert (older.rows, again.rows) == (2, 1)
    assert places_with(tmp_path / "again", MARK) == []
    with Log(tmp_path / "again") as log:
        assert [row["id"] for row in log.get_topic("users").rows()] == [8]
        assert log.check().problems == ()
    assert drill(place).ok


def test_a_place_that_was_not_named_is_told_by_the_next_backup(tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    with Log(tmp_path / "home") as log:
        visits = log.topic("visits", "name STRING", privacy={"name": hw.Personal("name")})
        visits.append([{"name": MARK}])
        older = create_backup(log, place).manifest
        PersonErasure(log, "name", MARK).run()
        create_backup(log, place)

    restore_home(place, tmp_path / "again", backup=older.id)

    assert places_with(tmp_path / "again", MARK) == []
