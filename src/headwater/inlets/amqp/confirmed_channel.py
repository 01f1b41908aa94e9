"""Confirmed channel: pipelined publishing with confirms.

What it is: ``ConfirmedChannel`` publishes a list of messages and returns when the broker has confirmed all of them. Its
own thread runs pika's loop, so confirms arrive while others are sent: one at a time is three times slower.
Invariants: ``publish`` returns only when every message was confirmed and none was unroutable; otherwise it raises
``Unavailable``, and all messages must be sent again.
Not here: the messages (``amqp_publisher.py``). Read next: ``amqp_publisher.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import Unavailable
from headwater.inlets.amqp import amqp_connection

CONFIRM_SECONDS_MAX = 30.0
CLOSE_SECONDS_MAX = 5.0


@dataclass(frozen=True)
class Outgoing:
    """One message to be published."""

    exchange: str
    routing_key: str
    body: bytes
    properties: Any


class ConfirmedChannel:
    """One connection with one channel in confirm mode."""

    def __init__(self, url: str) -> None:
        pika = amqp_connection.client()
        self._pika = pika
        self._changed = threading.Condition()
        self._ready = False
        self._failure: str | None = None
        self._unconfirmed: set[int] = set()
        self._sent = 0
        self._outstanding = 0  # of the current list: messages that are not sent or not confirmed
        self._channel: Any = None
        self._connection = pika.SelectConnection(
            amqp_connection.parameters(url),
            on_open_callback=self._opened,
            on_open_error_callback=self._ended,
            on_close_callback=self._ended,
        )
        self._thread = threading.Thread(target=self._run, name="headwater-amqp-publisher", daemon=True)
        self._thread.start()
        try:
            self._wait(lambda: self._ready, "to open a channel")
        except Unavailable:
            self.close()
            raise

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send messages; returns when the broker has confirmed all of them."""
        with self._changed:
            self._check()
            self._outstanding = len(messages)
        self._connection.ioloop.add_callback_threadsafe(lambda: self._send(messages))
        self._wait(lambda: self._outstanding == 0, "to confirm messages")

    def close(self) -> None:

        def close() -> None:
            if self._connection.is_open:
                self._connection.close()
            else:
                self._connection.ioloop.stop()

        if self._thread.is_alive():
            self._connection.ioloop.add_callback_threadsafe(close)
            self._thread.join(CLOSE_SECONDS_MAX)  # a broker that does not answer the close is left

    # In the loop's thread

    def _run(self) -> None:
        try:
            self._connection.ioloop.start()
        except Exception as error:  # pika's loop ends with any error of the socket
            self._fail(amqp_connection.reason(error))

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _, error: self._fail(amqp_connection.reason(error)))
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=self._confirming)

    def _confirming(self, _: Any) -> None:
        with self._changed:
            self._ready = True
            self._changed.notify_all()

    def _send(self, messages: Sequence[Outgoing]) -> None:
        try:
            for each in messages:
                self._sent += 1
                self._unconfirmed.add(self._sent)
                self._channel.basic_publish(each.exchange, each.routing_key, each.body, each.properties, mandatory=True)
        except self._pika.exceptions.AMQPError as error:
            self._fail(amqp_connection.reason(error))

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, self._pika.spec.Basic.Nack):
            self._fail("it refused a message")
            return
        tag = method.delivery_tag
        done = {one for one in self._unconfirmed if one <= tag} if method.multiple else {tag} & self._unconfirmed
        self._unconfirmed -= done
        with self._changed:
            self._outstanding -= len(done)
            self._changed.notify_all()

    def _returned(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        del properties, body
        exchange = f'exchange "{method.exchange}"' if method.exchange else "the default exchange"
        self._fail(f'{exchange} has no queue for routing key "{method.routing_key}" ({method.reply_text})')

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _ended(self, _: Any, error: Any) -> None:
        self._fail(amqp_connection.reason(error))
        self._connection.ioloop.stop()

    # In the caller's thread

    def _wait(self, done: Any, what: str) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._failure is not None or done(), CONFIRM_SECONDS_MAX)
            if not in_time:
                self._failure = f"it took longer than {CONFIRM_SECONDS_MAX:g} s {what}"
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise Unavailable(f"the broker: {self._failure}", hint="It is retried automatically.")
