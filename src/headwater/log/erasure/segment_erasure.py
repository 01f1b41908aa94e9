"""Segment erasure: the sealed segments of a partition, rewritten without a person.

What it is: ``erase_partition`` seals what holds the person, rewrites each sealed segment with rows of the person, and
the archive's copies; ``find_in_partition`` only counts.
Invariants: records keep their offsets, order, append times and producers; the ranges of segments stay. The new file is
whole and synced before the catalog names it in place of the old one, by one transaction; then the old one is removed.
A crash at any moment leaves the old form or the new one, and files that the catalog does not name, which the next run
removes first: a second run ends what the first began. Appends and readers go on; who has an old file open reads on in
it.
Not here: which rows (``personal_rows.py``), which topics (``log_erasure.py``).
Read next: ``log_erasure.py``; ``log/maintenance/compaction.py`` rewrites in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import Conflict
from headwater.log.erasure.erased_people import Erased
from headwater.log.erasure.personal_rows import PersonalRows
from headwater.log.maintenance.compaction import next_suffix
from headwater.log.maintenance.removal_pin import is_held
from headwater.log.maintenance.retention import archive_directory
from headwater.log.maintenance.sealing import seal_closed, sweep
from headwater.log.proof.checkpoints import checkpoint_sealed
from headwater.log.proof.proof_release import BlankedRows, Offsets, ProofRelease
from headwater.log.schema.evolution import conform
from headwater.log.storage.active_segment import FrameRange
from headwater.log.storage.file_descriptors import open_file
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.partition_layout import layout_of, maintenance_lock, partition_directory
from headwater.log.storage.sealed_segment import SealedSegment, appended_of, offsets_of, producer_of, write_sealed

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Clean = Callable[[SealedSegment], bool]

ROUNDS_MAX = 10  # a writer may append rows of the person meanwhile


@dataclass(frozen=True)
class ErasedPartition:
    """What an erasure found in a partition."""

    rows: int = 0
    segments: int = 0  # that were rewritten
    archived: int = 0  # files of the archive that were rewritten
    removed: int = 0  # of the rows in segments: those that are gone whole

    def __add__(self, other: ErasedPartition) -> ErasedPartition:
        return ErasedPartition(
            self.rows + other.rows,
            self.segments + other.segments,
            self.archived + other.archived,
            self.removed + other.removed,
        )


def find_in_partition(topic: Topic, number: int, rules: Sequence[PersonalRows], people: Erased) -> int:
    """How many rows of a partition are the people's."""
    return sum(_count_between(topic, number, each, people, None, None) for each in rules)


def _count_between(
    topic: Topic, number: int, rules: PersonalRows, people: Erased, start: int | None, stop: int | None
) -> int:
    begin = topic.start_offsets()[number] if start is None else start
    found = 0
    for batch in topic.read_partition(number, begin, stop=stop, columns=list(rules.read_columns)):
        found += int(rules.found_in(batch.data, people).sum())
    return found


def erase_partition(
    topic: Topic, number: int, rules: Sequence[PersonalRows], people: Erased, clean: Clean | None = None
) -> ErasedPartition:
    """Rewrite what holds the people. ``Conflict`` while a backup copies files of the home.

    ``clean``: the home was unpacked from a backup; segments of which it is True hold nobody and are not there, and the
    archive is not of this home.
    """
    total = ErasedPartition()
    for each in rules:
        total += _erase(topic, number, each, people, clean)
    return total


def find_in_sealed(segment: SealedSegment, rules: PersonalRows, people: Erased) -> int:
    """How many rows of a sealed segment are the people's."""
    chunks = segment.read(segment.base_offset, segment.next_offset, rules.read_columns)
    return sum(int(rules.found_in(chunk.batch, people).sum()) for chunk in chunks)


def _erase(topic: Topic, number: int, rules: PersonalRows, people: Erased, clean: Clean | None) -> ErasedPartition:
    topic.refresh()
    for _ in range(ROUNDS_MAX):
        end = layout_of(topic, number).sealed_end
        if not _count_between(topic, number, rules, people, end, None):
            break
        topic.partition(number).roll()
        seal_closed(topic, number, wait=True)
    else:
        raise Conflict(
            f'rows of the person are appended to topic "{topic.name}" while they are being erased',
            hint="Stop what writes them, and run the same line again.",
            topic=topic.name,
        )
    seal_closed(topic, number, wait=True)  # also the Arrow form that a killed sealing left beside the sealed one
    directory = partition_directory(topic, number)
    with maintenance_lock(directory, wait=True):
        refuse_beside_backup(topic.log.home, "What was begun is on record: it is ended when the backup is done.")
        sweep(topic, number, directory)  # of a run before this one, that was killed: its old files hold the person
        checkpoint_sealed(topic, number)  # of the rows as they are, before some change
        rewriting = _Rewriting(topic, number, directory, rules, people)
        for segment in layout_of(topic, number).sealed:
            if clean is None or not clean(segment):
                rewriting.segment(segment)
        if topic.settings.archive is not None and clean is None:
            for path in sorted(archive_directory(topic, number).glob("*.parquet*")):
                rewriting.archived(path)
    return rewriting.done


