"""Fixtures of the sinks' tests: servers for the session, and one place for each sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.home import Log
from headwater.testing.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer
from tests.services.sinks.places import PLACES, Place, Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Servers]:
    with PostgresServer(max_wal_size="4GB") as postgres, RedisServer(tmp_path_factory.mktemp("redis")) as redis:
        yield Servers(postgres, redis, lambda: request.getfixturevalue("kafka"))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Place:
    return PLACES[request.param](tmp_path, servers)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        yield log
