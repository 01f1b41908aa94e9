"""Retention: the oldest segments are dropped, by age and by size.

What it is: ``retain_partition`` drops whole sealed segments from the front of a partition, after copying them to the
topic's archive if it has one, and moves the partition's start.
Invariants: a segment expires by age when its newest row was appended ``retention_ms`` ago, and by size while the
partition has more than ``retention_bytes`` on disk; under ``until_read`` also as soon as every reader has read it,
which the dropping transaction checks again. Always the oldest first, never the active one (an active segment that has
expired by age is rolled and sealed first). A file is complete in the archive before the catalog drops it, and dropped
durably before it is deleted: a crash in between leaves a stray file that sealing removes. Readers that had not read the
dropped rows are noted in the same transaction.
Not here: warnings before it happens (``reader_alerts.py``), reads before the start
(``log/storage/partition_reader.py``). Read next: ``reader_alerts.py``, ``log/groups/readers.py``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import CorruptSegment
from headwater.log.groups.readers import holding_readers, read_up_to
from headwater.log.maintenance.reader_alerts import note_lost
from headwater.log.maintenance.removal_pin import is_held
from headwater.log.maintenance.sealing import seal_closed
from headwater.log.proof.checkpoints import Checkpoints, checkpoint_sealed
from headwater.log.storage.active_segment import arrow_bases, segment_name
from headwater.log.storage.checksums import checksum_of
from headwater.log.storage.files import Files, translated
from headwater.log.storage.partition_layout import (
    SegmentSpan,
    layout_of,
    maintenance_lock,
    partition_directory,
    spans_of,
)
from headwater.log.storage.sealed_segment import SealedSegment, damaged
from headwater.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from headwater.log.topic import Topic

COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class Retained:
    """The segments that were dropped from a partition."""

    segments: int
    rows: int
    bytes: int
    start_offset: int
    archived: int

    def __str__(self) -> str:
        archived = f", {self.archived} archived" if self.archived else ""
        return (
            f"dropped {self.segments} segments ({self.rows} rows, {self.bytes} bytes{archived}); "
            f"begins at offset {self.start_offset} now"
        )


def retain_partition(topic: Topic, number: int, *, wait: bool = False) -> Retained | None:
    """Drop expired segments; None when there are none, or (without ``wait``) another process is doing so."""
    settings = topic.settings
    if settings.retention_ms is None and settings.retention_bytes is None:
        return None
    directory = partition_directory(topic, number)
    now_us = topic.clock.now_us()
    _roll_if_expired(topic, number, now_us, wait=wait)
    if not expired(spans_of(topic, number), settings, now_us, read_up_to=_read_up_to(topic, number, now_us)):
        return None
    with maintenance_lock(directory, wait=wait) as got:
        if not got:
            return None
        spans = spans_of(topic, number)
        due = expired(spans, settings, now_us)
        count = expired(spans, settings, now_us, read_up_to=_read_up_to(topic, number, now_us))
        sealed = layout_of(topic, number).sealed
        return _drop(topic, number, sealed[:count], sealed[:due], now_us) if sealed[:count] else None


def _read_up_to(topic: Topic, number: int, now_us: int) -> int:
    """Under ``until_read`` the offset below which every reader has read the rows; else 0."""
    if not topic.settings.until_read:
        return 0
    return read_up_to(holding_readers(topic.log.catalog.read, topic.id, topic.settings, now_us), number)


def expired(spans: Sequence[SegmentSpan], settings: TopicSettings, now_us: int, *, read_up_to: int = 0) -> int:
    """The number of expired segments, from the oldest; those below ``read_up_to`` are expired too.

    >>> spans = [SegmentSpan(0, 10, 400, newest_us=0), SegmentSpan(10, 20, 400, newest_us=5_000)]
    >>> spans.append(SegmentSpan(20, 21, 400, 9_000, True))
    >>> expired(spans, TopicSettings(retention_ms=6), now_us=10_000)
    1
    >>> expired(spans, TopicSettings(retention_bytes=500), now_us=10_000)
    2
    >>> expired(spans, TopicSettings(retention_bytes=5_000), now_us=10_000, read_up_to=19)
    1
    """
    left = sum(span.bytes for span in spans)
    count = 0
    for span in spans:
        old = settings.retention_ms is not None and now_us - span.newest_us >= settings.retention_ms * 1000
        much = settings.retention_bytes is not None and left > settings.retention_bytes
        if span.active or not (old or much or span.next_offset <= read_up_to):
            break
        left -= span.bytes
        count += 1
    return count


def _roll_if_expired(topic: Topic, number: int, now_us: int, *, wait: bool) -> None:
    """Roll an active segment that has expired as a whole: without appends it would stay for ever."""
    retention_ms = topic.settings.retention_ms
    spans = spans_of(topic, number)
    if retention_ms is None or not spans or not spans[-1].active:
        return
    if now_us - spans[-1].newest_us >= retention_ms * 1000:
        # An append in between does no harm: the segment is checked again when it is sealed.
        topic.partition(number).roll()
        seal_closed(topic, number, wait=wait)


def _drop(
    topic: Topic, number: int, gone: Sequence[SealedSegment], due: Sequence[SealedSegment], now_us: int
) -> Retained | None:
    """Drop segments; those beyond ``due`` only if every reader has still read them when they are dropped."""
    log = topic.log
    if is_held(log.home):
        return None  # a backup may need an Arrow twin, which must not stay without its sealed form: the next round
    archived = 0
    with contextlib.suppress(CorruptSegment):  # what is damaged goes all the same
        checkpoint_sealed(topic, number)
    if topic.settings.archive is not None:
        for segment in gone:
            archive_segment(segment, archive_directory(topic, number), log.files)
            archived += 1
    start = gone[-1].next_offset
    for base in arrow_bases(partition_directory(topic, number)):
        if base < start:
            # The Arrow twin that an interrupted sealing left: without its sealed form it would be sealed once more.
            path = partition_directory(topic, number) / f"{segment_name(base)}.arrow"
            log.files.unlink(path, label="retain.remove_twin")
            log.files.sync_dir(path.parent, label="retain.sync_removal")
            log.files.unlink(path.with_suffix(".index"), label="retain.remove_twin_index")
    with log.catalog.write(durable=True) as db:
        if len(gone) > len(due) and _read_up_to(topic, number, now_us) < start:
            return None  # a group was made or reset meanwhile; the next round looks again
        log.registry.move_start(topic.id, number, start, gone, now_us)
        proofs = Checkpoints.of(topic, number).drop_files(db, start)
        note_lost(db, topic.row(), number, start, now_us)
    if not is_held(log.home):  # else the next sealing removes them after the backup
        for path in (*(segment.path for segment in gone), *proofs):
            log.files.unlink(path, label="retain.remove")
    return Retained(len(gone), sum(s.rows for s in gone), sum(s.bytes for s in gone), start, archived)


# The archive


def archive_directory(topic: Topic, number: int) -> Path:
    """The archive directory of a partition; a relative archive is in the home."""
    assert topic.settings.archive is not None
    return topic.log.home / Path(topic.settings.archive).expanduser() / topic.name / str(number)


def archive_segment(segment: SealedSegment, directory: Path, files: Files) -> Path:
    """Copy the segment to the archive, synced. A second call is harmless."""
    if checksum_of(segment.path) != segment.checksum:
        raise damaged(segment, "It was to be archived, and its bytes do not match the checksum in the catalog.")
    files.make_dir(directory, label="archive.make_directory")
    target = directory / segment.path.name
    if target.exists() and checksum_of(target) != segment.checksum:
        # A topic of the same name was deleted and created again: the archive of the old one stays.
        target = directory / f"{segment.path.stem}-{segment.checksum & (1 << 64) - 1:016x}.parquet"
    if not target.exists():
        try:
            # The same file under a second name costs nothing; deleting the first name completes the move.
            os.link(segment.path, target)
        except OSError:
            _copy(segment.path, target, files)
    for folder in (directory, *directory.parents[:3]):  # up to the entry of the archive itself
        files.sync_dir(folder, label="archive.sync_directory")
    return target


def _copy(source: Path, target: Path, files: Files) -> None:
    """Copy to another filesystem: copy, sync, then rename."""
    temporary = target.with_name(target.name + ".tmp")
    with translated(f"archive {source.name}"), source.open("rb", buffering=0) as data:
        fd = files.create(temporary, label="archive.create")
        try:
            files.truncate(fd, 0, label="archive.truncate")
            while block := data.read(COPY_BYTES):
                files.write(fd, [block], label="archive.write")
            files.sync(fd, label="archive.sync")
        finally:
            os.close(fd)
    files.rename(temporary, target, label="archive.rename")
