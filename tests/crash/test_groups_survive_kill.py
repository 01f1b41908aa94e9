"""Groups under a real kill -9: members are processes, and die without a word."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from headwater.log.home import Log
from tests.waiting import eventually

MEMBERS = Path(__file__).with_name("group_members.py")
TAKEN_MAX = 10  # messages a worker takes at once


def start(*arguments):
    command = [sys.executable, str(MEMBERS), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def processes():
    """A list of processes; what is in it at the end is killed."""
    running = []
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdout.close()


def batches(journal, what):
    if not journal.exists():
        return []
    lines = [line.split() for line in journal.read_text().splitlines()]
    return [tuple(map(int, rest)) for word, *rest in lines if word == what and len(rest) == 3]


def offsets(ranges):
    return Counter((p, offset) for p, first, after in ranges for offset in range(first, after))


def test_a_killed_consumers_partitions_are_taken_over_and_nothing_is_skipped(tmp_path):
    journals = [tmp_path / f"journal-{n}" for n in range(3)]
    with Log(tmp_path / "home") as log, processes() as running:
        topic = log.topic("orders", "id BIGINT", key="id", partitions=6)
        written = 0

        def slowest():
            return (offset for group in topic.groups() for offset in group.positions().values())

        def write():
            nonlocal written
            if sum(topic.end_offsets().values()) - sum(slowest()) < 500:  # the writer does not outrun a busy machine
                topic.append([{"id": written + n} for n in range(100)])
                written += 100
            return True

        running += [start("consume", tmp_path / "home", journal) for journal in journals]
        eventually(lambda: write() and all(batches(j, "committed") for j in journals), "all three consume")
        running[0].kill()  # while the topic is being written
        running[0].wait()
        taken_over = {p for p, *_ in batches(journals[0], "seen")}
        others_saw = len(batches(journals[1], "seen")) + len(batches(journals[2], "seen"))
        eventually(
            lambda: write() and len(batches(journals[1], "seen")) + len(batches(journals[2], "seen")) > others_saw + 20,
            "the others go on",
        )
        eventually(lambda: topic.group("billing").describe().lag_total == 0, "everything is read")
        description = topic.group("billing").describe()

    ends = {(p, o) for p, end in description.positions.items() for o in range(end)}
    assert len(ends) == written
    seen = sum((offsets(batches(journal, "seen")) for journal in journals), Counter())
    assert set(seen) == ends  # nothing skipped
    committed = sum((offsets(batches(journal, "committed")) for journal in journals), Counter())
    assert max(committed.values()) == 1
    # What was seen twice was seen once without being committed.
    unfinished = sum((offsets(batches(j, "seen")) - offsets(batches(j, "committed")) for j in journals), Counter())
    assert {place for place, times in seen.items() if times > 1} <= set(unfinished)
    # And of the killed one that is at most the last batch: all before it was committed (or refused, had it been
    # taken for dead before it was).
    answered = batches(journals[0], "committed") + batches(journals[0], "fenced")
    assert len([batch for batch in batches(journals[0], "seen") if batch not in answered]) <= 1
    assert taken_over <= {p for member in description.members for p in member.partitions}
    assert sum(len(member.partitions) for member in description.members) == 6


def test_a_zombies_commit_is_refused(tmp_path):
    with Log(tmp_path / "home") as log, processes() as running:
        topic = log.topic("orders", "id BIGINT", partitions=1)
        for numbers in (range(4), range(4, 10)):
            topic.append([{"id": n} for n in numbers])
        zombie = start("hold", tmp_path / "home", tmp_path / "go")
        running.append(zombie)
        assert zombie.stdout.readline() == "holding 0 10\n"

        zombie.send_signal(signal.SIGSTOP)
        with topic.consumer("billing", rows_max=4) as heir:
            batch = eventually(lambda: heir.poll(timeout=0.1), "the heir has the partition")
            heir.commit(batch)
            (tmp_path / "go").touch()
            zombie.send_signal(signal.SIGCONT)
            answer = zombie.stdout.readline().split()

            assert answer == ["fenced", heir.member, str(heir.generation)]
            assert topic.group("billing").positions() == {0: 4}


def test_every_message_is_accepted_once_although_workers_are_killed(tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    book = sqlite3.connect(ledger, isolation_level=None, timeout=60)
    book.execute("PRAGMA journal_mode = WAL")
    book.execute("CREATE TABLE attempts (worker TEXT, partition INTEGER, offset INTEGER)")
    book.execute(
        "CREATE TABLE acceptances (worker TEXT, partition INTEGER, offset INTEGER, UNIQUE (partition, offset))"
    )

    def working(name):
        return book.execute("SELECT 1 FROM attempts WHERE worker = ?", (name,)).fetchone()

    kills, written = 12, 0
    with Log(tmp_path / "home") as log, processes() as running:
        topic = log.topic("jobs", "id BIGINT", partitions=2)
        names = [f"worker-{n}" for n in range(3)]  # more workers than partitions
        running += [start("work", tmp_path / "home", ledger, name, TAKEN_MAX) for name in names]
        for kill in range(kills):
            victim = random.randrange(3)

            def busy(victim=victim):
                nonlocal written
                if (topic_lag(topic) or 0) < 100:  # always something to do, never a mountain of it
                    topic.append([{"id": written + n} for n in range(100)])
                    written += 100
                return working(names[victim])

            eventually(busy, f"{names[victim]} works")
            time.sleep(random.random() * 0.05)  # not to wait for anything: to kill at another moment each time
            assert running[victim].poll() is None, "no worker ends by itself"
            running[victim].kill()
            running[victim].wait()
            running[victim].stdout.close()
            names[victim] = f"worker-{3 + kill}"
            running[victim] = start("work", tmp_path / "home", ledger, names[victim], TAKEN_MAX)
        eventually(lambda: topic.group("runners").describe().lag_total == 0, "all is settled")
        group = topic.group("runners").describe()

        def silent():
            """Settled places of which the ledger has no acceptance."""
            accepted = {(p, o) for p, o in book.execute("SELECT partition, offset FROM acceptances")}
            return {(p, o) for p, end in group.positions.items() for o in range(end)} - accepted

        def tried_by_the_dead():
            marks = ", ".join("?" * len(names))
            query = f"SELECT partition, offset FROM attempts WHERE worker NOT IN ({marks})"
            return {(p, o) for p, o in book.execute(query, names)}

        # A worker killed between accepting and writing it down leaves no word of its last take. Nobody else does.
        eventually(lambda: silent() <= tried_by_the_dead(), "the living have written everything down")
        assert all(process.poll() is None for process in running), "no acceptance was a second one (UNIQUE)"

    assert (group.dead_letters, group.missed) == (0, 0)
    assert sum(group.positions.values()) == written
    assert len(silent()) <= kills * TAKEN_MAX
    book.close()


def test_a_message_that_kills_its_workers_reaches_the_dead_letters(tmp_path):
    with Log(tmp_path / "home") as log, processes() as running:
        topic = log.topic("jobs", "id BIGINT, poison BOOLEAN", partitions=2)
        topic.append([{"id": n, "poison": n == 3} for n in range(10)])
        deaths = 0
        while topic_lag(topic) != 0:
            worker = start("stumble", tmp_path / "home", f"worker-{deaths}")
            running.append(worker)
            eventually(lambda w=worker: w.poll() is not None or topic_lag(topic) == 0, "it dies, or all is done")
            deaths += worker.poll() == -signal.SIGKILL
        group = topic.group("runners").describe()
        [letter] = eventually(lambda: dead_letters(log), "the letter is posted")

    assert deaths == 3
    assert (group.dead_letters, group.lag_total) == (1, 0)
    assert letter["row"] == '{"id":3,"poison":true}'
    assert (letter["deliveries"], letter["reason"]) == (3, "not accepted in 3 deliveries; the last lease ran out")
    assert letter["worker"].startswith("worker-2-")


def topic_lag(topic):
    return topic.group("runners").describe().lag_total if topic.groups() else None


def dead_letters(log):
    names = [topic.name for topic in log.topics()]
    return list(log.get_topic("jobs.runners.dead").rows()) if "jobs.runners.dead" in names else []
