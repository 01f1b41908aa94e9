"""Appending to a log on Kafka: checked batches become messages, all of an append or none.

What it is: ``KafkaAppends``, the producers of one process; ``KafkaAppender``, the append path of one topic.
Invariants: an append of one message is whole by itself; one of several is a Kafka transaction. It returns when all
replicas that must have it do, and readers see it. Rows with a key, or ``ordered_by``, go where other clients with the
topic's partitioner would send them. A retried request of the client is recognised by the broker (idempotent producer);
an append that the caller repeats is written again.
Not here: the form of messages (``kafka_values.py``). Read next: ``kafka_transactions.py``.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Fenced, LogUnavailable, RowRefused
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_client import RECONNECT_SECONDS, KafkaFailure, client
from headwater.kafka.kafka_keys import key_bytes, partitions_of
from headwater.kafka.kafka_transactions import KafkaRecord, KafkaTransactions, Places, Positions, ProducerFenced
from headwater.log.schema.event_metadata import METADATA_SCHEMA, taken_apart
from headwater.log.schema.evolution import conform
from headwater.log.storage import routing
from headwater.log.topic_rows import Numbers, TopicRows, nullable

if TYPE_CHECKING:
    from headwater.kafka.kafka_topic import KafkaTopic

DELIVERY_SECONDS_MAX = 60.0
STEP_S = 0.02


class KafkaAppends:
    """The producers of a log: an idempotent one for single messages, and a transactional one."""

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._transactions: KafkaTransactions | None = None
        self._single: Any = None
        self._failure = KafkaFailure(address.cluster, LogUnavailable)
        # Of this process alone: it fences no producer. What it leaves open is ended by the transaction's time-out.
        self._id = f"headwater/{address.prefix}{uuid.uuid4().hex}"

    def write(self, records: Iterable[tuple[str, KafkaRecord]], positions: Positions | None = None) -> Places:
        """Write messages, all or none; returns the offset after the last one in each partition."""
        every = iter(records)
        first = list(islice(every, 2))
        if len(first) == 1 and positions is None:
            return self._one(*first[0])
        with self._held() as transactions:
            return transactions.commit(chain(first, every), positions)

    @contextmanager
    def _held(self) -> Iterator[KafkaTransactions]:
        with self._lock:
            if self._transactions is None:
                timeout_ms = self._address.transaction_timeout_ms
                made = KafkaTransactions(self._address.cluster, self._id, timeout_ms, refused=RowRefused, linger_ms=2)
                try:
                    made.begin()
                except BaseException:
                    made.close()
                    raise
                self._transactions = made
            try:
                yield self._transactions
            except BaseException as error:
                self._transactions.close()
                self._transactions = None  # a producer is over after its first error
                if isinstance(error, ProducerFenced):
                    raise Fenced(
                        f"the transaction was ended by Kafka: {error}",
                        detail=f"It was open for longer than {self._address.transaction_timeout_ms} ms. Nothing of it "
                        "was written.",
                        hint="Repeat it; or give the log more time: kafka://…?transaction_timeout_ms=60000.",
                    ) from error
                raise

    def _one(self, topic: str, record: KafkaRecord) -> Places:
        with self._lock:
            if self._single is None:
                self._single = self._address.cluster.client(
                    client().Producer,
                    self._failure,
                    enable_idempotence=True,
                    partitioner="murmur2_random",
                    compression_type=self._address.cluster.settings.get("compression.type", "lz4"),
                    linger_ms=0,
                    message_timeout_ms=int(DELIVERY_SECONDS_MAX * 1000),
                )
            producer = self._single
        done: list[tuple[Any, Any]] = []
        place = -1 if record.partition is None else record.partition
        producer.poll(0)  # so that events of the idle time are taken in now
        self._failure.forget()
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                place,
                lambda error, message: done.append((error, message)),
                headers=list(record.headers),
            )
        except client().KafkaException as error:
            raise self._told(error.args[0], topic) from error
        began = time.monotonic()
        while not done:
            producer.poll(STEP_S)
            took = time.monotonic() - began
            # A client that has just lost its connection says that all brokers are down while it makes a new one.
            if not done and took > (RECONNECT_SECONDS if self._failure.hopeless else DELIVERY_SECONDS_MAX):
                self._give_up(producer)
                raise self._failure.told()
        (failed, message) = done[0]
        if failed is not None:
            raise self._told(failed, topic)
        return {(topic, message.partition()): message.offset() + 1}

    def _give_up(self, producer: Any) -> None:
        """Let go of a producer, with the message that it could not send: the caller is told that it was not."""
        with self._lock:
            if self._single is producer:
                self._single = None
        producer.purge()

    def _told(self, error: Any, topic: str) -> Exception:
        if error.name() == "MSG_SIZE_TOO_LARGE":
            return RowRefused(
                f'a row of topic "{topic}" is larger than Kafka takes: {error.str()}',
                hint="Raise message.max.bytes there and in the log's address.",
            )
        return self._failure.told(error, doing=f'writing to topic "{topic}"')

    def close(self) -> None:
        """Let go of the producers."""
        with self._lock:
            if self._transactions is not None:
                self._transactions.close()
            self._transactions = self._single = None


class KafkaAppender(TopicRows):
    """Rows of one topic on their way to Kafka."""

    def __init__(self, topic: KafkaTopic) -> None:
        super().__init__(topic)
        self._topic: KafkaTopic = topic
        self._round_robin = random.randrange(topic.settings.partitions)

    def partition_of(self, batch: pa.RecordBatch) -> Numbers:
        """The partition of each row, by the topic's partitioner."""
        settings = self._topic.settings
        keys = key_bytes(batch.select(list(settings.routed_by)))
        return partitions_of(keys, settings.partitions, settings.partitioner)

    def partitions_with(self, keys: pa.RecordBatch) -> list[int]:
        """The partitions in which rows with these keys may be: every one where others may write the key in Avro."""
        if self._topic.values.form == "avro":
            return list(range(self._topic.settings.partitions))
        return super().partitions_with(keys)

    def records(
        self, batch: pa.RecordBatch, deleted: bool | pa.Array = False, partition: int | None = None
    ) -> Iterator[tuple[str, KafkaRecord]]:
        """Rows as messages, each with the name of the Kafka topic."""
        self._topic.log.look_again(self._topic)
        settings, name = self._topic.settings, self._topic.kafka_name
        batch = self._conformed(batch, deleted)
        if settings.key:
            parts: list[tuple[int | None, pa.RecordBatch]] = [(None, batch)]
        elif partition is not None:
            parts = [(partition, batch)]
        elif settings.partitions > 1 and settings.ordered_by:
            parts = list(routing.split(batch, self.partition_of(batch)))
        else:
            self._round_robin = (self._round_robin + 1) % settings.partitions
            parts = [(self._round_robin, batch)]
        for number, part in parts:
            for record in self._topic.values.records(part, number, deleted):
                yield name, record

    def _conformed(self, batch: pa.RecordBatch, deleted: bool | pa.Array) -> pa.RecordBatch:
        """The rows in the topic's latest schema, which another process may have declared meanwhile."""
        rows, said = taken_apart(batch)
        schema = self._topic.schema
        if rows.schema.names != schema.names or rows.schema.types != schema.types:
            rows = conform(rows, schema if deleted is False else nullable(schema))
        if said is None:
            return rows
        extra = [said.column(name, rows.num_rows) for name in METADATA_SCHEMA.names]
        return pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=pa.schema([*rows.schema, *METADATA_SCHEMA]))
