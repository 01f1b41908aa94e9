"""A real MariaDB for tests and benchmarks: a process on loopback, in a directory that goes away.

What it is: ``MariadbServer`` starts, stops, kills and restarts a server from Debian's package ``mariadb-server``.
Invariants: it listens on a free port of loopback only; its binlog is as capture needs it; it is stopped by its process
id when its ``with`` block ends.
Not here: what is done with it.
Read next: ``docs/mysql.md``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.errors import Unavailable

START_SECONDS_MAX = 60.0
SETTINGS = {
    "bind-address": "127.0.0.1", "server-id": "1", "log-bin": "binlog", "binlog-format": "ROW",
    "binlog-row-metadata": "FULL", "innodb-flush-log-at-trx-commit": "2", "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "32M", "performance-schema": "OFF", "skip-name-resolve": "ON",
}  # fmt: skip


class MariadbServer:
    """One server. ``dsn`` is how to reach it.

    >>> with MariadbServer() as server:
    ...     server.execute("SELECT 1 + 1")
    [(2,)]
    """

    def __init__(self, **settings: str) -> None:
        self.settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-mariadb-"))
        self.data = self.folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        done = subprocess.run(
            [_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
             "--auth-root-authentication-method=normal", *_as_root()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable("mariadb-install-db failed", detail=(done.stdout + done.stderr).strip()[-500:])

    @property
    def dsn(self) -> str:
        """The address of a database of it."""
        return f"mysql://root@127.0.0.1:{self.port}/mysql"

    def start(self) -> MariadbServer:
        """Start it, and wait until it answers."""
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [
            _program("mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}",
            f"--socket={self.folder / 'socket'}", f"--pid-file={self.folder / 'pid'}", *_as_root(), *options,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.execute("SELECT 1")
                return self
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / "log").read_text(errors="replace")[-500:]
                    raise Unavailable("MariaDB did not start", detail=said) from error
                time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; ``immediate``: as if it had crashed."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if immediate else signal.SIGTERM)
            self.process.wait(60)
        self.process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start it."""
        self.stop(immediate=immediate)
        self.start()

    def connect(self, **options: Any) -> Any:
        """A connection of pymysql's, with autocommit."""
        import pymysql

        settings = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, "connect_timeout": 5}
        return pymysql.connect(**{**settings, "charset": "utf8mb4", **options})

    def execute(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def __enter__(self) -> MariadbServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)


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
