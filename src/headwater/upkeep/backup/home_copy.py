"""Home copy: the files of a home at a cut, as objects of a repository.

What it is: ``HomeCopy`` goes over the topics, apps and databases of a home, and copies what the repository lacks.
Invariants: files that never change (sealed segments, runs) are copied once and shared by all backups; one that is there
is not opened here, so a home may lack it. Of Arrow segments the bytes up to the cut, in pieces of which only the last
one is new the next time. What is copied is compared with its checksum first: damage is not backed up, it is an error.
Not here: the moment (``backup_cut.py``), what makes a backup of it (``backup_writer.py``).
Read next: ``backup_writer.py``.
"""

from __future__ import annotations

import json
import mmap
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import xxhash

from headwater.errors import CorruptSegment
from headwater.log.commits.handed_over import FILE as MOVED
from headwater.log.proof.checkpoints import Checkpoints
from headwater.log.storage.active_segment import ArrowSegment, arrow_bases
from headwater.log.storage.checksums import signed
from headwater.log.storage.frame_index import ENTRY_BYTES, padded
from headwater.log.storage.sealed_segment import SealedSegment
from headwater.upkeep.backup.backup_cut import BackupCut
from headwater.upkeep.backup.backup_manifest import OBJECTS, AppContent, BackedFile, StoredPiece, TopicContent
from headwater.upkeep.backup.backup_repository import THREADS, BackupRepository, Progress, free_name

TAIL_PIECE_BYTES = 4 << 20
DATABASE_PIECE_BYTES = 1 << 20
READ_BYTES = 1 << 20  # of a file at a time: a rate is kept without bursts
WAITING_MAX = 64  # objects that wait for a thread


@dataclass(frozen=True)
class CopiedHome:
    """What a manifest says of a home that was copied."""

    topics: dict[str, TopicContent]
    apps: dict[str, AppContent]
    files: tuple[BackedFile, ...]
    written_objects: int
    written_bytes: int


class HomeCopy:
    """One copy into one repository. A file that is missing means that its topic was deleted."""

    def __init__(
        self,
        home: Path,
        repository: BackupRepository,
        *,
        named: Mapping[str, str] = MappingProxyType({}),
        progress: Progress | None = None,
        rate: int | None = None,
    ) -> None:
        self.home = home
        self.rate = rate  # bytes that are written in a second, at most
        self._due_s = 0.0  # by the monotonic clock: when the next byte may be written
        self.repository = repository
        self.named = named  # objects that are stored under another name than their own
        self.progress = progress
        self.removals = repository.removals()
        self.there = repository.objects()
        self.files: list[BackedFile] = []
        self.written_objects = self.written_bytes = self.done_bytes = self.total_bytes = 0
        self._counting = threading.Lock()
        self._futures: set[Future[None]] = set()
        self._pool: ThreadPoolExecutor

    def run(self, cut: BackupCut) -> CopiedHome:
        """Copy everything up to the cut."""
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
        return CopiedHome(topics, apps, tuple(self.files), self.written_objects, self.written_bytes)

    # What there is

    def _topic(self, catalog: sqlite3.Connection, row: sqlite3.Row, cut: BackupCut) -> TopicContent:
        folder = f"{row['id']:06d}-{row['name']}"
        rows, newest_us, starts = 0, 0, {}
        for number, end in cut.ends[row["name"]].items():
            directory = self.home / "topics" / folder / str(number)
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
        moved = self.home / "topics" / folder / MOVED
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
            path = self.home / "views" / place
            self._whole(f"views/{place}", f"{OBJECTS}runs/{place}.{unsigned:016x}", path, size, checksum)
        (views,) = catalog.execute(
            "SELECT count(*) FROM manifest_entries WHERE app = ? AND kind = 'view' AND last_tick IS NULL", (name,)
        ).fetchone()
        frontier = json.loads(found["manifest"])["frontier"]
        return AppContent(tick, {t: {int(p): at for p, at in of.items()} for t, of in frontier.items()}, views)

    # Copying

    def _whole(self, path: str, name: str, source: Path, size: int, checksum: int) -> None:
        """A file that never changes, as one object."""
        name = self._name(name)
        self._file(path, [StoredPiece(name, size, checksum & (1 << 64) - 1)])
        if self.there.get(name) == size:
            self._did(size)
            return

        def copy() -> None:
            self.repository.store.put(name, _Verified(source, size, checksum, self._wait_for))
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
        name = self._name(f"{OBJECTS}{place}-{xxhash.xxh3_128_hexdigest(data)}")
        piece = StoredPiece(name, len(data), checksum)
        if self.there.get(piece.name) == piece.bytes:
            self._did(piece.bytes)
            return piece

        def put() -> None:
            self._wait_for(piece.bytes)
            self.repository.store.put(piece.name, data)
            self._wrote(piece.bytes)

        self._submit(put)
        return piece

    def _name(self, name: str) -> str:
        return self.named.get(name) or free_name(name, self.removals)

    def _file(self, path: str, pieces: list[StoredPiece]) -> None:
        self.files.append(BackedFile(path, tuple(pieces)))

    def _submit(self, work: Any) -> None:
        if len(self._futures) >= WAITING_MAX:
            done, self._futures = wait(self._futures, return_when="FIRST_COMPLETED")
            for future in done:
                future.result()
        self._futures.add(self._pool.submit(work))

    def _wait_for(self, size: int) -> None:
        """Wait until so many bytes may be written."""
        if self.rate is None:
            return
        with self._counting:
            now_s = time.monotonic()
            begin_s = max(now_s, self._due_s)
            self._due_s = begin_s + size / self.rate
        time.sleep(begin_s - now_s)

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


class _Verified:
    """The bytes of a file, read once: whoever has taken the last one knows that they have the file's checksum."""

    def __init__(self, path: Path, size: int, checksum: int, wait_for: Callable[[int], None]) -> None:
        self.path = path
        self.size = size
        self.checksum = checksum
        self.wait_for = wait_for

    def __iter__(self) -> Iterator[bytes]:
        hasher, size = xxhash.xxh3_64(), 0
        with self.path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                hasher.update(piece)
                size += len(piece)
                if len(piece) < READ_BYTES or size >= self.size:  # it may be the last one
                    self._check(hasher, size, file.read(1))
                self.wait_for(len(piece))
                yield piece
        if not size:
            self._check(hasher, size, b"")

    def _check(self, hasher: xxhash.xxh3_64, size: int, more: bytes) -> None:
        if more or size != self.size or signed(hasher.intdigest()) != self.checksum:
            raise CorruptSegment(
                f"{self.path} is damaged",
                detail="It was to be backed up, and its bytes do not match the checksum in the catalog.",
                hint="`headwater check` lists all damage. The backups that were made before are as they were.",
                file=str(self.path),
            )


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
