"""A server as a real process: started, asked, stopped and killed.

What it is: ``ServerProcess``, ``headwater serve`` on a free port of loopback.
Invariants: it is stopped by its process id, and its end is looked at: SIGTERM ends it with status 0.
Not here: what it is asked (the tests).
Read next: ``conftest.py``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.short_lived import SHORT_LIVED

APP = Path(__file__).parent / "shop_app.py"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0


class ServerProcess:
    """One server over a home."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        engine: bool = False,
        port: int = 0,
        app: Path = APP,
        environment: Mapping[str, str] | None = None,
        trusts: ssl.SSLContext | bool = True,
    ) -> None:
        self.home = home
        self._trusts = trusts
        self._app = app
        self._environment = {"SERVED_SHOP_HOME": str(home), **(environment or {})}
        self.arguments = [*arguments, *([] if engine else ["--no-engine"])]
        atexit.register(self._reap)  # a test that fails does not come to its last line
        self._port = port
        self.start()

    def start(self) -> None:
        """Start it (again, on the same port), and wait until it listens."""
        command = [
            sys.executable,
            "-m",
            "headwater.cli.main",
            "serve",
            str(self._app),
            "--json",
            "--port",
            str(self._port),
        ]
        environment = {
            **os.environ,
            **SHORT_LIVED,
            **self._environment,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.errors = open(self.home.parent / "server.err", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *self.arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            errors="replace",
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.home.parent / "server.err").read_text(errors="replace")
        self.address = json.loads(line)["address"]
        self._port = int(self.address.rpartition(":")[2])
        self.http = httpx.Client(base_url=self.address, timeout=PATIENCE_S, verify=self._trusts)

    def stop(self) -> None:
        """SIGTERM; it ends in order."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, (self.home.parent / "server.err").read_text(errors="replace")
        self._close()

    def kill(self) -> None:
        """As a machine that loses its power."""
        self.http.close()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close()

    def _reap(self) -> None:
        if self.process.poll() is None:
            self.process.kill()

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def ask(self, method: str, path: str, status: int = 200, **arguments: Any) -> Any:
        """The JSON of an answer whose status is looked at."""
        answer = self.http.request(method, path, **arguments)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json()

    def get(self, path: str, status: int = 200, **arguments: Any) -> Any:
        return self.ask("GET", path, status, **arguments)

    def post(self, path: str, body: Any = None, status: int = 200, **arguments: Any) -> Any:
        if body is not None:
            arguments["json"] = body
        return self.ask("POST", path, status, **arguments)
