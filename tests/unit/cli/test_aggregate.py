"""``headwater aggregate``: what each verb shows, writes and refuses, with its exit status.

What it is: the verbs over a bank's app file, whose rules reject, and whose code changes under old events.
Not here: deciding and replaying themselves (``tests/unit/aggregates``).
Read next: ``src/headwater/cli/aggregates/aggregate_commands.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.main import app

BANK = """
import datetime as dt
import decimal
import headwater as hw
from headwater.aggregates import Rejected, command, event

class Account:
    def __init__(self) -> None:
        self.cents = 0
        self.on: dt.date | None = None

    @command
    def deposit(self, cents: int, on: dt.date | None = None) -> None:
        self.deposited(cents, on)

    @command
    def withdraw(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds", missing=cents - self.cents)
        self.withdrawn(cents)

    @command
    def hold(self, cents: int) -> None:
        self.held(cents)

    @command
    def look(self) -> None: ...

    @event
    def deposited(self, cents: int, on: dt.date | None) -> None:
        self.cents += cents
        self.on = on

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents

    @event(tentative="10 minutes")
    def held(self, cents: int) -> None:
        self.cents -= cents

    @held.cancelled
    def _freed(self, cents: int) -> None:
        self.cents += cents

app = hw.App("bank", home=HOME)
app.aggregate("account", Account, partitions=2)
"""


class Bank:
    """``headwater aggregate VERB`` over one bank."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "data"
        self.file = folder / "bank.py"
        self.write(BANK)

    def write(self, text: str) -> None:
        self.file.write_text(text.replace("HOME", repr(str(self.home))))

    def __call__(self, verb: str, *words: str, stdin: str | None = None) -> Result:
        place = ["--home", str(self.home)] if verb in ("ls", "history") else []
        given = words if verb in ("ls", "history") else (str(self.file), *words)
        return CliRunner().invoke(app, ["aggregate", verb, *given, *place], input=stdin)

    def json(self, verb: str, *words: str, status: int = 0, stdin: str | None = None) -> Any:
        result = self(verb, *words, "--json", stdin=stdin)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout if status in (0, 5) else result.stderr)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def test_a_command_is_sent_and_its_events_are_shown(bank: Bank) -> None:
    sent = bank(
        "send", "account", "7", "deposit", "cents=500", "on=2026-01-31", "--request-id", "r-1", "--actor", "anna"
    )
    again = bank("send", "account", "7", "deposit", "cents=500", "on=2026-01-31", "--request-id", "r-1")

    assert sent.stdout == '1  deposited {"cents": 500, "on": "2026-01-31"}\naccepted; version 1\n'
    assert again.stdout.endswith("was sent before; this is the first answer; version 1\n")
    (event,) = bank.json("history", "account", "7")
    assert {key: event[key] for key in ("version", "type", "data", "actor", "request_id")} == {
        "version": 1,
        "type": "deposited",
        "data": {"cents": 500, "on": "2026-01-31"},
        "actor": "anna",
        "request_id": "r-1",
    }


def test_arguments_may_be_json_from_standard_input(bank: Bank) -> None:
    outcome = bank.json("send", "account", "7", "deposit", "--arguments", "-", stdin='{"cents": 5}')

    assert outcome["version"] == 1
    assert outcome["events"][0]["data"] == {"cents": 5, "on": None}


def test_a_long_history_shows_its_newest_events_and_says_so(bank: Bank) -> None:
    for cents in (1, 2, 3):
        bank.json("send", "account", "7", "deposit", f"cents={cents}")

    shown = bank("history", "account", "7", "--limit", "2").stdout

    assert [each["version"] for each in bank.json("history", "account", "7", "--limit", "2")] == [2, 3]
    assert [each["version"] for each in bank.json("history", "account", "7")] == [1, 2, 3]
    assert '"cents": 1' not in shown
    assert "these are the newest 2; --limit shows more of them" in shown
    assert "these are" not in bank("history", "account", "7", "--limit", "3").stdout


