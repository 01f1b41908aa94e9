"""A crash at every boundary of retention, compaction and archiving.

What it is: a home with something to drop and something to compact, cared for again and again; each time the process
dies, or the power goes, one boundary later than the time before, until it comes to the end.
Invariants: after opening again nothing is half done: the latest row of each key is there, ``check`` finds no error,
one more round completes the work, and what left is in the archive.
Not here: appends and sealing (``test_every_boundary.py``).
Read next: ``log/maintenance/maintenance.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headwater.log.maintenance.maintenance import maintain
from headwater.log.topic import Topic
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.crash.ledger import QuietLog


def quiet(home: Path, **options: Any) -> QuietLog:
    return QuietLog(home, maintenance_interval=None, **options)


def prepare(log: QuietLog) -> tuple[Topic, Topic]:
    """Sealed segments with keys replaced and deleted in them, and others that are too old."""
    users = log.topic(
        "users", "id INT, name STRING", key="id", compact=True, tombstone_grace="1 second", fsync="always"
    )
    clicks = log.topic("clicks", "x INT", retention="1 second", archive="attic", fsync="always")
    for turn in range(3):
        users.append([{"id": n, "name": f"{turn}"} for n in range(4)])
        clicks.append([{"x": turn}] * 10)
        users.delete([{"id": turn}])
        for topic in (users, clicks):
            topic.partition(0).roll()
    return users, clicks


def state(users: Topic) -> dict[int, str]:
    """What somebody who reads everything ends up with."""
    found: dict[int, str] = {}
    for row in users.rows(columns=["id", "name", "_deleted"]):
        found[row["id"]] = row["name"]
        if row["_deleted"]:
            del found[row["id"]]
    return found


@pytest.mark.parametrize("power_cut", [False, True])
def test_care_that_crashes_anywhere_is_repeated_harmlessly(quick_path: Path, power_cut: bool) -> None:
    made, crashed, number = quick_path / "made", True, 0
    with quiet(made, clock=ManualClock()) as log:
        before = state(prepare(log)[0])
    while crashed:
        clock, home = ManualClock(), quick_path / str(number)
        shutil.copytree(made, home)
        clock.advance(2)

        files = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number)
        log = None
        try:
            log = quiet(home, clock=clock, files=files)
            maintain(log)
            crashed = False
        except Crash:
            pass
        finally:
            if log is not None:
                log.abandon()

        where = f"crashed at {number}, {files.boundaries[-1]}"
        with quiet(home, clock=clock) as log:
            users, clicks = log.get_topic("users"), log.get_topic("clicks")
            assert state(users) == before, where
            assert log.check().ok, f"{where}: {log.check()}"
            maintain(log)
            assert state(users) == before == {0: "2", 1: "2", 3: "2"}, where
            assert clicks.start_offsets() == {0: 30}, where
            assert log.check().problems == (), f"{where}: {log.check()}"
        archived = [pq.read_metadata(path).num_rows for path in (home / "attic").glob("*/*/*.parquet")]
        assert archived == [10, 10, 10], where
        number += 1

    assert number > 80
