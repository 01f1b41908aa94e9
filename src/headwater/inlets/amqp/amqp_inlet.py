"""AMQP inlet: the messages of a broker's queue (RabbitMQ), into a topic.

What it is: ``Amqp``, the declaration, and ``AmqpInlet``, which consumes the queue with a prefetch, ingests the received
messages as one batch, and acknowledges it.
Invariants: a message is acknowledged only when the log has it, so none is lost; a redelivery is recognised by its
message id, if it has one, so none is doubled. A message that is no valid row goes to ``<inlet>.dead`` with the reason
and is acknowledged. A lost connection is made again.
Not here: publishing (``amqp_publisher.py``), deduplication (``inlets/ingest.py``).
Read next: ``inlets/ingest.py``, ``dead_messages.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from headwater.backoff import Backoff
from headwater.capture.door import Door
from headwater.errors import HeadwaterError, InvalidDeclaration, RowRefused, Unavailable
from headwater.inlets.amqp import amqp_connection
from headwater.inlets.dead_messages import DeadMessage, DeadMessages
from headwater.inlets.ingest import IncomingMessage, Ingest
from headwater.inlets.inlet import BACKOFF_FIRST_S, BACKOFF_MAX_S, Inlet, InletDeclaration
from headwater.inlets.message_bodies import rows_of
from headwater.inlets.message_door import MessageDoor
from headwater.log.contract import EventLog, EventTopic
from headwater.log.schema.event_metadata import Metadata

logger = logging.getLogger("headwater.inlets")

LOOK_AT_STOP_S = 0.2
NOT_FOUND = 404


@dataclass(frozen=True)
class Amqp(InletDeclaration):
    """Ingests the messages of a queue; each is a JSON object, an array of them, or JSON lines.

    With ``id_column`` a message's id (its property ``message_id``) is kept in that column, and a message that is
    delivered again is recognised; without the property, by the rows' own values in that column.
    ``routing_key_column`` stores the routing key. At most ``prefetch`` messages are unacknowledged. A missing queue is
    created, durable, unless ``create=False``; with ``exchange`` it is bound to one.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> topic = log.topic("orders", "order_id BIGINT, message_id STRING")
    >>> hw.inlets.Amqp(topic, "amqp://localhost", queue="orders", id_column="message_id").open(log, "shop")
    <Inlet shop (amqp) into orders: not started>
    """

    kind: ClassVar[str] = "amqp"

    topic: EventTopic | str
    url: str
    queue: str
    id_column: str | None = None
    routing_key_column: str | None = None
    prefetch: int = 500
    exchange: str | None = None
    routing_key: str = "#"
    create: bool = True

    def __post_init__(self) -> None:
        amqp_connection.check_address(self.url)
        if not self.queue:
            raise InvalidDeclaration("an AMQP inlet needs a queue", hint='Name it: queue="orders".')
        if not 1 <= self.prefetch <= 65535:
            raise InvalidDeclaration(f"prefetch cannot be {self.prefetch}", hint="Use a number from 1 to 65535.")

    def __repr__(self) -> str:
        return f"Amqp({amqp_connection.shown(self.url, self.queue)!r})"

    def open(self, log: EventLog, name: str, *, app: str = "") -> AmqpInlet:
        amqp_connection.client()
        return AmqpInlet(self, log, name, self.topic_on(log), app=app)


@dataclass(frozen=True)
class AmqpDelivery:
    """One message of the broker."""

    tag: int
    routing_key: str
    properties: Any
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in (self.properties.headers or {}).items()}

    @property
    def metadata(self) -> Metadata | None:
        """Its properties ``correlation_id`` and ``user_id`` (which the broker checks), its header ``causation_id``."""
        properties = self.properties
        return Metadata.carried(properties.correlation_id, self.headers.get("causation_id"), properties.user_id)


class AmqpInlet(Inlet):
    """A running AMQP inlet."""

    kind = Amqp.kind

    def __init__(self, declared: Amqp, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        super().__init__(log, name, topic, app=app)
        self.declared = declared
        column = declared.routing_key_column
        if column is not None and column not in topic.schema.names:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{column}" for the routing key',
                hint=f'Declare it with "{column} STRING" among its columns.',
                topic=topic.name,
            )
        self.ingest = Ingest(topic, self.counter_store, id_column=declared.id_column)
        self.dead = DeadMessages(log, name)

    def pass_by(self, door: Door | None) -> None:
        """Keep no more of messages than a door lets in."""
        self.ingest.door = MessageDoor(door, self.log, self.topic, self.ingest.id_column)
        self.dead.sealed = True

    def _open(self) -> None:
        self.counter_store.address = amqp_connection.shown(self.declared.url, self.declared.queue)
        self._begin(self._consume_for_ever, "consumer")

    def _close(self) -> None:
        """Nothing: the consumer checks ``_stopping`` regularly."""

    def _consume_for_ever(self) -> None:
        backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S)
        while not self._stopping.is_set():
            try:
                with amqp_connection.translated("the broker"), self._channel() as (connection, channel):
                    self._has_problem(None)
                    backoff.reset()
                    self._consume(connection, channel)
            except HeadwaterError as error:
                self._has_problem(error.message)
            except Exception as error:  # a bug of ours: logged, and unacknowledged messages come again
                logger.exception('inlet "%s" failed', self.name)
                self._has_problem(f"unexpected {type(error).__name__}: {error}")
            self._stopping.wait(backoff.next())

    @contextmanager
    def _channel(self) -> Iterator[tuple[Any, Any]]:
        pika = amqp_connection.client()
        connection = pika.BlockingConnection(amqp_connection.parameters(self.declared.url))
        try:
            yield connection, self._prepared(connection)
        finally:
            with suppress(pika.exceptions.AMQPError, OSError):
                connection.close()

    def _prepared(self, connection: Any) -> Any:
        """Prepare a channel: queue, binding and prefetch."""
        exceptions = amqp_connection.client().exceptions
        declared = self.declared
        channel = connection.channel()
        try:
            channel.queue_declare(declared.queue, passive=True)
        except exceptions.ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND or not declared.create:
                raise
            channel = connection.channel()
            channel.queue_declare(declared.queue, durable=True)
        if declared.exchange is not None:
            channel.queue_bind(declared.queue, declared.exchange, declared.routing_key)
        channel.basic_qos(prefetch_count=declared.prefetch)
        return channel

    def _consume(self, connection: Any, channel: Any) -> None:
        waiting: list[AmqpDelivery] = []

        def delivered(_: Any, method: Any, properties: Any, body: bytes) -> None:
            waiting.append(AmqpDelivery(method.delivery_tag, method.routing_key, properties, body))

        channel.basic_consume(self.declared.queue, delivered)
        while not self._stopping.is_set():
            connection.process_data_events(time_limit=LOOK_AT_STOP_S)
            if waiting:
                taken, waiting[:] = list(waiting), []
                if not self._take(connection, taken):
                    return
                channel.basic_ack(taken[-1].tag, multiple=True)
            elif not channel.consumer_tags:
                raise Unavailable(f'the broker does not have queue "{self.declared.queue}" any more')

    def _take(self, connection: Any, deliveries: list[AmqpDelivery]) -> bool:
        """Ingest messages; False when the inlet was stopped before that was possible."""
        messages: list[IncomingMessage] = []
        read: list[AmqpDelivery] = []
        dead: list[DeadMessage] = []
        for delivery in deliveries:
            try:
                messages.append(IncomingMessage(self._rows(delivery), self._id(delivery), delivery.metadata))
                read.append(delivery)
            except RowRefused as error:
                dead.append(self._dead(delivery, error))
        unread = len(dead)

        def keep() -> None:
            # First the log, then the dead messages: a repetition after a failure is recognised by its id.
            for place, error in self.ingest.take(messages).refused.items():
                dead.append(self._dead(read[place], error))

        # The broker closes a connection that is silent for too long.
        alive = {"meanwhile": lambda: connection.process_data_events(time_limit=0)}
        if not self._until_it_works(keep, **alive) or not self._until_it_works(lambda: self.dead.bury(dead), **alive):
            return False
        self.counter_store.count(received=len(deliveries), refused=unread)
        return True

    def _rows(self, delivery: AmqpDelivery) -> tuple[dict[str, Any], ...]:
        rows = rows_of(delivery.body, self.topic.schema)
        column = self.declared.routing_key_column
        return rows if column is None else tuple({**row, column: delivery.routing_key} for row in rows)

    def _id(self, delivery: AmqpDelivery) -> str | None:
        return delivery.properties.message_id or None

    def _dead(self, delivery: AmqpDelivery, error: HeadwaterError) -> DeadMessage:
        return DeadMessage(
            delivery.body, error, self._id(delivery), delivery.routing_key, delivery.headers, delivery.metadata
        )
