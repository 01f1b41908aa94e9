"""Kafka progress: the token of the last committed delivery, beside the view's topic.

What it is: ``KafkaProgress``, the topic ``<topic>.headwater-progress`` of one partition, compacted: each transaction
writes a ``ProgressToken`` there with its rows, and ``last`` reads the newest committed one.
Invariants: only committed tokens are read. A token names the sink that owns the topic, and the id of the topic with
the rows: a topic that was deleted and made again has no progress.
Not here: writing (``kafka_transactions.py``). Read next: ``kafka_sink.py``.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from headwater.errors import SinkRefused, Unavailable
from headwater.kafka.kafka_client import REQUEST_SECONDS_MAX, KafkaAdmin, KafkaCluster
from headwater.kafka.kafka_ranges import committed_messages
from headwater.sinks.sink import SinkContext, StoredProgress

SUFFIX = ".headwater-progress"
# One record for each delivery: small segments, so that compaction has something to work on.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}
LOOKED_AT_FIRST = 100  # offsets before the end; a record and a marker each
WAIT_S = 0.005


@dataclass(frozen=True)
class ProgressToken:
    """What a transaction stores of itself."""

    sink: str
    topic_id: str
    tick: int  # -1: a process has taken the sink over, and has not filled it yet
    epoch: int
    version: str

    @property
    def stored(self) -> StoredProgress:
        """As the contract has it."""
        return StoredProgress(self.tick, self.epoch, self.version)

    def line(self) -> bytes:
        """As a message's value."""
        return json.dumps(asdict(self)).encode()


class KafkaProgress:
    """The progress of one sink."""

    def __init__(self, cluster: KafkaCluster, admin: KafkaAdmin, topic: str, context: SinkContext) -> None:
        self.cluster = cluster
        self.admin = admin
        self.topic = topic + SUFFIX
        self.rows_topic = topic
        self.context = context

    def last(self, *, settled: bool = False) -> ProgressToken | None:
        """The newest committed token; None without one.

        With ``settled``, wait until no transaction is open: a commit returns before readers see it.
        """
        if self.admin.find(self.topic) is None:
            return None
        end = self._settled_end() if settled else self.admin.ends(self.topic, [0])[0]
        start = self.admin.starts(self.topic, [0])[0]
        looked_at = LOOKED_AT_FIRST
        while True:
            first = max(start, end - looked_at)
            tokens = self._read(first, end)
            if tokens or first == start:
                break
            looked_at *= 10
        if not tokens:
            return None
        token = tokens[-1]
        if token.sink != self.context.identity:
            raise SinkRefused(
                f'Kafka topic "{self.rows_topic}" at {self.cluster.servers} belongs to sink {token.sink}',
                hint='Give the sink a topic of its own: Kafka(servers, topic="…").',
            )
        return token

    def _settled_end(self) -> int:
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        while True:
            end = self.admin.ends(self.topic, [0])[0]
            if end == self.admin.ends(self.topic, [0], committed=False)[0]:
                return end
            if time.monotonic() > deadline:
                raise Unavailable(
                    f'a transaction of another program is open in Kafka topic "{self.topic}"',
                    hint="It is retried; the broker ends it after its transaction timeout.",
                )
            time.sleep(WAIT_S)

    def _read(self, first: int, end: int) -> list[ProgressToken]:
        messages = committed_messages(self.cluster, self.topic, {0: (first, end)})
        return [ProgressToken(**json.loads(message.value())) for message in messages if message.value() is not None]
