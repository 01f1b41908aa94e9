"""Atomic append: frames of several partitions, all or none.

What it is: ``append_atomically``, behind an append whose rows have several partitions and behind transactions.
Invariants: partitions are locked in one order, so two commits never wait for each other. The data of all parts is
written (and synced, where a topic asks for it), then the commit is decided by one record, then the parts are listed. A
crash before the decision leaves frames that recovery cuts off; a crash after it leaves frames that recovery lists. The
gate of ``cut_numbers.py`` is held until all parts are listed, so no cut lies between them.
Not here: frames (``log/storage/framing.py``), one partition (``log/storage/partition_writer.py``).
Read next: ``commit_records.py``, ``cut_numbers.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from headwater.errors import HeadwaterError
from headwater.log.commits.append_request import AppendRequest
from headwater.log.commits.commit_records import BY_CATALOG, BY_RECORD, CommitRecord, CommitRecords
from headwater.log.commits.cut_numbers import CutCounter
from headwater.log.storage.active_segment import Frame, Stamp
from headwater.log.storage.frame_index import Entry
from headwater.log.storage.partition_writer import PartitionWriter

logger = logging.getLogger("headwater.log")

Decide = Callable[[CommitRecord | None], None]  # enters the commit in the catalog, with all that belongs to it


@dataclass(eq=False)
class PartWrite:
    """The rows of one partition in a commit."""

    writer: PartitionWriter
    request: AppendRequest

    @property
    def place(self) -> tuple[int, int]:
        return self.writer.topic().id, self.writer.number


def append_atomically(
    parts: Sequence[PartWrite], counter: CutCounter, records: CommitRecords, decide: Decide | None = None
) -> None:
    """Write all parts, or raise and write none; each request then says where its rows end.

    ``decide`` is called when everything is written but not shown, and must commit one transaction of the catalog that
    holds the record's number; its error refuses the commit. Without it the record alone decides.
    """
    ordered = sorted(parts, key=lambda part: part.place)
    with counter.committing(), ExitStack() as locks:
        for part in ordered:
            locks.enter_context(part.writer.held())
        fresh = [(part, part.writer.unseen(part.request)) for part in ordered]
        written = [(part, frames) for part, frames in fresh if frames]
        for part in ordered:
            part.request.next_offset = part.writer.next_offset()
        if written or decide is not None:
            _commit(written, counter, records, decide)
        for part in ordered:
            for condition in part.request.conditions:
                condition.took(part.request.next_offset, part.request.written_rows)


def _commit(
    written: Sequence[tuple[PartWrite, list[Frame]]], counter: CutCounter, records: CommitRecords, decide: Decide | None
) -> None:
    if not written:
        assert decide is not None
        decide(None)
        return
    writers = [part.writer for part, _ in written]
    durable = {writer: writer.topic().settings.fsync == "always" for writer in writers}
    places = [(writer.topic().directory_name, writer.number) for writer in writers]
    record = records.new(places, BY_RECORD if decide is None else BY_CATALOG)
    now_us = max(writers[0].clock.now_us(), *(writer.last_us() for writer in writers))
    cut_number = counter.now()
    staged: list[tuple[PartitionWriter, list[Entry]]] = []
    try:
        if decide is not None:  # first: a reader that finds the frames must find the record that they wait for
            records.write(record, sync=any(durable.values()))
        for part, frames in written:
            stamp = Stamp(now_us, cut_number, durable[part.writer], record.id)
            entries = part.writer.stage(frames, stamp)
            staged.append((part.writer, entries))
            part.request.next_offset = entries[-1].next_offset
        if decide is None:
            records.write(record, sync=any(durable.values()))
        else:
            decide(record)
    except Exception:
        for writer, entries in staged:
            writer.take_back(entries)
        records.discard(record)
        raise
    try:
        for writer, entries in staged:
            writer.show(entries, sync=durable[writer])
        records.remove(record)
    except HeadwaterError as error:
        # Decided: the rows are in the log. The record stays, and the next cut or recovery lists them.
        logger.warning("a commit was decided and its rows are listed later: %s", error)
        for writer in writers:
            writer.forget()
