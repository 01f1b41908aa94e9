"""A server for tests, benchmarks and the demo: a process on loopback, in a directory that goes away.

What it is: ``LocalServer``, what PostgreSQL, MariaDB and Spark's daemons have in common: starting, waiting until it
answers, stopping, crashing, and leaving nothing behind.
Invariants: it is stopped by its process id, at the latest when its ``with`` block ends.
Not here: programs and settings (``postgres_server.py``, ``mariadb_server.py``, ``spark_cluster.py``).
Read next: ``postgres_server.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar, Self

from headwater.errors import Unavailable

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
PORTS = (10_000, 32_000)


class LocalServer:
    """One server. A subclass says how it is made, started and asked."""

    title: ClassVar[str]
    stops_by: ClassVar[signal.Signals]
    crashes_by: ClassVar[signal.Signals]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}  # beside ours
        self._user: str | None = None  # another one than ours

    def _command(self) -> list[str]:
        raise NotImplementedError

    def execute(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raise while it does not answer yet."""
        self.execute("SELECT 1")

    def said(self) -> str:
        """What it has written since it was started first."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.folder,
                env={**os.environ, **self.environment},
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self._check()
                return self
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Unavailable(f"{self.title} did not start", detail=self.said()[-500:]) from error
                time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; ``immediate``: as if it had crashed."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.crashes_by if immediate else self.stops_by)
            self.process.wait(STOP_SECONDS_MAX)
        self.process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start it."""
        self.stop(immediate=immediate)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """A free port of loopback, below those that the system gives to connections by itself."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
