"""``headwater undo``: a table of what would be written, then the events; conflicts end with status 1."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.log.table import declare_table
from tests.unit.command_line import CommandLine


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    with Log(tmp_path / "home") as log:
        users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
        users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
        users.upsert([{"id": n, "country": "X"} for n in (1, 2, 3)], metadata=hw.Metadata(actor="bot"))
        users.upsert([{"id": 2, "country": "AT"}])
        log.topic("clicks", "page STRING").append([{"page": "a"}])
    return CommandLine(tmp_path / "home")


def span() -> list[str]:
    now = dt.datetime.now(dt.UTC)
    return ["--from", str(now - dt.timedelta(hours=1)), "--to", str(now + dt.timedelta(hours=1)), "--actor", "bot"]


def test_a_dry_run_shows_what_would_be_written(headwater: CommandLine) -> None:
    options = span()
    shown = headwater("undo", "users", *options, "--dry-run")
    found = headwater.json("undo", "users", *options, "--dry-run")

    assert shown.exit_code == 0
    assert "3 events in its scope; 2 inverse events would be written" in shown.stdout
    assert all(word in shown.stdout for word in ("upsert", "delete", "users[0]@2", "changed since, at users[0]@5"))
    assert [change["action"] for change in found["changes"]] == ["upsert", "delete"]
    assert found["token"] is None


def test_it_is_written_once_and_conflicts_end_with_status_1(headwater: CommandLine) -> None:
    options = span()
    first = headwater("undo", "users", *options)
    again = headwater("undo", "users", *options)

    assert (first.exit_code, again.exit_code) == (1, 0)
    assert "written as undo-" in first.stdout
    assert "was done before, up to users:0=8" in again.stdout
    with Log(headwater.home) as log:
        rows = {row["id"]: row["country"] for row in hw.App("a", home=headwater.home).get_table("users").rows()}
        assert log.get_topic("users").end_offsets() == {0: 8}
    assert rows == {1: "DE", 2: "AT"}


def test_what_cannot_be_undone_says_what_to_do(headwater: CommandLine) -> None:
    refused = headwater.error("undo", "clicks", *span())
    wrong = headwater.error("undo", "users", "--from", "earliest", "--to", "latest", "--actor", "bot")

    assert (refused["code"], refused["exit_status"]) == ("undo_refused", 2)
    assert refused["hint"].startswith("Append events that say so")
    assert wrong["message"] == "--from is a time, not 'earliest'"
