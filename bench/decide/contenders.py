"""Contenders: the environments that an application of ``eventsourcing`` is run with, ours among them.

What it is: ``Contender``, a name and an environment for each of Headwater, SQLite and PostgreSQL, at two levels of
durability; ``contenders`` makes the folders and starts PostgreSQL.
Invariants: a level is the same promise for all. "on disk": an answer means that the event survives a power cut
(fsync="always"; synchronous=FULL; synchronous_commit=on). "soon on disk": it survives the death of the process at once,
and a power cut a moment later (fsync="interval" of 50 ms; synchronous=NORMAL; synchronous_commit=off). The library's
recorders come with the first one, our topics with the second: that is the level at which each "comes".
Not here: what is done with them (``recorders_bench.py``, ``commands_bench.py``).
Read next: ``recorders_bench.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.testing.postgres_server import PostgresServer

SOON, DISK = LEVELS = ("soon on disk", "on disk")


@dataclass(frozen=True, eq=False)
class Contender:
    """One persistence at one level."""

    name: str
    level: str
    environment: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] | None = None  # the environment of its recorder of events with tags, where it has one

    @property
    def comes(self) -> bool:
        """Whether this is its level when nothing is set."""
        return self.level == (SOON if self.name == "Headwater" else DISK)


def prepared(contender: Contender, factory: Any) -> Any:
    """The library has no setting for SQLite's level: its connections are given it."""
    if contender.name == "SQLite" and contender.level == SOON:
        pool = factory.datastore.pool
        create = pool._create_connection

        def relaxed() -> Any:
            connection = create()
            connection._sqlite_conn.execute("PRAGMA synchronous = NORMAL")
            return connection

        pool._create_connection = relaxed
        for connection in pool._pool:
            connection._sqlite_conn.execute("PRAGMA synchronous = NORMAL")
    return factory


@contextlib.contextmanager
def contenders(folder: Path) -> Iterator[list[Contender]]:
    """All of them, with a PostgreSQL that runs as long as the block."""
    found = []
    with PostgresServer(fsync="on", wal_level="replica") as server:
        for level in LEVELS:
            home = folder / level.replace(" ", "-")
            home.mkdir()
            ours = {
                "PERSISTENCE_MODULE": "headwater.aggregates.recorder",
                "HEADWATER_HOME": str(home / "headwater"),
                "HEADWATER_FSYNC": "always" if level == DISK else "interval",
            }
            found.append(Contender("Headwater", level, ours, ours))
            sqlite = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(home / "events.sqlite")}
            found.append(Contender("SQLite", level, sqlite))
            database = "durable" if level == DISK else "relaxed"
            server.execute(f"CREATE DATABASE {database}")
            if level != DISK:
                server.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
            postgres = {
                "PERSISTENCE_MODULE": "eventsourcing.postgres",
                "POSTGRES_DBNAME": database,
                "POSTGRES_HOST": "127.0.0.1",
                "POSTGRES_PORT": str(server.port),
                "POSTGRES_USER": "postgres",
                "POSTGRES_PASSWORD": "none",
            }
            tags = {**postgres, "PERSISTENCE_MODULE": "eventsourcing.dcb.postgres_tt"}
            found.append(Contender("PostgreSQL", level, postgres, tags))
        yield found
