"""Backfill: the rows that a table held before its stream begins.

What it is: ``Backfill`` reads the chunks of waiting tables, two at a time, and appends them.
Invariants: each chunk is read at one snapshot, which is stored before its rows are appended under the next sequence. So
after a crash a chunk is in the topic, with its snapshot known, or it is read again at a new one. A table is not visible
before the stream has passed the largest ``reach`` of its chunks. A table without a key is one chunk and one append.
Not here: streamed changes that chunks already contain (``change_writer.py``).
Read next: ``change_writer.py``, ``docs/capture.md``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from headwater.capture import current_rows
from headwater.capture.capture_state import BACKFILL, CATCHING_UP, WAITING, CaptureState, TableState
from headwater.capture.database import BackfillChunk, CapturedDatabase, Losses, SourceTable
from headwater.capture.door import at_door
from headwater.capture.large_values import LargeValues
from headwater.capture.table_follower import grow
from headwater.capture.text_rows import batch_of
from headwater.errors import HeadwaterError
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.contract import EventLog, EventTopic

CONNECTIONS = 2


@dataclass(frozen=True)
class BackfillProgress:
    """The progress of one table's backfill."""

    table: str
    rows_done: int
    rows_estimated: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        rate = self.rows_per_second
        return max(0, self.rows_estimated - self.rows_done) / rate if rate else None


class Backfill:
    """The backfill of some tables of one capture."""

    def __init__(
        self,
        server: CapturedDatabase,
        log: EventLog,
        state: CaptureState,
        generation: str,
        on_progress: Callable[[BackfillProgress], None] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.server = server
        self.log = log
        self.state = state
        self.generation = generation
        self.on_progress = on_progress
        self.stopping = stopping
        self._appending = threading.Lock()

    def run(self) -> None:
        """Backfill every table that waits for it."""
        waiting = [table for table in self.state.tables().values() if table.phase in (WAITING, BACKFILL)]
        self.server.include([table.source for table in waiting], self.stopping)
        for table in waiting:
            if not self.stopping():
                self._table(table)

    def _table(self, table: TableState) -> None:
        shape = self.server.describe(table.source)
        topic = self.log.get_topic(table.name)
        grow(topic, shape)
        if table.phase == WAITING:
            again = topic.end_offsets()[0]
            self.state.change_table(table.name, again_from=again or None)
            chunks = self.server.chunks(shape)
            self.state.know_columns(table.name, [column.name for column in shape.taken])
            self.state.plan_chunks(table.name, chunks, shape.rows_estimated)
        writer = _Writer(self, topic, shape, table.name)
        missing = writer.missing()
        with ThreadPoolExecutor(max_workers=CONNECTIONS, thread_name_prefix="headwater-backfill") as pool:
            for done in [pool.submit(writer.chunk, chunk) for chunk in missing]:
                done.result()
        if self.stopping():
            return
        if writer.is_outdated:
            self.state.change_table(table.name, phase=WAITING)
            self._table(self.state.tables()[table.name])
        else:
            writer.finish()


class _Writer:
    """Reads and appends the chunks of one table."""

    def __init__(self, backfill: Backfill, topic: EventTopic, shape: SourceTable, name: str) -> None:
        self.backfill = backfill
        self.state = backfill.state
        self.topic = topic
        self.shape = shape
        self.name = name
        self.producer = f"{backfill.generation}.backfill"
        opened = topic.open_producer(self.producer)
        self.producer_id, self.epoch, self.last = opened.id, opened.epoch, opened.last_sequence
        self.began = time.monotonic()
        self.large = LargeValues(name, self.state)
        self.losses = Losses()
        self.rows_before = self.state.tables()[name].rows_done
        self.rows = 0
        self.is_outdated = False  # the table has other columns than those that are read

    def missing(self) -> list[BackfillChunk]:
        """The chunks that are not in the topic yet."""
        last = self.last // CHUNKS_PER_SEQUENCE
        return [each.chunk for each in self.state.chunks(self.name) if each.sequence is None or each.sequence > last]

    def chunk(self, chunk: BackfillChunk) -> None:
        """Read one chunk and append it."""
        backfill = self.backfill
        if backfill.stopping() or self.is_outdated:
            return
        try:
            read = backfill.server.read(self.shape, chunk)
            texts = [at_door(rows, self.shape) for rows in read.batches]
        except HeadwaterError:
            if self._has_other_columns():
                return
            raise
        # After the rows were read: the stream passes over all that their snapshot saw, also values of a new column.
        if self._has_other_columns():
            return
        losses = Losses()
        batches = [batch_of(rows, self.shape, self.topic.schema, losses) for rows in texts]
        with backfill._appending:  # sequences rise, also over the threads
            # The topic may have one more than was stored: a crash fell into ``finish``, and a new backfill began.
            sequence = max(self.state.tables()[self.name].appends, self.last // CHUNKS_PER_SEQUENCE) + 1
            self.state.intend_chunk(self.name, chunk.number, sequence, read.snapshot, read.reach)
            for rows in texts:
                self.large.note(rows, self.shape)
            # Before the rows: an appended chunk is not read again, and its large values are needed.
            self.large.save()
            if batches:
                self.topic.append_batch(
                    pa.concat_batches(batches),
                    producer=self.producer,
                    sequence=sequence,
                    producer_id=self.producer_id,
                    epoch=self.epoch,
                )
            self.rows += sum(batch.num_rows for batch in batches)
            self.state.change_table(self.name, rows_done=self.rows_before + self.rows)
            self.state.add_losses(self.name, losses.values)
        self._report_progress()

    def _has_other_columns(self) -> bool:
        now = self.backfill.server.describe(self.shape.table)
        self.is_outdated |= _columns(now) != _columns(self.shape)
        return self.is_outdated

    def _report_progress(self) -> None:
        if self.backfill.on_progress is not None:
            table = self.state.tables()[self.name]
            seconds = time.monotonic() - self.began
            self.backfill.on_progress(
                BackfillProgress(
                    self.name, self.rows_before + self.rows, max(table.rows_estimated, table.rows_done), seconds
                )
            )

    def finish(self) -> None:
        """Complete the backfill: rows that a repeated backfill did not find again are deleted."""
        table = self.state.tables()[self.name]
        # The next sequence; the same one when this is repeated after a crash.
        last = table.appends + 1
        if table.again_from is not None:
            self._delete_missing(table.again_from, last)
        self.topic.sync()
        reach = max((each.reach or 0 for each in self.state.chunks(self.name)), default=0)
        self.state.change_table(self.name, phase=CATCHING_UP, reach=reach, again_from=None, appends=last)

    def _delete_missing(self, stop: int, sequence: int) -> None:
        if self.topic.row().is_multiset:
            rows = current_rows.rows_to_delete(self.topic, stop)
        else:
            before = current_rows.live_keys(self.topic, stop)
            now = current_rows.live_keys(self.topic, self.topic.end_offsets()[0], start=stop)
            gone = [key for key, there in before.items() if there and not now.get(key, False)]
            rows = current_rows.tombstones(self.topic, gone)
        self.topic.append_batch(
            rows,
            producer=self.producer,
            sequence=sequence,
            producer_id=self.producer_id,
            epoch=self.epoch,
            deleted=bool(self.shape.key),
        )


def _columns(shape: SourceTable) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.kind) for column in shape.columns]
