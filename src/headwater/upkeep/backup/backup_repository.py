"""Backup repository: the folder or bucket that holds the backups of one home.

What it is: ``BackupRepository`` lists and reads manifests, reads objects, and verifies every byte.

    backups/20261118T155812.123456-ab12cd.json       a backup: its manifest, created last
    backups/20261118T155812.123456-ab12cd~9.json     the same after an erasure: the highest number counts
    objects/segments/000003-orders/0/….parquet.CHECKSUM     a sealed segment
    objects/tails/000003-orders/0/….arrow/START-CHECKSUM    a piece of an Arrow segment
    objects/runs/shop/revenue-0f3a…/….parquet.CHECKSUM      a run of a view's state
    objects/databases/catalog.sqlite/START-CHECKSUM         a piece of the catalog, or of a capture's file
    turns/00000000000000000007.json                  who writes, one at a time
    removals/00000000000000000007.json               the objects that the prune of this turn removes

Invariants: an object is never written twice and never changed; it is needed as long as a manifest names it. The name of
an object that a prune said to remove is not used while that list is there: the prune may be stalled and go on at any
time, and would take what a newer backup needs. Bytes that are read are compared with their checksum: damage is an
error, never data. With a key, all of it is encrypted (``encrypted_store.py``). A repository belongs to one home and to
those restored from it; another home's backup is refused, since its newest would be taken for this one's.
Not here: writing a backup (``backup_writer.py``), removing (``repository_prune.py``).
Read next: ``backup_manifest.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from headwater.encryption.encryption_key import EncryptionKey, KeySource
from headwater.errors import BackupDamaged, BackupRefused, HeadwaterError, KeyRefused, NotBackedUp
from headwater.hints import suggestion
from headwater.objects.object_address import ObjectAddress
from headwater.objects.object_store import ObjectStore
from headwater.upkeep.backup.backup_manifest import OBJECTS, BackupManifest, StoredPiece
from headwater.upkeep.backup.encrypted_store import EncryptedStore, opened_store
from headwater.upkeep.backup.repository_turn import GIVEN_UP, RepositoryTurn

BACKUPS = "backups/"
REMOVALS = "removals/"
MANIFEST_NAME = re.compile(r"backups/([^~/]+)(?:~(\d+))?\.json")
THREADS = 4  # requests at the same time
READS_MAX = 3  # of a manifest: an erasure may replace it

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True)
class VerifyReport:
    """What verifying a repository found."""

    backups: int
    objects: int
    bytes: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "problems": list(self.problems), "ok": self.ok}

    def __str__(self) -> str:
        head = f"{self.backups} backups, {self.objects:,} objects, {self.bytes:,} bytes"
        if self.ok:
            return f"Sound: {head}"
        return "\n  ".join([f"DAMAGED: {len(self.problems)} problems in {head}:", *self.problems])


class BackupRepository:
    """The backups at one address: a folder's path, ``file:///…`` or ``s3://…``.

    >>> import tempfile
    >>> BackupRepository.at(tempfile.mkdtemp()).ids()
    []
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    @staticmethod
    def at(address: str | os.PathLike[str], key: KeySource | None = None, *, make: bool = False) -> BackupRepository:
        """The repository at an address, with the key that it is encrypted with, if it is.

        It is made by the first backup: ``make``, so that an empty place gets its keys.
        """
        return BackupRepository(opened_store(ObjectAddress.parse(address_of(address)).open(), key, make=make))

    @property
    def shown(self) -> str:
        return self.store.shown

    def turn(self, what: str, *, wait_s: float = 0.0) -> RepositoryTurn:
        """The right to write; see ``RepositoryTurn``."""
        return RepositoryTurn(self.store, what, wait_s=wait_s)

    @property
    def encrypted(self) -> bool:
        return isinstance(self.store, EncryptedStore)

    def rotate_key(self, key: EncryptionKey) -> None:
        """Let another key open the backups, and no longer the one that did. No backup is written anew."""
        if not isinstance(self.store, EncryptedStore):
            raise KeyRefused(f"there are no encrypted backups at {self.shown}", hint="Is it the right place?")
        with self.turn("a rotation of the key") as turn:
            turn.check()
            self.store.rotate(key)

    # Backups

    def ids(self) -> list[str]:
        """The ids of all backups, oldest first."""
        return sorted(self._revisions())

    def _revisions(self) -> dict[str, list[str]]:
        """The names of the manifests of each backup, the one that counts last."""
        found: dict[str, dict[int, str]] = {}
        for each in self.store.list(BACKUPS):
            form = MANIFEST_NAME.fullmatch(each.name)
            if form is None or (each.bytes == len(GIVEN_UP) and self.store.get(each.name) == GIVEN_UP):
                continue
            found.setdefault(form[1], {})[int(form[2] or 0)] = each.name
        return {backup: [names[number] for number in sorted(names)] for backup, names in found.items()}

    def manifest(self, backup: str) -> BackupManifest:
        """A backup by its id, or by the beginning of it."""
        for _ in range(READS_MAX):
            known = self._revisions()
            fitting = [backup] if backup in known else [each for each in known if each.startswith(backup)]
            if len(fitting) != 1:
                break
            data = self.store.get(known[fitting[0]][-1])
            if data is not None:  # else an erasure has just replaced it
                return BackupManifest.from_bytes(fitting[0], data)
        raise NotBackedUp(
            f"there is no backup {backup!r} at {self.shown}",
            hint=suggestion(backup, sorted(known)) or "headwater backup ls lists them.",
        )

    def manifests(self) -> list[BackupManifest]:
        """Every backup, oldest first; ``BackupDamaged`` when one cannot be read."""
        found = []
        for backup, names in sorted(self._revisions().items()):
            data = self.store.get(names[-1])
            found.append(self.manifest(backup) if data is None else BackupManifest.from_bytes(backup, data))
        return found

    def newest(self) -> BackupManifest:
        """The newest backup; ``NotBackedUp`` when there is none."""
        known = self.ids()
        if not known:
            raise NotBackedUp(f"there is no backup at {self.shown}", hint="headwater backup create --to makes one.")
        return self.manifest(known[-1])

    def commit(self, manifest: BackupManifest, turn: RepositoryTurn) -> None:
        """Make a backup count, or another revision of it, after all of its objects."""
        there = self.objects()
        gone = [piece.name for piece in manifest.pieces() if there.get(piece.name) != piece.bytes]
        if gone:
            raise BackupDamaged(
                f"{len(gone)} objects are missing at {self.shown} or have another size, such as {gone[0]}",
                detail="Another program removes or changes objects there. The backup was not made.",
                hint="Remove such objects, stop what changes them, and begin again.",
            )
        data, name = manifest.to_bytes(), _name(manifest)
        if not turn.create(name, data) and self.store.get(name) != data:
            raise BackupRefused(
                f"there is another backup {manifest.id} at {self.shown}",
                detail="Or another process has taken over the turn to write there. Nothing was committed.",
                hint="Begin again: what was copied is there and is not copied twice.",
            )

    def remove(self, backup: str, *, older: bool = False) -> None:
        """Remove a backup; with ``older`` only those revisions of it that do not count any more."""
        names = self._revisions().get(backup, [])
        for name in names[:-1] if older else names:  # the one that counts last: no older one comes to light
            self.store.delete(name)

    def check_lineage(self, home: str, ancestors: Sequence[str]) -> None:
        """Refuse a home that is not the one whose backups these are, nor restored from it."""
        known = self.ids()
        if not known:
            return
        last = self.manifest(known[-1])
        if last.home not in (home, *ancestors):
            raise BackupRefused(
                f"{self.shown} has backups of another home ({last.home}, this one is {home})",
                detail=f"Its last backup is {last.id}. A home that was replaced by a restored one does not go on here.",
                hint="Give each home a folder or prefix of its own.",
            )

    # Objects

    def objects(self) -> dict[str, int]:
        """The objects that are there, with their sizes."""
        return {each.name: each.bytes for each in self.store.list(OBJECTS)}

    def removals(self) -> dict[str, frozenset[str]]:
        """The objects that prunes which did not end were to remove, by their lists' names, oldest first."""
        lists = {each.name: self.store.get(each.name) for each in self.store.list(REMOVALS)}
        return {name: frozenset(json.loads(data)) for name, data in sorted(lists.items()) if data}

    def begin_removal(self, turn: int, objects: Iterable[str]) -> str:
        """Say which objects a prune is to remove, before it asks once more whether it still has the turn."""
        name = f"{REMOVALS}{turn:020d}.json"
        self.store.put(name, json.dumps(sorted(objects)).encode())
        return name

    def read(self, piece: StoredPiece) -> Iterator[bytes]:
        """The bytes of an object; ``BackupDamaged`` at the end when they are not those that were written."""
        parts, hasher, size = self.store.read(piece.name), xxhash.xxh3_64(), 0
        if parts is None:
            raise BackupDamaged(
                f"the object {piece.name} is missing at {self.shown}",
                hint="Restore another backup, and make a new one: it copies what is missing.",
                object=piece.name,
            )
        for part in parts:
            hasher.update(part)
            size += len(part)
            yield part
        if size != piece.bytes or hasher.intdigest() != piece.checksum:
            raise BackupDamaged(
                f"the object {piece.name} at {self.shown} is damaged",
                detail=f"It has {size:,} bytes with checksum {hasher.intdigest():016x}; written were {piece.bytes:,} "
                f"with {piece.checksum:016x}.",
                hint="Restore another backup. Remove the object; the next backup copies it again if the home has it.",
                object=piece.name,
            )

    def verify(self, backups: Sequence[str] | None = None, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of these backups (of all, when None) and compare it with its checksum."""
        problems: list[str] = []
        pieces: dict[str, StoredPiece] = {}
        if isinstance(self.store, EncryptedStore):
            problems += self.store.key_problems()
        chosen = self.ids() if backups is None else list(backups)
        for backup in chosen:
            try:
                pieces |= {piece.name: piece for piece in self.manifest(backup).pieces()}
            except (HeadwaterError, ValueError, KeyError, TypeError) as error:
                problems.append(f"backup {backup}: {error.message if isinstance(error, HeadwaterError) else error}")
        total, done = sum(piece.bytes for piece in pieces.values()), 0
        with ThreadPoolExecutor(THREADS) as pool:
            for piece, problem in pool.map(self._problem, pieces.values()):
                done += piece.bytes
                if problem is not None:
                    problems.append(problem)
                if progress is not None:
                    progress(done, total)
        return VerifyReport(len(chosen), len(pieces), total, tuple(problems))

    def _problem(self, piece: StoredPiece) -> tuple[StoredPiece, str | None]:
        try:
            for _ in self.read(piece):
                pass
        except BackupDamaged as error:
            return piece, error.message
        return piece, None


def free_name(name: str, removals: Mapping[str, frozenset[str]]) -> str:
    """The name under which an object is stored: another one where a prune may still remove the first.

    >>> free_name("objects/a", {}), free_name("objects/a", {"removals/7.json": frozenset({"objects/a"})})
    ('objects/a', 'objects/a~7')
    """
    for each, doomed in removals.items():
        if name in doomed:
            name = f"{name}~{each.removeprefix(REMOVALS).removesuffix('.json').lstrip('0')}"
    return name


def address_of(place: str | os.PathLike[str]) -> str:
    """The address of a place that may be given as a path.

    >>> address_of("/backup/shop"), address_of("s3://safe/shop")
    ('file:///backup/shop', 's3://safe/shop')
    """
    text = os.fspath(place)
    return text if "://" in text else Path(text).expanduser().absolute().as_uri()


def _name(manifest: BackupManifest) -> str:
    return f"{BACKUPS}{manifest.id}{f'~{manifest.revision}' if manifest.revision else ''}.json"
