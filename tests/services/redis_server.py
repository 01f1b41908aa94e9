"""A real Redis for the tests: a plain process on loopback that keeps its data over a restart.

What it is: ``RedisServer``.
Not here: starting and stopping (``local_server.py``); the one of the log's benchmark (``bench/peer_servers.py``).
Read next: ``sinks/places.py``.
"""

from __future__ import annotations

import shutil

from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer, answers


class RedisServer(LocalServer):
    """One server, with its data in a file to which it appends."""

    title = "Redis"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        program = shutil.which("redis-server")
        assert program, "install redis-server: tools/services.sh does"
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "yes"]

    def _check(self) -> None:
        if not answers(self.port, b"PING\r\n", b"+PONG"):  # while it reads its data it says something else
            raise Unavailable("it does not answer yet")
