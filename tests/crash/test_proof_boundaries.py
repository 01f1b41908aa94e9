"""A crash at every boundary of sealing with checkpoints, compaction, an erasure and retention.

What it is: a topic with proofs whose process dies, or whose power goes, one boundary later each time.
Invariants: after opening again ``check`` and the audit find nothing, every sealed row has its checkpoint once
maintenance has run, and the roots that were noted before are still those.
Not here: rows (``test_maintenance_boundaries.py``), an erasure's bytes (``test_erasure_boundaries.py``).
Read next: ``log/proof/checkpoints.py``, ``log/proof/proof_release.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.erasure.log_erasure import erase_person, resume
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.proof.checkpoints import Checkpoints
from headwater.testing import Crash, CrashingFiles, ManualClock
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from tests.crash.ledger import QuietLog

MAILS = {"mail": hw.Personal("mail"), "name": hw.Personal("mail", by="mail")}


def opened(home: Path, clock: ManualClock, files: CrashingFiles | None = None) -> QuietLog:
    return QuietLog(home, clock=clock, maintenance_interval=None, **({"files": files} if files else {}))


def prepare(log: QuietLog) -> None:
    topic = log.topic(
        "users",
        "id INT, mail STRING, name STRING",
        key="id",
        compact=True,
        proof=True,
        fsync="always",
        retention="1 hour",
        privacy=MAILS,
    )
    for turn in range(3):
        topic.append([{"id": n, "mail": f"m{n}", "name": f"{turn}"} for n in range(turn, turn + 3)])
        topic.partition(0).roll()
        log.clock.advance(60)  # type: ignore[attr-defined]
        if not turn:
            log.maintain()


def work(log: QuietLog) -> None:
    """Seal, compact, erase and drop."""
    log.maintain()
    compact_partition(log.get_topic("users"), 0, force=True)
    erase_person(log, "mail", "m2")
    log.clock.advance(3600)  # type: ignore[attr-defined]
    log.maintain()


@pytest.mark.parametrize("power_cut", [False, True])
def test_checkpoints_survive_a_crash_anywhere(quick_path: Path, power_cut: bool) -> None:
    made, crashed, number = quick_path / "made", True, 0
    with opened(made, ManualClock()) as log:
        prepare(log)
        noted = checkpoints_of(log)
        assert [each["size"] for each in noted] == [3]
    while crashed:
        clock, home, log = ManualClock(), quick_path / str(number), None
        clock.advance(180)
        shutil.copytree(made, home)
        files = CrashingFiles(crash_at=number, power_cut=power_cut, seed=number)
        try:
            log = opened(home, clock, files)
            work(log)
            crashed = False
        except Crash:
            pass
        finally:
            if log is not None:
                log.abandon()

        where = f"crashed at {number}, {files.boundaries[-1]}"
        with opened(home, clock) as log:
            found = audit_log(log, noted=noted)
            assert found.ok, f"{where}: {found.differences}"
            assert resume(log), where
            log.maintain()
            assert log.check().ok, f"{where}: {log.check()}"
            found = audit_log(log, noted=noted)
            assert found.ok, f"{where}: {found.differences}"
            assert found.partitions[0].pending == 0, where
            topic = log.get_topic("users")
            sealed = log.registry.sealed_end(topic.id, 0)
            last = Checkpoints.of(topic, 0).last()
            assert last is not None
            assert last.next_offset >= sealed, where
            names = {path.name for path in (topic.directory / "0").glob("*.proof*")}
            log.maintain()  # sweeps what the first round let go
            assert {path.name for path in (topic.directory / "0").glob("*.proof*")} <= names, where
        shutil.rmtree(home)
        number += 2 + 3 * power_cut  # the rest of an erasure: test_erasure_boundaries.py

    assert number > 40


def test_a_process_killed_between_sealing_and_checkpoint_has_it_made_by_the_next(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys
        import headwater as hw
        from headwater.log.maintenance import sealing

        sealing.checkpoint_sealed = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        log = hw.Log(sys.argv[1], maintenance_interval=None)
        topic = log.topic("t", "id INT", proof=True, fsync="always")
        topic.append([{"id": n} for n in range(5)])
        topic.partition(0).roll()
        log.maintain()
        """
    )
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path / "home")], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL

    with QuietLog(tmp_path / "home", maintenance_interval=None) as log:
        topic = log.get_topic("t")
        assert log.registry.sealed_end(topic.id, 0) == 5
        assert audit_log(log).partitions[0].pending == 5
        log.maintain()
        found = audit_log(log)
        assert found.ok
        assert (found.partitions[0].pending, found.partitions[0].rows) == (0, 5)


def test_no_checkpoint_is_made_of_a_segment_that_was_damaged_before(tmp_path: Path) -> None:
    with QuietLog(tmp_path / "home", maintenance_interval=None) as log:
        topic = log.topic("t", "id INT", fsync="always")
        topic.append([{"id": n} for n in range(5)])
        topic.partition(0).roll()
        log.maintain()
        (path,) = (topic.directory / "0").glob("*.parquet")
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)

        log.topic("t", "id INT", proof=True)
        report = log.maintain()

        assert not report.ok
        assert "is damaged" in str(report)
        assert Checkpoints.of(topic, 0).last() is None
