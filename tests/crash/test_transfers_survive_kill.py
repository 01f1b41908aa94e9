"""Transfers by a process under a real kill -9: money is constant, and each request ends once.

What it is: senders, runners, and the process that ticks views over the accounts and the process's own history are all
killed, again and again.
Invariants: at every published tick, balances and what is in transit are the money that there was: so say two views, and
so says addition over the raw rows of a cut of the log. In transit is what the requests say (not the bookings): the
cents of each that was withdrawn and has not arrived or come back.
Not here: the processes (``transfer_torture.py``). Read next: ``tests/unit/aggregates/processes/test_processes.py``.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.transfer_ticker import bank
from tests.crash.transfer_torture import CENTS, SENDERS, prepare, wanted

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(7200)]

TORTURE = Path(__file__).with_name("transfer_torture.py")
ACCOUNTS, MONEY = 1000, 1000 * CENTS


def judged_by_views(app):
    """What the two views say after each published tick, from their change feeds: the ticks, and the money at each."""
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
    requests, home, chance = many(40), quick_path / "home", random.Random(7)
    prepare(home, ACCOUNTS)
    app = bank(home)
    app.tick()

    command = [sys.executable, "-m", "tests.crash.transfer_torture", str(home), str(requests), str(ACCOUNTS), "7"]
    killed, torture = 0, None
    while torture is None or torture.poll() is None:
        with running("tests.crash.transfer_ticker", home) as ticker:
            if torture is None:  # Spark takes longer to start than all the requests
                assert ticker.stdout.readline() == "ready\n"
                torture = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for _ in range(chance.randint(1, 4)):
                said = select.poll()
                said.register(ticker.stdout, select.POLLIN)
                while not said.poll(200) and torture.poll() is None:
                    assert judged_by_hand(app.log) == MONEY
                if torture.poll() is not None:
                    break
                assert ticker.stdout.readline().startswith(("tick", "ready")), "it ended by itself"
            time.sleep(chance.uniform(0, 0.1))  # the random moment itself, nothing waits for it
            os.killpg(ticker.pid, signal.SIGKILL)
            killed += 1
    assert torture.returncode == 0
    kills = json.loads(torture.communicate()[0])["kills"]
    app.close()
    app = bank(home)
    accounts, transfer = app.get_aggregate("account"), app.get_process("transfer")
    app.tick()

    told = judged_by_views(app)
    print(
        f"{SENDERS * requests} requests, {kills} kills of senders and runners, {killed} of the ticker, "
        f"{len(told)} ticks"
    )
    assert set(told) == {(MONEY, 0)}
    assert app._runtime.manifests.current().tick >= 3  # whether or not each of them moved money
    assert (kills >= 3, killed >= 1) == (True, True)
    assert next(iter(app.get_view("transit").rows()))["cents"] == 0
    ends, steps = defaultdict(list), Counter()
    for row in app.get_topic("transfer").rows():
        if row["type"] in ("finished", "failed", "expired"):
            ends[row["stream"]].append(row["type"])
    for row in app.get_topic("account").rows():
        if row["request_id"].startswith("transfer/"):
            steps[row["stream"], row["request_id"]] += 1
    assert set(ends) == {f"t-{number}" for number in range(SENDERS * requests)}
    assert {len(each) for each in ends.values()} == {1}
    assert set(steps.values()) == {1}
    closed = {f"t-{n}" for n in range(SENDERS * requests) if int(wanted(n, ACCOUNTS)["target"]) % 10 == 0}
    assert {ends[id][0] for id in closed} <= {"failed"}
    assert "finished" in {each for [each] in ends.values()}
    assert min(accounts.get(str(number)).cents for number in range(0, ACCOUNTS, 7)) >= 0
    assert transfer.repository.verify() == []
    app.close()
