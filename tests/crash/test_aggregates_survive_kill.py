"""Commands from several processes that are killed again and again.

What it is: real processes that send commands to one hot account and many cold ones, killed with ``kill -9`` and started
again; a judge that reads the raw rows and knows nothing but addition.
Invariants: every accepted command is there once and whole, every rejected one has its record and nothing else, versions
have no gaps, no account is overdrawn at any place, and a rejection was right at its place. What was answered is there.
Not here: threads (``tests/unit/aggregates/``), the log itself (``test_kill_nine.py``).
Read next: ``command_sender.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from tests.crash import command_sender
from tests.crash.command_sender import accounts_of, answers_of, command_of
from tests.crash.ledger import many

SENDERS = 8
COMMANDS = 45
KILLS = 6
# Accounts that are there before: few, so that they are met often; HEADWATER_THOROUGH=5 has ten thousand.
COLD = 10_000 if many(1) > 1 else 40


class Judge:
    """Plays the raw rows of the history in order."""

    def __init__(self, home: Path) -> None:
        self.balances: dict[str, int] = defaultdict(int)
        self.versions: dict[str, int] = defaultdict(int)
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        log = hw.Log(home)
        topic = log.get_topic("account")
        for partition in range(topic.settings.partitions):
            for batch in topic.read_partition(partition, 0):
                for row in batch.to_pylist():
                    self._row(row)
        log.close()

    def _row(self, row: dict[str, Any]) -> None:
        stream, kind = row["stream"], row["type"]
        self.requests[row["request_id"]].append(row)
        if kind == "rejected":
            assert row["version"] is None
            wanted = json.loads(row["command"]["arguments"])["cents"]
            assert row["command"]["name"] == "withdraw"
            assert wanted > self.balances[stream], "it could have been paid"
            return
        self.versions[stream] += 1
        assert row["version"] == self.versions[stream], "a gap, or a version twice"
        self.balances[stream] += row["deposited"]["cents"] if kind == "deposited" else -row["withdrawn"]["cents"]
        assert self.balances[stream] >= 0, "overdrawn"

    def check_request(self, seed: int, number: int, cold: int, *, answer: dict[str, Any] | None) -> None:
        """A command is there once and whole, or not at all; and as it was answered."""
        id, name, cents, request = command_of(seed, number, cold)
        rows = self.requests.pop(request, [])
        assert {row["stream"] for row in rows} <= {id}
        events = [row for row in rows if row["type"] != "rejected"]
        assert not events or len(events) == len(rows)
        if events:
            paid = sum((row["deposited"] or row["withdrawn"])["cents"] for row in events)
            assert paid == cents
            assert len(events) == (1 if name == "deposit" else 2)
        if answer is not None:
            assert rows, "it was answered and is not there"
            assert (answer["version"], answer["events"]) == (events[-1]["version"] if events else None, len(events))
        assert len(rows) - len(events) <= 1


@pytest.mark.timeout(900)  # minutes where other work takes the cores
def test_commands_of_killed_processes_count_once(tmp_path: Path) -> None:
    home, chance = tmp_path / "home", random.Random(2026)
    with closing(accounts_of(home)) as accounts:
        for number in range(COLD):
            accounts.send(f"cold-{number}", "deposit", cents=1, request_id=f"first-{number}")
    senders, commands, cold, kills = SENDERS, many(COMMANDS), COLD, many(KILLS)
    script = [sys.executable, command_sender.__file__, str(home)]
    running = {seed: subprocess.Popen([*script, str(seed), str(commands), str(cold)]) for seed in range(1, senders + 1)}
    try:
        while kills and running:
            time.sleep(chance.uniform(0.05, 0.5))
            working = [seed for seed in running if answers_of(home, seed)]  # it has begun, so a kill can do harm
            for seed in [seed for seed, process in running.items() if process.poll() is not None]:
                assert running.pop(seed).returncode == 0
            victims = [seed for seed in working if seed in running]
            if not victims:
                continue
            victim, kills = chance.choice(victims), kills - 1
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            running[victim] = subprocess.Popen([*script, str(victim), str(commands), str(cold)])
        for process in running.values():
            assert process.wait(timeout=600) == 0
    finally:
        for process in running.values():
            process.kill()

    judge = Judge(home)
    for number in range(COLD):
        assert len(judge.requests.pop(f"first-{number}")) == 1
    for seed in range(1, senders + 1):
        answers = answers_of(home, seed)
        assert len(answers) == commands
        for number, answer in enumerate(answers):
            judge.check_request(seed, number, cold, answer=answer)
    assert judge.requests == {}
    accounts = accounts_of(home)
    assert {id: accounts.get(id).cents for id in accounts.ids()} == {
        id: cents for id, cents in judge.balances.items() if judge.versions[id]
    }
    assert accounts.verify("hot") == []
