"""``headwater capture``: run, ls, restart and drop, over a real database; and the alert of a slot that grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line

on_postgres = pytest.mark.parametrize("server", ["postgres"], indirect=True)

APP = """
import headwater as hw
app = hw.App("shop", home={home!r})
app.table("users", source=hw.capture.Postgres({dsn!r}, table="users"))
"""


def call(*words: str) -> Any:
    result = CliRunner().invoke(command_line, [*words, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@on_postgres
def test_a_capture_is_run_listed_restarted_and_dropped(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1), (2)")
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(tmp_path / "home"), dsn=database.dsn))

    (ran,) = call("capture", "run", str(file), "--once")
    (listed,) = call("capture", "ls", str(file))
    restarted = call("capture", "restart", str(file))
    call("capture", "run", str(file), "--once")
    dropped = call("capture", "drop", str(file))

    assert (ran["table"], ran["phase"], ran["rows_done"]) == ("users", "following", 2)
    assert listed["position"] == ran["position"]
    assert listed["lag_bytes"] is not None
    assert restarted["restarted"] == dropped["dropped"] == [ran["capture"]]
    assert database.left_behind() == 0


def test_a_file_that_captures_nothing_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(f"import headwater as hw\napp = hw.App('shop', home={str(tmp_path / 'home')!r})\n")

    result = CliRunner().invoke(command_line, ["capture", "ls", str(file)])

    assert result.exit_code == 2
    assert "captures nothing" in result.stderr


@on_postgres
def test_a_slot_that_keeps_much_is_an_alert_once(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    app.table("users", source=database.source("users"))
    app.capture(until="caught up", timeout=60)
    database.execute("INSERT INTO users SELECT * FROM generate_series(1, 1000)")

    (watching,) = app.captures.made(app.log)
    watching.lag_bytes_alert = 1000
    watching.watch()
    watching.watch()
    watching.close()

    told = [row for row in app.log.topic("_alerts").rows() if row["kind"] == "capture_lag"]
    assert len(told) == 1
    assert "of its log for capture" in told[0]["message"]
