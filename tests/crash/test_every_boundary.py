"""A crash at every boundary there is.

What it is: a workload in a few steps; each step is run again and again on what the steps before it made, and dies one
boundary later than the time before, until it ends alive.
Invariants: see ``ledger.py``; besides, a retried append of a named producer is not doubled, and a second opening after
the crash changes nothing more.
Not here: real processes (``test_kill_nine.py``), damage that no crash makes (``test_tail_damage.py``).
Read next: ``testing/crashing_disk.py``.
"""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.files import Files
from headwater.log.topic import Topic
from headwater.testing import Crash, CrashingFiles
from tests.crash.ledger import Ledger, QuietLog, Sent, many

SCHEMA = "n BIGINT, text STRING"
LATER = "n BIGINT, text STRING, extra STRING"
PARTITIONS = 2
Step = Callable[[QuietLog, Ledger, str], None]


def declare(log: QuietLog, fsync: str, schema: str = SCHEMA) -> Topic:
    return log.topic("orders", schema, key="n", partitions=PARTITIONS, fsync=fsync, segment_bytes_max=2200)


def sync_everything(topic: Topic) -> None:
    for number in range(PARTITIONS):
        topic.partition(number).sync()


def make_and_append(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    topic = declare(log, fsync)
    ledger.append(topic, 5)
    one = ledger.append(topic, 4, producer="importer", sequence=0)
    ledger.again(topic, one)


def roll_by_size(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    topic = declare(log, fsync)
    ledger.append(topic, 6)
    sync_everything(topic)
    ledger.append(topic, 12, producer="importer", sequence=1)
    ledger.append(topic, 6)


def seal(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    topic = declare(log, fsync)
    for number in range(PARTITIONS):
        topic.partition(number).roll()
        seal_partition(topic, number)
    ledger.again(topic, ledger.sent[1])  # known from the catalog now


def evolve_and_delete(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    topic = declare(log, fsync, LATER)
    ledger.append(topic, 3, producer="importer", sequence=2)
    ledger.delete(topic, 2)
    sync_everything(topic)
    topic.partition(0).roll()
    ledger.append(topic, 4)


def seal_older_and_append(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    topic = declare(log, fsync)
    seal_partition(topic, 0)
    ledger.append(topic, 2)


STEPS = (make_and_append, roll_by_size, seal, evolve_and_delete, seal_older_and_append)


def crash_at_boundaries(path: Path, fsync: str, *, first: int, every: int, power_cut: bool, seed: int = 0) -> int:
    """Each step, crashed at each (or every second, third …) of its boundaries, on a copy of what came before it."""
    made, book, crashes = path / "made", Ledger(), 0
    for step in STEPS:
        for number in itertools.count(first, every):
            home, ledger = path / f"{step.__name__}-{number}", copy.deepcopy(book)
            if made.exists():
                shutil.copytree(made, home)
            files = CrashingFiles(crash_at=number, power_cut=power_cut, seed=seed)
            crashed = run(step, home, ledger, fsync, files)
            try:
                reopen_and_verify(home, ledger, fsync, may_be_lost=power_cut and fsync != "always")
            except Exception as error:
                raise AssertionError(f"{step.__name__}, crash at {number}, {files.boundaries[-1]}: {error}") from error
            shutil.rmtree(home)
            if not crashed:
                break
            crashes += 1
        run(step, made, book, fsync, Files())
    return crashes


def run(step: Step, home: Path, ledger: Ledger, fsync: str, files: Files) -> bool:
    """Do the step in a log of its own; returns whether it crashed."""
    log = None
    try:
        log = QuietLog(home, files=files)
        step(log, ledger, fsync)
    except Crash:
        return True
    finally:
        if log is not None:
            log.abandon()
    return False


def reopen_and_verify(home: Path, ledger: Ledger, fsync: str, *, may_be_lost: bool) -> None:
    with QuietLog(home) as log:
        topic = declare(log, fsync)
        survivors = {
            n for numbers in ledger.verify(topic, acknowledged_may_be_lost=may_be_lost).values() for n in numbers
        }
        if may_be_lost:
            ledger = only_survivors(ledger, survivors)
        for one in ledger.sent:  # what was not acknowledged is tried again, where that is safe
            if one.producer is not None and not one.acknowledged:
                move_to_the_end(ledger, one, survivors)
                ledger.again(topic, one)
        ledger.append(topic, 3)
        ledger.append(topic, 2, producer="importer", sequence=3)
        found = ledger.verify(topic)
        report = log.check()
        assert report.ok, str(report)

    with QuietLog(home) as log:
        assert ledger.verify(log.get_topic("orders")) == found
        assert log.recoveries == []


def only_survivors(ledger: Ledger, survivors: set[int]) -> Ledger:
    kept = []
    for one in ledger.sent:
        parts = {p: numbers for p, numbers in one.by_partition.items() if set(numbers) <= survivors}
        lost = len(parts) < len(one.by_partition)
        if parts or one.producer:
            kept.append(
                Sent(one.numbers, one.by_partition if one.producer else parts, one.producer, one.sequence, not lost)
            )
    return Ledger(kept, ledger.counter)


def move_to_the_end(ledger: Ledger, one: Sent, survivors: set[int]) -> None:
    """The parts of an append that did not survive will be written now, after everything else."""
    gone = {p: numbers for p, numbers in one.by_partition.items() if not set(numbers) <= survivors}
    one.by_partition = {p: numbers for p, numbers in one.by_partition.items() if p not in gone}
    ledger.sent.append(Sent(one.numbers, gone, acknowledged=True))


def apart(fsync: str) -> int:
    """How far apart the boundaries are that are tried. "never" passes none that the other two do not pass."""
    return max(1, (4 if fsync == "never" else 2) // many(1))


# By default a crash meets the even boundaries and a power cut the odd ones; HEADWATER_THOROUGH=2 lets both meet all.


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_crash_at_any_boundary_loses_nothing_acknowledged(quick_path: Path, fsync: str) -> None:
    assert crash_at_boundaries(quick_path, fsync, first=0, every=apart(fsync), power_cut=False) > 100


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_power_cut_at_any_boundary_keeps_what_the_policy_promises(quick_path: Path, fsync: str) -> None:
    every = apart(fsync)
    for seed in range(many(1)):
        path = quick_path / str(seed)
        path.mkdir()
        assert crash_at_boundaries(path, fsync, first=every // 2, every=every, power_cut=True, seed=seed) > 100
