"""``headwater backup erase``: people who were erased leave backups of other places too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import headwater as hw
from headwater.log.home import Log
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from tests.every_byte import places_with
from tests.unit.command_line import CommandLine

MARK = "zq-marker-zq"


def test_a_place_that_the_home_does_not_know_is_rewritten_and_one_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        topic = log.topic("mails", "user_id BIGINT, mail STRING")
        topic.append([{"user_id": 7, "mail": MARK}, {"user_id": 8, "mail": "else"}])
        create_backup(log, tmp_path / "first")
        shutil.copytree(tmp_path / "first", tmp_path / "moved")
        shutil.rmtree(tmp_path / "first")
        # What is personal was declared after the backup.
        mails = {"user_id": hw.Personal("user_id"), "mail": hw.Personal("user_id", by="user_id")}
        log.topic("mails", "user_id BIGINT, mail STRING", privacy=mails)
    headwater = CommandLine(tmp_path / "home")

    erased = headwater("erase", "user_id=7", "--json")
    found = headwater("erase", "verify", "user_id=7", "--marker", MARK, "--backups", str(tmp_path / "moved"))
    moved = headwater.json("backup", "erase", "--from", str(tmp_path / "moved"))
    again = headwater("erase", "user_id=7", "--json")
    headwater("backup", "erase", "--from", str(tmp_path / "first"), "--gone")
    last = headwater("erase", "user_id=7", "--json")

    pending = [each for each in json.loads(erased.stdout)["places"] if each["state"] == "pending"]
    assert [each["place"] for each in pending] == [f"backups at file://{tmp_path}/first"]
    assert "backups of this home were made there, and none is found: is it mounted?" in pending[0]["detail"]
    assert (erased.exit_code, again.exit_code, last.exit_code) == (5, 5, 0)
    assert found.exit_code == 5
    assert "backup 2" in found.stdout
    assert f"not searched: backups at file://{tmp_path}/first: the erasure is pending" in found.stdout
    assert (moved["state"], moved["rows"]) == ("done", 1)
    assert places_with(tmp_path / "moved", MARK) == []
    assert BackupRepository.at(tmp_path / "moved").verify().ok
