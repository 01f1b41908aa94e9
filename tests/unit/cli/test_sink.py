"""``headwater sink``: how an app's sinks are, from its file."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.log.home import Log
from headwater.sinks.runner.sink_status import SinkState, SinkStatus, SinkStatuses

FILE = """
import headwater as hw
app = hw.App("shop", home={home!r})
app.table("users", "id BIGINT, country STRING", key="id")
app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
{sinks}
"""
SINKS = """
app.sink("countries", hw.sinks.SQLite("copy.db"))
app.sink("countries", hw.sinks.Postgres("postgresql://app:secret@db.example.com/shop"), name="reports")
"""


def app_file(folder: Path, sinks: str = SINKS) -> str:
    (folder / "shop.py").write_text(FILE.format(home=str(folder / "home"), sinks=sinks))
    return str(folder / "shop.py")


def test_sinks_are_listed_with_their_state_and_without_passwords(tmp_path: Path) -> None:
    file = app_file(tmp_path)
    with Log(tmp_path / "home") as log:
        error = {"message": "nobody there"}
        known = SinkStatus("reports", "countries", "postgres", "?", SinkState.RETRYING, 7, failures=3, error=error)
        SinkStatuses(log, "shop").save("shop/countries/reports", known)

    shown = CliRunner().invoke(app, ["sink", "ls", file])
    listed = json.loads(CliRunner().invoke(app, ["sink", "ls", file, "--json"]).stdout)

    assert shown.exit_code == 0, shown.output
    assert [(each["sink"], each["state"], each["tick"], each["failures"]) for each in listed] == [
        ("countries.sqlite", "idle", 0, 0),
        ("reports", "retrying", 7, 3),
    ]
    assert "postgresql://app:***@db.example.com/shop" in shown.stdout
    assert "nobody there" in shown.stdout
    assert "secret" not in shown.stdout + json.dumps(listed)


def test_an_app_without_sinks_says_how_to_declare_one(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["sink", "ls", app_file(tmp_path, "")])

    assert shown.stdout == "no sinks; declare one: app.sink(view, hw.sinks.SQLite(path))\n"


def test_wrong_declarations_are_refused_at_once(tmp_path: Path) -> None:
    for line, sentence in [
        ('app.sink("orders", hw.sinks.SQLite("copy.db"))', 'there is no view "orders" for a sink to carry'),
        ('app.sink("users", hw.sinks.SQLite("copy.db"))', 'there is no view "users" for a sink to carry'),
        ('app.sink("countries", "copy.db")', "'copy.db' is not a sink"),
        ('app.get_sink("nothing")', 'no sink "nothing" was declared'),
        (f'{SINKS}\napp.get_sink("countries")', 'view "countries" has several sinks'),
        (f'{SINKS}\napp.sink("countries", hw.sinks.SQLite("b"), name="reports")', 'sink "reports" is declared twice'),
        (f'{SINKS}\napp.drop_view("countries")', 'view "countries" cannot be dropped: sink "countries.sqlite"'),
    ]:
        refused = CliRunner().invoke(app, ["sink", "ls", app_file(tmp_path, line), "--json"])

        assert refused.exit_code == 2, line
        assert sentence in json.loads(refused.stderr)["message"]
