"""Kafka: a view as a topic of Kafka, exactly once.

What it is: ``KafkaSink``, a sink that writes the latest row of each key ("rows"), or an envelope for each change
("changes"), and the token of the delivery to a second topic, as one Kafka transaction.
Invariants: a consumer with ``isolation.level=read_committed`` sees each delivery once and whole in each partition. The
token is read back at the start, so a delivery whose outcome is unknown is never repeated. A process takes the sink over
by the transactional id, which shuts the one before out, and by a token with its epoch, which keeps that one from
coming back; a process of an older epoch is refused before it disturbs anybody.
Not here: the inlet (``inlets/kafka/kafka_inlet.py``). Read next: ``kafka_transactions.py``, ``kafka_progress.py``;
``docs/kafka.md``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.durations import Duration, to_seconds
from headwater.errors import InvalidDeclaration, SinkRefused, Unavailable
from headwater.kafka.kafka_client import KafkaAdmin, KafkaCluster, KafkaTopicFacts, client
from headwater.kafka.kafka_ranges import committed_messages
from headwater.kafka.kafka_transactions import KafkaRecord, KafkaTransactions, ProducerFenced
from headwater.kafka.values.avro_schemas import avro_schema
from headwater.kafka.values.avro_values import AvroRecords
from headwater.kafka.values.schema_registry import SchemaRegistry
from headwater.log.topic_rows import nullable
from headwater.sinks.kafka.kafka_progress import SETTINGS, WAIT_S, KafkaProgress, ProgressToken
from headwater.sinks.kafka.kafka_records import (
    CHANGES,
    ROWS,
    RowValues,
    change_records,
    full_copy_records,
    json_values,
    reset_record,
    row_records,
)
from headwater.sinks.sink import (
    Leftover,
    Sink,
    SinkContext,
    StoredProgress,
    Target,
    check_fence,
    is_next,
    reached,
    state_id_of,
)
from headwater.views.serving.deliveries import Delivery

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

FORMS = (ROWS, CHANGES)
VALUES = JSON, AVRO = "json", "avro"
TIMEOUT_SECONDS_MIN = 15.0
READABLE_SECONDS_MAX = 1.0
NOTHING = -1  # the tick of a token before the first full copy


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic of a Kafka cluster; ``topic`` defaults to the view's name, and is made when it is missing.

    ``form`` is "rows": a key has its latest row, and a tombstone when it is gone, for a compacted topic; or "changes":
    an envelope ``{"op", "before", "after", "tick"}`` for each change. A view without a key has changes.
    ``values`` "avro" writes the rows as records under the schema that ``registry`` keeps; keys stay JSON.
    ``settings`` are librdkafka's, such as credentials; ``transaction_timeout`` bounds a full copy.

    >>> KafkaSink("kafka-1:9092", topic="revenue", settings={"sasl.password": "s3cret"})
    Kafka('kafka-1:9092', topic='revenue', form=None)
    """

    servers: str
    topic: str | None = None
    form: str | None = None
    values: str = JSON
    registry: str | None = None
    partitions: int = 1
    replicas: int = -1  # as the cluster has it by default
    transaction_timeout: Duration = "5 minutes"
    settings: Mapping[str, Any] = field(default_factory=dict)

    kind = "kafka"

    def __post_init__(self) -> None:
        KafkaCluster(self.servers, self.settings)
        if self.form is not None and self.form not in FORMS:
            raise SinkRefused(f"form cannot be {self.form!r}", hint=f"Use one of {', '.join(FORMS)}.")
        if self.values not in VALUES:
            raise SinkRefused(f"values cannot be {self.values!r}", hint=f"Use one of {', '.join(VALUES)}.")
        if self.values == AVRO and self.form == CHANGES:
            raise SinkRefused("envelopes of changes are written as JSON only", hint='Use values="json".')
        if (self.values == AVRO) is not (self.registry is not None):
            raise SinkRefused(
                'values="avro" and the address of a schema registry belong together',
                hint='Write values="avro", registry="http://localhost:8081".',
            )
        if self.registry is not None:
            SchemaRegistry(self.registry)
        if self.partitions < 1:
            raise SinkRefused(f"partitions cannot be {self.partitions}", hint="Use a number above zero.")
        if to_seconds(self.transaction_timeout) < TIMEOUT_SECONDS_MIN:
            raise SinkRefused(
                f"transaction_timeout cannot be {self.transaction_timeout!r}",
                hint=f"Use {TIMEOUT_SECONDS_MIN:g} seconds or more: a full copy is one transaction.",
            )

    @property
    def layout(self) -> str:
        return self.form or "" if self.values == JSON else f"{self.form or ''}.{self.values}"

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        client()
        if self.form == ROWS and not context.key:
            raise SinkRefused(
                f'view "{context.view}" has no key, and rows in Kafka are found by one',
                hint='Use form="changes", or give the view a key by GROUP BY or a table\'s key.',
            )
        if self.values == AVRO and not context.key:
            raise SinkRefused(
                f'view "{context.view}" has no key: its changes are envelopes, which are written as JSON only',
                hint='Use values="json", or give the view a key by GROUP BY or a table\'s key.',
            )
        return KafkaTarget(context, self)

    def __str__(self) -> str:
        return f"kafka://{self.servers}" + (f" {self.topic}" if self.topic else "")

    def __repr__(self) -> str:
        return f"Kafka({self.servers!r}, topic={self.topic!r}, form={self.form!r})"


