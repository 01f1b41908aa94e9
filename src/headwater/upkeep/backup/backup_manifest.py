"""Backup manifest: what one backup holds, and where its bytes are.

What it is: ``BackupManifest``, one object of the repository: the cut, the topics, and every file of the home with the
objects that its bytes are in.
Invariants: a manifest begins with the checksum of its text, so that a damaged one is noticed; it is created once, after
every object that it names, and never changed: an erasure creates a further revision of a backup, and then removes the
one before. An object's name has the checksum of its bytes, so that two backups that name the same object mean the same
bytes. Its files lie in a home and its objects below ``objects/``: a manifest that says otherwise is refused.
Not here: writing (``backup_writer.py``), listing and reading (``backup_repository.py``).
Read next: ``backup_writer.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from headwater.clock import format_us
from headwater.errors import BackupDamaged, NewerFormat
from headwater.log.token import Token

FORMAT = 2  # 1: without revisions
OBJECTS = "objects/"


@dataclass(frozen=True)
class StoredPiece:
    """Some bytes of a file: an object of the repository."""

    name: str
    bytes: int
    checksum: int  # xxh3_64, unsigned


@dataclass(frozen=True)
class BackedFile:
    """A file of the home, by its path in it; its pieces follow one another."""

    path: str
    pieces: tuple[StoredPiece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True)
class TopicContent:
    """What a backup has of a topic."""

    id: int
    start: Mapping[int, int]  # by partition: the first offset that retention had left
    end: Mapping[int, int]  # the offset after the last one
    rows: int  # compaction may have removed some in between
    newest_us: int  # the append time of the newest row; 0 without rows


@dataclass(frozen=True)
class AppContent:
    """What a backup has of an app's views: the state after one tick, or nothing where that is on a store."""

    tick: int
    frontier: Mapping[str, Mapping[int, int]]
    views: int


@dataclass(frozen=True)
class BackupManifest:
    """One backup.

    >>> manifest = BackupManifest("b1", "7f", (), 5, 1_700_000_000_000_000, {}, {}, (), 0, 0)
    >>> BackupManifest.from_bytes("b1", manifest.to_bytes()) == manifest
    True
    """

    id: str
    home: str  # the identity of the home
    ancestors: tuple[str, ...]  # the homes that it was restored from
    cut_number: int
    cut_us: int  # when the cut was taken
    topics: Mapping[str, TopicContent]
    apps: Mapping[str, AppContent]
    files: tuple[BackedFile, ...]
    written_objects: int  # by this backup; the others were there
    written_bytes: int
    finished_us: int = 0
    revision: int = 0  # an erasure has written it anew, in the turn of this number
    format: int = field(default=FORMAT)

    @property
    def token(self) -> Token:
        """The log that it holds, as a token."""
        return Token({name: topic.end for name, topic in self.topics.items()})

    @property
    def claim(self) -> dict[str, int]:
        """What tells a restore of it from one of another revision."""
        return {"revision": self.revision} if self.revision else {}

    @property
    def size(self) -> int:
        """The bytes of all files, also of those that other backups share."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(topic.rows for topic in self.topics.values())

    def pieces(self) -> Iterator[StoredPiece]:
        """Every object that it needs."""
        return (piece for file in self.files for piece in file.pieces)

    def summary(self) -> dict[str, Any]:
        """What ``backup ls`` tells of it."""
        return {
            "id": self.id,
            "at": format_us(self.cut_us),
            "token": str(self.token),
            "topics": len(self.topics),
            "rows": self.rows,
            "bytes": self.size,
            "written_bytes": self.written_bytes,
            "home": self.home,
        }

    def to_bytes(self) -> bytes:
        """The object's content, with its checksum."""
        fields = asdict(self)
        fields["files"] = [[f.path, [[p.name, p.bytes, f"{p.checksum:016x}"] for p in f.pieces]] for f in self.files]
        text = json.dumps(fields).encode()
        return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)

    @staticmethod
    def from_bytes(name: str, data: bytes) -> BackupManifest:
        """The manifest in these bytes; ``BackupDamaged`` when they are not what was written."""
        checksum, _, text = data.rstrip(b"\n").partition(b" ")
        if checksum != b"%016x" % xxhash.xxh3_64_intdigest(text):
            raise BackupDamaged(
                f"the manifest of backup {name} is damaged",
                detail="Its bytes do not match the checksum at its beginning.",
                hint="Restore another backup: headwater backup ls",
                backup=name,
            )
        fields = json.loads(text)
        if fields["format"] > FORMAT:
            raise NewerFormat(
                f"backup {name} has format {fields['format']}; this Headwater knows formats up to {FORMAT}",
                hint="Upgrade: pip install --upgrade headwater",
                format=fields["format"],
            )
        manifest = BackupManifest(
            **{
                **fields,
                "ancestors": tuple(fields["ancestors"]),
                "topics": {name: _topic(of) for name, of in fields["topics"].items()},
                "apps": {
                    name: AppContent(of["tick"], {t: _numbers(o) for t, o in of["frontier"].items()}, of["views"])
                    for name, of in fields["apps"].items()
                },
                "files": tuple(
                    BackedFile(path, tuple(StoredPiece(n, size, int(checksum, 16)) for n, size, checksum in pieces))
                    for path, pieces in fields["files"]
                ),
            }
        )
        check_places(name, (file.path for file in manifest.files))
        check_places(name, (piece.name for piece in manifest.pieces()), below=OBJECTS)
        return manifest


def check_places(backup: str, paths: Iterable[str], *, below: str = "") -> None:
    """Refuse a backup that names a place outside of its home, or of its objects: a restore would go there."""
    for path in paths:
        if not path.startswith(below) or not is_inside(path):
            raise BackupDamaged(
                f"backup {backup} names {path!r}, which is outside of the {'objects' if below else 'home'}",
                detail="No backup was written so: it was changed. Nothing was restored from it.",
                hint="Do not trust this place. Restore another backup, from elsewhere.",
                backup=backup,
            )


def is_inside(path: str) -> bool:
    """Whether a path stays in the folder that it is relative to.

    >>> [is_inside(path) for path in ("topics/000001-a/0/x", "../x", "a/../../x", "/etc/x", "a//x", "", "a/x\\0")]
    [True, False, False, False, False, False, False]
    """
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _topic(fields: Mapping[str, Any]) -> TopicContent:
    return TopicContent(
        fields["id"], _numbers(fields["start"]), _numbers(fields["end"]), fields["rows"], fields["newest_us"]
    )


def _numbers(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def new_id(cut_us: int) -> str:
    """A backup's id; ids sort by time.

    >>> new_id(1_700_000_000_000_000)[:20]
    '20231114T221320.0000'
    """
    moment = dt.datetime.fromtimestamp(cut_us / 1e6, dt.UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{cut_us % 1_000_000:06d}-{secrets.token_hex(3)}"
