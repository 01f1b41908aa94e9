"""Kafka inlet: the messages of a Kafka topic, into a topic or table, each exactly once.

What it is: ``Kafka``, the declaration, and ``KafkaInlet``, whose one thread consumes, and writes what came as one
transaction of the log: rows, tombstones, messages that could not be read, and the position in Kafka.
Invariants: after a crash at any moment the log has the rows of a message and the position behind it, or neither; so
nothing is lost and nothing doubled. A message that is no row goes to ``<inlet>.dead``, in the same transaction. While
the log, the cluster or the schema registry does not answer, the inlet waits, and says so.
Not here: consuming (``kafka_reader.py``), rows (``kafka_messages.py``), a sink to Kafka
(``sinks/kafka/kafka_sink.py``). Read next: ``kafka_positions.py``, ``kafka_reader.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headwater.backoff import Backoff
from headwater.capture.door import Door
from headwater.errors import Backpressure, HeadwaterError, InvalidDeclaration
from headwater.inlets.dead_messages import DeadMessage, DeadMessages
from headwater.inlets.inlet import BACKOFF_FIRST_S, BACKOFF_MAX_S, Inlet, InletDeclaration
from headwater.inlets.kafka.kafka_messages import MessageColumns, MessagePart, MessageRows, PreparedMessages
from headwater.inlets.kafka.kafka_positions import KafkaPositions
from headwater.inlets.kafka.kafka_reader import KafkaReader, KafkaSource
from headwater.inlets.kafka.value_formats import AvroValues, DebeziumValues, JsonValues, RawValues, ValueFormat
from headwater.inlets.message_door import MessageDoor
from headwater.kafka.kafka_client import KafkaCluster, client
from headwater.kafka.values.schema_registry import SchemaRegistry, avro
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import EventLog, EventTopic
from headwater.log.table import Table

logger = logging.getLogger("headwater.inlets")

LOOK_AT_STOP_S = 0.2
STAND_BY_S = 5.0
VALUES = ("json", "avro", "arrow", "debezium", "raw")
KEYS = ("text", "json", "avro")
ON_LOSS = ("stop", "continue")
COLUMN_TYPES: dict[str, tuple[str, Any]] = {
    "timestamp": ("TIMESTAMP", lambda arrow: pa.types.is_timestamp(arrow) and arrow.tz is not None),
    "headers": ("MAP<STRING, STRING>", pa.types.is_map),
    "partition": ("INT", pa.types.is_integer),
    "offset": ("BIGINT", pa.types.is_int64),
    "key": ("STRING", lambda arrow: not pa.types.is_nested(arrow)),
}


@dataclass(frozen=True)
class Kafka(InletDeclaration):
    """Ingests the messages of a Kafka topic, ``source``; by default the one of the same name.

    ``value`` is "json" (an object, an array of them, or lines), "avro" (with the schema's number, from ``registry``),
    "arrow" (a stream of Arrow IPC), "debezium" (its envelope in JSON), or "raw": the bytes, in ``value_column``.
    ``key`` says how keys are written; a message without a value deletes the row of its key. ``start`` is "earliest",
    "latest" or a time, for the first run. ``on_loss``: whether to wait ("stop") or go on ("continue") when messages are
    gone before they were read. ``settings`` are librdkafka's, such as credentials.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> clicks = log.topic("clicks", "url STRING, at TIMESTAMP")
    >>> hw.inlets.Kafka(clicks, "localhost:9092", source="web.clicks", timestamp_column="at").open(log, "web")
    <Inlet web (kafka) into clicks: not started>
    """

    kind: ClassVar[str] = "kafka"

    topic: EventTopic | Table | str
    servers: str
    source: str | None = None
    value: Literal["json", "avro", "arrow", "debezium", "raw"] = "json"
    key: Literal["text", "json", "avro"] = "text"
    start: str | dt.datetime = "earliest"
    on_loss: Literal["stop", "continue"] = "stop"
    registry: str | None = field(default=None, repr=False)
    unknown: Literal["refuse", "ignore"] = "refuse"
    value_column: str = "value"
    key_column: str | None = None
    timestamp_column: str | None = None
    headers_column: str | None = None
    partition_column: str | None = None
    offset_column: str | None = None
    time_unit: Literal["ms", "us", "ns"] = "us"
    group: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        KafkaCluster(self.servers, self.settings)
        allowed = {"value": VALUES, "key": KEYS, "on_loss": ON_LOSS, "unknown": ("refuse", "ignore")}
        allowed |= {"time_unit": ("ms", "us", "ns")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise InvalidDeclaration(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"Use one of: {', '.join(values)}."
                )
        if isinstance(self.start, dt.datetime):
            if self.start.tzinfo is None:
                raise InvalidDeclaration("start needs a time zone", hint="datetime(2026, 1, 31, tzinfo=UTC)")
        elif self.start not in ("earliest", "latest"):
            raise InvalidDeclaration(
                f"start cannot be {self.start!r}", hint='Use "earliest", "latest" or a datetime with a time zone.'
            )
        if "avro" in (self.value, self.key) and self.registry is None:
            raise InvalidDeclaration(
                "Avro is read with the schemas of a registry", hint='Name it: registry="http://localhost:8081".'
            )

    def open(self, log: EventLog, name: str, *, app: str = "") -> KafkaInlet:
        client()
        if "avro" in (self.value, self.key):
            avro()
        return KafkaInlet(self, log, name, self.topic_on(log), app=app)


class KafkaInlet(Inlet):
    """A running Kafka inlet."""

    kind = Kafka.kind

    def __init__(self, declared: Kafka, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        super().__init__(log, name, topic, app=app)
        self.declared = declared
        source = declared.source or topic.name
        group = declared.group or ".".join(part for part in ("headwater", app, name) if part)
        cluster = KafkaCluster(declared.servers, declared.settings)
        self.source = KafkaSource(cluster, source, group, declared.start, declared.on_loss)
        self.positions = KafkaPositions(log, app, name, source)
        self.dead = DeadMessages(log, name)
        self.door: MessageDoor | None = None
        registry = None if declared.registry is None else SchemaRegistry(declared.registry)
        self.rows = MessageRows(
            topic,
            _value_format(declared, topic, registry),
            key=declared.key,
            columns=_columns(declared, topic),
            registry=registry,
            tombstones=declared.value != "debezium",  # there it follows the delete itself
        )
        self._lag: int | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets of the Kafka topic are still to be read; None before it is known."""
        return self._lag

    def pass_by(self, door: Door | None) -> None:
        """Keep no more of messages than a door lets in."""
        self.door = MessageDoor(door, self.log, self.topic)
        self.dead.sealed = True

    def _open(self) -> None:
        self.counter_store.address = f"kafka://{self.source.cluster.servers} {self.source.topic}"
        self._begin(self._consume_for_ever, "consumer")

    def _close(self) -> None:
        """Nothing: the consumer checks ``_stopping`` regularly."""

    def _consume_for_ever(self) -> None:
        backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S)
        while not self._stopping.is_set():
            pause = 0.0
            try:
                with KafkaReader(self.source, self.positions, self.log.clock, self._count_lost) as reader:
                    self._has_problem(None)
                    self._consume(reader, backoff)
            except PositionMoved:
                self._has_problem(
                    f'another process runs inlet "{self.name}": its position in Kafka topic "{self.source.topic}" was '
                    "moved; this one stands by"
                )
                pause = STAND_BY_S
            except HeadwaterError as error:
                self._has_problem(error.message)
            except Exception as error:  # a bug of ours: logged, and read again from the stored positions
                logger.exception('inlet "%s" failed', self.name)
                self._has_problem(f"unexpected {type(error).__name__}: {error}")
            self._stopping.wait(max(pause, backoff.next()))

    def _consume(self, reader: KafkaReader, backoff: Backoff) -> None:
        while not self._stopping.is_set():
            self._lag = self.counter_store.lag = reader.lag
            messages = reader.poll(LOOK_AT_STOP_S)
            if messages:
                if not self._take(reader, messages):
                    return
                backoff.reset()
            reader.settle(idle=not messages)

    def _take(self, reader: KafkaReader, messages: list[Any]) -> bool:
        """Write what came; False when the inlet was stopped before that was possible."""
        moves = reader.moves(messages)

        def write() -> None:
            prepared = self.rows.prepared(messages)
            dropped = self._written(prepared, moves)
            reader.moved(moves)
            self.counter_store.count(
                received=len(messages),
                appended=0 if dropped else prepared.rows,
                refused=len(prepared.dead),
                dropped=prepared.rows if dropped else 0,
            )

        return self._until_it_works(write)

    def _written(self, prepared: PreparedMessages, moves: Mapping[int, tuple[int, int]]) -> bool:
        """Write rows, dead messages and positions together; True when the topic's policy dropped the rows."""
        try:
            self._write(prepared.parts, prepared.dead, moves)
            return False
        except Backpressure:
            if self.topic.settings.overflow != "drop":
                raise
        self.topic.count_dropped(prepared.rows)
        self._write([], prepared.dead, moves)
        return True

    def _write(
        self, parts: Sequence[MessagePart], dead: Sequence[DeadMessage], moves: Mapping[int, tuple[int, int]]
    ) -> None:
        with self.log.transaction() as t:
            for part in parts:
                batch = part.batch if self.door is None else self.door.batch(part.batch)
                t.append_batch(self.topic, batch, deleted=part.deleted, partition=part.partition)
            if dead:
                t.append_batch(self.dead.topic(), self.dead.batch(dead))
            self.positions.move_in(t, moves)

    def _count_lost(self, messages: int) -> None:
        self.counter_store.count(dropped=messages)


