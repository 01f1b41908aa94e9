"""Declarations of a log on Kafka: the settings and schemas of its topics, in a compacted topic.

What it is: ``KafkaDeclarations``, the topic ``<prefix>_headwater.topics`` of one partition: the latest message under a
topic's name is its declaration.
Invariants: two processes that declare at once agree: a declaration is read, decided and written under one transactional
id, so one that was overtaken is refused by Kafka and decides again. A declaration names Kafka's id of its topic: of a
topic that was deleted and made again there is none.
Not here: what a declaration may change (``log/topic_declaration.py``). Read next: ``kafka_log.py``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater.errors import CommitUnsure, Unavailable
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_client import KafkaAdmin, KafkaTopicFacts
from headwater.kafka.kafka_ranges import RangeReader
from headwater.kafka.kafka_transactions import KafkaRecord, KafkaTransactions, ProducerFenced
from headwater.log.catalog.registry import TopicRow
from headwater.log.schema.ddl import to_ddl
from headwater.log.topic_declaration import WantedTopic
from headwater.log.topic_settings import TopicSettings

NAME = "_headwater.topics"
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
ATTEMPTS_MAX = 20
SHOWN_SECONDS_MAX = 30.0
WAIT_S = 0.02
AGE_S = 1.0  # so old may be what is known of a topic that another process declares

# Makes the topic on the cluster, or changes its settings; returns what Kafka says of it.
Make = Callable[[str, TopicSettings, TopicRow | None], KafkaTopicFacts]


class KafkaDeclarations:
    """What is declared in one log. Used by the threads of a process."""

    def __init__(self, address: KafkaAddress, admin: KafkaAdmin) -> None:
        self.topic = address.prefix + NAME
        self._address = address
        self._admin = admin
        self._lock = threading.RLock()
        self._rows: dict[str, TopicRow] = {}
        self._reader: RangeReader | None = None
        self._position = 0
        self._read_at: float | None = None

    def rows(self, *, age: float = AGE_S) -> dict[str, TopicRow]:
        """Every topic by its name, as it was at most ``age`` seconds ago."""
        with self._lock:
            now = time.monotonic()
            if self._read_at is None or now - self._read_at >= age:
                self._catch_up()
                self._read_at = now
            return dict(self._rows)

    def find(self, name: str, *, age: float = AGE_S) -> TopicRow | None:
        """One topic; None when it is not declared: that is never an old answer."""
        found = self.rows(age=age).get(name)
        return found if found is not None or not age else self.rows(age=0.0).get(name)

    def declare(self, wanted: WantedTopic, now_us: int, make: Make) -> TopicRow:
        """Store a declaration, if it says more than the one that is there."""
        with self._lock:
            row = self.find(wanted.name, age=0.0)
            settings, schema = wanted.beside(row)
            if row is not None and settings == row.settings and schema.equals(row.schema):
                return row
            for _ in range(ATTEMPTS_MAX):
                try:
                    return self._declared(wanted, now_us, make)
                except (ProducerFenced, CommitUnsure):  # another process declares: look what is there now
                    continue
        raise Unavailable(
            f'topic "{wanted.name}" could not be declared: other processes declare all the time', hint="Try again."
        )

    def change(self, name: str, changes: Mapping[str, Any], make: Make) -> None:
        """Store changed settings of a topic."""

        def record() -> KafkaRecord:
            row = self._rows[name]
            changed = replace(row, settings=row.settings.with_changes(dict(changes)))
            return KafkaRecord(name.encode(), _written(changed, make(name, changed.settings, row).id))

        self._write(record)

    def delete(self, name: str) -> None:
        """Forget a topic."""
        self._write(lambda: KafkaRecord(name.encode(), None))

    def _declared(self, wanted: WantedTopic, now_us: int, make: Make) -> TopicRow:
        found: list[TopicRow] = []

        def record() -> KafkaRecord:
            row = self._rows.get(wanted.name)
            settings, schema = wanted.beside(row)
            facts = make(wanted.name, settings, row)
            versions = {} if row is None else dict(row.schemas)
            if row is None or not schema.equals(row.schema):
                versions[len(versions) + 1] = schema
            created = now_us if row is None else row.created_us
            found.append(TopicRow(number_of(facts.id), wanted.name, settings, versions, 0, created))
            return KafkaRecord(wanted.name.encode(), _written(found[-1], facts.id))

        self._write(record)
        self._rows[wanted.name] = found[-1]
        return found[-1]

    def _write(self, record: Callable[[], KafkaRecord]) -> None:
        """Write what ``record`` makes of the declarations as they are when no other process can write any."""
        with self._lock:
            self._exists()
            producer = KafkaTransactions(
                self._address.cluster, f"headwater/{self.topic}", self._address.transaction_timeout_ms, linger_ms=0
            )
            try:
                producer.begin()
                self._catch_up(settled=True)
                producer.commit([(self.topic, record())])
            finally:
                producer.close()
            self._catch_up(settled=True)

    def identity(self) -> str:
        """Kafka's id of the topic that has them: it stands for the log."""
        return self._exists().id

    def _exists(self) -> KafkaTopicFacts:
        facts = self._admin.find(self.topic)
        if facts is None:
            self._admin.create(self.topic, 1, self._address.replicas, SETTINGS)
            deadline = time.monotonic() + SHOWN_SECONDS_MAX
            while (facts := self._admin.find(self.topic)) is None:
                if time.monotonic() > deadline:
                    raise Unavailable(f'Kafka has made topic "{self.topic}" and does not show it', hint="Try again.")
                time.sleep(WAIT_S)
        return facts

    def _catch_up(self, *, settled: bool = False) -> None:
        """Read what was written since; ``settled``: with everything that was committed before this call."""
        if self._reader is None and self._admin.find(self.topic) is None:
            self._rows = {}
            return
        end = self._admin.ends(self.topic, [0])[0]
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        while settled and end != self._admin.ends(self.topic, [0], committed=False)[0]:
            if time.monotonic() > deadline:
                raise Unavailable(f'a transaction is open in Kafka topic "{self.topic}"', hint="Try again.")
            time.sleep(WAIT_S)
            end = self._admin.ends(self.topic, [0])[0]
        if self._reader is None:
            self._reader = RangeReader(self._address.cluster, self.topic)
            self._position = self._admin.starts(self.topic, [0])[0]
        for messages in self._reader.read(0, self._position, end):
            for message in messages:
                name = message.key().decode()
                self._rows.pop(name, None)
                if message.value() is not None:
                    self._rows[name] = _read(name, message.value())
        self._position = max(self._position, end)

    def close(self) -> None:
        """Leave the cluster."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
                self._read_at = None


def number_of(topic_id: str) -> int:
    """Kafka's id of a topic as a number; another one when the topic was made again.

    >>> number_of("AAAAAAAAAAAAAAAAAAAAAQ") != number_of("AAAAAAAAAAAAAAAAAAAAAg")
    True
    """
    return int.from_bytes(hashlib.sha256(topic_id.encode()).digest()[:7], "big")


def _written(row: TopicRow, topic_id: str) -> bytes:
    about = {
        "id": topic_id,
        "settings": json.loads(row.settings.to_json()),
        "columns": to_ddl(row.schema),  # for people; what counts is below
        "schemas": {str(n): base64.b64encode(s.serialize().to_pybytes()).decode() for n, s in row.schemas.items()},
        "created_us": row.created_us,
    }
    return json.dumps(about).encode()


def _read(name: str, value: bytes) -> TopicRow:
    about: dict[str, Any] = json.loads(value)
    settings = TopicSettings.from_json(json.dumps(about["settings"]))
    schemas = {
        int(number): pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
        for number, text in about["schemas"].items()
    }
    return TopicRow(number_of(about["id"]), name, settings, schemas, 0, about["created_us"])
