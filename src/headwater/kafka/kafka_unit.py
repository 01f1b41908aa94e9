"""A transaction of a log on Kafka: rows of several topics and a consumer's positions, all or none.

What it is: ``KafkaUnit``, made by ``KafkaLog.transaction()``: what ``log/commits/transaction.py`` is to the embedded
log, as one transaction of Kafka.
Invariants: rows are checked when they are given and written when the block ends; an error in the block writes nothing.
Readers of a partition see all of its rows or none.
Not here: the producer (``kafka_appender.py``). Read next: ``kafka_appender.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headwater.errors import ClosedError, Misuse
from headwater.kafka.kafka_transactions import KafkaRecord, Positions
from headwater.log.commits.append_request import RowsCondition
from headwater.log.commits.request_ids import HOME, REMEMBERED_US, check_id, content_of
from headwater.log.commits.value_versions import Expected
from headwater.log.contract import Capability, EventTopic, require
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.kafka.kafka_group import KafkaConsumer
    from headwater.kafka.kafka_log import KafkaLog
    from headwater.kafka.kafka_topic import KafkaTopic
    from headwater.log.producer import Producer
    from headwater.log.table import Table


class KafkaUnit:
    """Rows of several topics and tables: all or none."""

    def __init__(
        self,
        log: KafkaLog,
        metadata: Metadata | None,
        *,
        request_id: str | None = None,
        producer: Producer | None = None,
    ) -> None:
        log.check_open()
        self._log = log
        self._request_id = None if request_id is None else check_id(request_id)
        self._producer = producer
        self._moved: tuple[str, str | None, str] | None = None  # a reader's position: whose, from, to
        self._metadata = metadata
        self._rows: list[tuple[KafkaTopic, pa.RecordBatch, bool, int | None]] = []
        self._consumer: tuple[KafkaConsumer, Any] | None = None
        self._on_commit: list[Callable[[Token], object]] = []
        self._token: Token | None = None
        self._ended = False

    @property
    def token(self) -> Token:
        """Where the rows are; after the commit."""
        if self._token is None:
            raise Misuse("a transaction has a token when it is committed", hint="Read it after the with block.")
        return self._token

    def append(
        self, topic: EventTopic, rows: Any, *, partition: int | None = None, expected: Expected | None = None
    ) -> None:
        """Append rows to a topic."""
        if expected is not None:
            require(self._log, Capability.CONDITIONAL_APPENDS, "an append with a condition")
        number = None if partition is None else topic.appender.checked_partition(partition)
        self._add(topic, topic.row_batch(rows), partition=number)

    def append_batch(
        self, topic: EventTopic, batch: pa.RecordBatch, *, deleted: bool = False, partition: int | None = None
    ) -> None:
        """Append a batch that has the topic's schema, or tombstones."""
        self._add(topic, batch, deleted=deleted, partition=partition)

    def append_if(self, topic: EventTopic, batch: pa.RecordBatch, *, partition: int, condition: RowsCondition) -> None:
        """Not offered."""
        del batch, partition, condition
        require(self._log, Capability.CONDITIONAL_APPENDS, f'an append with a condition to "{topic.name}"')

    def upsert(self, table: Table, rows: Any) -> None:
        """Insert rows into a table, or replace those of the same key."""
        self._add(table.topic, table.upserts(rows))

    def insert(self, table: Table, rows: Any) -> None:
        """Add rows to a table without a key."""
        if table.key:
            require(self._log, Capability.CONDITIONAL_APPENDS, "an insert by key")
        self._add(table.topic, table.inserts(rows))

    def delete(self, table: Table, rows: Any) -> None:
        """Delete rows of a table by their key."""
        if table.is_multiset:
            require(self._log, Capability.REMOVAL_BY_VALUE, f'a deletion from table "{table.name}"')
        self._add(table.topic, table.deletes(rows), deleted=True)

    def commit(self, consumer: Any, what: Any = None) -> None:
        """Commit a consumer's positions together with the rows; of one consumer."""
        self._open()
        if self._consumer is not None:
            raise Misuse("a transaction of Kafka holds the positions of one consumer", hint="Use two transactions.")
        self._consumer = consumer, what

    def accept(self, messages: Iterable[Any]) -> None:
        """Not offered."""
        del messages
        require(self._log, Capability.WORK_GROUPS, "an acknowledgement")

    def store_position(self, reader: str, *, before: str | None, after: str) -> None:
        """Move the position of a reader of a foreign source together with the rows; of one reader."""
        self._open()
        if self._moved is not None:
            raise Misuse("a transaction of Kafka moves the position of one reader", hint="Use two transactions.")
        self._moved = reader, before, after

    def on_commit(self, call: Callable[[Token], object]) -> None:
        """Call a function with the token when the transaction has been committed."""
        self._on_commit.append(call)

    def _add(
        self, topic: EventTopic, batch: pa.RecordBatch, *, deleted: bool = False, partition: int | None = None
    ) -> None:
        self._open()
        if topic.log is not self._log:
            raise Misuse(f'topic "{topic.name}" belongs to another log', hint="A transaction holds topics of one log.")
        self._rows.append((cast("KafkaTopic", topic), with_metadata(batch, self._metadata), deleted, partition))

    def _open(self) -> None:
        if self._ended:
            raise ClosedError("this transaction has ended", hint="Begin another one: log.transaction().")

    def __enter__(self) -> KafkaUnit:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open()
        self._ended = True
        if kind is not None:
            return
        if self._consumer is None:
            self._token = self._written(None)
        else:
            consumer, what = self._consumer
            offsets = consumer.offsets_of(what)
            self._token = self._written(consumer.positions_in(offsets))
            consumer.committed(offsets)
        for call in self._on_commit:
            call(self._token)

    def _written(self, positions: Positions | None) -> Token:
        """Write all of it, under the identity that the transaction has."""
        if sum(each is not None for each in (self._request_id, self._producer, self._moved)) > 1:
            raise Misuse(
                "a transaction of Kafka has a request id, a named producer, or the position of a reader: one of them",
                detail="Each is decided under a transactional id of its own, and a transaction has one.",
                hint="Leave the others out.",
            )
        known, records = self._log.known_writes, list(self._records())
        if self._request_id is not None:
            content = content_of((topic.id, deleted, batch) for topic, batch, deleted, _ in self._rows)
            return known.write_requested(HOME, self._request_id, content, records, positions, REMEMBERED_US)
        if self._moved is not None:
            return known.write_positioned(*self._moved, records, positions)
        if self._producer is not None and self._producer.name is not None:
            topic = cast("KafkaTopic", self._producer.topic)
            return known.write_of_producer(topic, self._producer.name, self._producer.epoch, records, positions)
        return self._log.written(records, positions) if records or positions is not None else Token({})

    def _records(self) -> Iterator[tuple[str, KafkaRecord]]:
        for topic, batch, deleted, partition in self._rows:
            if batch.num_rows:
                yield from topic.appender.records(batch, deleted, partition)

    def __repr__(self) -> str:
        rows = sum(batch.num_rows for _, batch, _, _ in self._rows)
        return f"<KafkaUnit of {rows} rows, {'ended' if self._ended else 'open'}>"