def _value_format(declared: Kafka, topic: EventTopic, registry: SchemaRegistry | None) -> ValueFormat | None:
    ignore = declared.unknown == "ignore"
    if topic.row().is_multiset:
        raise InvalidDeclaration(
            f'"{topic.name}" is a table without a key, which an inlet cannot write',
            hint="Declare it with a key, or as a topic.",
            topic=topic.name,
        )
    if declared.value == "debezium" and not topic.settings.key:
        raise InvalidDeclaration(
            f'topic "{topic.name}" has no key, and Debezium\'s messages are about keys', hint='Declare it: key="id".'
        )
    if declared.value == "raw":
        column = declared.value_column
        types = (pa.types.is_string, pa.types.is_binary)
        if column not in topic.schema.names or not any(each(topic.schema.field(column).type) for each in types):
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{column}" for the messages\' bytes',
                hint=f'Declare it with "{column} BINARY" or "{column} STRING" among its columns.',
                topic=topic.name,
                column=column,
            )
        return RawValues(topic, column)
    if declared.value == "avro":
        assert registry is not None
        return AvroValues(topic, registry, ignore_unknown=ignore)
    if declared.value == "debezium":
        return DebeziumValues(topic, time_unit=declared.time_unit)
    return JsonValues(topic, ignore_unknown=ignore) if declared.value == "json" else None


def _columns(declared: Kafka, topic: EventTopic) -> MessageColumns:
    columns = MessageColumns(
        declared.key_column,
        declared.timestamp_column,
        declared.headers_column,
        declared.partition_column,
        declared.offset_column,
    )
    for what, column in columns.named.items():
        title, fits = COLUMN_TYPES[what]
        if column not in topic.schema.names or not fits(topic.schema.field(column).type):
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{column}" that can take a message\'s {what}',
                hint=f'Declare it with "{column} {title}" among its columns.',
                topic=topic.name,
                column=column,
            )
    return columns
