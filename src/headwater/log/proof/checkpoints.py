"""Checkpoints: the hash of a partition up to the end of each sealed segment.

What it is: ``Checkpoint``, a row of the catalog's table ``checkpoints``; ``Checkpoints`` reads and writes them;
``checkpoint_sealed`` makes those of segments that have none.
Invariants: checkpoints of a partition follow each other without a gap, and never go: what retention and compaction
remove stays proven to have been there. A checkpoint is made of a segment whose bytes have their checksum, under the
partition's maintenance lock, before anything rewrites the segment; its file is on disk before the catalog names it. A
crash in between leaves a segment without a checkpoint, which the next round makes, and a file that is swept.
Not here: what an erasure and compaction leave of it (``proof_release.py``), comparing (``upkeep/audit/``).
Read next: ``proof_release.py``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.clock import format_us
from headwater.log.catalog.catalog import Catalog
from headwater.log.proof.commitment_file import SUFFIX, CommitmentFile, Commitments, write_commitments
from headwater.log.proof.merkle_tree import HASH_BYTES, CompactRange
from headwater.log.proof.row_commitments import SALT_BYTES, RowParts, committed, leaves_of
from headwater.log.storage.active_segment import FrameRange, segment_name
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.sealed_segment import SealedSegment, offsets_of

if TYPE_CHECKING:
    from headwater.log.topic import Topic

TABLES_PROOF = """
CREATE TABLE IF NOT EXISTS checkpoints (  -- of topics with proof=True; never removed, see log/proof/checkpoints.py
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    schema_version INTEGER NOT NULL,     -- that its rows were hashed with
    parts TEXT NOT NULL,                 -- JSON: the columns of each part of a row
    subtrees BLOB NOT NULL,              -- over its rows alone, see log/proof/merkle_tree.py
    tree BLOB NOT NULL,                  -- the subtrees of all rows up to its end: the next one goes on from them
    root BLOB NOT NULL,                  -- theirs
    made_us INTEGER NOT NULL,
    file TEXT,                           -- commitments and salts; NULL: retention has dropped the rows
    file_bytes INTEGER,
    file_checksum INTEGER,
    PRIMARY KEY (topic_id, partition, base_offset)
);
"""


@dataclass(frozen=True)
class Checkpoint:
    """A partition up to the end of one sealed segment."""

    partition: int
    base_offset: int
    next_offset: int
    schema_version: int
    parts: RowParts
    subtrees: CompactRange
    tree: CompactRange
    root: bytes
    made_us: int
    file: CommitmentFile | None

    @property
    def size(self) -> int:
        """How many leaves the tree has up to its end."""
        return self.subtrees.end

    def index(self, offset: int) -> int:
        """The leaf of one of its rows."""
        return self.subtrees.begin + offset - self.base_offset

    def to_dict(self) -> dict[str, Any]:
        """The checkpoint as JSON, to be noted elsewhere."""
        return {
            "partition": self.partition,
            "size": self.size,
            "next_offset": self.next_offset,
            "root": self.root.hex(),
            "at": format_us(self.made_us),
        }

    def read(self) -> Iterator[Commitments]:
        """Its commitments, while it has a file."""
        assert self.file is not None
        return self.file.read(self.base_offset)


class Checkpoints:
    """The checkpoints of one partition.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "id BIGINT", proof=True)
    >>> _ = orders.append([{"id": 1}, {"id": 2}])
    >>> orders.partition(0).roll()
    True
    >>> _ = log.maintain()
    >>> [(each.base_offset, each.next_offset) for each in Checkpoints(log.catalog, orders.id, 0).all()]
    [(0, 2)]
    """

    def __init__(self, catalog: Catalog, topic_id: int, partition: int, directory: Path | None = None) -> None:
        self.catalog = catalog
        self.topic_id = topic_id
        self.partition = partition
        self.directory = directory or Path()

    @staticmethod
    def of(topic: Topic, number: int) -> Checkpoints:
        """Those of a topic's partition."""
        return Checkpoints(topic.log.catalog, topic.id, number, topic.directory / str(number))

    def all(self, start: int = 0, stop: int = 2**62) -> list[Checkpoint]:
        """Those with offsets from ``start`` up to ``stop``, oldest first."""
        rows = self.catalog.read(
            "SELECT * FROM checkpoints WHERE topic_id = ? AND partition = ? AND next_offset > ? AND base_offset < ?"
            " ORDER BY base_offset",
            (self.topic_id, self.partition, start, stop),
        )
        return [self._checkpoint(row) for row in rows]

    def last(self) -> Checkpoint | None:
        """The newest one."""
        rows = self.catalog.read(
            "SELECT * FROM checkpoints WHERE topic_id = ? AND partition = ? ORDER BY base_offset DESC LIMIT 1",
            (self.topic_id, self.partition),
        )
        return self._checkpoint(rows[0]) if rows else None

    def names(self) -> set[str]:
        """The files that are listed."""
        rows = self.catalog.read(
            "SELECT file FROM checkpoints WHERE topic_id = ? AND partition = ? AND file IS NOT NULL",
            (self.topic_id, self.partition),
        )
        return {row["file"] for row in rows}

    @staticmethod
    def stored_in(catalog: sqlite3.Connection, topic_id: int, partition: int, directory: Path) -> list[CommitmentFile]:
        """The files that a copy of a catalog lists, for a backup."""
        rows = catalog.execute(
            "SELECT file, file_bytes, file_checksum FROM checkpoints"
            " WHERE topic_id = ? AND partition = ? AND file IS NOT NULL ORDER BY base_offset",
            (topic_id, partition),
        )
        return [CommitmentFile(directory / row[0], row[1], row[2]) for row in rows]

    def cut(self, db: sqlite3.Connection, end: int) -> None:
        """Forget those that reach beyond an offset, in a home that is restored to it: they are made again."""
        db.execute(
            "DELETE FROM checkpoints WHERE topic_id = ? AND partition = ? AND next_offset > ?",
            (self.topic_id, self.partition, end),
        )

    def add(self, made: Checkpoint) -> None:
        """Enter a checkpoint, durably."""
        file = made.file
        assert file is not None
        with self.catalog.write(durable=True) as db:
            db.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    self.topic_id,
                    made.partition,
                    made.base_offset,
                    made.next_offset,
                    made.schema_version,
                    made.parts.to_json(),
                    made.subtrees.pack(),
                    made.tree.pack(),
                    made.root,
                    made.made_us,
                    file.path.name,
                    file.bytes,
                    file.checksum,
                ),
            )

    def name_file(self, db: sqlite3.Connection, base_offset: int, file: CommitmentFile | None) -> None:
        """Name another file, or none, within a transaction."""
        values = (None, None, None) if file is None else (file.path.name, file.bytes, file.checksum)
        db.execute(
            "UPDATE checkpoints SET file = ?, file_bytes = ?, file_checksum = ?"
            " WHERE topic_id = ? AND partition = ? AND base_offset = ?",
            (*values, self.topic_id, self.partition, base_offset),
        )

    def drop_files(self, db: sqlite3.Connection, start: int) -> list[Path]:
        """Name no file any more for rows below the partition's new start, within a transaction; returns the files."""
        gone = [each for each in self.all(0, start) if each.file is not None and each.next_offset <= start]
        for each in gone:
            self.name_file(db, each.base_offset, None)
        return [each.file.path for each in gone if each.file is not None]

    def _checkpoint(self, row: sqlite3.Row) -> Checkpoint:
        file = None
        if row["file"] is not None:
            file = CommitmentFile(self.directory / row["file"], row["file_bytes"], row["file_checksum"])
        return Checkpoint(
            row["partition"],
            row["base_offset"],
            row["next_offset"],
            row["schema_version"],
            RowParts.parse(row["parts"]),
            CompactRange.unpack(bytes(row["subtrees"])),
            CompactRange.unpack(bytes(row["tree"])),
            bytes(row["root"]),
            row["made_us"],
            file,
        )


