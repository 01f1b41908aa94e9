"""Pruning: which backups stay, and that nothing goes that one of them needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import BackupDamaged, BackupRefused, InvalidDeclaration
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.objects.folder_store import FolderStore
from headwater.testing import ManualClock
from headwater.upkeep.backup import repository_turn
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.repository_prune import KeepRule, prune

DAY_US = 86_400_000_000


def daily(tmp_path: Path, days: int) -> BackupRepository:
    """A backup a day, of a topic whose segments are compacted in between."""
    clock = ManualClock()
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        topic = log.topic("orders", "id BIGINT, day BIGINT", key="id", compact=True)
        for day in range(days):
            topic.append([{"id": n, "day": day} for n in range(50)])
            compact_partition(topic, 0, force=True)
            create_backup(log, tmp_path / "backups")
            clock.advance(86_400)
    return BackupRepository.at(tmp_path / "backups")


def test_litestream_771_pruning_removes_nothing_that_a_kept_backup_needs(tmp_path: Path) -> None:
    """benbjohnson/litestream#771 and #1084: retention deleted what a restore needed."""
    repository = daily(tmp_path, 10)
    before = len(repository.objects())
    report = prune(repository, "2d,1w")

    assert len(report.removed) == 8
    assert len(repository.objects()) == before - report.objects < before
    assert repository.verify().ok
    for number, backup in enumerate(repository.ids()):
        home = restore_home(tmp_path / "backups", tmp_path / f"again-{number}", backup=backup).home
        with Log(home, maintenance_interval=None) as log:
            days = {row["day"] for batch in log.get_topic("orders").read("earliest") for row in batch.to_pylist()}
            assert days == {8 + number}
    # What is left is named by a backup that is kept.
    named = {piece.name for manifest in repository.manifests() for piece in manifest.pieces()}
    assert set(repository.objects()) == named


def test_the_newest_of_each_period_stays() -> None:
    start = 1_767_225_600_000_000  # Thursday, 1 January 2026
    backups = {f"{day:03d}": start + day * DAY_US for day in range(100)}

    kept = KeepRule.parse("7d,4w,12m").kept(backups)

    # 10 April is day 99; Sundays are days 3, 10, …; months end on days 30, 58, 89.
    assert kept == {"093", "094", "095", "096", "097", "098", "099", "087", "080", "030", "058", "089"} | {"094"}


@pytest.mark.parametrize("rule", ["", "7x", "0d", "d", "7d,,"])
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(InvalidDeclaration, match="does not say which backups to keep"):
        KeepRule.parse(rule)


def test_a_damaged_manifest_stops_a_prune_before_anything_goes(tmp_path: Path) -> None:
    repository = daily(tmp_path, 3)
    path = tmp_path / "backups" / "backups" / f"{repository.ids()[-1]}.json"
    path.write_bytes(path.read_bytes().replace(b"orders", b"0rders", 1))
    before = repository.objects()

    with pytest.raises(BackupDamaged, match=r"the manifest of backup .* is damaged"):
        prune(repository, "1d")

    assert repository.objects() == before
    assert len(repository.ids()) == 3


def test_what_a_killed_backup_left_stays_for_a_day(tmp_path: Path) -> None:
    repository = daily(tmp_path, 2)
    repository.store.put("objects/segments/of-a-killed-one", b"x")
    old = tmp_path / "backups" / "objects" / "segments" / "of-last-week"
    old.write_bytes(b"y")
    os.utime(old, (old.stat().st_mtime - 7 * 86_400,) * 2)

    prune(repository, "2d")

    assert "objects/segments/of-a-killed-one" in repository.objects()
    assert not old.exists()


@pytest.mark.parametrize("before", ["backups/", "objects/"])
def test_a_prune_that_stalled_takes_nothing_of_a_backup_that_was_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """It stalls between its last question and its deletes, or between these: another process counts it as dead."""
    repository = daily(tmp_path, 3)
    oldest = repository.ids()[0]
    restore_home(tmp_path / "backups", tmp_path / "again", backup=oldest)  # it needs what only the oldest has
    delete, stalled = repository.store.delete, []

    def stalling_delete(name: str) -> None:
        if name.startswith(before) and not stalled:
            stalled.append(name)
            with monkeypatch.context() as patch, Log(tmp_path / "again", maintenance_interval=None) as log:
                patch.setattr(repository_turn, "_lives", lambda *_: False)  # it counts as dead
                create_backup(log, tmp_path / "backups")
        delete(name)

    monkeypatch.setattr(repository.store, "delete", stalling_delete)
    prune(repository, "1")

    assert stalled
    assert len(repository.ids()) == 2
    assert repository.verify().ok
    assert any("~" in name for name in repository.objects())  # stored again, although the same bytes were there
    assert repository.removals() == {}


def test_a_backup_that_stalled_before_it_counts_is_refused_when_others_have_pruned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = daily(tmp_path, 2)
    restore_home(tmp_path / "backups", tmp_path / "again", backup=repository.ids()[0])
    create, stalled = FolderStore.create, []

    def stalling_create(self: FolderStore, name: str, data: bytes) -> bool:
        if name.startswith("backups/") and not stalled:
            stalled.append(name)
            with monkeypatch.context() as patch:
                patch.setattr(repository_turn, "_lives", lambda *_: False)  # it counts as dead
                prune(repository, "1")  # takes what only the oldest and the stalled one need
        return create(self, name, data)

    monkeypatch.setattr(FolderStore, "create", stalling_create)
    with (
        Log(tmp_path / "again", maintenance_interval=None) as log,
        pytest.raises(BackupRefused, match="there is another backup") as refused,
    ):
        create_backup(log, tmp_path / "backups")

    assert "has taken over the turn" in str(refused.value.detail)
    assert len(repository.ids()) == 1
    assert repository.verify().ok
    with Log(tmp_path / "again", maintenance_interval=None) as log:
        create_backup(log, tmp_path / "backups")  # begun again
    assert len(repository.ids()) == 2
    assert repository.verify().ok


def test_nothing_is_pruned_while_a_backup_is_under_way_and_a_dead_one_holds_nobody_up(tmp_path: Path) -> None:
    repository = daily(tmp_path, 2)
    with repository.turn("a backup"), pytest.raises(BackupRefused, match="another process writes to") as refused:
        prune(repository, "1d")
    script = (
        "import sys; from headwater.upkeep.backup.backup_repository import BackupRepository\n"
        "turn = BackupRepository.at(sys.argv[1]).turn('a backup'); turn.__enter__(); print('taken', flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "backups")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
        with pytest.raises(BackupRefused):
            prune(repository, "1d")
        other.kill()
        other.wait()
    report = prune(repository, "1d")

    assert "It is a backup of process" in str(refused.value.detail)
    assert len(report.removed) == 1
    turns = [json.loads(path.read_text()) for path in (tmp_path / "backups" / "turns").iterdir()]
    assert [turn["over"] for turn in turns] == [True]
