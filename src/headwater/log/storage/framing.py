"""Framing: a batch of rows as the frames that a segment stores.

What it is: ``stored_schema``, the columns of a segment; ``frames_of`` adds the tombstone marks, cuts large batches,
notes each frame's event times, and puts event metadata, where there is some, after the rows; ``StoredRow``, a row whose
bytes are made already.
Invariants: the rows of one append stay together (each frame but the last says that the next one continues it); a stored
sequence is the caller's times ``CHUNKS_PER_SEQUENCE``, plus the frame's number.
Not here: writing frames (``active_segment.py``), routing (``topic_appender.py``). Read next: ``active_segment.py``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa

from headwater.log.catalog.registry import TopicRow
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.schema.event_metadata import RowMetadata
from headwater.log.storage.active_segment import Frame
from headwater.log.storage.frame_index import NO_TIME_MAX, NO_TIME_MIN
from headwater.log.storage.sealed_segment import time_range

FRAME_ROWS_MAX = 65_536
FRAME_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row in the bytes of a frame already, of a topic with an event time and without a key."""

    payload: pa.Buffer
    schema: pa.Schema  # the topic's own object, so that it need not be compared
    moment_us: int

    def batch(self) -> pa.RecordBatch:
        """The row as a batch, where the topic has other columns by now."""
        return pa.ipc.read_record_batch(self.payload, self.schema)

    def frame(self) -> Frame:
        """The row as an append of its own."""
        return Frame(self.payload, 1, 0, 0, self.moment_us, self.moment_us)


def frames_of(
    batch: pa.RecordBatch,
    row: TopicRow,
    *,
    producer: int,
    sequence: int | None,
    deleted: bool | pa.Array,
    first_chunk: int = 0,
    metadata: RowMetadata | None = None,
) -> list[Frame]:
    """The frames of one append to one partition. ``deleted`` is one mark for all rows, or one for each.

    ``first_chunk`` distinguishes appends that share a sequence: the parts of one large transaction.
    """
    settings = row.settings
    stored = batch
    if settings.key:
        # Tombstones have nulls in NOT NULL columns: the stored schema cannot forbid them.
        marks = _marks(batch.num_rows, deleted) if isinstance(deleted, bool) else deleted
        stored = pa.RecordBatch.from_arrays([*batch.columns, marks], schema=stored_schema(batch.schema, row))
    rows = batch.num_rows
    per_frame = FRAME_ROWS_MAX
    if rows > 1 and stored.nbytes > FRAME_BYTES_MAX:
        per_frame = max(1, min(FRAME_ROWS_MAX, rows * FRAME_BYTES_MAX // stored.nbytes))
    frames = []
    for chunk, at in enumerate(range(0, rows, per_frame)):
        part = stored.slice(at, per_frame) if rows > per_frame else stored
        low, high = (NO_TIME_MIN, NO_TIME_MAX)
        if settings.event_time is not None:
            low, high = time_range(part.column(settings.event_time))
        number = 0 if sequence is None else sequence * CHUNKS_PER_SEQUENCE + first_chunk + chunk
        continues = at + per_frame < rows
        payload, said = part.serialize(), b""
        if metadata is not None:
            said = metadata.slice(at, per_frame).pack()
            payload = pa.py_buffer(payload.to_pybytes() + said)
        frames.append(Frame(payload, part.num_rows, producer, number, low, high, continues, len(said)))
    return frames


@functools.lru_cache(maxsize=64)
def _marks(rows: int, deleted: bool) -> pa.Array:
    return pa.array([deleted] * rows)


def stored_schema(schema: pa.Schema, topic: TopicRow) -> pa.Schema:
    """The user's columns and, for a keyed topic, the tombstone mark."""
    key = topic.settings.key
    if not key:
        return schema
    columns = [field if field.name in key else field.with_nullable(True) for field in schema]
    return pa.schema([*columns, pa.field("_deleted", pa.bool_(), nullable=False)])
