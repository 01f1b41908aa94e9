"""Kafka client: how a cluster is reached, asked about its topics, and how its errors are told.

What it is: ``KafkaCluster``, an address with librdkafka's settings; ``KafkaAdmin``, which asks for topics and offsets;
``KafkaFailure``, which turns errors of confluent-kafka into sentences.
Invariants: a secret never appears in a shown address or an error. Every request has a bound in time, and ends as soon
as the client knows that no broker answers or that the credentials are wrong. What is missing or away is
``Unavailable``: it may come back.
Not here: consuming (``inlets/kafka/kafka_reader.py``), producing (``kafka_transactions.py``).
Read next: ``inlets/kafka/kafka_inlet.py``, ``sinks/kafka/kafka_sink.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import InvalidDeclaration, MissingExtra, Unavailable

REQUEST_SECONDS_MAX = 10.0
LEADER_SECONDS_MAX = 10.0
RECONNECT_SECONDS = 3.0  # within this a client that lost its connection has a new one, if a broker answers
LOOK_S = 0.05
SERVERS = re.compile(r"[^\s,/@]+:\d{1,5}(,[^\s,/@]+:\d{1,5})*")
OURS = ("bootstrap.servers", "group.id", "isolation.level", "transactional.id", "auto.offset.reset")
NO_LEADER = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",
    "FENCED_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PART",
    "REPLICA_NOT_AVAILABLE",
    "_NOENT",  # no leader is known, of no partition that was asked for
)
STALE = ("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_NOENT")
HOPELESS = ("_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL")
SAYS_WHY = ("_AUTHENTICATION", "_SSL", "_RESOLVE")
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def client() -> Any:
    """confluent-kafka, imported late."""
    with MissingExtra.raised_for("Kafka", "kafka"):
        import confluent_kafka
        import confluent_kafka.admin
    return confluent_kafka


class CollectorPause:
    """Python's collector of cycles is off while somebody is inside; of several, in threads, the last one turns it on.

    >>> with CollectorPause() as pause, pause:
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> CollectorPause:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


COLLECTOR_PAUSE = CollectorPause()


def consumed(consumer: Any, messages_max: int, wait_s: float) -> list[Any]:
    """What a consumer has, in at most so long.

    While thousands of messages come into being the collector would look through them again and again: half of the time.
    """
    with COLLECTOR_PAUSE:
        found: list[Any] = consumer.consume(messages_max, wait_s)
    return found


@dataclass(frozen=True)
class KafkaCluster:
    """The address of a cluster, and further settings of librdkafka, such as its credentials.

    >>> KafkaCluster("kafka-1:9092,kafka-2:9092", {"sasl.password": "s3cret"})
    KafkaCluster(servers='kafka-1:9092,kafka-2:9092')
    >>> KafkaCluster("kafka://kafka-1")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: a Kafka cluster is not reached at 'kafka://kafka-1'
      Hint: Write host:port, several with commas between: "kafka-1:9092,kafka-2:9092".
    """

    servers: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if SERVERS.fullmatch(self.servers) is None:
            raise InvalidDeclaration(
                f"a Kafka cluster is not reached at {self.servers.rpartition('@')[2]!r}",
                hint='Write host:port, several with commas between: "kafka-1:9092,kafka-2:9092".',
            )
        for name in self.settings:
            if name in OURS:
                raise InvalidDeclaration(f'the setting "{name}" is set by Headwater', hint="Leave it out.")

    def client(self, kind: Any, failure: KafkaFailure, **own: Any) -> Any:
        """A client of this kind with the user's settings, then ours; a name's underscores are dots."""
        options = {
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "socket.timeout.ms": int(REQUEST_SECONDS_MAX * 1000),
            "logger": _QUIET,
            **self.settings,
            "bootstrap.servers": self.servers,
            "error_cb": failure.note,
            **{name.replace("_", "."): value for name, value in own.items()},
        }
        try:
            return kind(options)
        except client().KafkaException as error:
            raise InvalidDeclaration(
                f"Kafka's client does not take these settings: {error.args[0].str()}",
                hint="Correct settings={…}: the names are those of librdkafka.",
            ) from error


# librdkafka writes several lines for each connection that is refused, and for each producer that is shut out; the last
# one is in the error that we tell.
_QUIET = logging.getLogger("headwater.kafka")
_QUIET.setLevel(logging.CRITICAL + 1)
logger = logging.getLogger("headwater.inlets")


def _log_failure(future: Any) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.debug("the offsets of a group could not be committed: %s", error)


