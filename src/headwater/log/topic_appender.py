"""The append path of a topic: rows become a checked batch, and each partition gets its part.

What it is: ``TopicAppender``: backpressure, routing, and the append to each partition; ``TopicRows``, from which it
comes, makes the batch.
Invariants: all partitions get their part or none does; the same key always goes to the same partition; a batch that is
appended again with its producer and sequence goes to the same partitions.
Not here: bytes and ordering (``log/storage/partition_writer.py``), several partitions
(``log/commits/atomic_append.py``).
Read next: ``log/schema/row_conversion.py``, ``log/storage/partition_writer.py``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Backpressure, InvalidDeclaration, Misuse
from headwater.log.commits.append_request import AppendRequest, RowsCondition, StaleSchema
from headwater.log.commits.atomic_append import PartWrite, append_atomically
from headwater.log.commits.request_ids import check_id
from headwater.log.commits.transaction import CommitPlan, TransactionRows
from headwater.log.commits.value_versions import (
    AppendCondition,
    Expected,
    ExpectedVersions,
    ValueVersions,
    check_expected,
    values_of,
)
from headwater.log.groups import backpressure
from headwater.log.schema.event_metadata import taken_apart
from headwater.log.schema.evolution import conform
from headwater.log.schema.row_conversion import to_batches
from headwater.log.storage import routing
from headwater.log.storage.framing import StoredRow, frames_of
from headwater.log.token import Token
from headwater.log.topic_rows import TopicRows, nullable

if TYPE_CHECKING:
    from headwater.log.topic import Topic


@dataclass(frozen=True)
class AppendIdentity:
    """The producer of a batch and the batch's sequence number; both are empty for an anonymous append."""

    producer: str | None = None
    sequence: int | None = None
    producer_id: int = 0
    epoch: int = 0
    first_chunk: int = 0


ANONYMOUS = AppendIdentity()


