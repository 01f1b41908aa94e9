"""Kafka reader: the committed messages of a Kafka topic from the stored positions on.

What it is: ``KafkaReader`` assigns every partition of a topic to one consumer, at the offsets that ``KafkaPositions``
has, and gives what comes; it looks again for new partitions, for a topic that was made anew, and for the end of each
partition.
Invariants: only committed messages are given (``read_committed``), in the order of each partition; offsets without a
message (aborted transactions, markers) are passed over. Nothing is skipped in silence: where retention was quicker than
the inlet, or the topic is another one, the user decides (``on_loss``). Kafka's own offsets of the group are committed
for monitoring, and never read.
Not here: what becomes of the messages (``kafka_inlet.py``). Read next:
``kafka_positions.py``, ``kafka/kafka_client.py``.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import OffsetOutOfRange, Unavailable
from headwater.inlets.kafka.kafka_positions import KafkaPositions, PartitionPosition
from headwater.kafka.kafka_client import KafkaAdmin, KafkaCluster, KafkaFailure, KafkaTopicFacts, client, consumed

if TYPE_CHECKING:
    from typing import Self

    from headwater.clock import Clock

logger = logging.getLogger("headwater.inlets")

MESSAGES_MAX = 10_000  # given at once, and written as one transaction
LOOK_AGAIN_S = 2.0
NOTE_EVERY_S = 1.0
GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")

Start = str | dt.datetime


@dataclass(frozen=True)
class KafkaSource:
    """The Kafka topic that an inlet reads, and how it begins."""

    cluster: KafkaCluster
    topic: str
    group: str
    start: Start = "earliest"
    on_loss: str = "stop"


class KafkaReader:
    """One connection to the topic. Used by one thread."""

    def __init__(
        self, source: KafkaSource, positions: KafkaPositions, clock: Clock, lost: Callable[[int], None]
    ) -> None:
        self.source = source
        self.positions = positions
        self.offsets: dict[int, int] = {}  # stored: the next one of each partition
        self.ends: dict[int, int] = {}
        self._empty_up_to: dict[int, int] = {}  # there is no message before it that was not given
        self._clock = clock
        self._lost = lost
        self._kafka = client()
        self._admin = KafkaAdmin(source.cluster)
        self._failure = KafkaFailure(source.cluster)
        self._consumer: Any = None
        self._topic_id = ""
        self._looked_at = self._noted_at = 0.0
        self._told: dict[int, int] = {}  # to Kafka, for monitoring

    def __enter__(self) -> Self:
        self._consumer = self.source.cluster.client(
            self._kafka.Consumer,
            self._failure,
            group_id=self.source.group,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            isolation_level="read_committed",
            auto_offset_reset="error",  # the default skips what retention took
            enable_partition_eof=True,  # the only sign that the rest of a partition holds no message
            fetch_wait_max_ms=100,
            queued_max_messages_kbytes=32_768,
            topic_metadata_refresh_interval_ms=5_000,
        )
        try:
            self._begin()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._tell_kafka(wait=True)
        finally:
            self._consumer.close()

    @property
    def lag(self) -> int:
        """How many offsets are still to be read."""
        return sum(max(0, self.ends.get(number, 0) - offset) for number, offset in self.offsets.items())

    # Reading

    def poll(self, seconds: float) -> list[Any]:
        """The next messages; none when nothing came in this time."""
        first = self._consumer.poll(seconds)
        if first is None:
            if self._failure.hopeless:
                raise self._failure.told()
            return []
        found: list[Any] = []
        for message in [first, *consumed(self._consumer, MESSAGES_MAX - 1, 0)]:
            error = message.error()
            if error is None:
                if message.offset() >= self.offsets[message.partition()]:
                    found.append(message)
            elif error.name() == "_PARTITION_EOF":
                self._empty_up_to[message.partition()] = message.offset()
            elif error.name() in GONE:
                self._begin()  # which says what is gone
                return []
            elif not error.retriable():
                raise self._failure.told(error, doing=f'reading topic "{self.source.topic}"')
        self._failure.forget()
        return found

    def moves(self, messages: list[Any]) -> dict[int, tuple[int, int]]:
        """The positions that these messages move: from, to."""
        last: dict[int, int] = {}
        for message in messages:
            last[message.partition()] = message.offset() + 1
        return {number: (self.offsets[number], offset) for number, offset in last.items()}

    def moved(self, moves: Mapping[int, tuple[int, int]]) -> None:
        """The catalog has these moves."""
        self.offsets.update({number: after for number, (_, after) in moves.items()})

    def settle(self, *, idle: bool) -> None:
        """What is due between two batches: positions past the last message, ends, new partitions."""
        now = self._clock.monotonic()
        if idle:
            self._pass_over_holes()
        if now - self._noted_at >= NOTE_EVERY_S:
            self._noted_at = now
            self._note()
        if now - self._looked_at >= LOOK_AGAIN_S:
            self._look_again()

    def _pass_over_holes(self) -> None:
        """Move past offsets that hold no message: else retention could take them, and it would look like a loss."""
        ends, self._empty_up_to = self._empty_up_to, {}
        moves = {
            number: (self.offsets[number], end) for number, end in ends.items() if end > self.offsets.get(number, end)
        }
        if moves:
            self.positions.move(moves)
            self.moved(moves)

    def _note(self) -> None:
        for number in self.offsets:
            _, end = self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(self.source.topic, number), cached=True
            )
            if end >= 0:
                self.ends[number] = max(end, self.ends.get(number, 0))
        self._tell_kafka()

    def _tell_kafka(self, *, wait: bool = False) -> None:
        """Commit the group's offsets: other programs see by them how far this inlet is, and nothing depends on it.

        Not by the consumer: one that has a commit under way when its broker dies takes 45 s and more to close.
        """
        if self.offsets == self._told:
            return
        self._admin.note_group(self.source.group, self.source.topic, self.offsets, wait=wait)
        self._told = dict(self.offsets)

    # Beginning

    def _begin(self) -> None:
        """Find the topic and the positions in it, and read on from them."""
        facts = self._found()
        stored = self.positions.load()
        new = [number for number in facts.partitions if number not in stored]
        if new:
            # Partitions that came later are read from their beginning: what is in them is newer than the inlet.
            self.positions.begin(facts.id, self._first(new, "earliest" if stored else self.source.start))
            stored = self.positions.load()
        starts = self._admin.starts(self.source.topic, facts.partitions)
        self.ends = self._admin.ends(self.source.topic, facts.partitions, committed=False)
        kept = {number: stored[number] for number in facts.partitions}
        gaps = {
            number: gap
            for number, position in kept.items()
            if (gap := self._gap(facts, number, position, starts[number])) is not None
        }
        if gaps:
            kept |= self._after_loss(gaps)
        self._topic_id = facts.id
        self.offsets = {number: position.offset for number, position in kept.items()}
        self._empty_up_to = {}
        self._looked_at = self._clock.monotonic()
        places = [self._kafka.TopicPartition(self.source.topic, *each) for each in self.offsets.items()]
        self._consumer.assign(places)

    def _found(self) -> KafkaTopicFacts:
        facts = self._admin.find(self.source.topic)
        if facts is None:
            raise Unavailable(
                f'Kafka at {self.source.cluster.servers} has no topic "{self.source.topic}"',
                hint="Create it, or correct the name. It is looked for again.",
            )
        return facts

    def _first(self, partitions: list[int], start: Start) -> dict[int, int]:
        if isinstance(start, dt.datetime):
            return self._admin.at_time(self.source.topic, partitions, int(start.timestamp() * 1000))
        ask = self._admin.ends if start == "latest" else self._admin.starts
        return ask(self.source.topic, partitions)

    def _gap(
        self, facts: KafkaTopicFacts, number: int, position: PartitionPosition, start: int
    ) -> tuple[str, int, PartitionPosition] | None:
        """What is lost of a partition, how many offsets at most, and where to go on; None when nothing is."""
        where, end = f"partition {number}", self.ends[number]
        if position.topic_id != facts.id:
            return f"{where}: the topic was deleted and made again", 0, PartitionPosition(facts.id, start)
        if position.offset < start:
            lost = start - position.offset
            said = f"{where}: retention has dropped up to {lost:,} messages, from offset {position.offset} to {start}"
            return said, lost, PartitionPosition(facts.id, start)
        if position.offset > end:
            said = f"{where}: it ends at {end}, and was read up to {position.offset}"
            return said, 0, PartitionPosition(facts.id, end)
        return None

    def _after_loss(self, gaps: Mapping[int, tuple[str, int, PartitionPosition]]) -> dict[int, PartitionPosition]:
        said = "; ".join(text for text, _, _ in gaps.values())
        message = f'messages of Kafka topic "{self.source.topic}" are gone before they were read: {said}'
        if self.source.on_loss == "stop":
            raise OffsetOutOfRange(
                message,
                detail="Nothing is read until you decide.",
                hint='Declare the inlet with on_loss="continue" to go on with what is there.',
                topic=self.source.topic,
            )
        after = {number: position for number, (_, _, position) in gaps.items()}
        self.positions.replace(after)
        logger.warning("%s; going on with what is there", message)
        self._lost(sum(lost for _, lost, _ in gaps.values()))
        return after

    def _look_again(self) -> None:
        self._looked_at = self._clock.monotonic()
        facts = self._found()
        if facts.id != self._topic_id or set(facts.partitions) != set(self.offsets):
            self._begin()
