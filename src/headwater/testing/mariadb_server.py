"""A real MariaDB for tests and benchmarks: a process on loopback, in a directory that goes away.

What it is: ``MariadbServer``, a server from Debian's package ``mariadb-server``.
Invariants: it listens on a free port of loopback only; its binlog is as capture needs it.
Not here: starting and stopping (``local_server.py``).
Read next: ``local_server.py``, ``docs/mysql.md``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer

SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    # A commit is one write: killed between two, a server leaves half an event, and nobody reads past it.
    "binlog-file-cache-size": "8M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "32M",
    "performance-schema": "OFF",
    "skip-name-resolve": "ON",
}


class MariadbServer(LocalServer):
    """One server. ``dsn`` is how to reach it.

    >>> with MariadbServer() as server:
    ...     server.execute("SELECT 1 + 1")
    [(2,)]
    """

    title = "MariaDB"

    def __init__(self, **settings: str) -> None:
        self.settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in settings.items()}}
        super().__init__(Path(tempfile.mkdtemp(prefix="headwater-mariadb-")))
        # A server that starts removes what it finds of temporary tables, whosever they are: each has its own folder.
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        done = subprocess.run(
            [
                _program("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={self.data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                *_as_root(),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        if done.returncode:
            raise Unavailable("mariadb-install-db failed", detail=(done.stdout + done.stderr).strip()[-500:])

    @property
    def dsn(self) -> str:
        """The address of a database of it."""
        return f"mysql://root@127.0.0.1:{self.port}/mysql"

    def _command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        return [
            _program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--port={self.port}",
            f"--tmpdir={self.temporary}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            *_as_root(),
            *options,
        ]

    def connect(self, **options: Any) -> Any:
        """A connection of pymysql's, with autocommit."""
        import pymysql

        settings = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, "connect_timeout": 5}
        # On loopback without TLS: reading the machine's certificates takes 25 ms of each connection.
        return pymysql.connect(**{**settings, "charset": "utf8mb4", "ssl_disabled": True, **options})

    def execute(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None:
        raise Unavailable(
            f"{name} is not installed",
            hint="apt-get update && apt-get install -y --no-install-recommends mariadb-server",
        )
    return found
