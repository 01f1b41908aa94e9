"""Table follower: one captured table in the stream.

What it is: the received rows of a table that are not in its topic yet, and their append.
Invariants: an append holds whole transactions, or a part of one that is too large; its sequence says which, so that
after a crash each row is known to be in the topic or not (``position.py``). Parts are cut by counting from the
transaction's beginning, hence at the same rows each time.
Not here: transactions (``change_writer.py``). Read next: ``change_writer.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture import current_rows
from headwater.capture.capture_state import CATCHING_UP, FOLLOWING, CaptureState, TableState
from headwater.capture.database import BackfillChunk, Losses, SourceTable
from headwater.capture.door import at_door
from headwater.capture.large_values import LargeValues, key_bytes
from headwater.capture.position import LAST, PLACES_APART, Prefix, Snapshot, seen
from headwater.capture.text_rows import Mask, TextRows, batch_of
from headwater.errors import CaptureBlocked
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.contract import EventTopic
from headwater.log.schema.evolution import widens
from headwater.log.schema.normalization import WEIGHT

PART_ROWS = 65_536
PART_BYTES = 64 << 20
CHUNKS_PER_PART = 16
PARTS_PER_PLACE = CHUNKS_PER_SEQUENCE // CHUNKS_PER_PART


@dataclass
class Ready:
    """Rows that do not come from the stream: the tombstones of a TRUNCATE."""

    batch: pa.RecordBatch
    gone: Mask
    bytes: int = 0

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def sizes(self) -> list[int]:
        return [0] * len(self)


class TableFollower:
    """One table, for one connection of the stream."""

    def __init__(
        self, topic: EventTopic, shape: SourceTable, table: TableState, state: CaptureState, generation: str
    ) -> None:
        self.topic = topic
        self.shape = shape
        self.state = state
        self.name = table.name
        self.source = table.source
        self.reach = table.reach
        self.streams = table.phase in (CATCHING_UP, FOLLOWING)
        self.following = table.phase == FOLLOWING  # ticks see it
        self.losses = Losses()
        self.large = LargeValues(table.name, state)
        self.producer = generation
        opened = topic.open_producer(generation)
        self.producer_id, self.epoch, self.last = opened.id, opened.epoch, opened.last_sequence
        self._written = 0  # the end of what this one has appended
        self.passed = 0  # up to this position every change is in the topic: the last marker says so
        self.chunks = [
            (each.chunk, seen(each.snapshot)) for each in state.chunks(table.name) if each.snapshot is not None
        ]
        self.segments: list[tuple[SourceTable, Any]] = []
        self.whole = 0  # of their rows, those of transactions that are whole
        self.parts = 0  # of the current transaction: appended already

    # Collecting

    def count(self) -> int:
        """The number of received rows that are not appended."""
        return sum(len(segment) for _, segment in self.segments)

    def bytes(self) -> int:
        return sum(segment.bytes for _, segment in self.segments)

    def part(self) -> int | None:
        """The number of rows in the next part of the current transaction; None while it is small.

        It depends on the transaction's rows alone, not on the time of the call.
        """
        own = self.count() - self.whole
        if own < PART_ROWS and (own <= 0 or self.bytes() < PART_BYTES):
            return None
        sizes = np.array([size for _, segment in self.segments for size in segment.sizes()][self.whole :], np.int64)
        cut = min(PART_ROWS, int(np.searchsorted(np.cumsum(sizes), PART_BYTES)) + 1)
        return cut if cut <= own else None

    def take(self, count: int) -> list[tuple[pa.RecordBatch, Any]]:
        """The first rows as batches of the topic's schema, with the mark of each row."""
        taken: list[tuple[pa.RecordBatch, Any]] = []
        while count > 0 and self.segments:
            shape, segment = self.segments[0]
            some = min(count, len(segment))
            if isinstance(segment, Ready):
                taken.append((segment.batch.slice(0, some), segment.gone[:some]))
                segment.batch, segment.gone = segment.batch.slice(some), segment.gone[some:]
            elif some:
                texts = at_door(segment.take(some), shape)
                taken.append((self._batch(texts, shape, taken), texts.gone))
            count -= some
            self.whole -= min(some, self.whole)
            if not len(segment) and len(self.segments) > 1:
                self.segments.pop(0)
            elif not len(segment):
                break
        return taken

    def _batch(self, texts: TextRows, shape: SourceTable, before: list[tuple[pa.RecordBatch, Any]]) -> pa.RecordBatch:
        texts, missing = self.large.fill(texts, shape)
        batch = batch_of(texts, shape, self.topic.schema, self.losses)
        return self._looked_up(batch, shape, missing, before) if missing else batch

    def _looked_up(
        self,
        batch: pa.RecordBatch,
        shape: SourceTable,
        missing: list[tuple[int, int, int]],
        before: list[tuple[pa.RecordBatch, Any]],
    ) -> pa.RecordBatch:
        """Look up values that are not remembered, in the latest row of the key in the topic."""
        wanted = {tuple(batch.column(name)[row].as_py() for name in shape.key) for _, _, row in missing}
        columns = sorted({shape.columns[column].name for _, column, _ in missing})
        found: dict[Any, dict[str, Any]] = {}
        stored = self.topic.read_partition(0, self.topic.start_offsets()[0], columns=[*shape.key, *columns])
        for rows in [*(each.data for each in stored if each.num_rows), *(rows for rows, _ in before)]:
            keys = zip(*(rows.column(name).to_pylist() for name in shape.key), strict=True)
            for place, key in enumerate(keys):
                if key in wanted:
                    found[key] = {name: rows.column(name)[place].as_py() for name in columns}
        lists = {name: batch.column(name).to_pylist() for name in columns}
        for row, column, of in sorted(missing):
            name = shape.columns[column].name
            key = tuple(batch.column(each)[of].as_py() for each in shape.key)
            earlier = next(
                (
                    lists[name][at]
                    for at in range(row - 1, -1, -1)
                    if tuple(batch.column(each)[at].as_py() for each in shape.key) == key
                    and lists[name][at] is not None
                ),
                None,
            )
            lists[name][row] = earlier if earlier is not None else found.get(key, {}).get(name)
        arrays = [
            pa.array(lists[field.name], field.type) if field.name in lists else batch.column(field.name)
            for field in batch.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    # Appending

    def append(self, count: int, place: int, *, part: bool = False) -> None:
        """Append the first rows under the sequence of the transaction at ``place``."""
        batches = self.take(count)
        if not batches:
            return
        conformed = [
            rows.cast(current_rows.nullable(self.topic.schema)) if rows.schema != batches[-1][0].schema else rows
            for rows, _ in batches
        ]
        batch = pa.concat_batches(conformed) if len(conformed) > 1 else conformed[0]
        gone = np.concatenate([mask for _, mask in batches])
        deleted = pa.array(gone) if self.topic.settings.key and gone.any() else False
        sequence, chunk = place + LAST, 0
        if part:
            if self.parts >= PARTS_PER_PLACE * LAST:
                raise self._too_large()
            sequence, chunk = place + self.parts // PARTS_PER_PLACE, self.parts % PARTS_PER_PLACE * CHUNKS_PER_PART
            self.parts += 1
        token = self.topic.append_batch(
            batch,
            producer=self.producer,
            sequence=sequence,
            producer_id=self.producer_id,
            epoch=self.epoch,
            deleted=deleted,
            first_chunk=chunk,
        )
        self._written = max(self._written, token.frontier[self.topic.name].get(0, 0))
        if not part:
            self.last = max(self.last, sequence * CHUNKS_PER_SEQUENCE)

    def has(self, place: int) -> bool:
        """Whether the whole transaction at this place is in the topic."""
        return self.last >= (place + LAST) * CHUNKS_PER_SEQUENCE

    def sync(self) -> None:
        self.topic.sync()

    def note_unmarked(self, marked: int | None) -> None:
        """Note the large values of rows that the topic has from ``marked`` on, where no marker covers them.

        A process died after it appended these rows and before it stored their values, and the stream passes them over:
        what is stored may be older. Values that cannot be noted are forgotten, and looked up when they are needed.
        """
        if not (self.shape.has_large and self.shape.key) or self.last < 0:
            return
        if marked is not None and self.end() <= marked:
            return
        known = self.topic.schema.names  # a column that came since is in none of these rows
        large = [column.name for column in self.shape.columns if column.weight and column.name in known]
        kinds = {name: self.topic.schema.field(name).type for name in (*self.shape.key, *large)}
        texts = all(pa.types.is_string(kinds[name]) for name in large)
        if marked is None or not texts or not all(_is_simple(kinds[name]) for name in self.shape.key):
            self.state.forget_large_values(self.name)
            return
        wanted = list(dict.fromkeys([*self.shape.key, *large]))  # a text may be the key
        for each in self.topic.read_partition(0, marked, columns=wanted):
            keys = key_bytes([each.data.column(name) for name in self.shape.key])
            for name in large:
                self.large.remember(keys, name, each.data.column(name).to_pylist())

    def end(self) -> int:
        # Kafka shows the end of a transaction a moment after it was committed.
        return max(self.topic.end_offsets()[0], self._written)

    # Changes of the table itself

    def empty(self, place: int, counts: Callable[[Any], bool] | None) -> None:
        """TRUNCATE: after the earlier rows of the transaction at ``place``, append rows that delete everything.

        ``counts`` says of a key whether it is deleted, if not all are.
        """
        stop = self.state.emptied(self.name, place, self.end())
        schema = current_rows.nullable(self.topic.schema)
        more = [(rows.cast(schema), gone) for rows, gone in self.take(self.count())]
        removed = current_rows.rows_to_delete(self.topic, stop, more, counts)
        joined = pa.concat_batches([*(rows for rows, _ in more), removed])
        gone = np.concatenate([*(gone for _, gone in more), np.ones(removed.num_rows, np.bool_)])
        self.segments = [(self.shape, Ready(joined, gone))]

    def reshape(self, shape: SourceTable) -> None:
        """Apply new columns of the table: extend the topic's schema."""
        grow(self.topic, shape)
        self.shape = shape

    def _too_large(self) -> CaptureBlocked:
        rows = PARTS_PER_PLACE * LAST * PART_ROWS
        return CaptureBlocked(
            f"one transaction changed more than {rows:,} rows of {self.source}",
            hint="Read the tables again: headwater capture restart APP.py",
            table=self.name,
        )


def _is_simple(kind: pa.DataType) -> bool:
    """Whether Arrow and the database write a key of this type alike."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def grow(topic: EventTopic, shape: SourceTable) -> None:
    """Extend a topic's schema to its table's."""
    key = topic.settings.key
    if shape.key != key:
        raise CaptureBlocked(
            f"the key of {shape.table} was {_listed(key)} and is now {_listed(shape.key)}",
            hint=f'Capture it under another name, and drop "{topic.name}" when it is no longer read.',
            table=topic.name,
        )
    wanted = grown(topic.schema, shape)
    if wanted.equals(topic.schema):
        return
    declared = pa.schema([field for field in wanted if field.name != WEIGHT])
    if topic.row().is_multiset:
        topic.log.multiset(topic.name, declared)
    else:
        topic.log.topic(topic.name, declared)
    topic.refresh()


def grown(stored: pa.Schema, shape: SourceTable) -> pa.Schema:
    """The topic's schema for these columns of its table: columns are only added or widened."""
    fields = []
    for field in stored:
        now = next((column.kind for column in shape.taken if column.name == field.name), field.type)
        # A narrower type still fits the stored one; a type of another kind is refused by the log.
        fields.append(field if widens(now, field.type) else field.with_type(now))
    added = [pa.field(column.name, column.kind) for column in shape.taken if column.name not in stored.names]
    return pa.schema([*fields, *added])


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def belongs(chunks: list[tuple[BackfillChunk, Snapshot | Prefix]], number: int) -> bool | None:
    """Whether the snapshots of all chunks saw a transaction (True), none of them did (False), or some (None)."""
    if not chunks:
        return False
    saw = {snapshot.saw(number) for _, snapshot in chunks}
    return saw.pop() if len(saw) == 1 else None


assert PLACES_APART > LAST
