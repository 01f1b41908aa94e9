"""Senders and runners of transfers that are killed: money between a thousand accounts, over eight partitions.

What it is: a program: it forks senders, which request transfers, and runners, which carry them out; kills them one
after the other with SIGKILL at random moments, and starts others in their place; ends when every request has ended.
Invariants: a sender repeats the request that it was killed over, with the same id. Nothing here looks at balances.
Not here: judging (``test_transfers_survive_kill.py``). Read next: that.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

import headwater as hw
from headwater.aggregates.processes.process_runner import ProcessRunner
from tests.crash.claim_torture import Board
from tests.unit.aggregates.processes.transfer_bank import declare

SENDERS, RUNNERS, CENTS = 2, 2, 100
CLOSED_EVERY = 10  # each tenth account takes no deposits: transfers to it are taken back


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


def send(home: str, sender: int, requests: int, accounts: int, board: Board) -> None:
    app = hw.App("bank", home=home)
    _, transfer = declare(app, deadline="1 hour")
    while board[sender] < requests and os.getppid() != 1:
        number = board[sender] * SENDERS + sender
        transfer.request(wanted(number, accounts), request_id=f"t-{number}")
        board[sender] += 1  # if it is killed before this, it asks again


def run(home: str) -> None:
    app = hw.App("bank", home=home)
    runner = ProcessRunner(declare(app, deadline="1 hour")[1])
    runner.start()
    while os.getppid() != 1:
        time.sleep(0.1)


def main(home: str, requests: int, accounts: int, seed: int) -> None:
    chance, board = random.Random(seed), Board(SENDERS)
    running: dict[int, int] = {}

    def start(number: int) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                if number < SENDERS:
                    send(home, number, requests, accounts, board)
                else:
                    run(home)
                code = 0
            finally:
                os._exit(code)
        running[number] = child

    for number in range(SENDERS + RUNNERS):
        start(number)
    app = hw.App("bank", home=home)
    _, transfer = declare(app, deadline="1 hour")
    kills = 0
    while any(board[number] < requests for number in range(SENDERS)) or transfer.open_ids():
        time.sleep(0.2 + chance.random() * 0.8)
        number = chance.randrange(SENDERS + RUNNERS)
        os.kill(running[number], signal.SIGKILL)
        os.waitpid(running[number], 0)
        kills += 1
        start(number)
    for child in running.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(json.dumps({"kills": kills}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
