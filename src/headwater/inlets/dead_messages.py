"""Dead messages: messages that an inlet accepted and could not append to its topic.

What it is: ``DeadMessages`` keeps them in the topic ``<inlet>.dead``, unchanged, with the reason and their metadata.
Invariants: a message with an id is there once, also when it is redelivered after a crash; the topic is created with the
first one. Each message is on disk before the sender gets an answer.
Not here: messages that a work group gave up (``log/groups/dead_letters.py``). Read next: ``inlets/amqp/amqp_inlet.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.commits.request_ids import IdsKnown
from headwater.log.schema.event_metadata import Metadata, with_metadata

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic

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

    def __init__(self, log: EventLog, inlet: str) -> None:
        self.log = log
        self.inlet = inlet
        self.name = f"{inlet}.dead"
        self.sealed = False  # nothing is kept of what messages say

    def bury(self, messages: Sequence[DeadMessage]) -> None:
        """Store some messages; returns when they are on disk."""
        if not messages:
            return
        topic = self.topic()
        while True:
            seen = topic.known_ids({each.id for each in messages if each.id is not None})
            new = {each.id or place: each for place, each in enumerate(messages) if each.id not in seen}
            ids = {each.id for each in new.values() if each.id is not None}
            try:
                if new:
                    topic.append_messages(self.batch(list(new.values())), ids)
                return
            except IdsKnown:  # another process was first, with at least one of them
                continue

    def batch(self, messages: Sequence[DeadMessage]) -> pa.RecordBatch:
        """Some messages as rows, also for a transaction that keeps each of them once by other means."""
        batch = self.topic().row_batch([self._row(each) for each in messages])
        said = [None if self.sealed else each.metadata for each in messages]
        return with_metadata(batch, said if any(said) else None)

    def topic(self) -> EventTopic:
        """The topic, which is made with the first message."""
        return self.log.topic(self.name, SCHEMA, partitions=1, fsync="always")

    def _row(self, message: DeadMessage) -> dict[str, Any]:
        if self.sealed:
            kept = HeadwaterError("what it says is not kept: its inlet leaves out, masks or hashes columns")
            message = replace(message, headers={}, body=b"", metadata=None)
        else:
            kept = message.error
        return {
            "inlet": self.inlet,
            "code": message.error.code,
            "reason": str(kept),
            "died_at": dt.datetime.fromtimestamp(self.log.clock.now_us() / 1_000_000, dt.UTC),
            "message_id": message.id,
            "source": message.source,
            "headers": dict(message.headers),
            "body": message.body,
        }
