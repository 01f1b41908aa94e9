"""Rows of a topic: what a user gives becomes a checked batch, and each row gets its partition.

What it is: ``TopicRows``, the conversion of dicts, JSON and Arrow to a batch of the topic's schema, tombstones, and the
checks that do not depend on how a log stores rows. Every log's appender begins with it.
Invariants: a batch is checked whole before a byte of it is written; columns that route and the event time are never
null.
Not here: writing (``topic_appender.py``).
Read next: ``log/schema/row_conversion.py``, ``topic_appender.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.errors import InvalidDeclaration, Misuse
from headwater.log.schema import clock_correction
from headwater.log.schema.json_lines import json_rows
from headwater.log.schema.row_conversion import to_batches
from headwater.log.storage import routing
from headwater.log.topic_declaration import shown

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic

SEQUENCE_BOUND = 1 << 46
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class TopicRows:
    """Rows for one topic."""

    def __init__(self, topic: EventTopic) -> None:
        self._topic: Any = topic

    def row_batch(self, rows: Any) -> pa.RecordBatch:
        """Python rows, checked, as one batch."""
        self._refuse_other_ways()
        return self._corrected(to_batches(rows, self._input_schema(), not_null=self._not_null()))

    def json_batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Rows with JSON's values, checked, as one batch."""
        self._refuse_other_ways()
        return self._corrected(json_rows(rows, self._input_schema(), not_null=self._not_null()))

    def tombstones(self, keys: Any) -> pa.RecordBatch:
        """Rows that hold the key and, where one is declared, the event time; all other columns are null."""
        topic = self._topic
        if not topic.settings.key:
            raise Misuse(
                f'topic "{topic.name}" has no key, so rows cannot be deleted by key',
                hint='Declare it with key="…", or append an event that says what happened.',
            )
        every = nullable(topic.schema)
        kept = pa.schema([field for field in every if field.name in self._not_null()])
        given = to_batches(keys, kept, not_null=frozenset(topic.settings.key))
        columns = [given.column(field.name) if field in kept else pa.nulls(len(given), field.type) for field in every]
        return pa.RecordBatch.from_arrays(columns, schema=every)

    def checked_partition(self, number: int) -> int:
        """Refuse a partition that does not exist, or rows whose columns decide it."""
        settings = self._topic.settings
        if settings.routed_by:
            what = f"key={shown(settings.key)}" if settings.key else f"ordered_by={shown(settings.ordered_by)}"
            raise InvalidDeclaration(
                f'topic "{self._topic.name}" is declared with {what}, which decides the partition of each row',
                hint="Leave partition out.",
            )
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < settings.partitions:
            raise InvalidDeclaration(
                f'topic "{self._topic.name}" has no partition {number!r}',
                hint=f"It has 0 to {settings.partitions - 1}.",
            )
        return number

    def check_identity(
        self, producer: str | None, sequence: int | None, request_id: str | None, deleted: bool | pa.Array
    ) -> None:
        """Refuse what cannot be the identity of an append."""
        if request_id is not None and (producer is not None or not isinstance(deleted, bool)):
            raise InvalidDeclaration(
                "request_id goes alone: not with producer and sequence, and not with a mark for each row",
                hint="A producer's sequence is an identity already.",
            )
        if not isinstance(deleted, bool) and self._topic.settings.partitions != 1:
            raise InvalidDeclaration(
                "a mark for each row needs a topic of one partition",
                hint="Append rows and tombstones one after the other.",
            )
        if (producer is None) != (sequence is None):
            raise InvalidDeclaration("producer and sequence go together", hint="Give both or neither.")
        if sequence is not None and not 0 <= sequence < SEQUENCE_BOUND:
            raise InvalidDeclaration(f"sequence cannot be {sequence!r}", hint="Use a whole number from 0 to 2^46 - 1.")

    def partition_of(self, batch: pa.RecordBatch) -> Numbers:
        """The partition of each row, by the columns that route."""
        settings = self._topic.settings
        return routing.partition_of(batch, settings.routed_by, settings.partitions)

    def partitions_with(self, keys: pa.RecordBatch) -> list[int]:
        """The partitions in which rows with these keys may be."""
        return sorted(set(self.partition_of(keys).tolist()))

    def _not_null(self) -> frozenset[str]:
        settings = self._topic.settings
        if settings.event_time is None or settings.clock is not None:
            return frozenset(settings.routed_by)
        return frozenset({*settings.routed_by, settings.event_time})

    def _refuse_other_ways(self) -> None:
        name = self._topic.name
        if self._topic.row().is_multiset:
            raise Misuse(f'"{name}" is a table without a key', hint="Use insert and delete of its Table.")
        self.refuse_events()

    def refuse_events(self) -> None:
        """Refuse rows of a history: its event store writes them."""
        name = self._topic.name
        if self._topic.settings.events:
            raise Misuse(
                f'"{name}" is a history of events, and rows are not appended to it directly',
                detail="Each event has a version and the id of its request, which are checked as it is written.",
                hint="Send a command to its aggregate, or append through its event store: docs/aggregates.md.",
                topic=name,
            )

    def _input_schema(self) -> pa.Schema:
        return clock_correction.input_schema(self._topic.schema, self._topic.settings)

    def _corrected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = self._topic
        if topic.settings.clock is None:
            return batch
        return clock_correction.corrected(batch, topic.schema, topic.settings, topic.clock.now_us())


def nullable(schema: pa.Schema) -> pa.Schema:
    """The columns, all of which may be null: those of a tombstone."""
    return pa.schema([field.with_nullable(True) for field in schema])
