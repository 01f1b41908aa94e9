"""A crash at every boundary of a command, before its answer: the same request, sent again, counts once.

What it is: a command of two events, or one that is rejected, dies one boundary later each time, by a kill or by a power
cut; then another process opens the home and sends the command again, with the same request id.
Invariants: the crash leaves all of the command's rows or none; afterwards they are there once, and the state is their
sum. Who asks again gets the first answer, if there was one.
Not here: several processes (``test_aggregates_survive_kill.py``), boundaries of plain appends
(``test_every_boundary.py``). Read next: ``aggregates/aggregate_repository.py``.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from headwater.aggregates import AggregateRepository, Rejected, command, event
from headwater.testing import Crash, CrashingFiles
from tests.crash.ledger import QuietLog

FEE = 1


class Account:
    """An account that takes a fee for each withdrawal."""

    def __init__(self) -> None:
        self.cents = 0

    @command
    def deposit(self, cents: int) -> None:
        self.deposited(cents)

    @command
    def withdraw(self, cents: int) -> None:
        if cents + FEE > self.cents:
            raise Rejected("no funds")
        self.withdrawn(cents)
        self.charged(FEE)

    @event
    def deposited(self, cents: int) -> None:
        self.cents += cents

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents

    @event
    def charged(self, cents: int) -> None:
        self.cents -= cents


def accounts_of(log: QuietLog) -> AggregateRepository:
    return AggregateRepository(log, "account", Account, partitions=1, snapshot_every=1000)


def sent(accounts: AggregateRepository, cents: int) -> tuple[str, bool]:
    """The answer to a withdrawal, and whether it was the first one's."""
    try:
        outcome = accounts.send("7", "withdraw", cents=cents, request_id="w-1")
    except Rejected:
        return "rejected", False
    return f"version {outcome.version}", outcome.repeated


def sent_until_crash(home: Path, files: CrashingFiles, cents: int) -> tuple[str, bool] | None:
    """The answer; None when the process died before it."""
    log = None
    try:
        log = QuietLog(home, files=files)
        return sent(accounts_of(log), cents)
    except Crash:
        return None
    finally:
        if log is not None:
            log.abandon()


@pytest.mark.parametrize(("cents", "answer", "left"), [(30, "version 3", 69), (300, "rejected", 100)])
@pytest.mark.parametrize(("fsync", "power_cut"), [("always", True), ("interval", False)])
def test_a_command_that_dies_before_its_answer_counts_once(
    quick_path: Path, cents: int, answer: str, left: int, fsync: str, power_cut: bool
) -> None:
    with QuietLog(quick_path / "made") as log:
        accounts_of(log).store.topic.change_settings(fsync=fsync)
        accounts_of(log).send("7", "deposit", cents=100)
    whole = {"withdrawn", "charged"} if left == 69 else {"rejected"}
    left_by_crashes = set()

    for number in itertools.count():
        home = quick_path / f"home-{number}"
        shutil.copytree(quick_path / "made", home)
        files = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number)
        said = sent_until_crash(home, files, cents)
        with QuietLog(home) as log:
            before = [row["type"] for row in log.get_topic("account").rows() if row["request_id"] == "w-1"]
            assert set(before) in (set(), whole), f"crash at {number}, {files.boundaries[-1]}"
            accounts = accounts_of(log)
            again = sent(accounts, cents)
            rows = [row for row in log.get_topic("account").rows() if row["request_id"] == "w-1"]
            assert again == (answer, bool(before) and answer != "rejected")
            assert [row["type"] for row in rows] == (["withdrawn", "charged"] if left == 69 else ["rejected"])
            assert [row["version"] for row in rows] == ([2, 3] if left == 69 else [None])
            assert accounts.get("7").cents == left
            assert accounts.verify() == []
        shutil.rmtree(home)
        if said is not None:
            assert said == (answer, False)
            assert before
            break
        left_by_crashes.add(bool(before))
    assert left_by_crashes == {True, False}  # before the commit, and between it and the answer
