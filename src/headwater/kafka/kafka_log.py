"""A log on Kafka: the topics of a cluster as a typed log.

What it is: ``KafkaLog``, which keeps the contract of ``log/contract.py``: ``hw.App("shop", log="kafka://host:9092")``.
Invariants: the data is in Kafka, and so are the declarations (``kafka_declarations.py``); what an app keeps beside its
log is in its home, a folder. What Kafka cannot promise is not declared as a capability, and refused.
Not here: one topic (``kafka_topic.py``), producing (``kafka_appender.py``).
Read next: ``kafka_topic.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import pyarrow as pa

from headwater.clock import Clock
from headwater.durations import Duration
from headwater.errors import ClosedError, DeclarationConflict, LogUnavailable, Misuse, Unavailable, UnknownTopic
from headwater.hints import suggestion
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_appender import KafkaAppends
from headwater.kafka.kafka_client import LOOK_S, KafkaAdmin, KafkaTopicFacts
from headwater.kafka.kafka_declarations import KafkaDeclarations, number_of
from headwater.kafka.kafka_known_writes import KnownWrites
from headwater.kafka.kafka_ranges import deleted_topic, remade_topic
from headwater.kafka.kafka_receipts import KafkaReceipts
from headwater.kafka.kafka_topic import SEEN_SECONDS_MAX, SEEN_STEP_S, KafkaTopic
from headwater.kafka.kafka_transactions import KafkaRecord, Places, Positions
from headwater.kafka.kafka_unit import KafkaUnit
from headwater.kafka.kafka_values import KafkaValues
from headwater.kafka.kafka_wakes import KafkaWakes
from headwater.log import topic_reader
from headwater.log.catalog.registry import TopicRow
from headwater.log.contract import Capability, EventTopic, Stops
from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.log.storage.wake import Waker
from headwater.log.token import Token
from headwater.log.topic_declaration import WantedTopic, wanted_topic
from headwater.log.topic_settings import TopicOptions, TopicSettings

CAPABILITIES = frozenset(
    {
        Capability.TRANSACTIONS,
        Capability.REQUEST_IDS,
        Capability.PRODUCER_SEQUENCES,
        Capability.WAKE_UP,
        Capability.CONSUMER_GROUPS,
        Capability.COMPACTION,
    }
)
STARTS_AGE_S = SAME_AGE_S = 1.0
SHOWN_SECONDS_MAX = 30.0
GONE_SECONDS = 2.0  # after so long without an answer it is asked whether a topic is still there, and for so long


class KafkaLog:
    """A log on Kafka. ``local`` is the home of the app that opens it; a reader in another process needs none."""

    def __init__(self, address: str, local: Log | None = None, *, clock: Clock | None = None) -> None:
        self.place = KafkaAddress.parse(address)
        self._local = local
        self.clock = clock or (local.clock if local is not None else Clock())
        self.closed = False
        self.read_only = False
        self.admin = KafkaAdmin(self.place.cluster, LogUnavailable)
        self.declarations = KafkaDeclarations(self.place, self.admin)
        self.appends = KafkaAppends(self.place)
        self.receipts = KafkaReceipts(self.place, self.admin)
        self.known_writes = KnownWrites(self)
        self.wakes = KafkaWakes(self.place.cluster)
        self.waker = Waker()
        self._lock = threading.RLock()
        self._topics: dict[str, KafkaTopic] = {}
        self._starts: dict[str, tuple[float, dict[int, int]]] = {}
        self._ends: dict[str, dict[int, int]] = {}  # as they were last seen
        self._same_at: dict[str, float] = {}  # when each topic was last seen to be the one that is declared

    # What it is

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it offers beyond appending and reading."""
        return CAPABILITIES

    @property
    def address(self) -> str:
        """What opens it in another process; it has the credentials in it."""
        return self.place.text

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return self.place.shown

    @property
    def identity(self) -> str:
        """Kafka's id of the topic that has the declarations."""
        return self.declarations.identity()

    @property
    def has_local(self) -> bool:
        """Whether it was opened with a home."""
        return self._local is not None

    @property
    def local(self) -> Log:
        """The home of the app."""
        if self._local is None:
            raise Misuse(f"the log at {self.shown} was opened without a home", hint='hw.App("shop", home="…", log="…")')
        return self._local

    @property
    def home(self) -> Path:
        """The folder of the app's home."""
        return self.local.home

    def kafka_name(self, name: str) -> str:
        """The name of a topic in the cluster."""
        return self.place.prefix + name

    # Topics

    def topic(self, name: str, schema: str | pa.Schema, **settings: Unpack[TopicOptions]) -> KafkaTopic:
        """Declare a topic: make it, or let its columns and settings grow."""
        return self._declare(wanted_topic(name, schema, settings, multiset=False))

    def multiset(self, name: str, schema: str | pa.Schema, **settings: Any) -> KafkaTopic:
        """Declare the topic of a table without a key: its rows have weights."""
        return self._declare(wanted_topic(name, schema, settings, multiset=True))

    def _declare(self, wanted: WantedTopic) -> KafkaTopic:
        self.check_open()
        settings, schema = wanted.beside(self.declarations.find(wanted.name))
        KafkaValues(lambda: TopicRow(0, wanted.name, settings, {1: schema}, 0, 0), self.place).check()
        topic = self._opened(self.declarations.declare(wanted, self.clock.now_us(), self._made))
        self.check_same([topic])
        return topic

    def _made(self, name: str, settings: TopicSettings, before: TopicRow | None) -> KafkaTopicFacts:
        """The topic in the cluster, made or changed so that it does what the settings say."""
        kafka_name, stored = self.kafka_name(name), kafka_settings(settings)
        facts = self.admin.find(kafka_name)
        if before is not None:
            facts = self._same(before, facts)
            if stored != kafka_settings(before.settings):
                self.admin.change(kafka_name, stored)
            return facts
        if facts is None:
            self.admin.create(kafka_name, settings.partitions, self.place.replicas, stored)
            facts = self._shown_facts(kafka_name)
        if len(facts.partitions) != settings.partitions:
            raise DeclarationConflict(
                f'Kafka topic "{kafka_name}" has {len(facts.partitions)} partitions, and {settings.partitions} are '
                "declared",
                hint=f"Declare it with partitions={len(facts.partitions)}.",
                topic=name,
            )
        return facts

    def _shown_facts(self, kafka_name: str) -> KafkaTopicFacts:
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        while True:
            facts = self.admin.find(kafka_name)
            if facts is not None:
                return facts
            if time.monotonic() > deadline:
                raise deleted_topic(kafka_name, self.place.cluster)
            time.sleep(SEEN_STEP_S)

    def _opened(self, row: TopicRow) -> KafkaTopic:
        with self._lock:
            topic = self._topics.get(row.name)
            if topic is None or topic.id != row.id:
                topic = self._topics[row.name] = KafkaTopic(self, row)
                self._forget(row.name)
            else:
                topic.follow(row)
            return topic

    def get_topic(self, name: str) -> KafkaTopic:
        """The topic of this name."""
        self.check_open()
        found = self.find_topic(name)
        if found is None:
            raise UnknownTopic(
                f'no topic "{name}" in the log at {self.shown}', hint=suggestion(name, self.topic_names()), topic=name
            )
        return found

    def find_topic(self, name: str) -> KafkaTopic | None:
        """The topic of this name, if it is declared."""
        row = self.declarations.find(name)
        return None if row is None else self._opened(row)

    def topics(self) -> list[KafkaTopic]:
        """All topics, by name."""
        return [self._opened(row) for _, row in sorted(self.declarations.rows().items())]

    def topic_names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self.declarations.rows())

    def declared(self, row: TopicRow) -> TopicRow:
        """The declaration of a topic as it is now."""
        found = self.declarations.find(row.name, age=0.0)
        if found is None or found.id != row.id:
            raise deleted_topic(self.kafka_name(row.name), self.place.cluster)
        return found

    def change_settings(self, topic: KafkaTopic, changes: Mapping[str, Any]) -> None:
        """Change settings of a topic that no declaration changes."""
        self.declarations.change(topic.name, changes, self._made)
        topic.refresh()

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its rows from the cluster, for good; of one that is gone, its declaration alone."""
        topic = self.get_topic(name)
        facts = self.admin.find(topic.kafka_name)
        self.declarations.delete(name)
        if facts is not None and number_of(facts.id) == topic.id:
            self.admin.delete(topic.kafka_name)
            self._wait_until_gone(topic)
        self.known_writes.forget_topic(topic.id)
        topic.close()
        with self._lock:
            self._topics.pop(name, None)
            self._forget(name)

    def _wait_until_gone(self, topic: KafkaTopic) -> None:
        """Until the cluster shows it no more: a topic that is declared under its name is another one."""
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        while (facts := self.admin.find(topic.kafka_name)) is not None and number_of(facts.id) == topic.id:
            if time.monotonic() > deadline:
                raise Unavailable(f'Kafka has deleted topic "{topic.kafka_name}" and still shows it', hint="Try again.")
            time.sleep(LOOK_S)

    def _forget(self, name: str) -> None:
        self._starts.pop(name, None)
        self._ends.pop(name, None)
        self._same_at.pop(name, None)

    # Offsets

    def starts(self, topic: KafkaTopic) -> dict[int, int]:
        """The first offset that is kept, as it was at most a second ago."""
        known = self._starts.get(topic.name)
        now = time.monotonic()
        if known is None or now - known[0] > STARTS_AGE_S:
            self.check_open()
            found = self.admin.starts(topic.kafka_name, range(topic.settings.partitions))
            known = self._starts[topic.name] = (now, found)
        return dict(known[1])

    def ends(self, topics: Iterable[EventTopic]) -> Stops:
        """The ends of what is committed."""
        self.check_open()
        wanted = {topic.name: topic for topic in topics}
        places = {self.kafka_name(name): range(topic.settings.partitions) for name, topic in wanted.items()}
        try:
            found = self.admin.all_ends(places, seconds_max=GONE_SECONDS)
        except Unavailable:
            self.check_same(wanted.values())
            found = self.admin.all_ends(places)
        ends: Stops = {name: found[self.kafka_name(name)] for name in wanted}
        # After the ends were asked for: they are those of the topics that are found now. Where nothing moved there is
        # nothing to read, and it is enough to look from time to time.
        still = [topic for name, topic in wanted.items() if ends[name] == self._ends.get(name)]
        self.check_same([topic for topic in wanted.values() if topic not in still])
        self.check_same(still, age=SAME_AGE_S)
        self._ends |= ends
        return ends

    def check_same(self, topics: Iterable[EventTopic], *, age: float = 0.0) -> None:
        """Refuse topics that others deleted, made again or gave partitions to, as it was ``age`` seconds ago."""
        now = time.monotonic()
        asked = [each for each in topics if not age or now - self._same_at.get(each.name, -age) >= age]
        if not asked:
            return
        names = [self.kafka_name(each.name) for each in asked]
        found, deadline = self.admin.find_all(names), now + GONE_SECONDS
        # One that was just made may not be known to every broker of the cluster.
        while None in found.values() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            found = self.admin.find_all(names)
        for topic in asked:
            self._same(topic.row(), found[self.kafka_name(topic.name)])
            self._same_at[topic.name] = now

    def look_again(self, topic: KafkaTopic) -> None:
        """Before a write: a topic that was the declared one a second ago at most, as it was declared then."""
        self.check_same([topic], age=SAME_AGE_S)
        row = self.declarations.find(topic.name)
        if row is not None and row.id == topic.id:
            topic.follow(row)  # another process may have declared a column, or where keys go

    def _same(self, row: TopicRow, facts: KafkaTopicFacts | None) -> KafkaTopicFacts:
        """What Kafka says of a topic, if it is the one that was declared."""
        kafka_name, declared = self.kafka_name(row.name), row.settings.partitions
        if facts is None:
            raise deleted_topic(kafka_name, self.place.cluster)
        if number_of(facts.id) != row.id:
            raise remade_topic(kafka_name, self.place.cluster)
        if len(facts.partitions) != declared:
            raise DeclarationConflict(
                f'Kafka topic "{kafka_name}" has {len(facts.partitions)} partitions now, and {declared} are declared',
                detail="Another program has added some. Keys are in other partitions than their older rows, and what "
                "is in the new ones would be missed.",
                hint="Copy it to a new topic, and declare that one; or take it in by an inlet, which reads partitions "
                "that are added: docs/kafka.md.",
                topic=row.name,
            )
        return facts

    def cut(self, topics: Iterable[EventTopic]) -> Stops:
        """The ends of what is committed. A transaction over partitions may be cut: Kafka shows it bit by bit."""
        topics = list(topics)
        return self.ends(topics) if topics else {}

    def limited_cut(
        self,
        topics: Sequence[EventTopic],
        begin: Mapping[str, Mapping[int, int]],
        end: Mapping[str, Mapping[int, int]],
        offsets_max: Mapping[str, int | None],
    ) -> Stops:
        """The ends, of each topic at most so many offsets after ``begin``: its partitions by equal parts."""
        stops: Stops = {}
        for topic in topics:
            starts, ends, limit = begin[topic.name], dict(end[topic.name]), offsets_max.get(topic.name)
            waiting = {number: stop - starts.get(number, 0) for number, stop in ends.items()}
            if limit is not None and sum(waiting.values()) > limit:
                busy = sum(count > 0 for count in waiting.values())
                each = max(1, limit // max(1, busy))
                ends = {number: starts.get(number, 0) + min(each, count) for number, count in waiting.items()}
            stops[topic.name] = ends
        return stops

    # Writing

    def written(self, records: Iterable[tuple[str, KafkaRecord]], positions: Positions | None = None) -> Token:
        """Write messages, all or none, and wait until readers see them."""
        return self.seen(self.token_of(self.appends.write(records, positions)))

    def token_of(self, places: Places) -> Token:
        """The token of what was written."""
        frontier: dict[str, dict[int, int]] = {}
        for (kafka_name, number), offset in places.items():
            frontier.setdefault(kafka_name.removeprefix(self.place.prefix), {})[number] = offset
        return Token(frontier)

    def seen(self, token: Token) -> Token:
        """The token of what was committed, once readers see it.

        Kafka marks the partitions of a transaction after the commit has returned.
        """
        frontier = token.frontier
        # The bound is for transactions of other programs, which may be open for longer: the rows are written, and who
        # waits for the token gets them later.
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        places = {self.kafka_name(name): list(offsets) for name, offsets in frontier.items()}
        while places and time.monotonic() < deadline:
            ends = self.admin.all_ends(places)
            places = {
                self.kafka_name(name): late
                for name, offsets in frontier.items()
                if (
                    late := [
                        n
                        for n, offset in offsets.items()
                        if ends.get(self.kafka_name(name), {}).get(n, offset) < offset
                    ]
                )
            }
            if places:
                time.sleep(SEEN_STEP_S)
        return token

    def stored_position(self, reader: str) -> str | None:
        """Where a reader of a foreign source is."""
        return self.known_writes.stored_position(reader)

    def transaction(
        self,
        *,
        request_id: str | None = None,
        producer: Any = None,
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> KafkaUnit:
        """Rows of several topics and tables, all or none: a Kafka transaction."""
        if after is not None:
            self.wait_for(after)
        return KafkaUnit(self, metadata, request_id=request_id, producer=producer)

    def wait_for(self, token: Token | str, *, timeout: Duration = "30 seconds") -> None:
        """Wait until the log holds what a token names."""
        hint = "Is the token of another log? Or does another program hold a transaction open?"
        topic_reader.wait_for(self, token, timeout, who=f"the log at {self.shown}", hint=hint)

    # Life

    def check_open(self) -> None:
        """Refuse to work after ``close``."""
        if self.closed:
            raise ClosedError(f"the log at {self.shown} was closed", hint="Open it again.")

    def close(self) -> None:
        """Leave the cluster; the home is closed too."""
        if self.closed:
            return
        self.closed = True
        self.waker.close()
        self.wakes.close()
        self.appends.close()
        self.receipts.close()
        self.declarations.close()
        for topic in self._topics.values():
            topic.close()
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> KafkaLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaLog({self.shown!r})"


def kafka_settings(settings: TopicSettings) -> dict[str, str]:
    """What a topic's settings are in Kafka.

    >>> kafka_settings(TopicSettings(key=("id",), compact=True))
    {'cleanup.policy': 'compact', 'retention.ms': '-1', 'retention.bytes': '-1', 'delete.retention.ms': '86400000'}
    """
    bounded = settings.retention_ms is not None or settings.retention_bytes is not None
    policy = "compact,delete" if settings.compact and bounded else "compact" if settings.compact else "delete"
    kept = {
        "cleanup.policy": policy,
        "retention.ms": str(settings.retention_ms if settings.retention_ms is not None else -1),
        "retention.bytes": str(settings.retention_bytes if settings.retention_bytes is not None else -1),
    }
    if settings.compact:
        kept["delete.retention.ms"] = str(settings.tombstone_grace_ms)
    return kept
