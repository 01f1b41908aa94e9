"""A server for tests, benchmarks and the demo: a process on loopback, in a directory that goes away.

What it is: ``LocalServer``, what all servers have in common that tests, benchmarks and the demo start: starting,
waiting until it answers, stopping, crashing, and leaving nothing behind.
Invariants: it is stopped by its process id, at the latest when its ``with`` block ends; should this process be killed,
the kernel stops it (Linux). A server that is started again has its data and its port. Start it from a thread that
lives as long as it does: to the kernel the end of that thread is the end of the parent.
Not here: programs and settings (``postgres_server.py``, ``mariadb_server.py``, ``spark_cluster.py``).
Read next: ``postgres_server.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, Self

from headwater.errors import Unavailable

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
PORTS = (10_000, 32_000)
PR_SET_PDEATHSIG = 1


class LocalServer:
    """One server. A subclass says how it is made, started and asked."""

    title: ClassVar[str]
    stops_by: ClassVar[signal.Signals] = signal.SIGTERM
    crashes_by: ClassVar[signal.Signals] = signal.SIGKILL
    start_seconds_max: ClassVar[float] = START_SECONDS_MAX

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
        self.process = self._run(self._command())
        deadline = time.monotonic() + self.start_seconds_max
        while True:
            try:
                self._check()
                return self
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise Unavailable(f"{self.title} did not start", detail=self.said()[-500:]) from error
                time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; ``immediate``: as if it had crashed. One that does not end by itself is ended."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(self.crashes_by if immediate else self.stops_by)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS_MAX)
            finally:
                process.kill()  # reached on Ctrl-C as well; nothing where it has ended
                process.wait()

    def kill(self) -> None:
        """End it as a crash does."""
        self.stop(immediate=True)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start it."""
        self.stop(immediate=immediate)
        self.start()

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        """A process of the server, whose output is kept with that of the others."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._user,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                start_new_session=True,  # Ctrl-C reaches this process first, and this process stops the server
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

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


def die_with_parent() -> None:
    """Let the kernel stop this child when its parent dies without a chance to clean up (``kill -9``)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answers(port: int, question: bytes, answer: bytes) -> bool:
    """Whether a server on this port answers a question with bytes that begin so."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(question)
            return connection.recv(64).startswith(answer)
    except OSError:
        return False
