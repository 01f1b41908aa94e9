"""``headwater privacy``: where personal data is, for people and for programs, and what is kept no longer."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app
from headwater.log.erasure.purposes import declare_purpose
from headwater.log.home import Log
from tests.unit.command_line import CommandLine

APP = """
import headwater as hw
app = hw.App("shop", home="home")
app.table("users", "id BIGINT, email STRING, country STRING", key="id", privacy={
    "id": hw.Personal("user_id"), "email": hw.Personal("user_id", by="id", purpose="billing", mask="hash")})
app.view("mails", "SELECT lower(email) AS mail, country FROM users", serve=False)
app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
app.sink("mails", hw.sinks.SQLite("copy.db"))
"""


def test_the_map_tells_where_values_come_from_and_who_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(APP)

    found = json.loads(CliRunner().invoke(app, ["privacy", "map", "shop.py", "--json"]).stdout)
    shown = CliRunner().invoke(app, ["privacy", "map", "shop.py"]).stdout

    places = {(each["relation"], each["column"]): each for each in found}
    assert list(places) == [("users", "id"), ("users", "email"), ("mails", "mail"), ("countries", "users")]
    assert places["mails", "mail"] == {
        "relation": "mails",
        "kind": "view",
        "column": "mail",
        "subjects": ["user_id"],
        "purposes": ["billing"],
        "mask": "hash",
        "counted": False,
        "comes_from": ["users.email"],
        "served": False,
        "groups": [],
        "sinks": ["mails.sqlite"],
        "masked_sinks": [],
        "keep": [],
    }
    assert places["countries", "users"]["counted"]
    assert "sink mails.sqlite" in shown
    assert "users (counts)" in shown


def test_what_has_ended_is_told_and_then_blanked(tmp_path: Path) -> None:
    of_users = {"user": hw.Personal("user_id"), "street": hw.Personal("user_id", by="user", purpose="shipping")}
    with Log(tmp_path / "home") as log:
        topic = log.topic("orders", "user BIGINT, street STRING, at TIMESTAMP", event_time="at", privacy=of_users)
        topic.append([{"user": 7, "street": "Main Street", "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}])
        declare_purpose(log, "shipping", "180 days")
    headwater = CommandLine(tmp_path / "home")

    assert "would be erased  topic orders  1 row" in headwater("privacy", "expire", "--dry-run").stdout
    done = headwater("privacy", "expire", "--json")

    report = json.loads(done.stdout)
    assert (done.exit_code, report["rows"], report["complete"], list(report["ended"])) == (0, 1, True, ["shipping"])
    with Log(tmp_path / "home") as log:
        assert [each["street"] for each in log.get_topic("orders").rows()] == [None]
    assert json.loads(headwater("privacy", "expire", "--json").stdout)["rows"] == 0
