"""Deterministic replay: recorded commands decided again.

What it is: ``verify`` over a random life of accounts, and over code that decides otherwise today.
Invariants: equal code finds no difference; a difference names the command, what it gave and what it gives now.
Not here: damaged files (``headwater check``). Read next: ``aggregates/replay_check.py``.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import headwater as hw
from headwater.aggregates import Rejected, command
from headwater.testing.manual_clock import ManualClock
from tests.unit.aggregates.bank import Account, repository

COMMANDS = ("deposit", "withdraw", "reserve", "label", "nothing", "move")


def live(home: Path, commands: int) -> None:
    """Random commands of three accounts, through two repositories by turns."""
    chance, clock = random.Random(2026), ManualClock()
    places = [repository(home, clock=clock, snapshot_every=20) for _ in range(2)]
    for number in range(commands):
        accounts, id = chance.choice(places), str(chance.randrange(3))
        clock.advance(chance.choice([0, 1, 400]))
        name = chance.choice(COMMANDS)
        arguments = {"deposit": {"cents": chance.randrange(-1, 20)}, "withdraw": {"cents": chance.randrange(30)}}
        arguments |= {"reserve": {"cents": chance.randrange(20)}, "move": {"out": 3, "back": chance.randrange(5)}}
        with contextlib.suppress(Rejected):
            if (pending := accounts.pending(id)) and chance.random() < 0.5:
                settle = chance.choice([accounts.confirm, accounts.cancel])
                settle(id, chance.choice(pending).version)
            request = f"r-{number}" if chance.random() < 0.5 else None
            said = hw.Metadata(actor="anna") if chance.random() < 0.3 else None
            accounts.send(id, name, request_id=request, metadata=said, **arguments.get(name, {}))


def test_every_command_is_decided_as_it_was(tmp_path: Path) -> None:
    live(tmp_path, 150)

    accounts = repository(tmp_path, snapshot_every=20)

    assert accounts.verify() == []
    types = [each.type for id in accounts.ids() for each in accounts.history(id)]
    assert {"deposited", "withdrawn", "reserved", "rejected", "confirmed", "cancelled", "expired"} <= set(types)


class Generous(Account):
    """An account that lets everybody withdraw."""

    @command
    def withdraw(self, cents: int) -> None:
        self.withdrawn(cents)


class Forgetful(Account):
    """An account without a command that it had."""

    deposit = None  # type: ignore[assignment]


def test_code_that_decides_otherwise_is_told(tmp_path: Path) -> None:
    accounts = repository(tmp_path)
    accounts.send("7", "deposit", cents=5)
    with contextlib.suppress(Rejected):
        accounts.send("7", "withdraw", cents=9)

    [found] = repository(tmp_path, Generous).verify("7")

    assert (found.kind, found.version, found.command) == ("events", 1, "withdraw")
    assert str(found) == (
        "account \"7\" after event 1: command \"withdraw\" gave [('rejected', 'no funds')], "
        "and now gives [('withdrawn', {'cents': 9})]"
    )


def test_a_command_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    repository(tmp_path).send("7", "deposit", cents=5)

    [found] = repository(tmp_path, Forgetful).verify("7")

    assert str(found) == (
        'account "7" after event 0: command "deposit" is not known any more, so it was not decided again'
    )


def test_a_snapshot_that_is_not_the_sum_of_the_events_is_told(tmp_path: Path) -> None:
    accounts = repository(tmp_path, snapshot_every=2)
    accounts.send("7", "deposit", cents=5)
    accounts.states.load("7").instance.cents = 99  # what a wrong event method would have left
    accounts.send("7", "deposit", cents=5)

    [found] = repository(tmp_path).verify("7")

    assert found.kind == "snapshot"
    assert (found.recorded["cents"], found.replayed["cents"]) == (104, 10)
