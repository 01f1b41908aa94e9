"""Writers killed with ``kill -9``.

What it is: several processes append to one topic of one home at once; all are killed at random moments, again and
again, over 200 times in all; after each round the home is opened and judged.
Invariants: what was acknowledged is there exactly once; the rest whole (by partition) or not at all; offsets have no
gaps; a named writer that tries its last append again does not double it.
Not here: every single boundary (``test_every_boundary.py``), power cuts (a kill does not empty the kernel's cache).
Read next: ``writer.py``.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.log.storage import routing
from tests.crash.ledger import many, text_of
from tests.crash.writer import read_diary, write_until_killed

WRITERS = 4
ROUNDS = 27  # times two policies, times the writers: 216 kills
KINDS = {
    "interval": {
        "fsync": "interval",
        "fsync_interval": "5 ms",
        "partitions": 2,
        "key": "n",
        "segment_bytes_max": 10_000,
    },
    "always": {"fsync": "always", "partitions": 2, "key": "n", "segment_bytes_max": 8_000},
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Executor]:
    """A process that has imported everything and opened nothing: writers forked from it are cheap to start."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def kill_some_writers(home: Path, settings: dict[str, Any], seed: int) -> int:
    """One round, in the nursery: start the writers, kill each at a random moment; returns how many were killed."""
    chance = random.Random(seed)
    pa.array(["the first conversion makes pyarrow import pandas, where it is installed"])
    processes = multiprocessing.get_context("fork")
    children = []
    for number in range(WRITERS):
        arguments = {"number": number, "named": number % 2 == 0, "seed": chance.randrange(1 << 30)}
        diary = home.parent / f"{home.name}.{number}.diary"
        child = processes.Process(
            target=write_until_killed, args=(str(home), str(diary), settings), kwargs=arguments, daemon=True
        )
        child.start()
        children.append((child, diary, diary.stat().st_size if diary.exists() else 0))
    if chance.random() < 0.7:  # most rounds let everybody write something; some kill as early as in the opening
        wait_until_all_have_written(children)
    chance.shuffle(children)
    for child, _, _ in children:
        time.sleep(chance.uniform(0, 0.03))  # the random moment itself, nothing waits for it
        child.kill()
    for child, _, _ in children:
        child.join()
        assert child.exitcode == -9, "a writer ended by itself: it met an error"
    return len(children)


def wait_until_all_have_written(children: list[Any]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(diary.exists() and diary.stat().st_size > size + 200 for _, diary, size in children):
            return
        time.sleep(0.001)
    raise AssertionError("a writer did not get to its first append within a minute")


def judge(home: Path) -> tuple[int, int]:
    """Open the home and compare it with the diaries; returns the numbers of rows and of sealed segments."""
    with Log(home) as log:
        topic = log.get_topic("orders")
        found: dict[int, list[int]] = {}
        for partition in range(topic.settings.partitions):
            numbers: list[int] = []
            for batch in topic.read_partition(partition, 0, columns=["_offset", "n", "text"]):
                rows = batch.to_pylist()
                assert [row["_offset"] for row in rows] == list(range(len(numbers), len(numbers) + len(rows)))
                assert all(row["text"] == text_of(row["n"]) for row in rows)
                numbers += [row["n"] for row in rows]
            found[partition] = numbers
        assert topic.end_offsets() == {partition: len(numbers) for partition, numbers in found.items()}
        report = log.check()
        assert report.ok, str(report)
        sealed = sum(each["sealed_segments"] for each in topic.describe()["partitions"])
    place = {n: (partition, at) for partition, numbers in found.items() for at, n in enumerate(numbers)}
    total = sum(len(numbers) for numbers in found.values())
    assert len(place) == total, "a row is there twice"

    known = 0
    for number in range(WRITERS):
        latest = dict.fromkeys(found, -1)
        for append in read_diary(home.parent / f"{home.name}.{number}.diary"):
            batch = pa.record_batch({"n": pa.array(append.numbers, pa.int64())})
            for partition, part in routing.split(batch, routing.partition_of(batch, ["n"], len(found))):
                mine = part.column("n").to_pylist()
                there = [n for n in mine if n in place]
                assert there in (mine, []), f"half of a batch: {there} of {mine}"
                assert there or not append.acknowledged, f"acknowledged rows are gone: {mine}"
                if there:
                    first = place[mine[0]]
                    assert first == (partition, max(first[1], latest[partition] + 1)), "a writer's order was lost"
                    assert found[partition][first[1] : first[1] + len(mine)] == mine, "a batch was torn apart"
                    latest[partition] = first[1] + len(mine) - 1
                    known += len(mine)
    assert known == total, "rows that nobody sent"
    return total, sealed


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_nothing_acknowledged_is_lost_or_doubled_when_writers_are_killed(
    nursery: Executor, quick_path: Path, fsync: str
) -> None:
    chance = random.Random(2026)
    kills, rows, sealed, home = 0, 0, 0, quick_path

    for number in range(many(ROUNDS)):
        if number % 3 == 0:  # a new home now and then, so that judging stays quick, and making one is killed too
            home = quick_path / f"home-{number}"
        kills += nursery.submit(kill_some_writers, home, KINDS[fsync], chance.randrange(1 << 30)).result(timeout=120)
        rows, sealed = max((rows, sealed), judge_if_made(home))

    assert kills >= 100
    assert rows > 100
    assert sealed > 0


def judge_if_made(home: Path) -> tuple[int, int]:
    """Judge the home, unless everybody was killed before the topic was declared."""
    with Log(home) as log:
        made = any(topic.name == "orders" for topic in log.topics())
    return judge(home) if made else (0, 0)
