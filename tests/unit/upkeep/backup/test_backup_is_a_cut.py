"""A backup at any moment is the log at the token that it names."""

from __future__ import annotations

import os
import time
from pathlib import Path

from headwater.upkeep.backup.backup_manifest import BackupManifest
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from tests.unit.upkeep.backup.busy_home import BusyHome, assert_is_the_log_at

ROUNDS = 4 * int(os.environ.get("HEADWATER_THOROUGH", "1"))


def has_worked(manifest: BackupManifest) -> bool:
    """Whether compaction and retention have been at work before this backup."""
    compacted = any("-compacted/" in file.path and "-c" in Path(file.path).stem for file in manifest.files)
    return compacted and manifest.topics["passing"].start[0] > 0


def test_a_backup_at_any_moment_is_restored_as_the_log_at_its_token(tmp_path: Path) -> None:
    place, made = tmp_path / "backups", []
    with BusyHome(tmp_path / "home", seed=ROUNDS) as busy:
        busy.log.wait_for("plain:0=1")
        while len(made) < ROUNDS or not has_worked(made[-1]):
            time.sleep(busy.random.random() * 0.2)  # any moment
            busy.log.maintain()  # retention waits for the end of a backup, and these follow one another closely
            made.append(create_backup(busy.log, place).manifest)
            assert len(made) < 30

    for number, manifest in enumerate([*made[: ROUNDS - 1], made[-1]]):
        report = restore_home(place, tmp_path / f"restored-{number}", backup=manifest.id)
        assert report.token == manifest.token
        assert_is_the_log_at(report.home, manifest.token)

    repository = BackupRepository.at(place)
    assert repository.manifests() == made
    assert repository.verify().ok
