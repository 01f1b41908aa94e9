"""Consumer groups of a log on Kafka: Kafka's own, through librdkafka.

What it is: ``KafkaConsumer``, a member of a group that reads one topic; ``KafkaGroup``, where a group is and how far
behind; ``app_lags``, the same of the apps of the home. Other clients of Kafka may be members of the same group.
Invariants: a batch is of one partition, in order; positions are Kafka's committed offsets. Only the owner of a
partition commits: Kafka refuses another, which is ``Fenced``.
Not here: work groups, which this log does not offer. Read next: ``kafka_topic.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.durations import Duration, to_seconds, to_timeout
from headwater.errors import ClosedError, Fenced, InvalidDeclaration, NotOffered, OffsetOutOfRange, RowRefused
from headwater.kafka.kafka_client import RECONNECT_SECONDS, REQUEST_SECONDS_MAX, KafkaFailure, client, consumed
from headwater.kafka.kafka_ranges import OUT_OF_RANGE
from headwater.log.batch import Batch
from headwater.log.contract import Capability, require
from headwater.log.groups.groups import GroupDescription
from headwater.log.groups.readers import ReaderLag
from headwater.log.topic_reader import Place, check_columns
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.kafka.kafka_topic import KafkaTopic

ROWS_MAX = 10_000
STEP_S = 0.1
SAME_AGE_S = 1.0  # so long ago the topic was seen to be the one that is declared, at most
NOT_OWNED = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_INSTANCE_ID",
    "_ASSIGNMENT_LOST",
)


class KafkaConsumer:
    """One member of a consumer group of Kafka; made by ``topic.consumer(group)``."""

    def __init__(
        self,
        topic: KafkaTopic,
        group: str,
        *,
        member: str | None = None,
        start: Place = "earliest",
        session_timeout: Duration = "10 seconds",
        auto_commit: bool = False,
        columns: Iterable[str] | None = None,
        rows_max: int | None = None,
        background: bool = True,
    ) -> None:
        del background  # librdkafka sends heartbeats by itself
        check_name("group", group)
        if start not in ("earliest", "latest"):
            raise InvalidDeclaration(
                f"a group on Kafka cannot begin at {start!r}",
                hint='Use "earliest" or "latest"; or move it: topic.group(name).reset(place).',
            )
        self.topic = topic
        self.group = group
        self.auto_commit = auto_commit
        self._columns = check_columns(topic, list(columns) if columns is not None else None)
        self._rows_max = rows_max or ROWS_MAX
        self._kafka = client()
        self._failure = KafkaFailure(topic.log.place.cluster)
        own = {"group_instance_id": member} if member is not None else {}
        self._consumer = topic.log.place.cluster.client(
            self._kafka.Consumer,
            self._failure,
            group_id=topic.log.kafka_name(group),
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="error",  # any other skips in silence what retention took
            session_timeout_ms=int(to_seconds(session_timeout, what="session_timeout") * 1000),
            fetch_wait_max_ms=50,
            **own,
        )
        self._start = self._kafka.OFFSET_BEGINNING if start == "earliest" else self._kafka.OFFSET_END
        self._position: dict[int, int] = {}
        self._out_of_range: dict[int, OffsetOutOfRange] = {}  # of partitions that cannot be read on
        self._closed = False
        moved = {"on_assign": self._assigned, "on_lost": self._gone, "on_revoke": self._gone}
        self._consumer.subscribe([topic.kafka_name], **moved)

    def _assigned(self, consumer: Any, places: Any) -> None:
        """Begin where the group is, and a partition of which it has read nothing at the declared start."""
        found = consumer.committed(places, REQUEST_SECONDS_MAX)
        for place in found:
            if place.offset < 0:
                place.offset = self._start
        consumer.assign(found)

    def _gone(self, _: Any, places: Any) -> None:
        for place in places:
            self._position.pop(place.partition, None)
            self._out_of_range.pop(place.partition, None)

    def poll(self, timeout: Duration | None = None) -> Batch | None:
        """The next batch of one of the owned partitions, or None after ``timeout`` (None: wait for ever)."""
        if self._closed:
            raise ClosedError("this consumer was closed", hint="Make another one: topic.consumer(group).")
        if self.auto_commit:
            self.commit()
        self.topic.log.check_same([self.topic], age=SAME_AGE_S)
        self._failure.forget()
        began, seconds = time.monotonic(), to_timeout(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = STEP_S if deadline is None else min(STEP_S, max(0.0, deadline - time.monotonic()))
            first = self._consumer.poll(left)
            if first is not None and first.error() is None:
                return self._batch(first)
            if first is not None and first.error().name() in OUT_OF_RANGE:
                self._out_of_range[first.partition()] = self._told_of(first.partition())
            for error in self._out_of_range.values():
                raise error
            if first is not None and not first.error().retriable():
                raise self._failure.told(first.error(), doing=f'reading topic "{self.topic.name}"')
            if self._failure.hopeless and time.monotonic() - began > RECONNECT_SECONDS:
                raise self._failure.told()
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _batch(self, first: Any) -> Batch:
        """What follows a message in its partition; what another partition has is asked for again."""
        number = first.partition()
        messages, others = [first], dict[int, int]()
        for message in consumed(self._consumer, self._rows_max - 1, 0) if self._rows_max > 1 else ():
            if message.error() is None and message.partition() == number:
                messages.append(message)
            elif message.error() is None:
                others.setdefault(message.partition(), message.offset())
        for partition, offset in others.items():
            self._consumer.seek(self._kafka.TopicPartition(self.topic.kafka_name, partition, offset))
        whole = self._rows(number, messages)
        self._position[number] = whole.next_offset
        names = self._columns if self._columns is not None else self.topic.stored_names
        data = whole.data.select(names).replace_schema_metadata(None)
        return Batch(self.topic.name, number, whole.first_offset, whole.next_offset, data, whole.offsets)

    def _rows(self, number: int, messages: list[Any]) -> Batch:
        """Messages as rows; of a message that is no row those before it, and it comes again: nothing is skipped."""
        first = messages[0].offset()
        try:
            return self.topic.batch_of(number, first, messages)
        except BaseException as error:
            wrong = int(error.data["offset"]) if isinstance(error, RowRefused) else first
            self._consumer.seek(self._kafka.TopicPartition(self.topic.kafka_name, number, wrong))
            if wrong == first:
                if isinstance(error, RowRefused):
                    reset = f"headwater group reset {self.group} --topic {self.topic.name} --partition {number}"
                    error.hint = f"{error.hint} To go on after it: {reset} --to {wrong + 1}"
                raise
        return self.topic.batch_of(number, first, [each for each in messages if each.offset() < wrong])

    def _told_of(self, partition: int) -> OffsetOutOfRange:
        group, topic = self.topic.group(self.group), self.topic
        start, end = topic.start_offsets()[partition], topic.end_offsets()[partition]
        position = self._position.get(partition, group.positions().get(partition, 0))
        side, why = "before the start", "Retention, or a deletion of records, took what the group had not read."
        if position > end:
            side, why = "after the end", "A broker has lost what it had."
        return OffsetOutOfRange(
            f'offset {position} of group {self.group} is {side} of topic "{topic.name}" partition {partition}',
            detail=f"The partition holds {start} up to, not including, {end}. {why}",
            hint=f"Go on without it: headwater group reset {self.group} --topic {topic.name} --to earliest",
            topic=topic.name,
            group=self.group,
            partition=partition,
            offset=position,
            start=start,
            end=end,
        )

    def __iter__(self) -> Iterator[Batch]:
        """Batches for ever, until the consumer is closed."""
        while not self._closed:
            batch = self.poll(timeout=1.0)
            if batch is not None:
                yield batch

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions this member owns, as of its last poll."""
        return tuple(sorted(place.partition for place in self._consumer.assignment()))

    def position(self) -> dict[int, int]:
        """The next offset of each partition of which rows were returned."""
        return dict(sorted(self._position.items()))

    def commit(self, what: Batch | Mapping[int, int] | None = None) -> None:
        """Commit positions: of all returned rows, of one batch and all before it, or ``{partition: offset}``."""
        offsets = self.offsets_of(what)
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=self._places(offsets), asynchronous=False)
        except self._kafka.KafkaException as error:
            if error.args[0].name() in NOT_OWNED:
                raise Fenced(
                    f'group "{self.group}" has given these partitions to another member',
                    hint="Poll again; the group continues at its committed offsets.",
                    group=self.group,
                ) from error
            raise self._failure.told(error, doing="a commit of offsets") from error

    def offsets_of(self, what: Batch | Mapping[int, int] | None) -> dict[int, int]:
        """The offsets that a commit means."""
        if what is None:
            return dict(self._position)
        return {what.partition: what.next_offset} if isinstance(what, Batch) else dict(what)

    def positions_in(self, offsets: Mapping[int, int]) -> tuple[Any, Any]:
        """The same for a transaction."""
        return self._places(offsets), self._consumer.consumer_group_metadata()

    def committed(self, offsets: Mapping[int, int]) -> None:
        """A transaction has committed these."""

    def _places(self, offsets: Mapping[int, int]) -> list[Any]:
        return [self._kafka.TopicPartition(self.topic.kafka_name, *each) for each in offsets.items()]

    def close(self) -> None:
        """Leave the group."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KafkaGroup:
    """A consumer group of Kafka, as far as it reads one topic."""

    def __init__(self, topic: KafkaTopic, name: str) -> None:
        self.topic = topic
        self.name = name

    def positions(self) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        return self.topic.log.admin.group_offsets(self.topic.log.kafka_name(self.name), self.topic.kafka_name)

    def lag(self) -> dict[int, int]:
        """The distance from the group's position to the end of each partition, in offsets."""
        ends = self.topic.end_offsets()
        return {number: max(0, ends[number] - offset) for number, offset in self.positions().items()}

    def reset(self, to: Place, *, force: bool = False) -> dict[int, int]:
        """Move the group, which must have no members, to another position; returns the new positions."""
        del force
        numbers = range(self.topic.settings.partitions)
        wanted = {**self.positions(), **to} if isinstance(to, Mapping) else self.topic.places(to, numbers)
        self.topic.log.admin.move_group(self.topic.log.kafka_name(self.name), self.topic.kafka_name, wanted)
        return wanted

    def delete(self, *, force: bool = False) -> None:
        """Not offered: other clients may be members, and read other topics."""
        del force
        group = self.topic.log.kafka_name(self.name)
        raise NotOffered(
            f'group "{self.name}" is a group of Kafka, and is not deleted from here',
            hint=f"kafka-consumer-groups --delete --group {group}. Kafka forgets a group without members by itself.",
            group=self.name,
        )

    def redrive(self, *, limit: int | None = None) -> Any:
        """Not offered."""
        del limit
        require(self.topic.log, Capability.WORK_GROUPS, f'putting back letters of group "{self.name}"')

    def describe(self) -> GroupDescription:
        """Where the group is; its members are Kafka's business."""
        lag = self.lag()
        return GroupDescription(
            topic=self.topic.name,
            group=self.name,
            kind="consumer",
            generation=0,
            members=(),
            positions=self.positions(),
            lag=lag,
            lag_total=sum(lag.values()),
            in_flight=0,
            delayed=0,
            dead_letters=0,
            redriven=0,
            missed=0,
            settings={},
        )

    def reader_lag(self) -> ReaderLag:
        """As ``headwater lag`` shows it."""
        positions = self.positions()
        return ReaderLag(
            self.topic.name, self.name, "consumer", sum(self.lag().values()), positions, None, "reading", ""
        )


def groups_of(topic: KafkaTopic) -> list[KafkaGroup]:
    """The groups that have a position in a topic."""
    prefix = topic.log.place.prefix
    names = [name.removeprefix(prefix) for name in topic.log.admin.groups() if name.startswith(prefix)]
    return [group for group in (KafkaGroup(topic, name) for name in sorted(names)) if group.positions()]


def app_lags(topic: KafkaTopic) -> list[ReaderLag]:
    """How far each app whose home was opened with the log is behind in a topic, as of its last tick."""
    if not topic.log.has_local:
        return []
    ticks = topic.log.local.catalog.read(
        "SELECT app, committed_us, json_extract(manifest, '$.frontier') AS frontier FROM ticks"
        " JOIN apps ON apps.name = app AND apps.tick = ticks.tick ORDER BY app"
    )
    found, ends = [], topic.end_offsets() if ticks else {}
    for row in ticks:
        read = json.loads(row["frontier"]).get(topic.name)
        if read is not None:
            at = {int(number): offset for number, offset in read.items()}
            lag = sum(max(0, end - at.get(number, 0)) for number, end in ends.items())
            found.append(
                ReaderLag(topic.name, row["app"], "app", lag, at, None, "reading", format_us(row["committed_us"]))
            )
    return found
