"""The plan of an app's backups: what is due is done once, over restarts; what fails is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.upkeep.backup.backup_drill import DrillRecords
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_schedule import RETRY_US, BackupPlan, BackupSchedule, created_here
from headwater.upkeep.backup.backup_writer import create_backup

HOUR_S, DAY_S = 3600.0, 86_400.0


def alerts(log: Log) -> list[tuple[str, str]]:
    topic = log.find_topic("_alerts")
    rows = [] if topic is None else [row for batch in topic.read("earliest") for row in batch.to_pylist()]
    return [(row["kind"], row["state"]) for row in rows]


def test_backups_and_drills_are_made_when_they_are_due_also_by_another_process(tmp_path: Path) -> None:
    clock, place = ManualClock(), str(tmp_path / "backups")
    plan = BackupPlan(place, every_s=6 * HOUR_S, keep="2", drill_s=DAY_S)
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        topic = log.topic("orders", "id BIGINT")
        made, drilled = [], []
        for _ in range(6):
            topic.append([{"id": 1}])
            BackupSchedule(
                lambda: log, plan, lambda: None, created_here
            ).step()  # as if it were started again each time
            BackupSchedule(lambda: log, plan, lambda: None, created_here).step()  # not due
            made.append(BackupRepository.at(place).newest().id)
            last = DrillRecords(log).last(good=True)
            assert last is not None
            drilled.append(last["began_us"])
            clock.advance(6 * HOUR_S)

    assert len(set(made)) == 6
    assert BackupRepository.at(place).ids() == made[-2:]  # the others were pruned
    assert BackupRepository.at(place).newest().token.frontier == {"orders": {0: 6}}
    assert [each - drilled[0] for each in drilled] == [0, 0, 0, 0, DAY_S * 1e6, DAY_S * 1e6]


def test_a_backup_and_a_drill_that_fail_are_told_and_tried_again(tmp_path: Path) -> None:
    clock, place = ManualClock(), tmp_path / "backups"
    plan = BackupPlan(str(place), every_s=HOUR_S, drill_s=DAY_S)
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        log.topic("orders", "id BIGINT").append([{"id": 1}])
        schedule = BackupSchedule(lambda: log, plan, lambda: None, created_here)
        place.write_text("a file is in the way")
        schedule.step()
        schedule.step()
        assert alerts(log) == [("backup", "begin")]
        place.unlink()
        clock.advance(RETRY_US / 1e6)
        schedule.step()
        assert alerts(log)[1:] == [("backup", "end")]
        assert len(BackupRepository.at(place).ids()) == 1

        # A damaged backup: the drill says so.
        clock.advance(DAY_S)
        schedule.step()
        damaged = next(
            path for path in (place / "objects" / "tails").rglob("*") if path.is_file() and "-orders" in str(path)
        )
        damaged.write_bytes(b"x" * damaged.stat().st_size)
        clock.advance(3 * DAY_S)
        schedule.step()
        assert ("backup_drill", "begin") in alerts(log)[2:]
        last = DrillRecords(log).last()
        assert last is not None
        assert not last["ok"]


def test_a_plan_with_a_rule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="does not say which backups to keep"):
        BackupPlan("/backup", 60.0, keep="seven days")


def test_an_app_makes_its_backups_in_another_process(tmp_path: Path) -> None:
    place, home = tmp_path / "backups", tmp_path / "home"
    plan = BackupPlan(str(place), every_s=DAY_S, rate=1_000_000_000)
    with Log(home, maintenance_interval=None) as log:
        log.topic("orders", "id BIGINT").append([{"id": 1}])
        schedule = BackupSchedule(lambda: log, plan, lambda: None)
        schedule.step()
        schedule.step()  # not due
        assert [each.rows for each in BackupRepository.at(place).manifests()] == [1]
        assert alerts(log) == []
        schedule = BackupSchedule(lambda: log, BackupPlan(str(home / "headwater.json"), every_s=DAY_S), lambda: None)
        schedule.step()
        assert alerts(log) == [("backup", "begin")]


def test_a_backup_takes_as_long_as_its_rate_says(tmp_path: Path) -> None:
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        topic = log.topic("notes", "text STRING")
        topic.append([{"text": os.urandom(400_000).hex()}])
        topic.partition(0).roll()
        log.maintain()
        began = time.monotonic()
        report = create_backup(log, tmp_path / "backups", rate=1_000_000)
        seconds = time.monotonic() - began

    # What was written last was waited for, all before it is a lower bound that no noise can undo.
    largest = max(piece.bytes for piece in report.manifest.pieces())
    assert seconds >= (report.manifest.written_bytes - largest) / 1_000_000
    assert report.manifest.written_bytes > 500_000
