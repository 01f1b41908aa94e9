"""A person who was erased, and is still in the captured database: reading it again brings nobody back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.upkeep.erasure.person_erasure import PersonErasure
from tests.every_byte import places_with

MARK = "zq-marker-zq"
PERSON = hw.Personal("user_id")
OF_USERS = {"id": PERSON, "name": hw.Personal("user_id", by="id")}
OF_VISITS = {"user_id": PERSON, "page": hw.Personal("user_id", by="user_id")}


@pytest.mark.parametrize("server", ["postgres", "mariadb"], indirect=True)
def test_a_capture_that_reads_a_table_again_brings_nobody_back(database: Any, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name TEXT)",
        f"INSERT INTO users VALUES (7, '{MARK}'), (8, 'else')",
        "CREATE TABLE visits (id INT PRIMARY KEY, user_id INT, page TEXT)",
        f"INSERT INTO visits VALUES (1, 7, '{MARK}'), (2, 8, 'else')",
    )

    def declared() -> hw.App:
        app = hw.App("shop", home=tmp_path / "home")
        app.table("users", source=database.source("users"), privacy=OF_USERS)
        app.table("visits", source=database.source("visits"), privacy=OF_VISITS)
        return app

    with declared() as app:
        app.capture(until="caught up")
        PersonErasure(app.log.local, "user_id", "7").run()
        assert places_with(tmp_path / "home", MARK) == []
        database.execute(f"UPDATE users SET name = '{MARK}!' WHERE id = 7", "INSERT INTO users VALUES (9, 'new')")
        app.capture(until="caught up")
        app.captures.restart(app.log)
    with declared() as app:
        app.capture(until="caught up")

        assert sorted(row["id"] for row in app.get_table("users").rows()) == [8, 9]
        rows = sorted((row["id"], row["user_id"], row["page"]) for row in app.get_table("visits").rows())
        assert rows == [(1, None, None), (2, 8, "else")]
    assert places_with(tmp_path / "home", MARK) == []
