"""``headwater erase``: a person is erased, and searched for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.home import Log
from tests.every_byte import places_with
from tests.unit.command_line import CommandLine

MARK = "zq-marker-zq"


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    with Log(tmp_path / "home") as log:
        mails = {"user_id": hw.Personal("user_id"), "mail": hw.Personal("user_id", by="user_id")}
        topic = log.topic("mails", "user_id BIGINT, mail STRING", privacy=mails)
        topic.append([{"user_id": 7, "mail": MARK}, {"user_id": 8, "mail": "else"}])
    return CommandLine(tmp_path / "home")


def test_a_dry_run_only_tells_and_an_erasure_certifies(headwater: CommandLine) -> None:
    told = headwater("erase", "user_id=7", "--dry-run")
    assert "would be erased  topic mails  1 row" in told.stdout
    assert places_with(headwater.home, MARK) != []

    done = headwater("erase", "user_id=7", "--marker", MARK, "--json")

    certificate = json.loads(done.stdout)
    assert (done.exit_code, certificate["complete"]) == (0, True)
    places = {each["place"]: (each["state"], each["rows"]) for each in certificate["places"]}
    assert places["topic mails"] == ("done", 1)
    assert places["residue scan"][0] == "done"
    assert places["backups"][0] == "done"
    assert places_with(headwater.home, MARK) == []
    again = json.loads(headwater("erase", "user_id=7", "--json").stdout)
    assert again["hash"] == certificate["hash"]
    assert headwater.json("erase", "show", "user_id=7") == again
    assert headwater.error("erase", "show", "user_id=8")["message"] == "nobody of this user_id was erased here"


def test_verify_finds_the_id_in_its_columns_and_texts_everywhere(headwater: CommandLine, tmp_path: Path) -> None:
    with Log(headwater.home) as log:
        topic = log.get_topic("mails")
        topic.partition(0).roll()
        log.maintain()
        topic.append([{"user_id": 7, "mail": "later"}])
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "notes.txt").write_text(f"to {MARK}")

    words = ["erase", "verify", "user_id=7", "--marker", MARK, "--folder", str(tmp_path / "copies"), "--json"]
    found = headwater(*words)

    assert found.exit_code == 5
    assert {(Path(each["path"]).suffix, each["what"], each["count"]) for each in json.loads(found.stdout)["found"]} == {
        (".parquet", "column user_id", 1),
        (".parquet", "values", 1),
        (".parquet", "bytes", 3),  # the value and the statistics, which are not compressed
        (".txt", "bytes", 1),
        ("", "rows", 2),
    }
    assert headwater("erase", "verify", "user_id=9").exit_code == 0


@pytest.mark.parametrize("words", [["7"], ["verify"], ["user_id="], ["user_id=7", "user_id=8"]])
def test_a_person_is_named_by_subject_and_id(headwater: CommandLine, words: list[str]) -> None:
    assert headwater.error("erase", *words)["message"] == "a person is given as SUBJECT=ID, as in user_id=7"
