"""Backup writer: copies a home into a repository while everything runs.

What it is: ``create_backup`` takes a cut, copies what the repository lacks, and commits the manifest.
Invariants: files that never change (sealed segments, runs) are copied once and shared by all backups; of Arrow segments
the bytes up to the cut, in pieces of which only the last one is new the next time. What is copied is compared with its
checksum first: damage is not backed up, it is an error. Nothing is removed from the home meanwhile
(``log/maintenance/removal_pin.py``). The manifest is created last, when every object was seen in the repository: a
backup that was killed is none, and what it copied is there for the next.
Not here: the moment (``backup_cut.py``), restoring (``home_restore.py``).
Read next: ``backup_cut.py``, ``backup_repository.py``.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from headwater.encryption.encryption_key import KeySource
from headwater.errors import BackupDamaged, BackupRefused, CorruptSegment
from headwater.log.commits.handed_over import FILE as MOVED
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.log.maintenance.removal_pin import RemovalPin
from headwater.log.proof.checkpoints import Checkpoints
from headwater.log.storage.active_segment import ArrowSegment, arrow_bases
from headwater.log.storage.checksums import checksum_of
from headwater.log.storage.frame_index import ENTRY_BYTES, padded
from headwater.log.storage.sealed_segment import SealedSegment
from headwater.upkeep.backup.backup_cut import BackupCut, TopicDeleted, take_cut
from headwater.upkeep.backup.backup_manifest import (
    AppContent,
    BackedFile,
    BackupManifest,
    StoredPiece,
    TopicContent,
    new_id,
)
from headwater.upkeep.backup.backup_repository import OBJECTS, THREADS, BackupRepository, Progress, free_name
from headwater.upkeep.backup.repository_turn import RepositoryTurn
from headwater.upkeep.erasure.backup_erasure import tell_all

SCRATCH = "backup.scratch"  # in the home: copies of its databases while a backup is made
TAIL_PIECE_BYTES = 4 << 20
DATABASE_PIECE_BYTES = 1 << 20
PIN_SECONDS = 5.0  # for the pin: whoever asks whether it is held holds it for a moment
ATTEMPTS_MAX = 5  # when topics are deleted meanwhile
WAITING_MAX = 64  # objects that wait for a thread


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
) -> BackupReport:
    """Back up a home, which other processes may go on to use. ``wait_s``: for another process that writes there.

    ``key``: the backups are encrypted with it.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = log.topic("orders", "id BIGINT").append([{"id": 1}, {"id": 2}])
    >>> report = create_backup(log, tempfile.mkdtemp())
    >>> report.manifest.rows, str(report.manifest.token)
    (2, 'orders:0=2')
    """
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
            for attempt in range(ATTEMPTS_MAX):
                shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
                scratch.mkdir()
                try:
                    manifest = _Copy(log, repository, turn, scratch, progress).run(ancestors)
                    note_audit(log, AuditEntry("backup", local_user(), rows=manifest.rows, detail=manifest.id))
                    return BackupReport(manifest, repository.shown, time.monotonic() - began)
                except (TopicDeleted, FileNotFoundError) as error:
                    if attempt == ATTEMPTS_MAX - 1:
                        raise _missing(error) from error
        raise AssertionError("unreachable")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        pin.release()


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


class _Copy:
    """One attempt. A file that is missing means that its topic was deleted."""

    def __init__(
        self, log: Log, repository: BackupRepository, turn: RepositoryTurn, scratch: Path, progress: Progress | None
    ) -> None:
        self.log = log
        self.repository = repository
        self.turn = turn
        self.scratch = scratch
        self.progress = progress
        self.removals = repository.removals()
        self.there = repository.objects()
        self.files: list[BackedFile] = []
        self.written_objects = self.written_bytes = self.done_bytes = self.total_bytes = 0
        self._counting = threading.Lock()
        self._futures: set[Future[None]] = set()
        self._pool: ThreadPoolExecutor

    def run(self, ancestors: tuple[str, ...]) -> BackupManifest:
        cut = take_cut(self.log, self.scratch)
        with closing(sqlite3.connect(cut.catalog)) as catalog, ThreadPoolExecutor(THREADS) as self._pool:
            catalog.row_factory = sqlite3.Row
            self.total_bytes = _bytes_of(catalog) + sum(path.stat().st_size for path in cut.databases.values())
            try:
                topics = {row["name"]: self._topic(catalog, row, cut) for row in _topics(catalog)}
                apps = {row["name"]: self._app(catalog, row) for row in _apps(catalog)}
                for name, path in cut.databases.items():
                    self._file(name, list(self._database(name, path)))
                self._settle()
            except BaseException:
                for future in self._futures:
                    future.cancel()
                raise
        manifest = BackupManifest(
            new_id(cut.taken_us),
            self.log.identity,
            ancestors,
            cut.number,
            cut.taken_us,
            topics,
            apps,
            tuple(self.files),
            self.written_objects,
            self.written_bytes,
            self.log.clock.now_us(),
        )
        self._check_there(manifest)
        self.turn.check()
        tell_all(self.repository, self.log.catalog)
        self.repository.commit(manifest)
        return manifest

    def _check_there(self, manifest: BackupManifest) -> None:
        there = self.repository.objects()
        gone = [piece.name for piece in manifest.pieces() if there.get(piece.name) != piece.bytes]
        if gone:
            raise BackupDamaged(
                f"{len(gone)} objects are missing at {self.repository.shown} or have another size, such as {gone[0]}",
                detail="Another program removes or changes objects there. The backup was not made.",
                hint="Remove such objects, stop what changes them, and begin again.",
            )

    # What there is

    def _topic(self, catalog: sqlite3.Connection, row: sqlite3.Row, cut: BackupCut) -> TopicContent:
        folder = f"{row['id']:06d}-{row['name']}"
        rows, newest_us, starts = 0, 0, {}
        for number, end in cut.ends[row["name"]].items():
            directory = self.log.home / "topics" / folder / str(number)
            place = (row["id"], number)
            found = catalog.execute(
                "SELECT start_offset FROM partitions WHERE topic_id = ? AND partition = ?", place
            ).fetchone()
            sealed_end = starts[number] = int(found[0]) if found else 0
            for each in catalog.execute(
                "SELECT * FROM segments WHERE topic_id = ? AND partition = ? ORDER BY base_offset", place
            ):
                segment = SealedSegment.of(each, directory)
                self._sealed(f"{folder}/{number}", segment)
                rows, sealed_end = rows + segment.rows, segment.next_offset
                newest_us = max(newest_us, segment.appended_max) if segment.rows else newest_us
            for proof in Checkpoints.stored_in(catalog, row["id"], number, directory):
                name = f"{OBJECTS}segments/{folder}/{number}/{proof.path.name}.{proof.checksum & (1 << 64) - 1:016x}"
                path = f"topics/{folder}/{number}/{proof.path.name}"
                self._whole(path, name, proof.path, proof.bytes, proof.checksum)
            for base in arrow_bases(directory):
                if sealed_end <= base < end:
                    more, newest = self._tail(f"{folder}/{number}", directory, base, end)
                    rows, newest_us = rows + more, max(newest_us, newest)
        moved = self.log.home / "topics" / folder / MOVED
        if moved.exists():
            self._file(f"topics/{folder}/{MOVED}", [self._piece(f"tails/{folder}/{MOVED}/0", moved.read_bytes())])
        return TopicContent(row["id"], starts, cut.ends[row["name"]], rows, newest_us)

    def _sealed(self, place: str, segment: SealedSegment) -> None:
        name = f"{OBJECTS}segments/{place}/{segment.path.name}.{segment.checksum & (1 << 64) - 1:016x}"
        self._whole(f"topics/{place}/{segment.path.name}", name, segment.path, segment.bytes, segment.checksum)

    def _app(self, catalog: sqlite3.Connection, row: sqlite3.Row) -> AppContent:
        """The runs of the current tick; those of an app whose state is on a store are there."""
        name, tick = row["name"], row["tick"]
        found = catalog.execute("SELECT manifest FROM ticks WHERE app = ? AND tick = ?", (name, tick)).fetchone()
        if found is None or row["address"] is not None:
            return AppContent(tick if found else 0, {}, 0)
        listed: set[tuple[str, str, int, int]] = set()
        for folder, text in catalog.execute(
            "SELECT folder, run FROM manifest_runs WHERE app = ? AND last_tick IS NULL AND files > 0", (name,)
        ):
            listed.update((folder, file, size, checksum) for file, size, checksum in json.loads(text)["files"])
        for folder, file, size, checksum in sorted(listed):
            place = f"{name}/{folder}/{file}"
            unsigned = checksum & (1 << 64) - 1
            path = self.log.home / "views" / place
            self._whole(f"views/{place}", f"{OBJECTS}runs/{place}.{unsigned:016x}", path, size, checksum)
        (views,) = catalog.execute(
            "SELECT count(*) FROM manifest_entries WHERE app = ? AND kind = 'view' AND last_tick IS NULL", (name,)
        ).fetchone()
        frontier = json.loads(found["manifest"])["frontier"]
        return AppContent(tick, {t: {int(p): at for p, at in of.items()} for t, of in frontier.items()}, views)

    # Copying

    def _whole(self, path: str, name: str, source: Path, size: int, checksum: int) -> None:
        """A file that never changes, as one object."""
        name = free_name(name, self.removals)
        self._file(path, [StoredPiece(name, size, checksum & (1 << 64) - 1)])
        if self.there.get(name) == size:
            self._did(size)
            return

        def copy() -> None:
            if source.stat().st_size != size or checksum_of(source) != checksum:
                raise CorruptSegment(
                    f"{source} is damaged",
                    detail="It was to be backed up, and its bytes do not match the checksum in the catalog.",
                    hint="`headwater check` lists all damage. The backups that were made before are as they were.",
                    file=str(source),
                )
            self.repository.store.put(name, source)
            self._wrote(size)

        self._submit(copy)

    def _tail(self, place: str, directory: Path, base: int, end: int) -> tuple[int, int]:
        """The part of an Arrow segment before the cut; returns its rows and the time of the newest."""
        segment = ArrowSegment(directory, base)
        try:
            entries = segment.entries[: int(np.searchsorted(segment.entries["base_offset"], end))]
            pieces = []
            with segment.data_path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                length = _verified_length(segment, entries, data)
                for start in range(0, length, TAIL_PIECE_BYTES):
                    part = data[start : min(length, start + TAIL_PIECE_BYTES)]
                    pieces.append(self._piece(f"tails/{place}/{segment.data_path.name}/{start:012d}", part))
            self._file(f"topics/{place}/{segment.data_path.name}", pieces)
            self.total_bytes += length
            return int(entries["rows"].sum()), int(entries["appended_us"][-1])
        finally:
            segment.close()

    def _database(self, name: str, path: Path) -> Iterator[StoredPiece]:
        with path.open("rb") as file:
            start = 0
            while part := file.read(DATABASE_PIECE_BYTES):
                yield self._piece(f"databases/{name}/{start:012d}", part)
                start += len(part)

    def _piece(self, place: str, data: bytes) -> StoredPiece:
        checksum = xxhash.xxh3_64_intdigest(data)
        # 128 bits in the name: here the name alone decides whether the object is there.
        name = free_name(f"{OBJECTS}{place}-{xxhash.xxh3_128_hexdigest(data)}", self.removals)
        piece = StoredPiece(name, len(data), checksum)
        if self.there.get(piece.name) == piece.bytes:
            self._did(piece.bytes)
            return piece

        def put() -> None:
            self.repository.store.put(piece.name, data)
            self._wrote(piece.bytes)

        self._submit(put)
        return piece

    def _file(self, path: str, pieces: list[StoredPiece]) -> None:
        self.files.append(BackedFile(path, tuple(pieces)))

    def _submit(self, work: Any) -> None:
        if len(self._futures) >= WAITING_MAX:
            done, self._futures = wait(self._futures, return_when="FIRST_COMPLETED")
            for future in done:
                future.result()
        self._futures.add(self._pool.submit(work))

    def _settle(self) -> None:
        done, _ = wait(self._futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()

    def _wrote(self, size: int) -> None:
        with self._counting:
            self.written_objects += 1
            self.written_bytes += size
        self._did(size)

    def _did(self, size: int) -> None:
        with self._counting:
            self.done_bytes += size
            if self.progress is not None:
                self.progress(self.done_bytes, max(self.total_bytes, self.done_bytes))


def _topics(catalog: sqlite3.Connection) -> list[sqlite3.Row]:
    return catalog.execute("SELECT id, name FROM topics ORDER BY name").fetchall()


def _apps(catalog: sqlite3.Connection) -> list[sqlite3.Row]:
    return catalog.execute(
        "SELECT name, tick, address FROM apps LEFT JOIN remote_states ON app = name ORDER BY name"
    ).fetchall()


def _bytes_of(catalog: sqlite3.Connection) -> int:
    (sealed,) = catalog.execute("SELECT coalesce(sum(bytes), 0) FROM segments").fetchone()
    return int(sealed)


def _verified_length(segment: ArrowSegment, entries: Any, data: mmap.mmap) -> int:
    """Where the last of these frames ends; raises when one of them is damaged."""
    view = memoryview(data)
    try:
        for entry in entries:
            position, length = int(entry["position"]), int(entry["length"])
            begin = position + ENTRY_BYTES
            said = int(entry["entry_checksum"])  # of the frame's own entry too, from which a restore makes the index
            whole = view[begin - 8 : begin] == said.to_bytes(8, "little")
            if (
                not whole
                or xxhash.xxh3_64_intdigest(view[position : begin - 8]) != said
                or (xxhash.xxh3_64_intdigest(view[begin : begin + length]) != int(entry["payload_checksum"]))
            ):
                first = int(entry["base_offset"])
                raise CorruptSegment(
                    f"offsets {first} to {first + int(entry['rows']) - 1} of {segment.data_path} are damaged",
                    detail="They were to be backed up, and do not match the checksum of when they were written.",
                    hint="`headwater check` lists all damage. The backups that were made before are as they were.",
                    file=str(segment.data_path),
                    offset=first,
                )
            end = begin + length
    finally:
        view.release()
    return min(padded(end), len(data))
