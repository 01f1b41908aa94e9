"""The demo's third part: a real PostgreSQL, copied to SQLite by ``headwater sync`` while it is written to.

What it is: ``CopyPlot`` starts a server, lets money move between accounts, copies both tables with the command that a
user would type, kills that with ``kill -9``, runs it again, and compares the copy with the source.
Invariants: no Spark; the server and the command end with it; waiting is always for something, with a deadline.
Not here: the copying (``sync.py``), the other parts (``demo_plot.py``, ``demo_views.py``).
Read next: ``docs/sync.md``.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headwater.cli.demo_screen import Screen
from headwater.testing.postgres import PostgresServer

ACCOUNTS = 50_000
PLAY_S = 3.0
WAIT_S = 90.0
TRANSFER = """
    WITH pair AS (SELECT 1 + (random() * {accounts})::int % {accounts} AS one,
                         1 + (random() * {accounts})::int % {accounts} AS other),
         moved AS (UPDATE accounts SET balance = balance + CASE WHEN id = (SELECT one FROM pair) THEN -5 ELSE 5 END
                    WHERE id IN (SELECT unnest(ARRAY[one, other]) FROM pair WHERE one <> other) RETURNING id)
    INSERT INTO transfers (amount) SELECT 5 FROM pair WHERE one <> other"""


class CopyPlot:
    """One performance."""

    def __init__(self, home: Path, screen: Screen) -> None:
        self.home = home
        self.screen = screen
        self.transfers = 0
        self.problems: list[str] = []

    def run(self) -> dict[str, Any]:
        """Play it; returns the summary."""
        self.home.mkdir(parents=True, exist_ok=True)
        with PostgresServer() as self.server:
            self.server.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, balance int NOT NULL)")
            self.server.execute("CREATE TABLE transfers (id bigserial PRIMARY KEY, amount int NOT NULL)")
            self.server.execute(f"INSERT INTO accounts SELECT n, 100 FROM generate_series(1, {ACCOUNTS}) n")
            self.screen.narrate(f"a PostgreSQL with {ACCOUNTS:,} accounts; headwater sync copies it to SQLite")
            first = self._start()
            filled = self._until_following(first)
            self._move_money(PLAY_S)
            first.kill()
            first.communicate()
            self.screen.narrate("kill -9: the copy; money goes on moving", style="red")
            self._move_money(PLAY_S / 3)
            began = time.monotonic()
            done = subprocess.run([*self._command(), "--once"], cwd=self.home, capture_output=True, timeout=WAIT_S)
            if done.returncode:
                self.problems.append(f"the copy did not come back: {done.stderr.decode()[-500:]}")
            caught_up = time.monotonic() - began
            return self._summary(filled, caught_up)

    def _command(self) -> list[str]:
        words = ["sync", self.server.dsn, "--to", "sqlite:copy.db", "--json"]
        return [sys.executable, "-m", "headwater.cli.main", *words]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command(), cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def _until_following(self, child: subprocess.Popen[bytes]) -> float:
        began = time.monotonic()
        assert child.stdout is not None
        for line in child.stdout:
            if all(each["state"] == "following" for each in json.loads(line)):
                seconds = time.monotonic() - began
                self.screen.narrate(f"both tables are there after {seconds:.1f} s, and follow")
                return seconds
            if time.monotonic() - began > WAIT_S:
                break
        self.problems.append("the copy never followed its source")
        return time.monotonic() - began

    def _move_money(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.server.execute(TRANSFER.format(accounts=ACCOUNTS))
            self.transfers += 1

    def _summary(self, filled: float, caught_up: float) -> dict[str, Any]:
        wanted = [
            self.server.execute("SELECT id, balance FROM accounts ORDER BY id"),
            self.server.execute("SELECT id, amount FROM transfers ORDER BY id"),
        ]
        with sqlite3.connect(self.home / "copy.db") as db:
            copied = [
                db.execute("SELECT id, balance FROM accounts ORDER BY id").fetchall(),
                db.execute("SELECT id, amount FROM transfers ORDER BY id").fetchall(),
            ]
        equal = copied == wanted
        if equal:
            self.screen.narrate("the copy is the source, row by row: no transfer lost, none twice", style="green")
        else:
            self.problems.append("the copy is not the source")
        return {
            "rows": ACCOUNTS, "transfers": self.transfers, "killed": 1, "equal": equal,
            "first_copy_seconds": round(filled, 1), "caught_up_seconds": round(caught_up, 1), "problems": self.problems,
        }  # fmt: skip
