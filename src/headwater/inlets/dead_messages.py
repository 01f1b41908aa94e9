"""Dead messages: messages that an inlet accepted and could not append to its topic.

What it is: ``DeadMessages`` keeps them in the topic ``<inlet>.dead``, unchanged, with the reason and their metadata.
Invariants: a message with an id is there once, also when it is redelivered after a crash; the topic is created with the
first one. Each message is on disk before the sender gets an answer.
Not here: messages that a work group gave up (``log/groups/dead_letters.py``). Read next: ``inlets/amqp/amqp_inlet.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.log.commits.request_ids import IdsKnown
from headwater.log.commits.transaction import TransactionRows, append_messages
from headwater.log.schema.event_metadata import Metadata, with_metadata

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

SCHEMA = (
    "inlet STRING, code STRING, reason STRING, died_at TIMESTAMP, message_id STRING, source STRING, "
    "headers MAP<STRING, STRING>, body BINARY"
)


@dataclass(frozen=True)
class DeadMessage:
    """An unchanged message. ``source``: its origin, such as a routing key or a prefix."""

    body: bytes
    error: HeadwaterError
    id: str | None = None
    source: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Metadata | None = None


class DeadMessages:
    """The dead messages of one inlet.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> dead = DeadMessages(log, "orders")
    >>> dead.bury([DeadMessage(b"?", hw.errors.RowRefused("not JSON"), id="a")] * 2)
    >>> [(row["reason"], row["body"]) for row in log.get_topic("orders.dead").rows()]
    [('not JSON', b'?')]
    """

    def __init__(self, log: Log, inlet: str) -> None:
        self.log = log
        self.inlet = inlet
        self.name = f"{inlet}.dead"

    def bury(self, messages: Sequence[DeadMessage]) -> None:
        """Store some messages; returns when they are on disk."""
        if not messages:
            return
        topic = self._topic()
        while True:
            seen = self.log.request_ids.known(topic.id, (each.id for each in messages if each.id is not None))
            new = {each.id or place: each for place, each in enumerate(messages) if each.id not in seen}
            ids = {each.id for each in new.values() if each.id is not None}
            try:
                if new:
                    append_messages(topic, self.rows(list(new.values())).batch, ids)
                return
            except IdsKnown:  # another process was first, with at least one of them
                continue

    def rows(self, messages: Sequence[DeadMessage]) -> TransactionRows:
        """Some messages as rows for a transaction that keeps each of them once by other means."""
        topic = self._topic()
        batch = topic.row_batch([self._row(each) for each in messages])
        said = [each.metadata for each in messages]
        return TransactionRows(topic, with_metadata(batch, said if any(said) else None))

    def _topic(self) -> Topic:
        return self.log.topic(self.name, SCHEMA, partitions=1, fsync="always")

    def _row(self, message: DeadMessage) -> dict[str, Any]:
        return {
            "inlet": self.inlet,
            "code": message.error.code,
            "reason": str(message.error),
            "died_at": dt.datetime.fromtimestamp(self.log.clock.now_us() / 1_000_000, dt.UTC),
            "message_id": message.id,
            "source": message.source,
            "headers": dict(message.headers),
            "body": message.body,
        }
