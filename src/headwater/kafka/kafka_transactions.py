"""Kafka transactions: records and the token of a delivery, committed together or not at all.

What it is: ``KafkaRecord``, one message; ``KafkaTransactions``, a transactional producer under one transactional id,
and what its errors mean.
Invariants: at most one producer of an id can commit: beginning a new one ends the open transaction of the one before
and shuts it out (``ProducerFenced``). Any other error ends the producer too: whether its last transaction was committed
(``CommitUnsure``) is then read from the progress, never guessed.
Not here: who may begin one (``sinks/kafka/kafka_sink.py``). Read next: ``sinks/kafka/kafka_sink.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from headwater.errors import CommitUnsure, Misuse, SinkRefused, Unavailable
from headwater.kafka.kafka_client import FENCED, RECONNECT_SECONDS, KafkaCluster, KafkaFailure, client

BEGIN_SECONDS_MAX = 30.0
COMMIT_SECONDS_MAX = 60.0
STEP_SECONDS = 1.0
ABORT_SECONDS_MAX = 5.0
ROOM_SECONDS = 0.1
TICK_HEADER = "headwater-tick"
TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
REFUSED = ("INVALID_TRANSACTION_TIMEOUT", "POLICY_VIOLATION", "INVALID_RECORD")


Places = dict[tuple[str, int], int]  # the offset after the last record, by topic and partition
Positions = tuple[Any, Any]  # a group's offsets and its metadata, as confluent-kafka takes them


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One message; without a value it deletes its key. Without a partition the client chooses one by the key."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class ProducerFenced(Exception):
    """Another producer of the same transactional id has begun, or the broker ended a transaction that took too long."""


class KafkaTransactions:
    """One producer. It is over after its first error."""

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        timeout_ms: int,
        *,
        refused: type[Misuse] = SinkRefused,
        linger_ms: int = 20,
    ) -> None:
        self.cluster = cluster
        self._refused = refused
        self.failure = KafkaFailure(cluster)
        self._kafka = client()
        self._producer = cluster.client(
            self._kafka.Producer,
            self.failure,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            partitioner="murmur2_random",  # that of Kafka's own clients
            linger_ms=linger_ms,
            compression_type=cluster.settings.get("compression.type", "lz4"),
            retry_backoff_ms=20,
            queue_buffering_max_messages=200_000,
            queue_buffering_max_kbytes=262_144,
        )
        self._in_transaction = False
        self._places: Places = {}

    def begin(self) -> None:
        """Shut out every earlier producer of the id, and end what it left open."""
        self._awaited(self._producer.init_transactions, BEGIN_SECONDS_MAX)

    def write(self, topic: str, records: Iterable[KafkaRecord], token: tuple[str, bytes, bytes], *, tick: int) -> None:
        """Commit records and a token (topic, key, value) as one transaction."""
        header = ((TICK_HEADER, str(tick).encode()),)
        every = chain(((topic, record) for record in records), [(token[0], KafkaRecord(token[1], token[2]))])
        self.commit((name, replace(record, headers=header)) for name, record in every)

    def commit(
        self,
        records: Iterable[tuple[str, KafkaRecord]],
        positions: Positions | None = None,
        noted: Callable[[Places], Iterable[tuple[str, KafkaRecord]]] | None = None,
    ) -> Places:
        """Commit records, each with its topic, and the positions of a group, as one transaction.

        ``noted`` makes further records of the places of the first. Returns the offset after the last record of each
        topic and partition.
        """
        with suppress(self._kafka.KafkaException):
            self._producer.poll(0)  # so that events of the idle time are taken in now
        self.failure.forget()
        self._awaited(lambda _: self._producer.begin_transaction(), 0)
        self._in_transaction = True
        self._places = {}
        for topic, record in records:
            self._produce(topic, record)
        if noted is not None:
            self._deliver()
            for topic, record in noted(dict(self._places)):
                self._produce(topic, record)
        if positions is not None:
            self._awaited(lambda seconds: self._producer.send_offsets_to_transaction(*positions, seconds), 30.0)
        try:
            self._awaited(self._producer.commit_transaction, COMMIT_SECONDS_MAX)
        except Unavailable as error:
            raise CommitUnsure(
                error.message,
                detail="Whether the transaction was committed is not known.",
                hint="Read what is there before it is repeated.",
            ) from error
        self._in_transaction = False
        return self._places

    def _deliver(self) -> None:
        """Wait until the broker has what was produced; what it refused is told by the commit."""
        began = time.monotonic()
        while len(self._producer):
            try:
                self._producer.poll(ROOM_SECONDS)
            except self._kafka.KafkaException as error:
                raise self._meant(error) from error
            except SystemError as error:  # Python's word for an error that came while a message was being reported
                if not isinstance(error.__cause__, self._kafka.KafkaException):
                    raise
                raise self._meant(error.__cause__) from error
            took = time.monotonic() - began
            if took > (RECONNECT_SECONDS if self.failure.hopeless else COMMIT_SECONDS_MAX):
                raise self.failure.told()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            place = message.topic(), message.partition()
            self._places[place] = max(self._places.get(place, 0), message.offset() + 1)

    def close(self) -> None:
        """End an open transaction, if the broker answers, so that readers need not wait for its timeout."""
        if self._in_transaction:
            self._in_transaction = False
            if not self.failure.hopeless:
                with suppress(self._kafka.KafkaException):
                    self._producer.abort_transaction(ABORT_SECONDS_MAX)
        self._producer.purge()

    def _produce(self, topic: str, record: KafkaRecord) -> None:
        place = -1 if record.partition is None else record.partition
        while True:
            try:
                self._producer.produce(
                    topic, record.value, record.key, place, self._delivered, headers=list(record.headers)
                )
                return
            except BufferError:  # the broker is slower than we are
                self._make_room()
            except self._kafka.KafkaException as error:
                raise self._meant(error) from error

    def _make_room(self) -> None:
        try:
            self._producer.poll(ROOM_SECONDS)
        except self._kafka.KafkaException as error:
            raise self._meant(error) from error
        if self.failure.hopeless:
            raise self.failure.told()

    def _awaited(self, call: Callable[[float], Any], seconds_max: float) -> None:
        """Call until it is done: a call that timed out, or met a coordinator that starts, is continued by the next."""
        began = time.monotonic()
        while True:
            try:
                call(STEP_SECONDS)
                return
            except self._kafka.KafkaException as error:
                with suppress(self._kafka.KafkaException):  # one that ends the producer; the call has it too
                    self._producer.poll(ROOM_SECONDS)  # so that errors in the background are heard of
                allowed = min(seconds_max, RECONNECT_SECONDS) if self.failure.hopeless else seconds_max
                late = time.monotonic() - began > allowed
                if late or not error.args[0].retriable():
                    raise self._meant(error) from error

    def _meant(self, error: Any) -> Exception:
        found = error.args[0]
        name = found.name()
        if name in FENCED or (found.fatal() and "fenced" in found.str().lower()):
            return ProducerFenced(found.str())
        if name in TOO_LARGE:
            return self._refused(
                f"Kafka at {self.cluster.servers} refuses a record that is too large: {found.str()}",
                hint="Raise message.max.bytes there and in settings={…}, or leave the large column out of the view.",
            )
        if name in REFUSED:
            return self._refused(
                f"Kafka at {self.cluster.servers} refuses the changes: {found.str()}", hint="See its log."
            )
        return self.failure.told(error, doing="a transaction")
