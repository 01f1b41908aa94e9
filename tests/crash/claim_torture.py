"""Claimants that are killed: many processes want one value at one instant, round after round.

What it is: a program: it forks claimants, lets them go at once, kills some with SIGKILL, starts others in their place
with the same requests, and prints what each was told in each round.
Invariants: nothing here knows how a claim is decided; who wins is judged by who reads the output and the log.
Not here: judging (``test_claims_survive_kill.py``). Read next: that.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import sys
import time

import pyarrow as pa

import headwater as hw
from headwater.errors import Rejected

PENDING, WON = 0, 1  # any other number: lost to claimant (number - 2)


class Board:
    """Numbers in memory that all processes share, without locks: a killed process leaves none held."""

    def __init__(self, numbers: int) -> None:
        self._memory = mmap.mmap(-1, 4 * numbers)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("i", self._memory, 4 * place)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("i", self._memory, 4 * place, value)


def claimant(home: str, number: int, rounds: int, claimants: int, board: Board) -> None:
    names = hw.App("shop", home=home).claims("username")
    for turn in range(rounds):
        place = 1 + turn * claimants + number
        if board[place] != PENDING:
            continue
        while board[0] <= turn:
            if os.getppid() == 1:  # the test was ended
                return
            time.sleep(0.0005)
        try:
            names.claim(f"name-{turn}", owner=f"claimant-{number}", request_id=f"{number}-{turn}")
            board[place] = WON
        except Rejected as error:
            board[place] = 2 + int(error.data["owner"].partition("-")[2])


def main(home: str, rounds: int, claimants: int, seed: int) -> None:
    chance, board = random.Random(seed), Board(1 + rounds * claimants)
    hw.App("shop", home=home).claims("username")
    pa.array(["the first conversion makes pyarrow import pandas, where it is installed: here, and not in each child"])
    running: dict[int, int] = {}

    def start(number: int) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                claimant(home, number, rounds, claimants, board)
                code = 0
            finally:
                os._exit(code)
        running[number] = child

    for number in range(claimants):
        start(number)
    kills = 0
    for turn in range(rounds):
        board[0] = turn + 1
        if turn % 5 == 0 and turn < rounds - 1:
            time.sleep(chance.random() * 0.02)
            for number in chance.sample(range(claimants), chance.randint(1, 3)):
                os.kill(running[number], signal.SIGKILL)
                os.waitpid(running[number], 0)
                kills += 1
                start(number)
        deadline = time.monotonic() + 600
        while any(board[1 + turn * claimants + number] == PENDING for number in range(claimants)):
            if time.monotonic() > deadline:
                raise SystemExit(f"round {turn} does not end")
            time.sleep(0.0005)
    codes = [os.waitpid(child, 0)[1] for child in running.values()]
    told = [[board[1 + turn * claimants + number] for number in range(claimants)] for turn in range(rounds)]
    print(json.dumps({"told": told, "kills": kills, "codes": codes}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
