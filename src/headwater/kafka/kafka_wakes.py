"""Waking: a thread that hears of appends to topics of Kafka.

What it is: ``KafkaWakes``, one consumer at the ends of the watched topics; each message that comes wakes the wakers of
its topic.
Invariants: only committed messages wake. A waker is told after the message can be read, so who looks then finds it. A
cluster that does not answer wakes no reader; a waiting reader looks again after a while in any case.
Not here: reading (``kafka_ranges.py``). Read next: ``log/storage/wake.py``.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from headwater.kafka.kafka_client import KafkaCluster, KafkaFailure, client
from headwater.log.storage.wake import Waker

POLL_S = 0.2
MESSAGES_MAX = 10_000


class KafkaWakes:
    """The wakers of one log. The thread starts with the first topic that is watched."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._wakers: dict[str, weakref.WeakSet[Waker]] = {}
        self._partitions: dict[str, int] = {}
        self._changed = False
        self._assigned = threading.Condition(self._lock)
        self._closed = False
        self._thread: threading.Thread | None = None

    def watch(self, topic: str, partitions: int, waker: Waker) -> None:
        """Let messages of a topic wake a waker; returns when they do. A second call does nothing."""
        with self._lock:
            wakers = self._wakers.setdefault(topic, weakref.WeakSet())
            if waker in wakers or self._closed:
                return
            wakers.add(waker)
            if topic in self._partitions:
                return
            self._partitions[topic] = partitions
            self._changed = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headwater-kafka-wakes", daemon=True)
                self._thread.start()
            self._assigned.wait_for(lambda: not self._changed or self._closed, timeout=10)

    def _run(self) -> None:
        kafka = client()
        consumer = self._cluster.client(
            kafka.Consumer,
            KafkaFailure(self._cluster),
            group_id="headwater.wakes",  # librdkafka asks for one; nothing is committed under it
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="latest",
            fetch_wait_max_ms=500,
            queued_max_messages_kbytes=1024,
        )
        try:
            while not self._closed:
                self._assign(consumer, kafka)
                messages = consumer.consume(1, POLL_S)
                if messages:
                    messages += consumer.consume(MESSAGES_MAX, 0)
                for topic in {message.topic() for message in messages if message.error() is None}:
                    for waker in list(self._wakers.get(topic, ())):
                        waker.wake()
        finally:
            with contextlib.suppress(RuntimeError):
                consumer.close()

    def _assign(self, consumer: Any, kafka: Any) -> None:
        with self._lock:
            if not self._changed:
                return
            # All of them anew, from their ends: what came to the others meanwhile is told below.
            consumer.assign(
                [
                    kafka.TopicPartition(topic, number, kafka.OFFSET_END)
                    for topic, count in self._partitions.items()
                    for number in range(count)
                ]
            )
            self._changed = False
            self._assigned.notify_all()
            every = {waker for wakers in self._wakers.values() for waker in wakers}
        for waker in every:
            waker.wake()

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._assigned.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=10)
