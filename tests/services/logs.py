"""The logs of the conformance suite: an embedded one, and one on Kafka.

What it is: the fixture ``log``, one log of each kind for a file of tests; ``name``, a topic's name for each test.
Invariants: a log on Kafka has a prefix of its own, so files do not see each other's topics.
Not here: what is asked of them (``test_log_conformance.py``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.kafka.kafka_log import KafkaLog
from headwater.log.contract import EventLog, EventTopic
from headwater.log.home import Log
from tests.services.kafka_broker import KafkaBroker


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventLog]:
    home = Log(tmp_path_factory.mktemp("home"))
    if request.param == "embedded":
        with home:
            yield home
        return
    broker: KafkaBroker = request.getfixturevalue("kafka")
    with KafkaLog(f"kafka://{broker.servers}?prefix={uuid.uuid4().hex}.", home) as log:
        yield log


def beside(log: EventLog) -> EventLog:
    """Another handle of the same log, as another process has it."""
    return KafkaLog(log.address) if isinstance(log, KafkaLog) else Log(log.home)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name.partition("[")[0].removeprefix("test_")[:100]


def rows_of(topic: EventTopic, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[each] for each in columns) for row in topic.rows(columns=columns, **options)]
