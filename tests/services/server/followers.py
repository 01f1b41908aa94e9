"""Subscribers: copies of a view that are made from a subscription alone.

What it is: ``Copy`` applies messages; ``EventFollower`` and ``SocketFollower`` carry them, and go on after an
interruption with the token of the last tick they have.
Invariants: parts of a tick are applied together; ``past`` has the copy at every tick that was reported.
Not here: what is expected (the tests).
Read next: ``test_subscriptions.py``.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import websockets.exceptions
from websockets.sync.client import connect

from tests.services.server.processes import PATIENCE_S

AGAIN_S = 0.05


class Copy:
    """A view's rows by key, from its messages."""

    def __init__(self, key: str = "country", value: str = "total") -> None:
        self.key, self.value = key, value
        self.rows: dict[Any, Any] = {}
        self.past: dict[int, dict[Any, Any]] = {}
        self.tick = 0
        self.token: str | None = None
        self.resets = 0
        self.snapshots = 0
        self.ends: list[str] = []
        self._parts: list[dict[str, Any]] = []

    def take(self, message: dict[str, Any]) -> None:
        """Apply one message; the last part of a tick applies them all."""
        if message["type"] == "end":
            self.ends.append(message["reason"])
            self._parts = []
            return
        self._parts.append(message)
        if message["more"]:
            return
        parts, self._parts = self._parts, []
        rows = dict(self.rows)
        for part in parts:
            self._apply(part, rows, first=part is parts[0])
        assert message["tick"] > self.tick or message["type"] == "snapshot", "ticks only rise"
        self.rows, self.tick, self.token = rows, message["tick"], message["token"]
        self.past[self.tick] = dict(rows)

    def _apply(self, part: dict[str, Any], rows: dict[Any, Any], *, first: bool) -> None:
        if part["type"] == "snapshot":
            if first:
                rows.clear()
                self.snapshots += 1
                self.resets += part["reset"]
            rows.update({row[self.key]: row[self.value] for row in part["rows"]})
        for change in part.get("changes", ()):
            if change["_change_type"] in ("delete", "update_preimage"):
                assert rows.pop(change[self.key]) == change[self.value], "what leaves was there"
            else:
                assert change[self.key] not in rows, "what comes was not there"
                rows[change[self.key]] = change[self.value]

    def lose(self) -> None:
        """The connection broke: half a tick counts for nothing."""
        self._parts = []


class Follower:
    """A copy that is kept in a thread, through interruptions."""

    def __init__(self, address: str, view: str = "revenue", copy: Copy | None = None) -> None:
        self.address, self.view = address, view
        self.copy = copy or Copy()
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except (httpx.HTTPError, OSError, websockets.exceptions.WebSocketException):
                pass
            except BaseException as error:
                self.error = error
                with self._changed:
                    self._changed.notify_all()
                raise
            self.copy.lose()
            time.sleep(AGAIN_S)  # a server that is down is not asked in a busy loop

    def _follow(self) -> None:
        raise NotImplementedError

    def _take(self, data: str) -> None:
        with self._changed:
            self.copy.take(json.loads(data))
            self._changed.notify_all()

    def wait_for(self, tick: int) -> Copy:
        """The copy, once it is at a tick or later."""
        with self._changed:
            came = self._changed.wait_for(lambda: self.copy.tick >= tick or self.error is not None, PATIENCE_S)
        assert self.error is None, self.error
        assert came, f"tick {tick} did not come; the copy is at {self.copy.tick}, ends {self.copy.ends}"
        return self.copy

    def stop(self) -> None:
        """Stop following, with the next message or time-out: nobody waits for that."""
        self._stopped.set()


class EventFollower(Follower):
    """By server-sent events."""

    def _follow(self) -> None:
        headers = {"last-event-id": self.copy.token} if self.copy.token else {}
        url = f"{self.address}/v1/views/{self.view}/subscribe"
        with httpx.stream("GET", url, headers=headers, timeout=httpx.Timeout(5, read=3)) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    self._take(line.removeprefix("data: "))
                if self._stopped.is_set():
                    return


class SocketFollower(Follower):
    """By WebSocket."""

    def _follow(self) -> None:
        address = self.address.replace("http:", "ws:")
        query = f"?token={self.copy.token}" if self.copy.token else ""
        with connect(f"{address}/v1/views/{self.view}/subscribe{query}", max_size=None) as socket:
            while not self._stopped.is_set():
                try:
                    self._take(str(socket.recv(timeout=1)))
                except TimeoutError:
                    continue
