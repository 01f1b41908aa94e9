"""Ranges of a Kafka topic: the committed messages from one offset up to another.

What it is: ``RangeReader``, one consumer of one topic that is kept open and reads exact ranges; ``committed_messages``,
some ranges by a reader of their own.
Invariants: only committed messages are given (``read_committed``), in the order of their offsets, each once. Offsets
without a message (aborted transactions, markers, compaction) are passed over; a range that ends in them ends all the
same. Nothing is skipped in silence: a start that retention took, or a topic that is gone, is an error. A range that
goes on where the last one ended costs no new request.
Not here: following a topic (``inlets/kafka/kafka_reader.py``).
Read next: ``kafka_client.py``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.errors import LogUnavailable, OffsetOutOfRange, Unavailable, UnknownTopic
from headwater.kafka.kafka_client import (
    RECONNECT_SECONDS,
    REQUEST_SECONDS_MAX,
    KafkaCluster,
    KafkaFailure,
    client,
    consumed,
)

# Given at once: with 20 000 the messages do not stay in the processor's caches, and consuming them costs a fifth more;
# with 1 000 it is their decoding that does.
MESSAGES_MAX = 5_000
WAIT_S = 0.005
# While much is to come it is waited for longer: what is decoded at once costs less than the same in small lots.
MANY_MESSAGES, WAIT_FOR_MANY_S = 5_000, 0.1
OUT_OF_RANGE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
ANEW = (
    "Restore it from a copy. Or begin with what is there now: `headwater topic delete` takes away the declaration "
    "alone of a topic that is gone; then open the app again."
)
GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID")


class RangeReader:
    """One consumer of a topic. Used by one thread at a time."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self._kafka = client()
        self._error_of = self._kafka.Message.error
        self._failure = KafkaFailure(cluster, LogUnavailable)
        self._consumer = cluster.client(
            self._kafka.Consumer,
            self._failure,
            group_id="headwater.ranges",  # librdkafka asks for one; nothing is committed under it
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="error",  # the default skips what retention took
            enable_partition_eof=True,  # the only sign that the rest of a range holds no message
            fetch_wait_max_ms=20,
            # As much as is decoded in a few hundredths of a second. More leaves the processor's caches before it is
            # consumed, and stays in memory: 170 MB for each topic of small messages, with a hundred thousand and 8 MB.
            queued_min_messages=30_000,
            queued_max_messages_kbytes=16_384,
            fetch_message_max_bytes=2 << 20,
            fetch_queue_backoff_ms=5,  # the default lets a reader that has emptied the queue wait for up to a second
        )
        self._at: tuple[int, int] | None = None  # the partition, and the offset of the message that comes next

    def read(self, number: int, start: int, stop: int) -> Iterator[list[Any]]:
        """The messages from ``start`` up to ``stop`` of one partition, some at a time."""
        if start >= stop:
            return
        if self._at != (number, start):
            self._consumer.assign([self._kafka.TopicPartition(self.topic, number, start)])
        self._at = None  # a reader that is left in the middle begins again
        self._failure.forget()
        position, heard = start, time.monotonic()
        while position < stop:
            wait_s = WAIT_FOR_MANY_S if stop - position > MANY_MESSAGES else WAIT_S
            # Not more than the range may hold: what is beyond stays for the next one.
            messages = consumed(self._consumer, min(MESSAGES_MAX, stop - position), wait_s)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > (RECONNECT_SECONDS if self._failure.hopeless else REQUEST_SECONDS_MAX):
                raise self._failure.told()
            found, beyond = messages, False
            if messages and (any(map(self._error_of, messages)) or messages[-1].offset() >= stop):
                found, position, beyond = self._sorted_out(messages, number, position, stop)
            elif messages:  # nearly always: nothing but messages of the range
                position = messages[-1].offset() + 1
            if found:
                self._failure.forget()
                yield found
            if beyond:
                return  # the message was taken from the queue: the next range asks for it anew
        self._at = (number, position)

    def _sorted_out(self, messages: list[Any], number: int, position: int, stop: int) -> tuple[list[Any], int, bool]:
        """The messages of the range, where it goes on, and whether a message beyond it was taken from the queue."""
        found: list[Any] = []
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() >= stop:  # the range ends in offsets without a message
                    return found, stop, True
                found.append(message)
                position = message.offset() + 1
            elif error.name() == "_PARTITION_EOF":
                position = max(position, message.offset())
            else:
                raise self._told(error, number, position)
        return found, position, False

    def _told(self, error: Any, number: int, position: int) -> Exception:
        if error.name() in OUT_OF_RANGE:
            return OffsetOutOfRange(
                f'offset {position} is not in Kafka topic "{self.topic}" partition {number} any more',
                detail="Retention or a deletion of records moved the start of the partition.",
                hint="Read from its start; a view that needs the lost rows: headwater run APP.py --accept-loss.",
                topic=self.topic,
                partition=number,
                offset=position,
            )
        if error.name() in GONE:
            return deleted_topic(self.topic, self.cluster)
        return self._failure.told(error, doing=f'reading topic "{self.topic}"')

    def close(self) -> None:
        """Leave the cluster."""
        with contextlib.suppress(RuntimeError):  # it was closed
            self._consumer.close()


def deleted_topic(topic: str, cluster: KafkaCluster) -> UnknownTopic:
    """The error of a topic that is not there any more."""
    return UnknownTopic(
        f'Kafka at {cluster.servers} has no topic "{topic}" any more',
        detail="Another program has deleted it, or deleted and made it again.",
        hint=ANEW,
        topic=topic,
    )


def remade_topic(topic: str, cluster: KafkaCluster) -> UnknownTopic:
    """The error of a topic whose name is that of another one by now."""
    return UnknownTopic(
        f'Kafka at {cluster.servers} has no topic "{topic}" any more, but another one of this name',
        detail="Another program has deleted it and made it again. Readers are at offsets of the one that is gone.",
        hint=ANEW,
        topic=topic,
    )


def committed_messages(cluster: KafkaCluster, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Any]:
    """The committed messages of some ranges of offsets, partition by partition."""
    reader = RangeReader(cluster, topic)
    try:
        for number, (start, stop) in ranges.items():
            for messages in reader.read(number, start, stop):
                yield from messages
    except OffsetOutOfRange as error:
        raise Unavailable(error.message, hint="It is read again.") from error
    finally:
        reader.close()
