"""Answerers that are killed: two processes answer one service, and die between any two of their steps.

What it is: a program: it forks answerers, kills one after the other with SIGKILL, whenever something was answered, and
starts others, until the file that it is told to watch is there. A request that says so kills the process that answers
it first, before its reply.
Invariants: the function counts in a table, in the transaction of its reply: so an answer that was given twice, or not,
shows. Nothing here judges.
Not here: judging (``test_services_survive_kill.py``). Read next: that.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa

import headwater as hw

ANSWERERS = 2


def declare(home: str | Path) -> hw.App:
    """The app with its service: how often was this key asked?"""
    app = hw.App("shop", home=home)
    counts = app.table("counts", "item STRING, asked BIGINT", key="item", partitions=4)

    @app.service("count", request="item STRING, deadly BOOLEAN", reply="asked BIGINT", key="item", lease="2 seconds")
    def count(request, context):
        asked = sum(row["asked"] for row in counts.get(request["item"])) + 1
        context.transaction.upsert(counts, [{"item": request["item"], "asked": asked}])
        marker = Path(home).parent / f"died-{context.id}"
        if request["deadly"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"asked": asked}

    return app


def main(home: str, until: str, seed: int) -> None:
    chance, running, kills = random.Random(seed), {}, 0
    pa.array(["the first conversion makes pyarrow import pandas, where it is installed: here, and not in each child"])

    def start(number: int) -> None:
        child = os.fork()
        if not child:
            try:
                app = declare(home)
                with app.answering["count"]:
                    while os.getppid() != 1:
                        time.sleep(0.05)
            finally:
                os._exit(0)
        running[number] = child

    for number in range(ANSWERERS):
        start(number)
    replies, answered = declare(home).get_topic("count_replies"), 0
    while not Path(until).exists():
        time.sleep(0.1 + chance.random() * 0.2)
        number = chance.randrange(ANSWERERS)
        if (now := sum(replies.end_offsets().values())) > answered:
            answered = now + chance.randint(0, 5)
        else:
            number = -1
        for each, child in list(running.items()):
            ended = os.waitpid(child, os.WNOHANG)[0]
            if each == number and not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if each == number or ended:
                kills += 1
                start(each)
    for child in running.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
