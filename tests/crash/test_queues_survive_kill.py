"""A queue in order by key under kill -9: workers are processes, and die in the middle of anything.

What it is: workers that accept, give back for later and reject are killed again and again; at the end dead letters are
put back, and everything is settled.
Invariants: attempts at the messages of one account never go back to an earlier one: the next is delivered only when the
one before is settled. Every message is accepted once, those rejected after they were put back.
Letters keep the metadata.
Not here: groups without order (``test_groups_survive_kill.py``); the state machine (``test_queue_model.py``).
Read next: ``log/groups/staging.py``.
"""

import json
import random
import sqlite3
import time
from itertools import pairwise

from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from tests.crash.test_groups_survive_kill import processes, start
from tests.waiting import eventually

ACCOUNTS = 12
ROWS = 600
KILLS = 10
WORKERS = 3


def test_messages_of_a_key_are_done_in_order_although_workers_are_killed(tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    book = sqlite3.connect(ledger, isolation_level=None, timeout=60)
    book.execute("PRAGMA journal_mode = WAL")
    book.execute(
        "CREATE TABLE attempts (seq INTEGER PRIMARY KEY, worker TEXT, partition INTEGER, offset INTEGER, account TEXT)"
    )
    book.execute(
        "CREATE TABLE acceptances (worker TEXT, partition INTEGER, offset INTEGER, UNIQUE (partition, offset))"
    )

    def attempts(name):
        return book.execute("SELECT count(*) FROM attempts WHERE worker = ?", (name,)).fetchone()[0]

    with Log(tmp_path / "home") as log, processes() as running:
        topic = log.topic(
            "steps", "id BIGINT, account STRING, urgency INT, bad BOOLEAN", key="account", partitions=2, fsync="never"
        )
        rows = [
            {"id": n, "account": f"a{random.randrange(ACCOUNTS)}", "urgency": n % 3, "bad": n % 50 == 0}
            for n in range(ROWS)
        ]
        for first in range(0, ROWS, 20):
            topic.append(rows[first : first + 20], metadata=Metadata(actor=actor_of(first)))
        names = [f"worker-{n}" for n in range(WORKERS)]
        running += [start("step", tmp_path / "home", ledger, name) for name in names]
        for kill in range(KILLS):
            victim = random.randrange(WORKERS)
            eventually(lambda v=victim: attempts(names[v]) or settled(topic), f"{names[victim]} works")
            time.sleep(random.random() * 0.05)  # not to wait for anything: to kill at another moment each time
            assert running[victim].poll() is None, "no worker ends by itself"
            running[victim].kill()
            running[victim].wait()
            running[victim].stdout.close()
            names[victim] = f"worker-{WORKERS + kill}"
            running[victim] = start("step", tmp_path / "home", ledger, names[victim])
        eventually(lambda: settled(topic), "all is settled")
        given_up = topic.group("runners").describe().dead_letters
        in_order = list(book.execute("SELECT account, partition, offset FROM attempts ORDER BY seq"))

        put_back = topic.group("runners").redrive()
        eventually(lambda: settled(topic), "what was put back is settled too")
        letters = list(log.get_topic("steps.runners.dead").rows(columns=["partition", "offset", "row", "_actor"]))
        group = topic.group("runners").describe()
        assert all(process.poll() is None for process in running), "no acceptance was a second one (UNIQUE)"
        assert log.check().problems == ()

    for account in {each for each, *_ in in_order}:
        offsets = [offset for each, _, offset in in_order if each == account]
        assert all(before <= after for before, after in pairwise(offsets)), account
    bad = sum(row["bad"] for row in rows)
    assert (given_up, put_back.redriven, len(letters)) == (bad, bad, bad)
    assert len({(letter["partition"], letter["offset"]) for letter in letters}) == bad
    assert all(letter["_actor"] == actor_of(json.loads(letter["row"])["id"]) for letter in letters)
    assert sum(group.positions.values()) == ROWS
    # A worker killed between accepting and writing it down leaves no word of that message; nobody else does.
    accepted = book.execute("SELECT count(*) FROM acceptances").fetchone()[0]
    assert ROWS - KILLS <= accepted <= ROWS
    book.close()


def actor_of(number: int) -> str | None:
    """Who appended a message: somebody, or in every other append nobody who says so."""
    return f"append {number // 20}" if number // 20 % 2 else None


def settled(topic):
    return bool(topic.groups()) and topic.group("runners").describe().lag_total == 0