def test_a_rejected_command_ends_with_status_2_and_is_in_the_history(bank: Bank) -> None:
    bank.json("send", "account", "7", "deposit", "cents=5")

    refused = bank.json("send", "account", "7", "withdraw", "cents=9", status=2)
    told = bank("send", "account", "7", "withdraw", "cents=9").stderr

    assert told.split() == ["error:", "no", "funds", "missing:", "4"]
    assert (refused["code"], refused["message"], refused["data"]) == ("rejected", "no funds", {"missing": 4})
    shown = bank("history", "account", "7").stdout
    assert 'withdraw {"cents": 9}: no funds {"missing": 4}' in shown
    assert bank.json("ls") == [
        {"name": "account", "kind": "aggregate", "ids": 1, "events": 1, "rejected": 2, "types": {"deposited": 1}}
    ]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("account", "7", "deposit", "cents=5", "--expected", "3"), 3, 'account "7" has version 0; expected was 3'),
        (("acount", "7", "deposit", "cents=5"), 2, 'no aggregate "acount" was declared'),
        (("account", "7", "depsit", "cents=5"), 2, 'aggregate "account" has no command "depsit"'),
        (("account", "7", "deposit", "cents=five"), 2, 'argument "cents" cannot be "five"'),
        (("account", "7", "deposit", "cent=5"), 2, 'command "deposit" has no argument "cent"'),
        (("account", "7", "deposit", "5"), 2, '"5" is no argument'),
        (("account", "7", "deposit", "--arguments", "[5]"), 2, "--arguments is no JSON object"),
    ],
)
def test_a_wrong_call_is_refused(bank: Bank, words: tuple[str, ...], status: int, message: str) -> None:
    assert bank.json("send", *words, status=status)["message"] == message


def test_a_state_is_shown_now_and_as_of_a_version(bank: Bank) -> None:
    for cents in (5, 6):
        bank.json("send", "account", "7", "deposit", f"cents={cents}")
    bank.json("send", "account", "7", "hold", "cents=1")

    now, before = bank.json("show", "account", "7"), bank.json("show", "account", "7", "--version", "1")

    assert (now["version"], now["state"]) == (3, {"cents": 10, "on": None})
    assert (before["version"], before["state"]) == (1, {"cents": 5, "on": None})
    assert [(each["version"], each["tentative"]["became"]) for each in now["pending"]] == [(3, "pending")]
    assert bank.json("show", "account", "8", status=2)["message"] == 'there is no account "8"'
    assert "event 3 (held) is pending until 20" in bank("show", "account", "7").stdout


def test_a_replay_shows_what_each_event_changed(bank: Bank) -> None:
    bank.json("send", "account", "7", "deposit", "cents=5")
    bank.json("send", "account", "7", "withdraw", "cents=2")
    bank.json("send", "account", "7", "withdraw", "cents=9", status=2)

    steps = bank.json("replay", "account", "7")

    assert [(each["version"], each["type"], each["state"]["cents"]) for each in steps] == [
        (1, "deposited", 5),
        (2, "withdrawn", 3),
    ]
    assert "cents = 3" in bank("replay", "account", "7").stdout


def test_verify_ends_with_status_5_when_code_decides_otherwise(bank: Bank) -> None:
    for id in ("7", "8"):
        bank.json("send", "account", id, "deposit", "cents=5")
    sound = bank("verify")

    bank.write(BANK.replace("self.deposited(cents, on)", "self.deposited(cents + 1, on)"))
    found = bank.json("verify", "account", "7", status=5)

    assert (sound.exit_code, sound.stdout) == (0, "account: 2 checked, every command gives what is in the log\n")
    assert [(each["kind"], each["command"]) for each in found[0]["differences"]] == [("events", "deposit")]
    assert "gave [('deposited', {'cents': 5, 'on': None})]" in bank("verify").stdout


def test_verify_goes_on_after_an_event_that_cannot_be_applied(bank: Bank) -> None:
    for id in ("7", "8"):
        bank.json("send", "account", id, "deposit", "cents=5")

    bank.write(BANK.replace("self.on = on", "self.on = on.nothing"))
    found = bank.json("verify", status=5)

    assert [each["id"] for each in found[0]["failures"]] == ["7", "8"]
    assert found[0]["failures"][0]["code"] == "replay_failed"
    assert bank.json("verify", "account", "9", status=2)["message"] == 'there is no account "9"'


def test_names_of_aggregates_are_completed(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.cli import completions

    bank.json("send", "account", "7", "deposit", "cents=5")
    monkeypatch.setenv("HEADWATER_HOME", str(bank.home))

    class Context:
        params: ClassVar[dict[str, Any]] = {}

        def find_root(self) -> Context:
            return self

    assert completions.histories(Context(), "acc") == ["account"]  # type: ignore[arg-type]
    assert completions.histories(Context(), "x") == []  # type: ignore[arg-type]
