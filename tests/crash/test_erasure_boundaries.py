"""A crash at every boundary of an erasure in the log.

What it is: a home with a person in sealed and active segments, the archive, dead letters and a keyed table; the erasure
dies, or the power goes, one boundary later each time, until it comes to the end.
Invariants: after opening again ``check`` finds no error and everybody else's rows are as they were; what was begun is
ended by ``resume``, which knows the person by the hash alone; then no byte of the home has the person's values.
Not here: views (``tests/spark/test_erasure.py``).
Read next: ``log/erasure/segment_erasure.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.erasure.erasure_records import LOG, ErasureRecords
from headwater.log.erasure.log_erasure import erase_person, resume
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with

MARK = "zq-marker-zq"


def quiet(home: Path, **options: Any) -> QuietLog:
    return QuietLog(home, maintenance_interval=None, **options)


def prepare(log: QuietLog) -> None:
    mails = {"mail": hw.Personal("mail"), "name": hw.Personal("mail", by="mail")}
    users = log.topic("users", "mail STRING, name STRING", key="mail", fsync="always", privacy=mails)
    orders = log.topic(
        "orders",
        "id INT, mail STRING",
        fsync="always",
        archive="attic",
        retention="1 second",
        privacy={"mail": mails["mail"]},
    )
    for turn in range(2):
        users.append([{"mail": mail, "name": f"{mail}{turn}"} for mail in ("a", MARK, "b")])
        orders.append([{"id": turn, "mail": mail} for mail in ("a", MARK)])
        if not turn:
            orders.partition(0).roll()
            users.partition(0).roll()
            log.maintain()
            log.clock.advance(2)  # type: ignore[attr-defined]
            log.maintain()
    with orders.worker("mailers") as worker:
        worker.reject(worker.take(1, timeout=10), reason="odd")
        worker.reject(worker.take(1, timeout=10), reason=MARK)


def others(log: QuietLog) -> list[Any]:
    """The rows of everybody else."""
    names = ("users", "orders", "orders.mailers.dead")
    every = [(name, row) for name in names for row in log.get_topic(name).rows()]
    return [
        each for each in every if MARK not in str(each) and None not in each[1].values() and "erased" not in str(each)
    ]


@pytest.mark.parametrize("power_cut", [False, True])
def test_an_erasure_that_crashes_anywhere_is_ended_by_the_next_process(quick_path: Path, power_cut: bool) -> None:
    made, crashed, number, resumed = quick_path / "made", True, 0, 0
    with quiet(made, clock=ManualClock()) as log:
        prepare(log)
        before = others(log)
    assert len({place.split("/")[0] for place in places_with(made, MARK)}) == 2
    while crashed:
        clock, home = ManualClock(), quick_path / str(number)
        shutil.copytree(made, home)
        clock.advance(2)
        files, log = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number), None
        try:
            log = quiet(home, clock=clock, files=files)
            erase_person(log, "mail", MARK)
            crashed = False
        except Crash:
            pass
        finally:
            if log is not None:
                log.abandon()

        where = f"crashed at {number}, {files.boundaries[-1]}"
        with quiet(home, clock=clock) as log:
            assert log.check().ok, f"{where}: {log.check()}"
            resumed += bool(ErasureRecords(log.catalog).in_phase(LOG))
            if not ErasureRecords(log.catalog).all():
                erase_person(log, "mail", MARK)
            assert resume(log), where
            assert others(log) == before, where
            assert log.check().ok, f"{where}: {log.check()}"
        assert places_with(home, MARK) == [], where
        shutil.rmtree(home)
        number += 1 + 2 * power_cut

    assert number > 60
    assert resumed > 20 / (1 + 2 * power_cut)
