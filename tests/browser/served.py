"""The server that the browser looks at: a real ``headwater serve`` as a process, started again on the same port.

What it is: ``Served``, one server over the home of ``shop_app.py``; ``seed``, what is in it at the beginning.
Invariants: it is stopped by its process id; should the tests be killed, the kernel stops it. It is ready
when it says so itself, after its engine's first tick.
Not here: the browser (``conftest.py``).
Read next: ``conftest.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from headwater.app_file import app_of
from headwater.log.home import Log
from headwater.testing.local_server import die_with_parent
from tests.short_lived import SHORT_LIVED
from tests.waiting import eventually

APP = Path(__file__).parent / "shop_app.py"
ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0  # on a machine that does much else
COUNTRIES = ("DE", "FR", "IT", "PL", "ES", "SE")
PAGES = ("/", "/basket", "/checkout", "/search")


class Served:
    """One server, over a home that others may serve too."""

    def __init__(self, home: Path, *arguments: str, short_lived: bool = True) -> None:
        self.home = home
        self._settings = SHORT_LIVED if short_lived else {}
        self.arguments = arguments
        self._port = 0
        self.start()

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it listens."""
        command = [sys.executable, "-m", "headwater.cli.main", "serve", str(APP), "--json", "--port", str(self._port)]
        environment = {
            **os.environ,
            **self._settings,
            "BROWSED_SHOP_HOME": str(self.home),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._errors = self.home.parent / "server.err"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, *self.arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                preexec_fn=die_with_parent,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text(errors="replace")
        self.address: str = json.loads(line)["address"]
        self._port = int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0, self._errors.read_text(errors="replace")
        assert self._process.stdout is not None
        self._process.stdout.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer, whatever its status."""
        return httpx.get(f"{self.address}{path}", timeout=PATIENCE_S).json()

    def ready(self) -> None:
        """Wait until the engine has done its first tick."""
        eventually(lambda: self.get("/v1/status")["tick"]["tick"] > 0, self._why, seconds=PATIENCE_S)

    def _why(self) -> str:
        log = self.home / "views" / "shop" / "engine.log"
        return f"{self.get('/v1/status')['engine']}\n{log.read_text(errors='replace')[-4000:] if log.exists() else ''}"


def chromium() -> str | None:
    """The browser's program, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def seed(home: Path) -> Log:
    """The home, with what the app declares and some rows; the log stays open for the tests."""
    os.environ["BROWSED_SHOP_HOME"] = str(home)
    app_of(APP).close()
    log = Log(home, maintenance_interval=None)
    now = dt.datetime.now(dt.UTC)
    users = log.get_topic("users")
    users.append([{"id": number, "country": COUNTRIES[number % len(COUNTRIES)]} for number in range(60)])
    log.get_topic("orders").append(
        [
            {
                "order_id": number,
                "user_id": number % 60,
                "amount": 5.0 + number % 40,
                "at": now - dt.timedelta(seconds=240 - number % 240),
            }
            for number in range(6000)
        ]
    )
    log.get_topic("clicks").append([{"page": PAGES[number % 4], "at": now} for number in range(400)])
    visits = [
        ("ann", "/"),
        ("ann", "/basket"),
        ("ann", "/basket"),
        ("ann", "/checkout"),
        ("bob", "/"),
        ("bob", "/search"),
    ]
    log.get_topic("visits").append(
        [
            {"visitor": visitor, "page": page, "at": now + dt.timedelta(seconds=second)}
            for second, (visitor, page) in enumerate(visits)
        ]
    )
    with log.get_topic("orders").consumer("billing", member="till") as consumer:
        consumer.poll(timeout=5)
        consumer.commit()
    return log
