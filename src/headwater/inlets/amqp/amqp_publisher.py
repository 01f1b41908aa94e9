"""AMQP publisher: the rows of a topic, published to an exchange.

What it is: ``AmqpPublisher`` is a member of a consumer group of the topic; each row becomes a persistent JSON message,
and the group's position moves when the broker has confirmed the batch.
Invariants: at least once, in the order of each partition. The message id is ``topic/partition/offset``, so consumers
recognise a repetition. An unavailable broker, or an exchange without a route, stops the group and loses nothing.
Not here: changes of views (``sinks/``), consuming (``amqp_inlet.py``).
Read next: ``confirmed_channel.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from headwater.backoff import Backoff
from headwater.errors import Fenced, HeadwaterError, InvalidDeclaration
from headwater.inlets.amqp import amqp_connection
from headwater.inlets.amqp.confirmed_channel import ConfirmedChannel, Outgoing
from headwater.inlets.inlet import BACKOFF_FIRST_S, BACKOFF_MAX_S
from headwater.log.batch import Batch
from headwater.log.contract import EventTopic
from headwater.log.schema.json_lines import json_line

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger("headwater.inlets")

MESSAGES_MAX = 500  # unconfirmed at once
POLL_S = 0.2
PERSISTENT = 2


class AmqpPublisher:
    """Publishes the rows of a topic.

    ``routing_key`` is for every message, or ``routing_key_column`` names the column that has it. Several publishers of
    one ``group`` share the partitions. A delete of a keyed topic is a message with the header ``headwater-deleted``.

    >>> import headwater as hw, tempfile
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "order_id BIGINT, country STRING")
    >>> hw.inlets.AmqpPublisher(orders, "amqp://localhost", exchange="shop", routing_key_column="country")
    <AmqpPublisher of orders to amqp://localhost shop>
    """

    def __init__(
        self,
        topic: EventTopic,
        url: str,
        *,
        exchange: str = "",
        routing_key: str | None = None,
        routing_key_column: str | None = None,
        group: str = "amqp",
        start: Any = "earliest",
    ) -> None:
        amqp_connection.check_address(url)
        amqp_connection.client()
        if (routing_key is None) == (routing_key_column is None):
            raise InvalidDeclaration(
                "a publisher needs routing_key or routing_key_column",
                hint="Give one text for all messages, or the column that has it.",
            )
        if routing_key_column is not None and routing_key_column not in topic.schema.names:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{routing_key_column}"',
                hint="The columns are " + ", ".join(topic.schema.names) + ".",
            )
        self.topic = topic
        self.url = url
        self.exchange = exchange
        self.routing_key = routing_key
        self.routing_key_column = routing_key_column
        self.group = group
        self.published = 0
        self.problem: str | None = None
        self._place = start
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Publish existing and new rows in the background. A second call does nothing."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name=f"headwater-amqp-{self.group}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S)
        while not self._stopping.is_set():
            try:
                with closing(ConfirmedChannel(self.url)) as channel:
                    self._follow(channel)
            except HeadwaterError as error:
                if error.message != self.problem:
                    logger.warning("publisher of %s: %s", self.topic.name, error.message)
                self.problem = error.message
            except Exception as error:  # a bug of ours: logged, and nothing is committed
                logger.exception("publisher of %s failed", self.topic.name)
                self.problem = f"unexpected {type(error).__name__}: {error}"
            pause = backoff.next()
            if self.problem is None:
                backoff.reset()
            self._stopping.wait(pause)

    def _follow(self, channel: ConfirmedChannel) -> None:
        """Publish rows that the group has not committed, for ever. A repetition has the same message ids."""
        columns = [*self.topic.schema.names, *(["_deleted"] if self.topic.settings.key else [])]
        with self.topic.consumer(self.group, start=self._place, columns=columns) as consumer:
            while not self._stopping.is_set():
                batch = consumer.poll(timeout=POLL_S)
                if batch is not None:
                    self._publish(channel, batch)
                    with suppress(Fenced):  # another member has it, and will publish it again
                        consumer.commit(batch)
                    self.problem = None

    def _publish(self, channel: ConfirmedChannel, batch: Batch) -> None:
        waiting: list[Outgoing] = []
        for message in self._messages(batch):
            waiting.append(message)
            if len(waiting) == MESSAGES_MAX:
                channel.publish(waiting)
                self.published += len(waiting)
                waiting = []
        if waiting:
            channel.publish(waiting)
            self.published += len(waiting)

    def _messages(self, batch: Batch) -> Iterator[Outgoing]:
        properties = amqp_connection.client().BasicProperties
        for offset, row in zip(batch.offsets.tolist(), batch.to_pylist(), strict=True):
            deleted = bool(row.pop("_deleted", False))
            key = self.routing_key
            if self.routing_key_column is not None:
                value = row[self.routing_key_column]
                key = "" if value is None else str(value)
            yield Outgoing(
                self.exchange,
                key or "",
                json_line(row).encode(),
                properties(
                    content_type="application/json",
                    delivery_mode=PERSISTENT,
                    message_id=f"{batch.topic}/{batch.partition}/{offset}",
                    headers={"headwater-deleted": True} if deleted else None,
                ),
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = amqp_connection.shown(self.url, self.exchange or "(default exchange)")
        return f"<AmqpPublisher of {self.topic.name} to {where}>"
