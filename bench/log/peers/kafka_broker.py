"""Kafka, one broker in KRaft mode, through librdkafka.

Invariants: ``flush`` has confirmed every message before the clock stops. One partition: more were slower on a small
machine. Kafka leaves syncing to the operating system, so its figure is that of a log that never syncs.
Not here: replication; with one replica ``acks=all`` waits for the same disk as ``acks=1``.
Read next: ``bench/log_bench.py``.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, ClassVar

from bench.log.order_rows import Rows, order_id, to_json
from bench.log.peers.peer import Mode, Peer, Reading, client_library, stopwatch
from bench.peer_servers import kafka_broker

# Measured: batches of 1 MB are 20–50 % faster than librdkafka's defaults; compression and ``produce_batch`` (a dict for
# each message) are slower than ``produce`` on this machine's loopback.
_PRODUCER = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
# Measured: prefetching a million messages doubles the default's speed; taking 1 000 at a time beats 10 000.
_CONSUMER = {"queued.min.messages": 1_000_000, "enable.auto.commit": False, "group.id": "bench"}
_CONSUME_MESSAGES = 1_000
_SILENCE_SECONDS_MAX = 30.0


class KafkaBroker(Peer):
    """``produce`` each message and ``flush``; ``consume`` from the beginning."""

    title: ClassVar[str] = "Kafka"
    modes: ClassVar[tuple[Mode, ...]] = (Mode("acks=1"), Mode("acks=all"), Mode("acks=1, JSON", given="dicts"))

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._topics = 0
        self._topic = ""
        self._written = 0

    def setup(self, directory: Path) -> None:
        self._kafka: Any = client_library("confluent_kafka", package="confluent-kafka")
        self._admin_library: Any = client_library("confluent_kafka.admin", package="confluent-kafka")
        port = self._stack.enter_context(kafka_broker(directory))
        # Clients outlive the broker by a moment at the end and would write complaints to the terminal.
        self._common = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
        self._admin: Any = self._admin_library.AdminClient(self._common)

    def append(self, rows: Rows, mode: Mode) -> float:
        topic = self._fresh_topic()
        acks = "all" if mode.name.startswith("acks=all") else "1"
        producer = self._kafka.Producer({**self._common, **_PRODUCER, "acks": acks})
        producer.list_topics(topic, timeout=_SILENCE_SECONDS_MAX)
        produce = producer.produce
        self._packed = mode.given == "ready"
        if self._packed:
            payloads = rows.payloads
            with stopwatch() as watch:
                for payload in payloads:
                    produce(topic, payload, None, 0)
                unconfirmed = producer.flush(_SILENCE_SECONDS_MAX)
        else:
            plain_dicts = rows.plain_dicts
            with stopwatch() as watch:
                for row in plain_dicts:
                    produce(topic, to_json(row), None, 0)
                unconfirmed = producer.flush(_SILENCE_SECONDS_MAX)
        if unconfirmed:
            raise RuntimeError(f"Kafka confirmed all but {unconfirmed} messages")
        self._written = rows.count
        return watch.seconds

    def read_all(self, *, check: bool = False) -> Reading:
        consumer = self._kafka.Consumer({**self._common, **_CONSUMER})
        consumer.list_topics(self._topic, timeout=_SILENCE_SECONDS_MAX)
        count, checksum = 0, 0
        with stopwatch() as watch:
            consumer.assign([self._kafka.TopicPartition(self._topic, 0, 0)])
            heard = time.monotonic()
            while count < self._written:
                messages = consumer.consume(num_messages=_CONSUME_MESSAGES, timeout=1)
                values = [message.value() for message in messages]
                count += len(values)
                if check and self._packed:
                    checksum += sum(map(order_id, values))
                if values:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE_SECONDS_MAX:
                    break
        consumer.close()
        return Reading(count, watch.seconds, checksum if check and self._packed else None)

    def teardown(self) -> None:
        self._stack.close()

    def _fresh_topic(self) -> str:
        """A new topic; the one before it is deleted, so that the disk does not fill."""
        if self._topics:
            _finish(self._admin.delete_topics([self._topic]))
        self._topics += 1
        self._topic = f"orders-{self._topics}"
        _finish(self._admin.create_topics([self._admin_library.NewTopic(self._topic, 1, 1)]))
        return self._topic


def _finish(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(_SILENCE_SECONDS_MAX)