class KafkaFailure:
    """What went wrong with a client in the background, and what is wrong with an error, in a sentence."""

    def __init__(self, cluster: KafkaCluster, raised: type[Unavailable] = Unavailable) -> None:
        self.cluster = cluster
        self._raised = raised
        self.last: Any = None  # a KafkaError
        self.hopeless = False  # no broker will answer for now

    def note(self, error: Any) -> None:
        """Called by librdkafka, with errors that belong to no request."""
        self.hopeless = self.hopeless or error.name() in HOPELESS
        # Authentication says why; "all brokers are down", which follows, does not.
        if error.name() in SAYS_WHY or self.last is None:
            self.last = error

    def forget(self) -> None:
        """An answer came: what was noted before is over."""
        self.last, self.hopeless = None, False

    def told(self, error: Any = None, *, doing: str = "") -> Unavailable:
        """The error to raise for an error of the client; without one, for what is known of the connection."""
        found = error.args[0] if isinstance(error, Exception) and error.args else error
        if self.last is not None and (found is None or found.name() in ("_TIMED_OUT", "_TRANSPORT", "_STATE")):
            found = self.last
        where = f"Kafka at {self.cluster.servers}"
        name = "" if found is None else found.name()
        text = "no answer in time" if found is None else re.sub(r"\s+", " ", found.str())[:200]
        if name == "_AUTHENTICATION":
            return self._raised(f"{where} refuses the credentials: {text}", hint="Correct them in settings={…}.")
        if name == "_SSL" or "SSL routines" in text:  # librdkafka tells it as a broken connection too
            return self._raised(
                f"{where} cannot be reached by TLS: {text}", hint="Check security.protocol and ssl.ca.location."
            )
        if name in ("", "_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_RESOLVE"):
            # One that wants SASL or TLS hangs up on others, and librdkafka does not say so.
            hint = "Check that it runs, and that security.protocol is what it wants. It is retried."
            return self._raised(f"{where} does not answer: {text}", hint=hint)
        if name.endswith("_AUTHORIZATION_FAILED"):
            return self._raised(f"{where} does not allow {doing or 'this'}: {text}", hint="Give the user the right.")
        return self._raised(f"{where} failed{f' {doing}' if doing else ''}: {text}", hint="It is retried.")


@dataclass(frozen=True)
class KafkaTopicFacts:
    """A topic of a cluster. Its id is another one when it was deleted and made again."""

    id: str
    partitions: tuple[int, ...]


