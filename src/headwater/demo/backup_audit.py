"""Backup audit: the demo's home is backed up while the shop is open, encrypted, and a home is made of it at the end.

What it is: ``BackupAudit``: ``make`` and ``restore``, and what is different, in sentences.
Invariants: the rows of every topic up to the backup's moment are compared by their digests, and every byte of the
restored home is checked. Backup and restored home are in a folder of their own, which goes away.
Not here: the views (``headwater backup drill`` verifies those too). Read next: ``upkeep/backup/backup_writer.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from headwater.demo.audit import check_problems
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.log.home import Log
from headwater.upkeep.backup.backup_writer import BackupReport, create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.log_checksum import checksum_of


class BackupAudit:
    """One backup of a home."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-backup-")
        self._key = KeySource(file=Path(self._folder.name) / "shop.key")
        self._made: BackupReport | None = None

    def make(self) -> BackupReport:
        """Back the home up, whatever goes on in it."""
        new_key_file(Path(self._folder.name) / "shop.key")
        self._made = create_backup(self.log, self._place, key=self._key)
        return self._made

    @property
    def _place(self) -> Path:
        return Path(self._folder.name) / "backups"

    def restore(self) -> tuple[dict[str, Any], list[str]]:
        """Make a home of the backup; its figures, and what is not as it was."""
        if self._made is None:
            return {}, ["no backup was made"]
        report = restore_home(self._place, Path(self._folder.name) / "restored", key=self._key)
        with Log(report.home, maintenance_interval=None) as restored:
            wrong = [
                f"topic {name} of the restored home differs from the home's"
                for name, ends in report.token.frontier.items()
                if checksum_of(restored.get_topic(name)) != checksum_of(self.log.get_topic(name), ends)
            ]
            wrong += [f"the restored home: {each}" for each in check_problems(restored)]
        facts = {
            "rows": report.rows,
            "bytes": self._made.manifest.size,
            "backup_seconds": round(self._made.seconds, 2),
            "restore_seconds": round(report.seconds, 2),
        }
        return facts, wrong

    def close(self) -> None:
        """Remove the backup."""
        self._folder.cleanup()
