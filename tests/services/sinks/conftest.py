"""Fixtures of the sinks' tests: servers for the session, and one place for each sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.home import Log
from tests.services.sinks.places import PLACES, Place, Servers
from tests.services.sinks.servers import PostgresServer, RedisServer


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Servers]:
    postgres = PostgresServer(tmp_path_factory.mktemp("postgres"))
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        postgres.start()
        redis.start()
        yield Servers(postgres, redis, lambda: request.getfixturevalue("kafka"))
    finally:
        postgres.remove()
        redis.stop()


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Place:
    return PLACES[request.param](tmp_path, servers)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        yield log
