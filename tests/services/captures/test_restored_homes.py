"""A home that is restored from a backup follows its databases again by itself, whatever happened meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from tests.services.captures.contents import same, shown


def follow(home: Path, database: Any) -> None:
    with hw.App("shop", home=home) as app:
        table = app.table("t", source=database.source("t"))
        app.capture(until="caught up", timeout=60)
        same(shown(table.topic), database.rows("t"))


@pytest.mark.parametrize("went_on", [False, True], ids=["lost at once", "went on after its backup"])
def test_a_restored_home_has_what_the_database_has(database: Any, tmp_path: Path, went_on: bool) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    follow(tmp_path / "home", database)
    with hw.Log(tmp_path / "home") as log:
        create_backup(log, tmp_path / "backups")
    database.execute(
        "INSERT INTO t VALUES (4, 'd')", "DELETE FROM t WHERE id = 1", "UPDATE t SET name = 'B' WHERE id = 2"
    )
    if went_on:
        follow(tmp_path / "home", database)  # the place of the backup may be gone from the database by now

    restored = restore_home(tmp_path / "backups", tmp_path / "restored").home

    follow(restored, database)
    database.execute("UPDATE t SET name = 'C' WHERE id = 3")
    follow(restored, database)