class KafkaAdmin:
    """Asks a cluster for topics and offsets."""

    def __init__(self, cluster: KafkaCluster, raised: type[Unavailable] = Unavailable) -> None:
        self.failure = KafkaFailure(cluster, raised)
        self._cluster = cluster
        self._kafka = client()
        self._connect()

    def _connect(self) -> None:
        self._client = self._cluster.client(self._kafka.admin.AdminClient, self.failure)

    def find(self, topic: str) -> KafkaTopicFacts | None:
        """A topic; None when it does not exist."""
        return self.find_all([topic])[topic]

    def find_all(self, topics: Iterable[str]) -> dict[str, KafkaTopicFacts | None]:
        """Several topics, by one request; None for one that does not exist."""
        names = list(topics)
        asked = self._client.describe_topics(self._kafka.TopicCollection(names), request_timeout=REQUEST_SECONDS_MAX)
        found: dict[str, KafkaTopicFacts | None] = {}
        for name in names:
            try:
                facts = self._result(asked[name])
            except self._kafka.KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise self.failure.told(error, doing=f'the description of topic "{name}"') from error
                found[name] = None
            else:
                numbers = tuple(sorted(part.id for part in facts.partitions))
                found[name] = KafkaTopicFacts(str(facts.topic_id), numbers)
        return found

    def create(self, topic: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Make a topic; it may be there already."""
        wanted = self._kafka.admin.NewTopic(topic, partitions, replicas, config=dict(settings))
        made = self._client.create_topics([wanted], request_timeout=REQUEST_SECONDS_MAX)
        try:
            self._result(made[topic])
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise self.failure.told(error, doing=f'the creation of topic "{topic}"') from error

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        admin = self._kafka.admin
        entries = [
            admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        wanted = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        (done,) = self._client.incremental_alter_configs([wanted], request_timeout=REQUEST_SECONDS_MAX).values()
        try:
            self._result(done)
        except self._kafka.KafkaException as error:
            raise self.failure.told(error, doing=f'the settings of topic "{topic}"') from error

    def delete(self, topic: str) -> None:
        """Remove a topic; it may be gone already."""
        gone = self._client.delete_topics([topic], request_timeout=REQUEST_SECONDS_MAX)
        try:
            self._result(gone[topic])
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise self.failure.told(error, doing=f'the deletion of topic "{topic}"') from error

    def groups(self) -> list[str]:
        """The names of all consumer groups."""
        try:
            found = self._result(self._client.list_consumer_groups(request_timeout=REQUEST_SECONDS_MAX))
        except self._kafka.KafkaException as error:
            raise self.failure.told(error, doing="the list of groups") from error
        return [each.group_id for each in found.valid]

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The offsets of a topic that a group has committed."""
        asked = self._client.list_consumer_group_offsets(
            [self._kafka.ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_SECONDS_MAX
        )
        try:
            found = self._result(asked[group])
        except self._kafka.KafkaException as error:
            raise self.failure.told(error, doing=f'the offsets of group "{group}"') from error
        places = [each for each in found.topic_partitions if each.topic == topic and each.offset >= 0]
        return {each.partition: each.offset for each in sorted(places, key=lambda each: each.partition)}

    def move_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group that has no members."""
        try:
            self._result(self._moved(group, topic, offsets))
        except self._kafka.KafkaException as error:
            raise self.failure.told(error, doing=f'moving group "{group}"') from error

    def note_group(self, group: str, topic: str, offsets: Mapping[int, int], *, wait: bool) -> None:
        """Commit offsets for a group that has no members, where nothing depends on it: a failure is logged."""
        future = self._moved(group, topic, offsets)
        future.add_done_callback(_log_failure)
        if wait:
            try:
                self._result(future)
            except (self._kafka.KafkaException, Unavailable):
                return  # it was logged

    def _moved(self, group: str, topic: str, offsets: Mapping[int, int]) -> Any:
        places = [self._kafka.TopicPartition(topic, *each) for each in offsets.items()]
        asked = self._client.alter_consumer_group_offsets(
            [self._kafka.ConsumerGroupTopicPartitions(group, places)], request_timeout=REQUEST_SECONDS_MAX
        )
        return asked[group]

    def all_ends(
        self, topics: Mapping[str, Iterable[int]], *, seconds_max: float = LEADER_SECONDS_MAX
    ) -> dict[str, dict[int, int]]:
        """The end of what is committed of each partition of several topics, by one request to each broker."""
        spec = self._kafka.admin.OffsetSpec.latest()
        wanted = {self._kafka.TopicPartition(name, number): spec for name, of in topics.items() for number in of}
        found: dict[str, dict[int, int]] = {name: {} for name in topics}
        doing = f"the offsets of {', '.join(sorted(topics))}"
        for place, offset in self._listed(wanted, doing, committed=True, seconds_max=seconds_max).items():
            found[place.topic][place.partition] = offset
        return found

    def ends(self, topic: str, partitions: Iterable[int], *, committed: bool = True) -> dict[int, int]:
        """The end of each partition: of what is committed, or of everything."""
        return self._offsets(topic, partitions, self._kafka.admin.OffsetSpec.latest(), committed=committed)

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset that each partition still has."""
        return self._offsets(topic, partitions, self._kafka.admin.OffsetSpec.earliest())

    def at_time(self, topic: str, partitions: Iterable[int], milliseconds: int) -> dict[int, int]:
        """The first offset at or after a time; the end where there is none."""
        spec = self._kafka.admin.OffsetSpec.for_timestamp(milliseconds)
        found, ends = self._offsets(topic, partitions, spec), self.ends(topic, partitions)
        return {number: ends[number] if offset < 0 else offset for number, offset in found.items()}

    def _offsets(self, topic: str, partitions: Iterable[int], spec: Any, *, committed: bool = True) -> dict[int, int]:
        wanted = {self._kafka.TopicPartition(topic, number): spec for number in partitions}
        found = self._listed(wanted, f'the offsets of topic "{topic}"', committed=committed)
        return {place.partition: offset for place, offset in found.items()}

    def _listed(
        self, wanted: Mapping[Any, Any], doing: str, *, committed: bool, seconds_max: float = LEADER_SECONDS_MAX
    ) -> dict[Any, int]:
        levels = self._kafka.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        deadline = time.monotonic() + seconds_max
        while True:
            asked = self._client.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_SECONDS_MAX)
            try:
                found = {place: self._result(future).offset for place, future in asked.items()}
                # Of a broker that has just started librdkafka may give no error, and no offset either.
                if self._kafka.OFFSET_INVALID not in found.values():
                    return found
                if time.monotonic() > deadline:
                    raise self.failure.told(doing=doing)
            except self._kafka.KafkaException as error:
                # A topic that was just made, or a broker that just started: not every broker knows it yet.
                if error.args[0].name() not in NO_LEADER or time.monotonic() > deadline:
                    raise self.failure.told(error, doing=doing) from error
                if error.args[0].name() in STALE:  # what the client knows of leaders is old, and it does not ask again
                    self._connect()
            self._client.poll(LOOK_S)
            if self.failure.hopeless:
                raise self.failure.told()
            time.sleep(LOOK_S)

    def _result(self, future: Any) -> Any:
        """Wait for an answer; not longer than there is hope for one."""
        self._client.poll(0)
        self.failure.forget()  # a connection that was idle may have been closed: that is no failure of this request
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        while not wait([future], LOOK_S).done:
            self._client.poll(0)  # so that errors in the background are heard of
            if self.failure.hopeless or time.monotonic() > deadline:
                raise self.failure.told()
        self.failure.forget()
        return future.result()
