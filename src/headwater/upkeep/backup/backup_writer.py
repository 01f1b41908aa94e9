"""Backup writer: copies a home into a repository while everything runs.

What it is: ``create_backup`` takes a cut, copies what the repository lacks, and commits the manifest.
Invariants: nothing is removed from the home meanwhile (``log/maintenance/removal_pin.py``). The manifest is created
last, when every object was seen in the repository: a backup that was killed is none, and what it copied is there for
the next.
Not here: the moment (``backup_cut.py``), copying (``home_copy.py``), restoring (``home_restore.py``).
Read next: ``backup_cut.py``, ``home_copy.py``, ``backup_repository.py``.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.encryption.encryption_key import KeySource
from headwater.errors import BackupRefused, CorruptSegment
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.log.maintenance.removal_pin import RemovalPin
from headwater.objects.object_address import ObjectAddress
from headwater.upkeep.backup.backup_cut import TopicDeleted, take_cut
from headwater.upkeep.backup.backup_manifest import BackupManifest, new_id
from headwater.upkeep.backup.backup_places import BackupPlaces
from headwater.upkeep.backup.backup_repository import BackupRepository, Progress, address_of
from headwater.upkeep.backup.home_copy import HomeCopy
from headwater.upkeep.backup.repository_turn import RepositoryTurn
from headwater.upkeep.erasure.told_erasures import tell_all

SCRATCH = "backup.scratch"  # in the home: copies of its databases while a backup is made
PIN_SECONDS = 5.0  # for the pin: whoever asks whether it is held holds it for a moment
ATTEMPTS_MAX = 5  # when topics are deleted meanwhile


@dataclass(frozen=True)
class BackupReport:
    """A backup that was made."""

    manifest: BackupManifest
    address: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.manifest.summary(),
            "written_objects": self.manifest.written_objects,
            "address": self.address,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        made = self.manifest
        return (
            f"backup {made.id} at {self.address}: {made.rows:,} rows of {len(made.topics)} topics, {made.size:,} "
            f"bytes, of which {made.written_bytes:,} were new, in {self.seconds:.1f} s"
        )


def create_backup(
    log: Log,
    to: str | os.PathLike[str],
    *,
    key: KeySource | None = None,
    progress: Progress | None = None,
    wait_s: float = 0.0,
    rate: int | None = None,
) -> BackupReport:
    """Back up a home, which other processes may go on to use. ``wait_s``: for another process that writes there.

    ``key``: the backups are encrypted with it. ``rate``: bytes that are copied in a second, at most.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = log.topic("orders", "id BIGINT").append([{"id": 1}, {"id": 2}])
    >>> report = create_backup(log, tempfile.mkdtemp())
    >>> report.manifest.rows, str(report.manifest.token)
    (2, 'orders:0=2')
    """
    _refuse_inside(log.home, address_of(to))
    repository, pin, began = BackupRepository.at(to, key, make=True), RemovalPin(log.home), time.monotonic()
    while not pin.acquire():
        if time.monotonic() - began > PIN_SECONDS:
            raise BackupRefused(f"another backup of {log.home} is under way", hint="Wait until it is done.")
        time.sleep(0.02)
    scratch = log.home / SCRATCH
    try:
        with repository.turn("a backup", wait_s=wait_s) as turn:
            ancestors = _ancestors(log)
            repository.check_lineage(log.identity, ancestors)
            BackupPlaces(log.catalog).note(address_of(to))
            for attempt in range(ATTEMPTS_MAX):
                shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
                scratch.mkdir()
                try:
                    manifest = _backed_up(log, repository, turn, scratch, ancestors, progress, rate)
                    note_audit(log, AuditEntry("backup", local_user(), rows=manifest.rows, detail=manifest.id))
                    return BackupReport(manifest, repository.shown, time.monotonic() - began)
                except (TopicDeleted, FileNotFoundError) as error:
                    if attempt == ATTEMPTS_MAX - 1:
                        raise _missing(error) from error
        raise AssertionError("unreachable")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        pin.release()


def _refuse_inside(home: Path, address: str) -> None:
    """A backup in the home is lost with it."""
    place = ObjectAddress.parse(address)
    if address.startswith("file:") and place.path.resolve().is_relative_to(home.resolve()):
        raise BackupRefused(
            f"{place.path} is in the home {home}, which it would be a backup of",
            detail="What damages or removes the home takes such a backup with it.",
            hint="Give it a folder elsewhere, best on another disk, or a bucket.",
        )


def _missing(error: Exception) -> CorruptSegment:
    file = error.filename if isinstance(error, FileNotFoundError) else None
    return CorruptSegment(
        f"the file {file} is missing" if file else f'topic "{error}" is deleted and made again all the time',
        detail="It was to be backed up. The backups that were made before are as they were.",
        hint="`headwater check` lists what is missing.",
        file=str(file),
    )


def _ancestors(log: Log) -> tuple[str, ...]:
    return tuple(row["parent"] for row in log.catalog.read("SELECT parent FROM restores ORDER BY restored_us"))


def _backed_up(
    log: Log,
    repository: BackupRepository,
    turn: RepositoryTurn,
    scratch: Path,
    ancestors: tuple[str, ...],
    progress: Progress | None,
    rate: int | None,
) -> BackupManifest:
    """One attempt. A file that is missing means that its topic was deleted."""
    cut = take_cut(log, scratch)
    copied = HomeCopy(log.home, repository, progress=progress, rate=rate).run(cut)
    manifest = BackupManifest(
        new_id(cut.taken_us),
        log.identity,
        ancestors,
        cut.number,
        cut.taken_us,
        copied.topics,
        copied.apps,
        copied.files,
        copied.written_objects,
        copied.written_bytes,
        log.clock.now_us(),
    )
    tell_all(repository, log.catalog)
    repository.commit(manifest, turn)
    return manifest
