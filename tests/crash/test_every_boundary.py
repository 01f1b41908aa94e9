"""A crash at every boundary there is.

What it is: one workload, run again and again; each run dies one boundary later than the one before, until a run ends.
Invariants: see ``ledger.py``; besides, a retried append of a named producer is not doubled, and a second opening after
the crash changes nothing more.
Not here: real processes (``test_kill_nine.py``), damage that no crash makes (``test_tail_damage.py``).
Read next: ``headwater/testing/disk.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.ledger import Ledger, QuietLog, Sent

from headwater.log.files import Files
from headwater.log.sealing import seal_partition
from headwater.log.topic import Topic
from headwater.testing import Crash, CrashingFiles

SCHEMA = "n BIGINT, text STRING"
LATER = "n BIGINT, text STRING, extra STRING"
PARTITIONS = 2


def declare(log: QuietLog, fsync: str, schema: str = SCHEMA) -> Topic:
    return log.topic("orders", schema, key="n", partitions=PARTITIONS, fsync=fsync, segment_bytes_max=2200)


def seal_everything(topic: Topic) -> None:
    for number in range(PARTITIONS):
        topic.partition(number).roll()
        seal_partition(topic, number)


def sync_everything(topic: Topic) -> None:
    for number in range(PARTITIONS):
        topic.partition(number).sync()


def work(log: QuietLog, ledger: Ledger, fsync: str) -> None:
    """Everything that changes files, in a few steps."""
    topic = declare(log, fsync)
    ledger.append(topic, 5)
    one = ledger.append(topic, 4, producer="importer", sequence=0)
    ledger.again(topic, one)
    sync_everything(topic)
    for _ in range(3):  # rolls by size
        ledger.append(topic, 6)
    seal_everything(topic)
    ledger.again(topic, one)  # known from the catalog now
    topic = declare(log, fsync, LATER)
    ledger.append(topic, 3, producer="importer", sequence=1)
    ledger.delete(topic, 2)
    sync_everything(topic)
    topic.partition(0).roll()
    ledger.append(topic, 4)
    seal_partition(topic, 0)
    ledger.append(topic, 1)


def run_until_the_crash(home: Path, files: Files, fsync: str) -> tuple[Ledger, bool]:
    ledger = Ledger()
    log = None
    try:
        log = QuietLog(home, files=files)
        work(log, ledger, fsync)
    except Crash:
        return ledger, True
    finally:
        if log is not None:
            log.abandon()
    return ledger, False


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
        ledger.append(topic, 2, producer="importer", sequence=2)
        found = ledger.verify(topic)

    with QuietLog(home) as log:
        assert ledger.verify(log.topic("orders")) == found
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


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_crash_at_any_boundary_loses_nothing_acknowledged(quick_path: Path, fsync: str) -> None:
    crashed, number = True, 0

    while crashed:
        home = quick_path / str(number)
        files = CrashingFiles(crash_at=number)
        ledger, crashed = run_until_the_crash(home, files, fsync)
        try:
            reopen_and_verify(home, ledger, fsync, may_be_lost=False)
        except Exception as error:
            raise AssertionError(f"crashed at {number}, {files.boundaries[-1]}: {error}") from error
        number += 1

    assert number > 200


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_at_any_boundary_keeps_what_the_policy_promises(quick_path: Path, fsync: str, seed: int) -> None:
    crashed, number = True, 0

    while crashed:
        home = quick_path / str(number)
        files = CrashingFiles(crash_at=number, power_cut=True, seed=seed)
        ledger, crashed = run_until_the_crash(home, files, fsync)
        try:
            reopen_and_verify(home, ledger, fsync, may_be_lost=fsync != "always")
        except Exception as error:
            raise AssertionError(f"cut at {number}, {files.boundaries[-1]}: {error}") from error
        number += 1
