"""Sealing: a rolled Arrow segment becomes Parquet.

What it is: ``seal_partition`` seals every closed Arrow segment of a partition, oldest first, and makes the checkpoints
of sealed ones; ``seal_closed`` also waits for other processes that do so.
Invariants: the Parquet file is complete, synced and renamed before the catalog lists it; the catalog lists it, durably,
before the Arrow twin is deleted; a crash in between is repeated harmlessly. One process seals a partition at a time;
appends and reads continue. While a backup copies, the Arrow twin stays (``log/maintenance/removal_pin.py``).
Not here: when (``background.py``), the file format (``log/storage/sealed_segment.py``). Read next: ``background.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import CorruptSegment
from headwater.log.commits.sequence_ranges import SequenceRanges
from headwater.log.maintenance.removal_pin import is_held
from headwater.log.proof.checkpoints import Checkpoints, checkpoint_sealed
from headwater.log.proof.commitment_file import SUFFIX
from headwater.log.storage.active_segment import ArrowSegment, arrow_bases, segment_name
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.partition_layout import layout_of, maintenance_lock, partition_directory
from headwater.log.storage.sealed_segment import write_sealed

if TYPE_CHECKING:
    from headwater.log.topic import Topic


SEALING_TRIES_MAX = 100


def never() -> bool:
    return False


def seal_partition(topic: Topic, number: int, *, at_most: int | None = None) -> int:
    """Seal the closed segments of a partition; returns how many. 0 also when another process is doing so."""
    directory = partition_directory(topic, number)
    if not directory.exists():
        return 0
    sealed = 0
    with maintenance_lock(directory) as got:
        if not got:
            return 0
        sweep(topic, number, directory)
        bases = arrow_bases(directory)
        for base in bases:
            if at_most is not None and sealed >= at_most:
                break
            segment = _opened(directory, base, newest=base == bases[-1])
            if segment is None:
                break
            try:
                if segment.next_base is None:
                    break  # the active one
                sealed += _seal(topic, number, directory, segment)
            finally:
                segment.close()
        checkpoint_sealed(topic, number)
    return sealed


def _opened(directory: Path, base: int, *, newest: bool) -> ArrowSegment | None:
    """A segment; None while a writer is making the newest one: the header of its index is written last."""
    for last in (False, True):
        try:
            return ArrowSegment(directory, base)
        except (FileNotFoundError, CorruptSegment):
            index = directory / f"{segment_name(base)}.index"
            if newest and (not index.exists() or not index.stat().st_size):
                return None
            if last or not newest:
                raise
    return None


def seal_closed(topic: Topic, number: int, *, wait: bool, stopping: Callable[[], bool] = never) -> int:
    """Seal every closed segment; returns how many. ``wait``: until those that another process is sealing are, too."""
    sealed = 0
    directory = partition_directory(topic, number)
    for _ in range(SEALING_TRIES_MAX):
        while not stopping() and seal_partition(topic, number, at_most=1):
            sealed += 1
        if stopping() or len(layout_of(topic, number).arrow) <= 1:
            break
        # Either another process was sealing, or something is wrong with the segment.
        with maintenance_lock(directory, wait=wait) as got:
            if not got:
                break
            _check_closed(directory, layout_of(topic, number).arrow)
    if wait and topic.settings.proof and directory.exists() and not stopping():
        with maintenance_lock(directory, wait=True):  # until another process has made those of what it sealed
            checkpoint_sealed(topic, number)
    return sealed


def _check_closed(directory: Path, arrow: Sequence[int]) -> None:
    """Raise if a rolled segment has no end in its index: sealing would wait for it for ever."""
    if len(arrow) < 2:
        return
    segment = ArrowSegment(directory, arrow[0])
    try:
        if segment.next_base is None:
            raise CorruptSegment(
                f"the index of {segment.data_path} is damaged",
                detail=f"It lists rows up to offset {segment.next_offset - 1} and has no end.",
                hint="Restore the file from a backup; `headwater check` lists all damage.",
                file=str(segment.data_path),
                offset=segment.next_offset,
            )
    finally:
        segment.close()


def _seal(topic: Topic, number: int, directory: Path, segment: ArrowSegment) -> bool:
    """Seal one segment; False when there was nothing to do but to wait for a backup, which reads the Arrow form."""
    registry, files = topic.log.registry, topic.log.files
    known = registry.sealed_at(topic.id, number, directory, segment.base_offset)
    fresh = known is None and segment.next_offset > segment.base_offset
    if fresh:
        row = topic.row_for_reading(segment.schema_version)
        sealed = write_sealed(
            directory,
            segment.read(segment.base_offset, segment.next_offset),
            stored_schema(row.schemas[segment.schema_version], row),
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            partition=number,
            schema_version=segment.schema_version,
            event_time=row.settings.event_time,
            files=files,
            metadata=bool(segment.entries["metadata_bytes"].any()),
        )
        named = segment.entries[segment.entries["producer"] > 0]
        sequences: dict[int, SequenceRanges] = {}
        for producer, sequence in zip(named["producer"].tolist(), named["sequence"].tolist(), strict=True):
            sequences.setdefault(producer, SequenceRanges()).add(sequence)
        registry.replace_segments(topic.id, [], sealed, segment.marks, sequences)
    if is_held(topic.log.home):
        return fresh  # the twin stays until the backup has it; a later round removes it
    # The data first: an index without data is swept, data without an index would be opened.
    files.unlink(segment.data_path, label="seal.remove_data")
    files.sync_dir(directory, label="seal.sync_removal")
    files.unlink(segment.index_path, label="seal.remove_index")
    return True


def sweep(topic: Topic, number: int, directory: Path) -> None:
    """Remove leftovers of an interrupted sealing, compaction or retention. The caller holds the maintenance lock.

    Appends go on meanwhile and may begin a segment: its data file comes before its index, so an index whose data
    file is not there *now* is a leftover.
    """
    files = topic.log.files
    listed = {segment.path.name for segment in topic.log.registry.sealed(topic.id, number, directory)}
    listed |= Checkpoints.of(topic, number).names()
    pinned = is_held(topic.log.home)  # after the list: what a backup needs that begins now is in it
    for path in sorted(directory.iterdir()):
        stray_index = path.suffix == ".index" and not path.with_suffix(".arrow").exists()
        stray_file = path.suffix in (".parquet", SUFFIX) and path.name not in listed and not pinned
        if path.name.endswith(".tmp") or stray_index or stray_file:
            files.unlink(path, label="sweep.remove")
