"""Fixtures of the tests with servers: one Kafka for all files that a process runs, started when the first asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.kafka_broker import KafkaBroker

STARTED: list[KafkaBroker] = []  # by this process: one at most


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        STARTED.append(broker)
        yield broker
    finally:
        broker.kill()


@pytest.fixture(autouse=True)
def kafka_answers() -> None:
    """A test that killed the broker and failed before it had started it again fails alone."""
    for broker in STARTED:
        if broker.process is None:
            broker.start()
