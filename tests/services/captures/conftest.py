"""One server a session, one database a test, for each kind of database that can be captured.

What it is: the fixtures of the conformance suite.
Invariants: a new kind of database joins with one line in ``KINDS``.
Not here: the databases (``databases.py``).
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer
from tests.services.captures.databases import FileDatabase, MariadbDatabase, PostgresDatabase

KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "postgres": (PostgresServer, PostgresDatabase),
    "mariadb": (MariadbServer, MariadbDatabase),
    "mariadb by file": (MariadbServer, FileDatabase),
}


@pytest.fixture(scope="session", params=sorted(KINDS))
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    start, _ = KINDS[request.param]
    with start() as running:
        running.kind = request.param
        yield running


@pytest.fixture
def database(server: Any) -> Iterator[Any]:
    made = KINDS[server.kind][1](server)
    yield made
    made.drop()


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture
def postgres(own_postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    """For what only PostgreSQL has."""
    made = PostgresDatabase(own_postgres)
    yield made
    made.drop()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", home=tmp_path / "home") as made:
        yield made
