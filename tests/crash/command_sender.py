"""A process that sends commands to accounts, to be killed at any moment.

What it is: ``python command_sender.py HOME SEED COMMANDS COLD``: random deposits and withdrawals, half of them to one
hot account, each with a request id that follows from the seed and the number. What was answered is a line of a file, so
a process that is started again goes on with the first command that has no answer.
Invariants: a command that was sent and not answered is sent again, with the same id.
Not here: the judge (``test_aggregates_survive_kill.py``).
Read next: ``test_aggregates_survive_kill.py``.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.aggregates import AggregateRepository, Rejected, command, event


class TillAccount:
    """An account that is never overdrawn."""

    def __init__(self) -> None:
        self.cents = 0

    @command
    def deposit(self, cents: int) -> None:
        self.deposited(cents)

    @command
    def withdraw(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds")
        self.withdrawn(cents // 2)  # two events, so that a half of a command would be seen
        self.withdrawn(cents - cents // 2)

    @event
    def deposited(self, cents: int) -> None:
        self.cents += cents

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents


def accounts_of(home: Path) -> AggregateRepository:
    """The accounts of a home."""
    return AggregateRepository(hw.Log(home), "account", TillAccount, partitions=4, snapshot_every=50)


def command_of(seed: int, number: int, cold: int) -> tuple[str, str, int, str]:
    """The account, the command, the cents and the request id of one sender's command."""
    chance = random.Random(seed * 1_000_003 + number)
    id = "hot" if chance.random() < 0.5 else f"cold-{chance.randrange(cold)}"
    return id, chance.choice(["deposit", "withdraw"]), chance.randrange(1, 20), f"{seed}-{number}"


def answers_of(home: Path, seed: int) -> list[dict[str, Any]]:
    """What one sender was told; a line that was cut off by a kill is not there."""
    path = home.parent / f"answers-{seed}"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def main(home: Path, seed: int, commands: int, cold: int) -> None:
    accounts = accounts_of(home)
    done = len(answers_of(home, seed))
    path = home.parent / f"answers-{seed}"
    if path.exists():  # a cut line goes
        whole = path.read_bytes()
        os.truncate(path, whole.rfind(b"\n") + 1)
    with path.open("ab", buffering=0) as answers:
        for number in range(done, commands):
            id, name, cents, request = command_of(seed, number, cold)
            try:
                outcome = accounts.send(id, name, cents=cents, request_id=request)
                said: dict[str, Any] = {"request": request, "version": outcome.version, "events": len(outcome.events)}
            except Rejected:
                said = {"request": request, "version": None, "events": 0}
            answers.write(json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(each) for each in sys.argv[2:5]))