class KafkaTarget(Target):
    """The topic of one view."""

    def __init__(self, context: SinkContext, declared: KafkaSink) -> None:
        super().__init__(context)
        self.declared = declared
        self.topic = declared.topic or context.view
        self.form = declared.form or (ROWS if context.key else CHANGES)
        self.cluster = KafkaCluster(declared.servers, declared.settings)
        self.admin = KafkaAdmin(self.cluster)
        self.tokens = KafkaProgress(self.cluster, self.admin, self.topic, context)
        self._values = json_values if declared.registry is None else self._avro_values(declared.registry)
        self._producer: KafkaTransactions | None = None
        self._token: ProgressToken | None = None  # the last one, once the sink is ours
        self._seen_empty = False  # nothing was committed, or nothing that readers saw yet

    # The contract

    def progress(self) -> StoredProgress | None:
        found = self._usable(self.tokens.last(), self.admin.find(self.topic))
        self._seen_empty = found is None
        return found

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        facts = self._taken_over(epoch, filling=True)
        found, seen_empty = self._usable(self._token, facts), self._seen_empty
        self._seen_empty = False  # a copy that is asked for again is wanted
        if seen_empty and found is not None and found.version == self.context.version:
            return found  # of a process that was killed after its commit: Kafka showed it after we had looked
        return self._written(self._full_copy(rows, tick, facts), tick, epoch, facts)

    def forget(self) -> Leftover | None:
        return Leftover("records that are in Kafka stay until its topic is compacted or its retention is over")

    def apply(self, delivery: Delivery) -> StoredProgress:
        facts = self._taken_over(delivery.epoch, filling=False)
        progress = self._usable(self._token, facts)
        if not is_next(progress, self.context, delivery):
            return reached(progress, self.context)
        key, changes = self.context.key, delivery.changes
        if self.form == ROWS:
            records = row_records(changes, key, self._values)
        else:
            records = change_records(changes, key, delivery.tick)
        return self._written(records, delivery.tick, delivery.epoch, facts)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _avro_values(self, registry: str) -> RowValues:
        """Rows as Avro; every column may be null, so that all deliveries have one schema."""
        columns = nullable(self.context.schema)
        try:
            avro_schema(self.topic, columns)
        except InvalidDeclaration as error:
            raise SinkRefused(error.message, hint='Use values="json".') from None
        records = AvroRecords(self.topic, SchemaRegistry(registry))

        def written(rows: pa.Table) -> list[bytes]:
            batches = rows.select(columns.names).cast(columns).to_batches()
            return [value for batch in batches for value in records.written(batch)]

        return written

    # Taking over

    def _taken_over(self, epoch: int, *, filling: bool) -> KafkaTopicFacts:
        """Be the only one that can write; the topic with the rows.

        The epoch is compared first, so that a process that was replaced does not shut its successor out; and again
        afterwards, when nobody else can write a token any more. A token with our epoch then keeps the one that was shut
        out from coming back while a long full copy is under way.
        """
        facts = self._made(filling=filling)
        if not facts.id:
            return facts
        if self._producer is None:
            check_fence(self._fence(self.tokens.last()), self.context, epoch, filling=filling)
            # By the topic, which belongs to one sink: apps of one name may write to others of the same cluster.
            identity = f"headwater/{self.topic}"
            timeout_ms = int(to_seconds(self.declared.transaction_timeout) * 1000)
            self._producer = KafkaTransactions(self.cluster, identity, timeout_ms)
            try:
                self._producer.begin()
                self._token = self.tokens.last(settled=True)
                check_fence(self._fence(self._token), self.context, epoch, filling=filling)
                self._claim(epoch, facts)
            except ProducerFenced as error:
                raise self._shut_out(epoch, filling=filling, said=str(error)) from error
            except BaseException:
                self.close()
                raise
        return facts

    def _made(self, *, filling: bool) -> KafkaTopicFacts:
        """The topics of rows and progress, made when they are missing."""
        facts = self.admin.find(self.topic)
        if facts is None:
            if not filling:  # the full copy makes it: what follows would be changes to nothing
                return KafkaTopicFacts("", ())
            policy = "compact" if self.form == ROWS else "delete"
            settings = {"cleanup.policy": policy}
            self.admin.create(self.topic, self.declared.partitions, self.declared.replicas, settings)
        if self.admin.find(self.tokens.topic) is None:
            self.admin.create(self.tokens.topic, 1, self.declared.replicas, SETTINGS)
        facts = facts or self.admin.find(self.topic)
        if facts is None:
            raise Unavailable(
                f'Kafka at {self.cluster.servers} has made topic "{self.topic}" and does not show it yet',
                hint="It is retried.",
            )
        return facts

    def _claim(self, epoch: int, facts: KafkaTopicFacts) -> None:
        """A token that says that the sink is ours, with the progress that it has."""
        context, last = self.context, self._token
        ours = last is not None and state_id_of(last.version) == context.state_id
        if last is not None and ours and last.epoch == epoch:
            return
        if last is None or not ours:
            claim = ProgressToken(context.identity, facts.id, NOTHING, epoch, f"{context.state_id}/nothing")
        else:
            claim = replace(last, epoch=epoch)
        self._commit((), claim)

    def _usable(self, token: ProgressToken | None, facts: KafkaTopicFacts | None) -> StoredProgress | None:
        """The progress that a token stands for: none without rows, or when the topic is another one."""
        if token is None or facts is None or token.tick == NOTHING or token.topic_id != facts.id:
            return None
        return token.stored

    def _fence(self, token: ProgressToken | None) -> StoredProgress | None:
        return None if token is None else token.stored

    # Writing

    def _written(self, records: Iterable[KafkaRecord], tick: int, epoch: int, facts: KafkaTopicFacts) -> StoredProgress:
        token = ProgressToken(self.context.identity, facts.id, tick, epoch, self.context.version)
        self._commit(records, token)
        self._wait_until_readable(facts)
        return token.stored

    def _wait_until_readable(self, facts: KafkaTopicFacts) -> None:
        """Wait until a reader that begins now sees the delivery: Kafka marks the partitions after the commit."""
        deadline = time.monotonic() + READABLE_SECONDS_MAX
        for topic, numbers in ((self.topic, facts.partitions), (self.tokens.topic, (0,))):
            ends = self.admin.ends(topic, numbers, committed=False)
            # The bound is for transactions of other programs, which may be open for longer.
            while time.monotonic() < deadline and self.admin.ends(topic, numbers) != ends:
                time.sleep(WAIT_S)

    def _commit(self, records: Iterable[KafkaRecord], token: ProgressToken) -> None:
        assert self._producer is not None
        stored = (self.tokens.topic, self.context.identity.encode(), token.line())
        try:
            self._producer.write(self.topic, records, stored, tick=token.tick)
        except ProducerFenced as error:
            raise self._shut_out(token.epoch, filling=False, said=str(error)) from error
        except BaseException:
            self.close()
            raise
        self._token = token

    def _shut_out(self, epoch: int, *, filling: bool, said: str) -> Unavailable:
        """The error of a producer that was fenced: ``Fenced`` when its successor is newer, or of another home."""
        self.close()
        check_fence(self._fence(self.tokens.last()), self.context, epoch, filling=filling)
        return Unavailable(
            f'a transaction of sink "{self.context.sink}" was ended by Kafka: {said}',
            detail="Another process began with the same sink, or the transaction took longer than it may.",
            hint="It is retried. A full copy may need a longer transaction_timeout.",
        )

    def _full_copy(self, rows: Iterable[pa.RecordBatch], tick: int, facts: KafkaTopicFacts) -> Iterator[KafkaRecord]:
        """All rows; before them what makes the earlier ones void."""
        key = self.context.key
        if self.form == CHANGES:
            for number in facts.partitions:
                yield reset_record(number, tick)
        # Without a key all rows at once, so that equal ones are counted together.
        tables = (
            (pa.Table.from_batches([batch]) for batch in rows)
            if key
            else [pa.Table.from_batches(list(rows), schema=self.context.schema)]
        )
        left = self._live_keys(facts) if self.form == ROWS else {}
        for table in tables:
            for record in full_copy_records(table, key, self.form, tick, self._values):
                left.pop(record.key or b"", None)
                yield record
        for name, places in left.items():
            for number in places:
                yield KafkaRecord(name, None, number)

    def _live_keys(self, facts: KafkaTopicFacts) -> dict[bytes, set[int]]:
        """The keys that the topic has a value for, each with its partitions: more than one if some were added."""
        numbers = facts.partitions
        starts, ends = self.admin.starts(self.topic, numbers), self.admin.ends(self.topic, numbers)
        found: dict[bytes, set[int]] = {}
        ranges = {number: (starts[number], ends[number]) for number in numbers}
        for message in committed_messages(self.cluster, self.topic, ranges):
            if message.key() is None:
                continue
            places = found.setdefault(message.key(), set())
            (places.discard if message.value() is None else places.add)(message.partition())
        return {name: places for name, places in found.items() if places}