def refuse_beside_backup(home: Path, detail: str) -> None:
    """An erasure removes files, so it cannot work while a backup copies them."""
    if is_held(home):
        raise Conflict(
            f"a backup of {home} is copying files, which an erasure removes",
            detail=detail,
            hint="Run the same line again when it is done.",
            home=str(home),
        )


class _Rewriting:
    """One run over one partition. The caller holds the maintenance lock."""

    def __init__(self, topic: Topic, number: int, directory: Path, rules: PersonalRows, people: Erased) -> None:
        self.topic = topic
        self.number = number
        self.directory = directory
        self.rules = rules
        self.people = people
        self.row = topic.row()
        self.done = ErasedPartition()
        self.present: list[Offsets] = []  # of the segment that is being rewritten: the offsets that have a row
        self.blanked: list[BlankedRows] = []

    def segment(self, old: SealedSegment) -> None:
        """Rewrite a segment, if it has rows of the people."""
        rows = find_in_sealed(old, self.rules, self.people)
        if not rows:
            return
        log = self.topic.log
        self.present, self.blanked = [], []
        new = write_sealed(
            self.directory,
            self._without(old),
            stored_schema(self.row.schema, self.row),
            base_offset=old.base_offset,
            next_offset=old.next_offset,
            partition=self.number,
            schema_version=self.row.version,
            event_time=self.row.settings.event_time,
            files=log.files,
            suffix=next_suffix([old]),
            compacted=old.compacted,
            gaps=old.gaps or any(rule.removes for rule in self.rules.rules),
            metadata=old.has_metadata,
        )
        marks = log.registry.append_marks(self.topic.id, old)
        present = np.concatenate([np.empty(0, np.int64), *self.present])
        release = ProofRelease(self.topic, self.number, old.base_offset, old.next_offset, present, self.blanked)
        if not log.registry.replace_segments(self.topic.id, [old], new, marks, also=release.note):
            log.files.unlink(new.path, label="erase.remove_new")  # the topic was deleted meanwhile
            release.undo()
            return
        log.files.unlink(old.path, label="erase.remove_old")
        release.finish()
        log.files.sync_dir(self.directory, label="erase.sync_removal")
        self.done += ErasedPartition(rows, 1, removed=old.rows - new.rows)

    def _without(self, old: SealedSegment) -> Iterator[FrameRange]:
        target = stored_schema(self.row.schema, self.row)
        for chunk in old.read(old.base_offset, old.next_offset, None):
            batch = chunk.batch if chunk.schema_version == self.row.version else conform(chunk.batch, target)
            erased = self.rules.erase(batch, self.people)
            every = offsets_of(chunk).to_numpy()
            touched = self.rules.touched(batch, self.people)
            self.blanked += [BlankedRows(columns, every[theirs]) for columns, theirs in touched]
            self.present.append(every if erased.kept is None else every[erased.kept])
            offsets, appended, producer = offsets_of(chunk), appended_of(chunk), producer_of(chunk)
            metadata = chunk.metadata
            if erased.kept is not None:
                mask = pa.array(erased.kept)
                offsets, appended, producer = offsets.filter(mask), appended.filter(mask), producer.filter(mask)
                metadata = None if metadata is None else metadata.filter(mask)
            if erased.rows.num_rows:
                yield FrameRange(
                    chunk.first_offset,
                    chunk.next_offset,
                    erased.rows,
                    self.row.version,
                    offsets.to_numpy(),
                    appended,
                    producer,
                    metadata=metadata,
                )

    def archived(self, path: Path) -> None:
        """Rewrite a file of the archive in its place, if it has rows of the people."""
        files = self.topic.log.files
        if path.name.endswith(".tmp"):
            files.unlink(path, label="erase.remove_archive_left")
            return
        table = pq.read_table(path)
        batches = table.to_batches()
        erased = [self.rules.erase(batch, self.people) for batch in batches]
        rows = sum(each.count for each in erased)
        if not rows:
            return
        temporary = path.with_name(path.name + ".tmp")
        without = pa.Table.from_batches([each.rows for each in erased], schema=table.schema)
        pq.write_table(without, temporary, compression="zstd", compression_level=1, write_page_checksum=True)
        fd = open_file(temporary, os.O_RDONLY)
        try:
            files.sync(fd, label="erase.sync_archive")
        finally:
            os.close(fd)
        files.rename(temporary, path, label="erase.rename_archive")
        files.sync_dir(path.parent, label="erase.sync_archive_directory")
        self.done += ErasedPartition(rows, archived=1)
