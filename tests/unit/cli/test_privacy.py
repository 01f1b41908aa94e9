"""``headwater privacy map``: where personal data is, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app

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
    }
    assert places["countries", "users"]["counted"]
    assert "sink mails.sqlite" in shown
    assert "users (counts)" in shown
