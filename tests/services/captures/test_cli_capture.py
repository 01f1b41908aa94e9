"""``headwater capture``: run, ls, restart and drop, over a real database; and the alert of a slot that grows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.capture.change_writer import ChangeWriter
from headwater.cli.main import app as command_line
from headwater.errors import CaptureLost
from headwater.views.serving.serving_store import ServingStore
from tests.services.captures.databases import drop_slot
from tests.short_lived import SHORT_LIVED

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


@on_postgres
def test_run_once_takes_what_the_database_has(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1), (2)")
    file = tmp_path / "shop.py"
    view = 'app.view("counted", "SELECT count(*) AS users FROM users")\n'
    file.write_text(APP.format(home=str(tmp_path / "home"), dsn=database.dsn) + view)
    program = "import sys; from headwater.cli.main import main; sys.argv[1:] = sys.argv[1].split(); main()"

    said = []
    for value in (3, 4):
        run = subprocess.run(
            [sys.executable, "-c", program, f"run {file} --once --json"],
            capture_output=True,
            text=True,
            env={**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable},
        )
        assert run.returncode == 0, run.stderr
        said += [json.loads(line) for line in run.stdout.splitlines()]
        database.execute(f"INSERT INTO users VALUES ({value})")

    assert [(each["tick"], each["rows_in"]) for each in said] == [(1, 2), (2, 1)]
    with ServingStore(tmp_path / "home" / "views" / "shop" / "serving.sqlite") as store:
        assert store.query("SELECT users FROM counted").to_pylist() == [{"users": 3}]


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

    alerts = [row for row in app.log.get_topic("_alerts").rows() if row["kind"] == "capture_lag"]
    assert [row["state"] for row in alerts] == ["begin"]
    assert f'slot "{watching.name}" makes its database keep' in alerts[0]["message"]


@on_postgres
def test_with_the_app_stopped_an_alert_names_the_growing_slot(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    file = tmp_path / "shop.py"
    file.write_text(APP.format(home=str(tmp_path / "home"), dsn=database.dsn))
    (ran,) = call("capture", "run", str(file), "--once")
    quiet = watch(file)
    database.execute("INSERT INTO users SELECT * FROM generate_series(1, 20000)")  # nobody reads now

    grown = watch(file)
    again = watch(file)
    for _ in range(2):  # a slot moves on when a checkpoint behind what was read is read too
        call("capture", "run", str(file), "--once")
        database.execute("CHECKPOINT")
    call("capture", "run", str(file), "--once")
    read = watch(file)

    assert (quiet.exit_code, grown.exit_code, again.exit_code, read.exit_code) == (0, 1, 1, 0)
    assert ran["capture"] in grown.stdout
    assert "no process reads it" in grown.stdout
    with hw.App("shop", home=tmp_path / "home") as app:
        alerts = [row for row in app.log.get_topic("_alerts").rows() if row["kind"] == "capture_lag"]
    assert [(json.loads(row["detail"])["slot"], row["state"]) for row in alerts] == [
        (ran["capture"], "begin"),
        (ran["capture"], "end"),
    ]


def watch(file: Path) -> Any:
    return CliRunner().invoke(command_line, ["capture", "watch", str(file), "--limit", "1MB"])


@on_postgres
def test_a_capture_that_ended_is_an_alert_until_it_goes_on(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    app.table("users", source=database.source("users"))
    app.capture(until="caught up", timeout=60)
    (capture,) = app.captures.made(app.log)
    drop_slot(database.server, capture.name)

    for _ in range(2):
        with pytest.raises(CaptureLost):
            app.capture(until="caught up", timeout=60)
    capture.close()
    alerts = [row for row in app.log.get_topic("_alerts").rows() if row["kind"] == "capture_failed"]
    app.captures.restart(app.log)
    app.capture(until="caught up", timeout=60)

    assert len(alerts) == 1
    assert capture.name in alerts[0]["message"]
    assert not app.log.catalog.read("SELECT 1 FROM alert_conditions WHERE kind = 'capture_failed'")


@on_postgres
def test_a_capture_that_runs_beside_an_app_begins_again_after_an_error_that_nobody_knows(
    database: Any, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    app.table("users", source=database.source("users"))
    app.capture(until="caught up", timeout=60)
    (capture,) = app.captures.declared()
    markers = app.log.get_topic(f"_captured.{capture}")
    before = markers.end_offsets()
    errors = [OSError("too many open files"), RuntimeError("who knows")]
    mark = ChangeWriter.mark

    def failing(changes: ChangeWriter) -> bool:
        if errors:
            raise errors.pop()
        return mark(changes)

    monkeypatch.setattr(ChangeWriter, "mark", failing)
    monkeypatch.setattr("headwater.capture.app_captures.AGAIN_SECONDS_MIN", 0.05)
    app.captures.start(app.log)
    try:
        database.execute("INSERT INTO users VALUES (1)")
        assert markers.wait(before, timeout=60)
    finally:
        app.captures.stop()

    assert not errors
    told = [row for row in app.log.get_topic("_alerts").rows() if row["kind"] == "capture_failed"]
    assert [row["state"] for row in told] == ["begin", "end"] * 2
    alerts = [row["message"] for row in told if row["state"] == "begin"]
    assert [message.rpartition(": ")[2] for message in alerts] == ["who knows", "too many open files"]
    assert not app.log.catalog.read("SELECT 1 FROM alert_conditions WHERE kind = 'capture_failed'")
