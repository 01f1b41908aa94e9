"""Appending to a topic: one record batch, into the partitions where its rows belong.

What it is: ``TopicAppender``, the writing half of a ``Topic``: overflow, routing, schema versions.
Invariants: the same key always goes to the same partition; an append that is tried again with its sequence goes where
it went. Each partition has its part of a batch whole or not at all; an error says which have it.
Not here: making batches of rows (``log/schema/row_conversion.py``), bytes (``log/storage/partition_writer.py``).
Read next: ``log/storage/partition_writer.py``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.log.groups import backpressure
from headwater.log.schema.evolution import conform
from headwater.log.storage import routing
from headwater.log.storage.framing import frames_of
from headwater.log.storage.partition_writer import StaleSchema
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.topic import Topic


class TopicAppender:
    """Appends to one topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._turn = random.randrange(topic.settings.partitions)

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        producer: str | None,
        sequence: int | None,
        producer_id: int,
        epoch: int,
        deleted: bool | pa.Array,
        first_chunk: int,
    ) -> Token:
        """See ``Topic.append_batch``."""
        topic = self._topic
        if not isinstance(deleted, bool) and topic.settings.partitions != 1:
            raise InvalidDeclaration(
                "a mark for each row needs a topic of one partition",
                hint="Append rows and tombstones one after the other.",
            )
        if (producer is None) != (sequence is None):
            raise InvalidDeclaration("producer and sequence go together", hint="Give both or neither.")
        if sequence is not None and not 0 <= sequence < 1 << 46:
            raise InvalidDeclaration(f"sequence cannot be {sequence!r}", hint="Use a whole number from 0 to 2^46 - 1.")
        topic.log.check_open()
        if producer is not None and not producer_id:
            producer_id = topic.log.registry.producer_id(topic.id, producer)
        rows = batch.num_rows
        if rows == 0:
            return Token({topic.name: {}})
        if (
            topic.settings.overflow != "keep"
            and backpressure.admit(topic.row(), rows, topic.log.catalog, topic.clock, topic.end_offsets) <= 0
        ):
            topic.log.registry.count_dropped(topic.id, rows)
            return Token({topic.name: {}}, dropped_rows=rows)
        frontier: dict[int, int] = {}
        for number, part in self._route(batch, sequence):
            try:
                frontier[number] = self._append_to(
                    number, part, producer or "", producer_id, epoch, sequence, deleted, first_chunk
                )
            except HeadwaterError as error:
                raise _partly(error, sorted(frontier), named=producer is not None) from error.__cause__
        return Token({topic.name: frontier})

    def _route(self, batch: pa.RecordBatch, sequence: int | None) -> list[tuple[int, pa.RecordBatch]]:
        settings = self._topic.settings
        partitions = settings.partitions
        if partitions == 1:
            return [(0, batch)]
        if settings.key:
            return routing.split(batch, routing.partition_of(batch, settings.key, partitions))
        if sequence is not None:  # tried again, it must go where it went
            return [(sequence % partitions, batch)]
        self._turn = (self._turn + 1) % partitions
        return [(self._turn, batch)]

    def _append_to(
        self,
        number: int,
        batch: pa.RecordBatch,
        producer: str,
        producer_id: int,
        epoch: int,
        sequence: int | None,
        deleted: bool | pa.Array,
        first_chunk: int,
    ) -> int:
        while True:
            row = self._topic.row()
            if not _same_columns(batch.schema, row.schema):  # another thread or process declared more meanwhile
                batch = conform(batch, row.schema if deleted is False else nullable(row.schema))
            frames = frames_of(
                batch, row, producer=producer_id, sequence=sequence, deleted=deleted, first_chunk=first_chunk
            )
            try:
                following, _ = self._topic.partition(number).append(
                    frames, version=row.version, producer_name=producer, epoch=epoch
                )
                return following
            except StaleSchema:
                self._topic.refresh()


def _partly(error: HeadwaterError, written: list[int], *, named: bool) -> HeadwaterError:
    """A keyed batch may fail when some partitions have their part of it already: say so."""
    if written:
        error.detail = f"Partitions {', '.join(map(str, written))} have their part of this batch, the others have not."
        again = "the partitions that have it recognise it." if named else "a named producer doubles no row."
        error.hint = f"{error.hint or ''} Append it again: {again}".strip()
        error.data["written_partitions"] = written
    return error


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """The same names and types; a tombstone's columns may be null where a row's may not."""
    return bool(one.equals(other)) or (one.names == other.names and one.types == other.types)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, each of which may be null: a tombstone has its key alone."""
    return pa.schema([field.with_nullable(True) for field in schema])
