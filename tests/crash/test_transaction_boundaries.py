"""A crash at every boundary of a transaction.

What it is: a transaction over three topics, a consumer's positions and a request id dies one boundary later each time,
by a kill or by a power cut; then another process opens the home.
Invariants: afterwards all of it is there or nothing; the position says the same; a retry with its id completes it once.
Not here: appends (``test_every_boundary.py``), real processes (``tests/unit/log/commits/test_consistent_cut.py``).
Read next: ``log/commits/atomic_append.py``.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from headwater.log.storage.files import Files
from headwater.testing import Crash, CrashingFiles
from tests.crash.ledger import QuietLog, many

TOPICS = {"debits": 2, "credits": 1, "audit": 3}


def open_topics(log: QuietLog, fsync: str) -> None:
    log.topic("requests", "n BIGINT", fsync=fsync)
    for name, partitions in TOPICS.items():
        log.topic(name, "n BIGINT, text STRING", ordered_by="n", partitions=partitions, fsync=fsync)


def prepare(home: Path, fsync: str) -> None:
    with QuietLog(home) as log:
        open_topics(log, fsync)
        log.get_topic("requests").append([{"n": 1}])
        for name in TOPICS:
            log.get_topic(name).append([{"n": n, "text": "before"} for n in range(9)])
        log.get_topic("requests").consumer("bank", member="teller", background=False).close()


def transfer(log: QuietLog, *, with_position: bool, request_id: str | None) -> None:
    requests = log.get_topic("requests")
    with log.transaction(request_id=request_id) as t:
        for name in TOPICS:
            t.append(log.get_topic(name), [{"n": n, "text": "x" * n} for n in range(100, 110)])
        if with_position:
            consumer = requests.consumer("bank", member="teller", background=False)
            t.commit(consumer, {0: 1})


def found(log: QuietLog) -> tuple[set[int], int]:
    """How many of the transaction's rows each topic has, and the position."""
    counts = {sum(row["n"] >= 100 for row in log.get_topic(name).rows()) for name in TOPICS}
    return counts, 1 - log.get_topic("requests").group("bank").lag()[0]


@pytest.mark.parametrize("with_position", [False, True])
@pytest.mark.parametrize(
    ("fsync", "power_cut"), [("always", False), ("always", True), ("interval", False), ("never", False)]
)
def test_all_of_a_transaction_is_there_after_a_crash_or_nothing(
    quick_path: Path, fsync: str, power_cut: bool, with_position: bool
) -> None:
    prepare(quick_path / "made", fsync)
    outcomes = set()
    every = max(1, 3 // many(1))
    for number in itertools.count(every // 2, every):
        home = quick_path / f"home-{number}"
        shutil.copytree(quick_path / "made", home)
        files = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number)
        crashed = run(home, files, fsync, with_position=with_position)
        with QuietLog(home) as log:
            log.cut(log.topics())  # what a tick does first
            counts, position = found(log)
            assert counts in ({0}, {10}), f"crash at {number}, {files.boundaries[-1]}: {counts}"
            there = counts == {10}
            assert position == int(there and with_position), f"crash at {number}, {files.boundaries[-1]}"
            assert crashed or there
            outcomes.add((crashed, there))
            transfer(log, with_position=with_position, request_id="transfer-1" if with_position else None)
            again, position = found(log)
            assert again == ({10} if with_position or not there else {20}), "the id was not recognised"
            assert list((home / "commits").iterdir()) == []
            report = log.check()
            assert report.ok, str(report)
        shutil.rmtree(home)
        if not crashed:
            break
    assert outcomes == {(True, False), (True, True), (False, True)}


def run(home: Path, files: Files, fsync: str, *, with_position: bool) -> bool:
    log = None
    try:
        log = QuietLog(home, files=files)
        open_topics(log, fsync)
        transfer(log, with_position=with_position, request_id="transfer-1" if with_position else None)
    except Crash:
        return True
    finally:
        if log is not None:
            log.abandon()
    return False
