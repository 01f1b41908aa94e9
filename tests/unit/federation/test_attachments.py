"""Attaching: addresses, secrets, and what a home remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import DeclarationConflict, InvalidDeclaration
from headwater.federation.address import Address
from headwater.federation.attachments import Attachment, Attachments
from tests.unit.command_line import CommandLine


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ann:secret@db.example/crm", "postgresql://ann:***@db.example/crm"),
        ("postgresql://ann:${SECRET}@db.example/crm", "postgresql://ann:${SECRET}@db.example/crm"),
        ("postgresql://ann@db.example/crm?password=secret", "postgresql://ann@db.example/crm?password=***"),
        ("mysql://ann:se@cr:et@db.example/shop", "mysql://ann:***@db.example/shop"),
        ("mariadb://ann@db.example:3307/shop", "mariadb://ann@db.example:3307/shop"),
    ],
)
def test_a_password_is_never_shown(given: str, shown: str) -> None:
    assert Address.read(given).shown == shown
    assert "secret" not in repr(Attachment.declared("crm", given))


@pytest.mark.parametrize("wrong", ["", "crm", "postgresql://db.example", "redis://db.example/1", "sqlite:", "x.txt"])
def test_an_address_that_says_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidDeclaration):
        Address.read(wrong)


def test_variables_are_filled_in_when_the_store_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address.read("postgresql://ann:${SECRET}@db.example/crm")
    monkeypatch.setenv("SECRET", "p@ss word")

    assert address.filled == "postgresql://ann:p%40ss%20word@db.example/crm"
    monkeypatch.delenv("SECRET")
    with pytest.raises(InvalidDeclaration, match="no variable SECRET"):
        _ = address.filled


def test_a_relative_path_is_remembered_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert Address.read("sqlite:shop.db").path == tmp_path / "shop.db"
    assert Address.read("prices.csv.gz").kind == "csv"
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    assert Address.read("table").kind == "delta"


def test_an_app_s_plain_password_does_not_reach_the_disk(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app.attach("crm", "postgresql://ann:topsecret@db.example/crm")
        app.attach("shop", "mysql://ann:${SHOP}@db.example/shop", rows_max=10, timeout=2.5)
        assert list(app.attachments) == ["shop", "crm"]

    with hw.Log(tmp_path) as log:
        kept = Attachments(log)
        assert list(kept) == ["shop"]
        assert (kept["SHOP"].rows_max, kept["shop"].timeout) == (10, 2.5)
    assert not any(b"topsecret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_name_is_given_once(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        app.table("users", "id BIGINT", key="id")
        app.view("many", "SELECT count(*) AS n FROM users")

        for taken in ("users", "Users", "many"):
            with pytest.raises(DeclarationConflict):
                app.attach(taken, "users.csv")
        with pytest.raises(InvalidDeclaration):
            app.attach("ls", "users.csv")


def test_the_command_line_attaches_lists_and_detaches(tmp_path: Path) -> None:
    headwater = CommandLine(tmp_path / "home")
    with hw.Log(headwater.home) as log:
        log.topic("orders", "id BIGINT")

    told = headwater("attach", "crm", "postgresql://ann:secret@db.example/crm", "--rows-max", "500", "--timeout", "5s")
    listed = headwater.json("attach", "ls")

    assert (told.exit_code, "secret" in told.stdout + told.stderr) == (0, False)
    assert "in plain text" in told.stderr
    assert listed == [
        {
            "name": "crm",
            "kind": "postgres",
            "url": "postgresql://ann:***@db.example/crm",
            "rows_max": 500,
            "timeout": 5.0,
        }
    ]
    assert headwater.json("detach", "crm") == {"detached": "crm"}
    assert headwater.json("attach", "ls") == []
    assert headwater.error("detach", "crm")["exit_status"] == 2
    assert headwater.error("attach", "crm")["message"].startswith("no address")