class TopicAppender(TopicRows):
    """Appends batches to one topic, for all threads of a process."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._topic: Topic = topic
        self._round_robin = random.randrange(topic.settings.partitions)
        self._versions: dict[int, ValueVersions] = {}

    def append(
        self,
        batch: pa.RecordBatch,
        identity: AppendIdentity,
        deleted: bool | pa.Array = False,
        partition: int | None = None,
        expected: Expected | None = None,
    ) -> Token:
        """Append one batch that has the topic's schema, to one partition if it is named."""
        topic, rows = self._topic, batch.num_rows
        self.check_identity(identity.producer, identity.sequence, None, deleted)
        if expected is not None:
            self.check_expected(batch, expected)
        topic.log.check_open()
        if identity.producer is not None and not identity.producer_id:
            number = topic.log.registry.producer_id(topic.id, identity.producer)
            identity = AppendIdentity(
                identity.producer, identity.sequence, number, identity.epoch, identity.first_chunk
            )
        if rows == 0:
            return Token({topic.name: {}})
        if topic.settings.overflow != "keep" and not self._admitted(rows):
            topic.log.registry.count_dropped(topic.id, rows)
            return Token({topic.name: {}}, dropped_rows=rows)
        parts = [(partition, batch)] if partition is not None else self.route(batch, identity.sequence)
        if len(parts) == 1:
            number, part = parts[0]
            frontier = {number: self._append_to(number, part, identity, deleted, expected)}
        else:
            frontier = self._append_to_all(parts, identity, deleted, expected)
        topic.log.cut_counter.count(rows)
        return Token({topic.name: frontier})

    def append_once(
        self,
        batch: pa.RecordBatch,
        request_id: str,
        identity: AppendIdentity,
        deleted: bool | pa.Array,
        partition: int | None,
        expected: Expected | None,
    ) -> Token:
        """The same, unless an append with this id was written before: then it is recognised."""
        self.check_identity(identity.producer, identity.sequence, request_id, deleted)
        rows = TransactionRows(self._topic, batch, deleted, partition, expected)
        return CommitPlan(self._topic.log, self._topic.id, check_id(request_id), [rows]).write()

    def append_if(self, rows: pa.RecordBatch | StoredRow, partition: int, condition: RowsCondition) -> Token:
        """Append rows to a partition if a condition holds for all rows before them."""
        topic = self._topic
        topic.log.check_open()
        while True:
            request = self._stored_request(rows) if isinstance(rows, StoredRow) else self.request(partition, rows)
            request.conditions = [condition]
            try:
                end = topic.partition(partition).append(request)
            except StaleSchema:
                topic.refresh()
                continue
            topic.log.cut_counter.count(request.written_rows)
            return Token({topic.name: {partition: end}})

    def _stored_request(self, stored: StoredRow) -> AppendRequest:
        row = self._topic.row()
        if stored.schema is not row.schema or row.settings.key or row.settings.event_time is None:
            return self.request(0, stored.batch())
        return AppendRequest([stored.frame()], row.version)

    def require_room(self, rows: int) -> None:
        """Wait for room under ``overflow="block"``; a part of a transaction is not dropped, but refuses all of it."""
        if self._topic.settings.overflow != "keep" and not self._admitted(rows):
            raise Backpressure(
                f'topic "{self._topic.name}" is full: its readers are more than '
                f"{self._topic.settings.overflow_rows_max} rows behind",
                detail="Nothing of the transaction was written.",
                hint="Add consumers, raise overflow_rows_max, or try again later.",
                topic=self._topic.name,
            )

    def _admitted(self, rows: int) -> bool:
        topic = self._topic
        return backpressure.admit(topic.row(), rows, topic.log.catalog, topic.clock, topic.end_offsets) > 0

    def route(self, batch: pa.RecordBatch, sequence: int | None) -> list[tuple[int, pa.RecordBatch]]:
        """The rows by partition."""
        partitions, columns = self._topic.settings.partitions, self._topic.settings.routed_by
        if partitions == 1:
            return [(0, batch)]
        if columns:
            return routing.split(batch, self.partition_of(batch))
        if sequence is not None:  # an append that is tried again must reach the same partition
            return [(sequence % partitions, batch)]
        self._round_robin = (self._round_robin + 1) % partitions
        return [(self._round_robin, batch)]

    def _append_to(
        self,
        number: int,
        batch: pa.RecordBatch,
        identity: AppendIdentity,
        deleted: bool | pa.Array,
        expected: Expected | None,
    ) -> int:
        topic = self._topic
        while True:
            request = self.request(number, batch, identity, deleted, expected)
            try:
                return topic.partition(number).append(request)
            except StaleSchema:
                topic.refresh()

    def _append_to_all(
        self,
        parts: list[tuple[int, pa.RecordBatch]],
        identity: AppendIdentity,
        deleted: bool | pa.Array,
        expected: Expected | None,
    ) -> dict[int, int]:
        topic, log = self._topic, self._topic.log
        while True:
            writes = [
                PartWrite(topic.partition(number), self.request(number, part, identity, deleted, expected))
                for number, part in parts
            ]
            try:
                append_atomically(writes, log.cut_counter, log.commit_records)
            except StaleSchema:
                topic.refresh()
                continue
            return {write.writer.number: write.request.next_offset for write in writes}

    def request(
        self,
        number: int,
        batch: pa.RecordBatch,
        identity: AppendIdentity = ANONYMOUS,
        deleted: bool | pa.Array = False,
        expected: Expected | ExpectedVersions | None = None,
    ) -> AppendRequest:
        """The rows of one partition as frames of the topic's latest schema."""
        row = self._topic.row()
        metadata = None
        if not _same_columns(batch.schema, row.schema):
            batch, metadata = taken_apart(batch)
            if not _same_columns(batch.schema, row.schema):  # another thread or process declared columns meanwhile
                batch = conform(batch, row.schema if deleted is False else nullable(row.schema))
        frames = frames_of(
            batch,
            row,
            producer=identity.producer_id,
            sequence=identity.sequence,
            deleted=deleted,
            first_chunk=identity.first_chunk,
            metadata=metadata,
        )
        conditions = []
        if expected is not None:
            values = dict.fromkeys(values_of(batch, self._topic.settings.routed_by))
            conditions.append(AppendCondition(self.versions(number), tuple(values), expected))
        return AppendRequest(frames, row.version, identity.producer or "", identity.epoch, conditions)

    def versions(self, number: int) -> ValueVersions:
        """The versions of a partition's streams or keys, as this process last saw them."""
        return self._versions.setdefault(number, ValueVersions(self._topic, number))

    def version(self, value: Sequence[Any]) -> int:
        """The version of one stream or key, as of now."""
        topic, columns = self._topic, self._topic.settings.routed_by
        if not columns or len(value) != len(columns):
            named = ", ".join(columns) or "neither key nor ordered_by"
            raise Misuse(
                f'topic "{topic.name}" has {named}, and {len(value)} values were given',
                hint="Give one value for each of the columns that it is ordered by.",
                topic=topic.name,
            )
        schema = pa.schema([topic.schema.field(name) for name in columns])
        given = to_batches([dict(zip(columns, value, strict=True))], schema, not_null=frozenset(columns))
        [(number, _)] = self.route(given, None)
        with topic.partition(number).held():
            versions = self.versions(number)
            versions.catch_up(topic.partition(number).next_offset())
            return versions.of(values_of(given, columns)[0])

    def check_expected(self, batch: pa.RecordBatch, expected: Expected) -> None:
        """Refuse an expectation of a topic without streams, or a version of several."""
        settings = self._topic.settings
        if not settings.routed_by:
            raise InvalidDeclaration(
                f'topic "{self._topic.name}" has no streams to which expected could belong',
                hint='Declare it with ordered_by="…".',
            )
        check_expected(expected)
        if isinstance(expected, int) and len(set(values_of(batch, settings.routed_by))) > 1:
            raise InvalidDeclaration(
                f"expected={expected} is the version of one stream, and the rows belong to several",
                hint="Append the rows of each stream by themselves, or together in a transaction.",
            )


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Equal names and types; a tombstone's columns may be null where a row's may not."""
    return bool(one.equals(other)) or (one.names == other.names and one.types == other.types)
