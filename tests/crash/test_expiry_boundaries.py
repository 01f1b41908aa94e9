"""An expiry in the log that dies: at boundaries of its work, by a power cut, and by ``kill -9``.

What it is: a home with rows that have ended in sealed and active segments, the archive and dead letters.
Invariants: after opening again ``check`` finds no error, and what has not ended is as it was; what was begun is ended
with the times that it began with; then no byte of the home has what had ended.
Not here: views (``tests/spark/test_expiry.py``).
Read next: ``log/erasure/log_expiry.py``.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.erasure.erasure_records import LOG, ErasureRecords
from headwater.log.erasure.log_erasure import resume
from headwater.log.erasure.log_expiry import expire_log
from headwater.log.erasure.purposes import declare_purpose
from headwater.log.home import Log
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with

OLD, NEW = "zq-old-zq", "zq-new-zq"
DAY_S = 86_400
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
STEP = max(1, 6 // THOROUGH)
OF_ORDERS = {"user": hw.Personal("user_id"), "address": hw.Personal("user_id", by="user", purpose="shipping")}
CHILD = """
import sys
from headwater.log.home import Log
from headwater.log.erasure.log_expiry import expire_log
log = Log(sys.argv[1], maintenance_interval=None)
print("begins", flush=True)
expire_log(log)
print("ended", flush=True)
"""


def quiet(home: Path, **options: Any) -> QuietLog:
    return QuietLog(home, maintenance_interval=None, **options)


def prepare(log: Log, now_us: int, segments: int = 2) -> None:
    topic = log.topic(
        "orders",
        "id INT, user STRING, address STRING, at TIMESTAMP",
        event_time="at",
        fsync="always",
        archive="attic",
        retention="300 days",
        proof=True,
        privacy=OF_ORDERS,
    )
    now = dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC)
    for turn in range(segments):
        for place, (address, days) in enumerate([(OLD, 40), (NEW, 1)]):
            at = now - dt.timedelta(days=days)
            topic.append([{"id": 2 * turn + place, "user": f"u{turn}", "address": address, "at": at}])
        if turn < segments - 1:
            topic.partition(0).roll()
            log.maintain()
    with topic.worker("mailers") as worker:
        worker.reject(worker.take(1, timeout=10), reason=OLD)
    declare_purpose(log, "shipping", "30 days")


def judge(log: Log, segments: int = 2) -> None:
    rows = sorted((each["id"], each["user"], each["address"]) for each in log.get_topic("orders").rows())
    assert rows == [(n, f"u{n // 2}", NEW if n % 2 else None) for n in range(2 * segments)]
    assert log.check().ok, str(log.check())
    assert places_with(log.home, OLD) == []


@pytest.mark.parametrize("power_cut", [False, True])
def test_an_expiry_that_crashes_is_ended_by_the_next_process(quick_path: Path, power_cut: bool) -> None:
    made, crashed, number, resumed = quick_path / "made", True, power_cut * 2, 0
    with quiet(made, clock=ManualClock()) as log:
        prepare(log, log.clock.now_us())
    while crashed:
        clock, home = ManualClock(), quick_path / str(number)
        shutil.copytree(made, home)
        files, log = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number), None
        try:
            log = quiet(home, clock=clock, files=files)
            expire_log(log)
            crashed = False
        except Crash:
            pass
        finally:
            if log is not None:
                log.abandon()

        with quiet(home, clock=clock) as log:
            assert log.check().ok, f"crashed at {number}, {files.boundaries[-1]}: {log.check()}"
            begun = bool(ErasureRecords(log.catalog).in_phase(LOG))
            resumed += begun
            assert resume(log) if begun else expire_log(log)
            judge(log)
        shutil.rmtree(home)
        number += STEP

    assert number > 30
    assert resumed > 15 / STEP


def test_an_expiry_that_is_killed_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    home, segments, chance, kills = tmp_path / "home", 60, random.Random(7), 0
    with Log(home, maintenance_interval=None) as log:
        prepare(log, log.clock.now_us(), segments)
    for _ in range(4 * THOROUGH + 1):
        with subprocess.Popen([sys.executable, "-c", CHILD, str(home)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            if kills < 4 * THOROUGH:
                time.sleep(chance.uniform(0, 0.3))
                child.send_signal(signal.SIGKILL)
            said = child.stdout.read()
        if said == "ended\n":
            break
        kills += 1
        with Log(home, maintenance_interval=None) as log:
            kept = [each["address"] for each in log.get_topic("orders").rows() if each["id"] % 2]
            assert kept == [NEW] * segments

    with Log(home, maintenance_interval=None) as log:
        assert resume(log)
        expire_log(log)
        judge(log, segments)
    assert kills