def checkpoint_sealed(topic: Topic, number: int) -> int:
    """Make the checkpoints of sealed segments without one; returns how many. The caller holds the maintenance lock."""
    if not topic.settings.proof:
        return 0
    known, directory = Checkpoints.of(topic, number), topic.directory / str(number)
    start, _ = topic.log.registry.start(topic.id, number)
    last = known.last()
    end, made = start if last is None else last.next_offset, 0
    pending = topic.log.registry.sealed(topic.id, number, directory, start=end)
    tree = CompactRange(0, 0, ()) if last is None else last.tree
    for segment in pending:
        begin = max(end, segment.base_offset)  # beyond the end: it was turned off, and retention has been here
        each = _made(topic, number, segment, begin, tree)
        known.add(each)
        tree, end, made = each.tree, segment.next_offset, made + 1
    return made


def _made(topic: Topic, number: int, segment: SealedSegment, begin: int, tree: CompactRange) -> Checkpoint:
    row = topic.row_for_reading(segment.schema_version)
    parts = RowParts.of(row, segment.schema_version, metadata=segment.has_metadata)
    schema = stored_schema(row.schemas[segment.schema_version], row)
    subtrees = CompactRange(tree.end, tree.end, ())

    def every() -> Iterator[Commitments]:
        nonlocal subtrees
        position = begin
        for chunk in segment.read(begin, segment.next_offset, None):
            found = commit_chunk(chunk, parts, schema, position)
            leaves = leaves_of(position, found.commitments.tobytes(), len(parts))
            subtrees += CompactRange.of(subtrees.end, leaves)
            position = chunk.next_offset
            yield found

    path = topic.directory / str(number) / f"{segment_name(begin)}{SUFFIX}"
    file = write_commitments(path, every(), topic.log.files)
    whole = tree + subtrees
    return Checkpoint(
        number,
        begin,
        segment.next_offset,
        segment.schema_version,
        parts,
        subtrees,
        whole,
        whole.root(),
        topic.clock.now_us(),
        file,
    )


def commit_chunk(chunk: FrameRange, parts: RowParts, schema: Any, position: int) -> Commitments:
    """Commitments with new salts for the offsets from ``position`` to the chunk's end."""
    rows, count = chunk.next_offset - position, len(parts)
    present = offsets_of(chunk).to_numpy() - position
    commitments = np.zeros((rows, count, HASH_BYTES), np.uint8)
    salts = np.zeros((rows, count, SALT_BYTES), np.uint8)
    kept = np.zeros((rows, count), np.bool_)
    kept[present] = True
    if len(present):
        for part, texts in enumerate(parts.texts(chunk, schema)):
            fresh = os.urandom(SALT_BYTES * len(present))
            hashed = b"".join(committed(texts, fresh))
            commitments[present, part] = np.frombuffer(hashed, np.uint8).reshape(-1, HASH_BYTES)
            salts[present, part] = np.frombuffer(fresh, np.uint8).reshape(-1, SALT_BYTES)
    return Commitments(position, commitments, salts, kept)
