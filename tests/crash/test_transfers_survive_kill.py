"""Transfers by a process under a real kill -9: money is constant, and each request ends once.

What it is: senders, runners, and the process that ticks views over the accounts and the process's own history are all
killed, again and again. Transfers go on only while there are ticks, and until there were enough of them: however slow
the machine is, ticks between two kills see money that moves.
Invariants: at every published tick, balances and what is in transit are the money that there was: so say two views, and
so says addition over the raw rows of a cut of the log. In transit is what the requests say (not the bookings): the
cents of each that was withdrawn and has not arrived or come back.
Not here: the processes (``transfer_torture.py``). Read next: ``tests/unit/aggregates/processes/test_processes.py``.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict

import pytest

from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.transfer_ticker import bank
from tests.crash.transfer_torture import CENTS, CLOSED_EVERY, END, GO, HOLD, KILL, prepare, wanted

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(7200)]

ACCOUNTS, MONEY = 1000, 1000 * CENTS
TICKS_LEAST = 6  # that move money, between one kill of the ticker and the next


def judged_by_views(app):
    """What the two views say after each published tick that changed one of them: the money, and what is wrong."""
    feeds = {}
    for view in ("held", "transit"):
        for table in app.get_view(view).changes():
            for row in table.to_pylist():
                if row["_change_type"] in ("insert", "update_postimage"):
                    feeds.setdefault(row["_commit_version"], {})[view] = row
    held, transit, found = None, {"cents": 0, "wrong": 0}, []
    for tick in sorted(feeds):
        held, transit = feeds[tick].get("held", held), feeds[tick].get("transit", transit)
        found.append((held["cents"] + (transit["cents"] or 0), transit["wrong"]))
    return found


def judged_by_hand(log):
    """Addition over the raw rows of one cut, in plain Python."""
    topics = [log.get_topic("account"), log.get_topic("transfer")]
    ends = log.cut(topics)
    accounts, transfers = (
        [row for number, end in ends[topic.name].items() for row in rows_before(topic, number, end)] for topic in topics
    )
    asked = {row["stream"]: row["started"]["cents"] for row in transfers if row["type"] == "started"}
    money, moving = 0, Counter()
    for row in accounts:
        if row["type"] == "deposited":
            money += row["deposited"]["cents"]
        elif row["type"] == "withdrawn":
            money -= row["withdrawn"]["cents"]
        else:
            continue
        if row["request_id"].startswith("transfer/"):
            moving[row["request_id"].split("/")[1]] += 1 if row["type"] == "withdrawn" else -1
    assert set(moving.values()) <= {0, 1}
    return money + sum(asked[id] * count for id, count in moving.items())


def rows_before(topic, partition, end):
    return [row for batch in topic.read_partition(partition, 0, stop=end) for row in batch.to_pylist()]


def test_transfers_end_once_and_money_is_constant_at_every_tick(quick_path):
    lives, home, chance = many(2), quick_path / "home", random.Random(7)
    prepare(home, ACCOUNTS)
    app = bank(home)

    with running("tests.crash.transfer_torture", home, ACCOUNTS, "7", stdin=subprocess.PIPE) as torture:
        ticks = 0
        for life in range(lives):
            with running("tests.crash.transfer_ticker", home) as ticker:
                assert ticker.stdout.readline() == "ready\n"
                say(torture, GO)
                for _ in range(TICKS_LEAST + chance.randrange(TICKS_LEAST)):
                    assert ticker.stdout.readline().startswith("tick"), "it ended by itself"
                    assert judged_by_hand(app.log) == MONEY
                    ticks += 1
                    say(torture, KILL)  # one more only after a tick: a slow machine gets on as well
                time.sleep(chance.uniform(0, 0.1))  # the random moment itself, nothing waits for it
                os.killpg(ticker.pid, signal.SIGKILL)
            say(torture, HOLD if life < lives - 1 else END)  # Spark takes longer to start again than many transfers
        done = json.loads(torture.stdout.readline())
    app.close()
    app = bank(home)
    accounts, transfer = app.get_aggregate("account"), app.get_process("transfer")
    app.tick()

    told, requests = judged_by_views(app), {f"t-{number}": number for number in done["requests"]}
    print(
        f"{len(requests)} requests, {done['kills']} kills of senders and runners, {lives} of the ticker, {ticks} ticks"
    )
    assert set(told) == {(MONEY, 0)}
    assert len(told) >= ticks >= lives * TICKS_LEAST
    assert next(iter(app.get_view("transit").rows()))["cents"] == 0
    ends, steps = defaultdict(list), Counter()
    for row in app.get_topic("transfer").rows():
        if row["type"] in ("finished", "failed", "expired"):
            ends[row["stream"]].append(row["type"])
    for row in app.get_topic("account").rows():
        if row["request_id"].startswith("transfer/"):
            steps[row["stream"], row["request_id"]] += 1
    assert set(ends) == set(requests)
    assert {len(each) for each in ends.values()} == {1}
    assert set(steps.values()) == {1}
    closed = {id for id, n in requests.items() if int(wanted(n, ACCOUNTS)["target"]) % CLOSED_EVERY == 0}
    assert {ends[id][0] for id in closed} <= {"failed"}
    assert "finished" in {each for [each] in ends.values()}
    assert min(accounts.get(str(number)).cents for number in range(0, ACCOUNTS, 7)) >= 0
    assert transfer.repository.verify() == []
    app.close()


def say(torture, word):
    torture.stdin.write(word.decode())
    torture.stdin.flush()
