"""Registry: topics, schema versions, sealed segments and producers, as rows of the catalog.

What it is: the SQL behind ``Topic`` and the segments.
Invariants: a topic's id is never used again, so a directory belongs to one topic for ever; schema versions count from
1; a sealed segment's row appears in the transaction that makes its Arrow twin deletable.
Not here: groups (``log/groups/groups.py``), files (``log/storage/partition_writer.py``), schema compatibility
(``log/schema/evolution.py``). Read next: ``topic.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from headwater.log.catalog.catalog import Catalog
from headwater.log.commits.append_marks import NO_MARKS, AppendMarks
from headwater.log.commits.sequence_ranges import SequenceRanges
from headwater.log.schema.normalization import WEIGHT
from headwater.log.storage.checksums import FileFacts
from headwater.log.storage.sealed_segment import SealedSegment
from headwater.log.topic_settings import TopicSettings

MARKS_KEPT_MAX = 1000  # segments whose marks a process keeps in memory


@dataclass(frozen=True)
class TopicRow:
    """A topic as the catalog knows it."""

    id: int
    name: str
    settings: TopicSettings
    schemas: dict[int, pa.Schema]  # by version
    dropped_rows: int
    created_us: int

    @cached_property
    def version(self) -> int:
        return max(self.schemas)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.schemas[self.version]

    @cached_property
    def is_multiset(self) -> bool:
        """Whether it is a table without a key: its rows have weights and are written by ``log/table.py`` only."""
        return WEIGHT in self.schema.names

    @property
    def directory_name(self) -> str:
        """Where its partitions are, under ``topics/``."""
        return f"{self.id:06d}-{self.name}"


class _Moved(Exception):
    """A segment that was to be replaced no longer exists."""


class Registry:
    """Reads and writes the catalog's tables of topics."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        # By name: the columns that were read, and the row made from them.
        self._known: dict[str, tuple[tuple[object, ...], TopicRow]] = {}
        self._marks = FileFacts[AppendMarks](most=MARKS_KEPT_MAX)  # a compacted segment has another file

    def names(self) -> list[str]:
        return [row["name"] for row in self.catalog.read("SELECT name FROM topics ORDER BY name")]

    def find(self, name: str) -> TopicRow | None:
        """The topic of this name; the same object each time, as long as nothing about it changes."""
        rows = self.catalog.read("SELECT * FROM topics WHERE name = ?", (name,))
        if not rows:
            self._known.pop(name, None)
            return None
        return self._row(rows[0])

    def _row(self, row: sqlite3.Row) -> TopicRow:
        versions = self.catalog.read("SELECT version, arrow FROM schemas WHERE topic_id = ?", (row["id"],))
        written = (*row, *map(tuple, versions))
        known = self._known.get(row["name"])
        if known is not None and known[0] == written:
            return known[1]
        schemas = {v["version"]: pa.ipc.read_schema(pa.py_buffer(v["arrow"])) for v in versions}
        settings = TopicSettings.from_json(row["settings"])
        found = TopicRow(row["id"], row["name"], settings, schemas, row["dropped_rows"], row["created_us"])
        self._known[found.name] = written, found
        return found

    def create(self, name: str, schema: pa.Schema, settings: TopicSettings, now_us: int) -> TopicRow:
        """A new topic with its first schema version."""
        with self.catalog.write(durable=True) as db:
            topic_id = db.execute(
                "INSERT INTO topics (name, settings, created_us) VALUES (?, ?, ?)", (name, settings.to_json(), now_us)
            ).lastrowid
            assert topic_id is not None
            db.execute("INSERT INTO schemas VALUES (?, 1, ?, ?)", (topic_id, schema.serialize().to_pybytes(), now_us))
            db.executemany(
                "INSERT INTO partitions (topic_id, partition) VALUES (?, ?)",
                [(topic_id, number) for number in range(settings.partitions)],
            )
        return TopicRow(topic_id, name, settings, {1: schema}, 0, now_us)

    def add_schema(self, topic_id: int, schema: pa.Schema, now_us: int) -> int:
        """A further schema version; returns its number."""
        with self.catalog.write(durable=True) as db:
            (latest,) = db.execute("SELECT max(version) FROM schemas WHERE topic_id = ?", (topic_id,)).fetchone()
            db.execute(
                "INSERT INTO schemas VALUES (?, ?, ?, ?)",
                (topic_id, latest + 1, schema.serialize().to_pybytes(), now_us),
            )
        return int(latest) + 1

    def change_settings(self, topic_id: int, settings: TopicSettings) -> None:
        with self.catalog.write(durable=True) as db:
            db.execute("UPDATE topics SET settings = ? WHERE id = ?", (settings.to_json(), topic_id))

    def delete(self, topic_id: int) -> None:
        """Delete the topic; its directory can then be removed."""
        with self.catalog.write(durable=True) as db:
            db.execute("DELETE FROM topics WHERE id = ?", (topic_id,))

    def count_dropped(self, topic_id: int, rows: int) -> None:
        """Add to the number of rows that backpressure dropped."""
        with self.catalog.write() as db:
            db.execute("UPDATE topics SET dropped_rows = dropped_rows + ? WHERE id = ?", (rows, topic_id))

    # Partitions and sealed segments

    def start(self, topic_id: int, partition: int) -> tuple[int, int | None]:
        """The first offset that is kept, and when retention last moved it."""
        rows = self.catalog.read(
            "SELECT start_offset, start_moved_us FROM partitions WHERE topic_id = ? AND partition = ?",
            (topic_id, partition),
        )
        return (rows[0]["start_offset"], rows[0]["start_moved_us"]) if rows else (0, None)

    def sealed(
        self,
        topic_id: int,
        partition: int,
        directory: Path,
        *,
        start: int = 0,
        stop: int | None = None,
        limit: int = -1,
    ) -> list[SealedSegment]:
        """The sealed segments that overlap ``start`` to ``stop``, in order."""
        rows = self.catalog.read(
            "SELECT * FROM segments WHERE topic_id = ? AND partition = ? AND next_offset > ? AND base_offset < ? "
            "ORDER BY base_offset LIMIT ?",
            (topic_id, partition, start, 2**62 if stop is None else stop, limit),
        )
        return [SealedSegment.of(row, directory) for row in rows]

    def sealed_at(self, topic_id: int, partition: int, directory: Path, offset: int) -> SealedSegment | None:
        """The sealed segment whose range holds this offset."""
        rows = self.catalog.read(
            "SELECT * FROM segments WHERE topic_id = ? AND partition = ? AND base_offset <= ? "
            "ORDER BY base_offset DESC LIMIT 1",
            (topic_id, partition, offset),
        )
        found = [SealedSegment.of(row, directory) for row in rows if row["next_offset"] > offset]
        return found[0] if found else None

    def sealed_end(self, topic_id: int, partition: int) -> int:
        """The offset after the last sealed row, 0 when there is none."""
        rows = self.catalog.read(
            "SELECT max(next_offset) AS m FROM segments WHERE topic_id = ? AND partition = ?", (topic_id, partition)
        )
        return rows[0]["m"] or 0

    def replace_segments(
        self,
        topic_id: int,
        old: Sequence[SealedSegment],
        new: SealedSegment,
        marks: AppendMarks,
        sequences: Mapping[int, SequenceRanges] | None = None,
        also: Callable[[sqlite3.Connection], None] | None = None,
    ) -> bool:
        """Replace ``old`` by ``new`` in one durable transaction; False when ``old`` changed meanwhile.

        ``marks`` are those of the new segment, ``sequences`` those that it has of each producer. ``also`` is what else
        changes with it.
        """
        try:
            with self.catalog.write(durable=True) as db:
                for segment in old:
                    gone = db.execute(
                        "DELETE FROM segments WHERE topic_id = ? AND partition = ? AND base_offset = ? AND file = ?",
                        (topic_id, segment.partition, segment.base_offset, segment.path.name),
                    ).rowcount
                    if gone != 1:
                        raise _Moved
                s = new
                db.execute(
                    "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        topic_id,
                        s.partition,
                        s.base_offset,
                        s.next_offset,
                        s.path.name,
                        s.rows,
                        s.bytes,
                        s.checksum,
                        s.schema_version,
                        s.time_min,
                        s.time_max,
                        s.appended_min,
                        s.appended_max,
                        s.stored_flags,
                    ),
                )
                place = (topic_id, s.partition, s.base_offset)
                db.execute("INSERT INTO append_marks VALUES (?, ?, ?, ?)", (*place, marks.pack()))
                for producer, ranges in (sequences or {}).items():
                    self._note_sequences(db, producer, s.partition, ranges)
                if also is not None:
                    also(db)
        except _Moved:
            return False
        return True

    @staticmethod
    def _note_sequences(db: sqlite3.Connection, producer: int, partition: int, ranges: SequenceRanges) -> None:
        row = db.execute(
            "SELECT ranges FROM producer_sequences WHERE producer_id = ? AND partition = ?", (producer, partition)
        ).fetchone()
        known = SequenceRanges() if row is None else SequenceRanges.parse(row["ranges"])
        known.merge(ranges)
        db.execute(
            "INSERT INTO producer_sequences SELECT id, ?, ? FROM producers WHERE id = ? "
            "ON CONFLICT DO UPDATE SET ranges = excluded.ranges",
            (partition, str(known), producer),
        )

    def append_marks(self, topic_id: int, segment: SealedSegment) -> AppendMarks:
        """Where the appends of a sealed segment end."""
        known = self._marks.find(segment.path)
        if known is None:
            rows = self.catalog.read(
                "SELECT marks FROM append_marks WHERE topic_id = ? AND partition = ? AND base_offset = ?",
                (topic_id, segment.partition, segment.base_offset),
            )
            known = AppendMarks.unpack(bytes(rows[0]["marks"])) if rows else NO_MARKS
            self._marks.keep(segment.path, known)
        return known

    def move_start(self, topic_id: int, partition: int, start: int, gone: Sequence[SealedSegment], now_us: int) -> None:
        """Drop these segments and move the partition's start (retention)."""
        with self.catalog.write(durable=True) as db:
            db.executemany(
                "DELETE FROM segments WHERE topic_id = ? AND partition = ? AND base_offset = ?",
                [(topic_id, partition, segment.base_offset) for segment in gone],
            )
            db.execute(
                "UPDATE partitions SET start_offset = max(start_offset, ?), start_moved_us = ? "
                "WHERE topic_id = ? AND partition = ?",
                (start, now_us, topic_id, partition),
            )

    # Producers

    def open_producer(self, topic_id: int, name: str) -> tuple[int, int]:
        """The producer's number and a new epoch, which fences the previous holder of the name."""
        with self.catalog.write(durable=True) as db:
            db.execute(
                "INSERT INTO producers (topic_id, name, epoch) VALUES (?, ?, 1) "
                "ON CONFLICT (topic_id, name) DO UPDATE SET epoch = epoch + 1",
                (topic_id, name),
            )
            row = db.execute(
                "SELECT id, epoch FROM producers WHERE topic_id = ? AND name = ?", (topic_id, name)
            ).fetchone()
        return row["id"], row["epoch"]

    def producer_epoch(self, producer_id: int) -> int:
        rows = self.catalog.read("SELECT epoch FROM producers WHERE id = ?", (producer_id,))
        return rows[0]["epoch"] if rows else 0

    def producer_id(self, topic_id: int, name: str) -> int:
        """The producer's number, created if new; the epoch stays."""
        rows = self.catalog.read("SELECT id FROM producers WHERE topic_id = ? AND name = ?", (topic_id, name))
        return rows[0]["id"] if rows else self.open_producer(topic_id, name)[0]

    def producer_names(self, topic_id: int) -> dict[int, str]:
        """The names of a topic's producers, by their numbers."""
        rows = self.catalog.read("SELECT id, name FROM producers WHERE topic_id = ?", (topic_id,))
        return {row["id"]: row["name"] for row in rows}

    def sequences(self, topic_id: int, partition: int) -> dict[int, SequenceRanges]:
        """The sequences of each producer in the sealed part of a partition."""
        rows = self.catalog.read(
            "SELECT producer_id, ranges FROM producer_sequences JOIN producers ON producers.id = producer_id "
            "WHERE topic_id = ? AND partition = ?",
            (topic_id, partition),
        )
        return {row["producer_id"]: SequenceRanges.parse(row["ranges"]) for row in rows}
