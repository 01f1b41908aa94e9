"""Cuts through several partitions and topics, while others write.

What it is: bookings of two rows over eight partitions, causes and effects in two topics, written by threads and
processes; every cut, limited or not, is judged from the rows before it.
Invariants: the judge knows nothing of cut numbers: it adds up amounts and looks for causes.
Not here: ticks over such cuts (``tests/spark/test_ticks_are_cuts.py``). Read next: ``log/commits/cut_numbers.py``.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.log.commits import consistent_cut
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.topic import Topic

BOOKINGS = "id BIGINT, account BIGINT, amount BIGINT"

WRITER = """
import sys, random
from headwater.log.home import Log
chance = random.Random(int(sys.argv[2]))
with Log(sys.argv[1]) as log:
    topic = log.get_topic("bookings")
    print("ready", flush=True)
    for number in range(150):
        amount = chance.randrange(100)
        first = int(sys.argv[2]) * 1_000_000 + 2 * number
        rows = [{"id": first, "account": 1, "amount": amount}, {"id": first + 1, "account": 2, "amount": -amount}]
        topic.append(rows)
"""


def money_before(topic: Topic, stop: dict[int, int]) -> int:
    batches = topic.read(stop=stop, columns=["amount"])
    return sum(sum(batch.data.column("amount").to_pylist()) for batch in batches)


def bookings(log: Log) -> Topic:
    return log.topic("bookings", BOOKINGS, key="id", partitions=8, segment_bytes_max=20_000)


def test_a_cut_never_shows_half_of_an_append_that_another_process_makes(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        topic = bookings(log)
        command = [sys.executable, "-c", WRITER, str(tmp_path / "home")]
        writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in (1, 2)]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()

        looks, torn = 0, 0
        while any(writer.poll() is None for writer in writers):
            looks += 1
            torn += money_before(topic, log.cut([topic])["bookings"]) != 0
        for writer in writers:
            writer.communicate()

        assert torn == 0
        assert looks > 3
        assert sum(log.cut([topic])["bookings"].values()) == 600


def test_a_limited_cut_holds_whole_appends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.commits.cut_numbers.CUT_ROWS_MAX", 10)
    chance = random.Random(5)
    with Log(tmp_path / "home") as log:
        topic = bookings(log)
        for number in range(120):
            amount = chance.randrange(100)
            topic.append(
                [
                    {"id": 2 * number, "account": 1, "amount": amount},
                    {"id": 2 * number + 1, "account": 2, "amount": -amount},
                ]
            )
            if number % 40 == 20:
                for partition in range(8):
                    topic.partition(partition).roll()
                    seal_partition(topic, partition)

        end = log.cut([topic])
        place: dict[str, dict[int, int]] = {"bookings": dict.fromkeys(range(8), 0)}
        steps = 0
        while place != end:
            before = sum(place["bookings"].values())
            place = consistent_cut.limited([topic], place, end, {"bookings": 25})
            assert 0 < sum(place["bookings"].values()) - before <= 25
            assert money_before(topic, place["bookings"]) == 0
            steps += 1
        assert steps >= 240 / 25


def test_a_cut_number_with_more_rows_than_the_limit_is_taken_whole(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        topic = bookings(log)
        topic.append([{"id": n, "account": 1, "amount": 0} for n in range(100)])
        end = log.cut([topic])

        assert consistent_cut.limited([topic], {"bookings": {}}, end, {"bookings": 5}) == end


def run_until(done: threading.Event, act: Callable[[int], None]) -> threading.Thread:
    def loop() -> None:
        number = 0
        while not done.is_set():
            act(number)
            number += 1

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


def test_no_effect_without_its_cause(tmp_path: Path) -> None:
    """A writer blocks a friend, is answered, and posts; no cut has the post without the block."""
    with Log(tmp_path / "home") as log:
        # In this order a reader that takes the ends one after another sees blocks too early.
        blocks, posts = log.topic("blocks", "n BIGINT"), log.topic("posts", "n BIGINT", partitions=4)
        done = threading.Event()

        def unfriend_then_post(number: int) -> None:
            blocks.append([{"n": number}])
            posts.append([{"n": number}])

        writer = run_until(done, unfriend_then_post)
        try:
            for _ in range(200):
                cut = log.cut([blocks, posts])
                assert sum(cut["posts"].values()) <= cut["blocks"][0]
        finally:
            done.set()
            writer.join()


def test_a_cut_waits_for_no_one_but_lists_what_a_dead_process_had_decided(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        topic = bookings(log)
        topic.append([{"id": n, "account": 1, "amount": 0} for n in range(50)])
        # A process that decided a commit and died before it had listed any part.
        child = subprocess.run(
            [sys.executable, "-c", DIES_AFTER_THE_DECISION, str(tmp_path / "home")], capture_output=True, check=False
        )
        assert child.returncode == -9, child.stderr.decode()

        assert sum(log.cut([topic])["bookings"].values()) == 100
        assert list((tmp_path / "home" / "commits").iterdir()) == []


DIES_AFTER_THE_DECISION = """
import os, signal, sys
from headwater.log.home import Log
from headwater.log.storage.partition_writer import PartitionWriter
PartitionWriter.show = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
Log(sys.argv[1]).get_topic("bookings").append([{"id": n, "account": 1, "amount": 0} for n in range(50, 100)])
"""


def test_a_read_only_home_has_cuts(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        bookings(log).append([{"id": n, "account": 1, "amount": 0} for n in range(50)])
    with Log(tmp_path / "home") as log:
        log.read_only = True
        topic = log.get_topic("bookings")

        assert sum(log.cut([topic])["bookings"].values()) == 50
