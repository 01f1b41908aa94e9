"""Fixtures of the tests with servers: one Kafka for all files that a process runs, started when the first asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
