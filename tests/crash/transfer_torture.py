"""Senders and runners of transfers that are killed: money between a thousand accounts, over eight partitions.

What it is: a program: it forks senders, which request transfers, and runners, which carry them out; kills them with
SIGKILL at random moments, and starts others in their place. It is told by bytes on its input: to begin (``GO``), to
kill one (``KILL``), to kill all (``HOLD``), to let what was requested end (``END``).
Invariants: a sender repeats the requests that it was killed over, with the same ids. Nothing here looks at balances.
Between ``HOLD`` and ``GO`` nothing of it runs, so it holds no lock either: its processes are dead, not stopped.
Not here: judging (``test_transfers_survive_kill.py``). Read next: that.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time

import headwater as hw
from headwater.aggregates.processes.process_runner import ProcessRunner
from tests.crash.claim_torture import Board
from tests.unit.aggregates.processes.transfer_bank import declare

SENDERS, RUNNERS, CENTS = 2, 2, 100
AT_ONCE = 5  # requests of a sender that are open together: so few are left to do when the test has seen enough
PAUSE_S = 0.1  # of a sender, so that a slow ticker has not thousands of requests before it
CLOSED_EVERY = 10  # each tenth account takes no deposits: transfers to it are taken back
GO, KILL, HOLD, END = b"g", b"k", b"h", b"e"


def wanted(number: int, accounts: int) -> dict[str, object]:
    """The request of a number."""
    chance = random.Random(number)
    source = chance.choice([each for each in range(accounts) if each % CLOSED_EVERY])
    target = chance.choice([each for each in range(accounts) if each != source])
    return {"source": str(source), "target": str(target), "cents": chance.randint(1, CENTS)}


def prepare(home: str, accounts: int) -> None:
    """The accounts, each with its money."""
    with hw.App("bank", home=home) as app:
        repository, _ = declare(app, deadline="1 hour")
        for number in range(accounts):
            repository.send(str(number), "deposit", cents=CENTS, request_id="seed")
            if number % CLOSED_EVERY == 0:
                repository.send(str(number), "close", request_id="close")


def warm_up() -> None:
    """A transfer in another home: what is imported late is imported here, not by each process that lives briefly."""
    with tempfile.TemporaryDirectory() as home:
        prepare(home, 2)
        with hw.App("bank", home=home) as app:
            _, transfer = declare(app)
            transfer.request({"source": "1", "target": "0", "cents": 1}, request_id="t")
            transfer.drain()
            transfer.wait("t")


def send(home: str, sender: int, accounts: int, board: Board) -> None:
    app = hw.App("bank", home=home)
    _, transfer = declare(app, deadline="1 hour")
    ending = False
    while not ending:
        ending = bool(board[SENDERS])  # looked at before: what it was killed over is requested again in any case
        numbers = [number * SENDERS + sender for number in range(board[sender], board[sender] + AT_ONCE)]
        for number in numbers:
            transfer.request(wanted(number, accounts), request_id=f"t-{number}")
        for number in numbers:
            transfer.wait(f"t-{number}", "10 minutes")
        board[sender] += AT_ONCE  # if it is killed before this, it asks again
        time.sleep(PAUSE_S)


def run(home: str) -> None:
    app = hw.App("bank", home=home)
    ProcessRunner(declare(app, deadline="1 hour")[1]).start()
    threading.Event().wait()


class Torture:
    """The processes that are running, and how many were killed."""

    def __init__(self, home: str, accounts: int, board: Board) -> None:
        self.home, self.accounts, self.board = home, accounts, board
        self.running: dict[int, int] = {}
        self.kills = 0

    def start(self, number: int) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                if number < SENDERS:
                    send(self.home, number, self.accounts, self.board)
                else:
                    run(self.home)
                code = 0
            finally:
                os._exit(code)
        self.running[number] = child

    def kill(self, number: int) -> None:
        child = self.running.pop(number)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == -signal.SIGKILL, f"{number} ended by itself, with {code}"
        self.kills += 1

    def end(self) -> None:
        """Senders end when their requests have; runners are killed then."""
        self.board[SENDERS] = 1
        for number in range(SENDERS):
            assert os.waitpid(self.running.pop(number), 0)[1] == 0
        for number in list(self.running):
            self.kill(number)


def main(home: str, accounts: int, seed: int) -> None:
    chance, board = random.Random(seed), Board(SENDERS + 1)
    torture = Torture(home, accounts, board)
    warm_up()
    while (word := os.read(0, 1)) != END:
        if word == GO:
            for number in range(SENDERS + RUNNERS):
                torture.start(number)
        elif word == KILL:
            time.sleep(chance.uniform(0, 0.2))  # the random moment itself, nothing waits for it
            number = chance.randrange(SENDERS + RUNNERS)
            torture.kill(number)
            torture.start(number)
        else:
            for number in list(torture.running):
                torture.kill(number)
    torture.end()
    requests = [number * SENDERS + sender for sender in range(SENDERS) for number in range(board[sender])]
    print(json.dumps({"kills": torture.kills, "requests": requests}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
