"""The demo's server: ``headwater serve`` with its engine.

What it is: ``ServingProcess`` starts the server, kills its engine, and requests verification and the
resumption of a view over HTTP.
Invariants: only the engine's process is killed, by the id that the server reports; the server restarts it. Neither
request blocks.
Not here: the server (``server/``), restarting (``server/engine/supervisor.py``).
Read next: ``scenario.py``.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from headwater.demo.processes import Processes

NAME = "server"
ASK_S, STOP_S = 10.0, 60.0


class ServingProcess:
    """The server of the app, and its engine."""

    def __init__(self, processes: Processes, views: Sequence[str]) -> None:
        self.processes = processes
        self.views = list(views)
        self.address: str | None = None
        self.verified: list[dict[str, Any]] | None = None
        self.problems: list[str] = []

    def start(self) -> None:
        """Start the server; it starts the engine."""
        self.processes.start("server", NAME)

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Process a report of a child."""
        if name == NAME and "address" in facts:
            self.address = facts["address"]

    def state(self) -> dict[str, Any]:
        """How the engine is: its state, its process id."""
        try:
            return dict(self._ask("GET", "/health/ready", seconds=ASK_S)["engine"])
        except OSError:  # it does not listen yet
            return {"state": "unknown", "pid": None}

    def kill(self) -> int:
        """Kill the engine with ``kill -9``; its process id."""
        pid = int(self.state()["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def ask_verify(self) -> None:
        """Let every view be computed from the log alone; ``verified`` has what was found, once it is there."""
        self.verified = None
        threading.Thread(target=self._verify, name="headwater-demo-verify", daemon=True).start()

    def _verify(self) -> None:
        found = []
        for view in self.views:
            try:
                found += self._ask("POST", f"/v1/views/{view}/verify", seconds=3600)["views"]
            except OSError as error:
                self.problems.append(f"view {view} could not be verified: {error}")
        self.verified = found

    def ask_resume(self, view: str) -> threading.Thread:
        """Let a paused view be recomputed and run again; the thread ends with the answer."""
        resuming = threading.Thread(target=self._resume, args=(view,), name="headwater-demo-resume", daemon=True)
        resuming.start()
        return resuming

    def _resume(self, view: str) -> None:
        try:
            self._ask("POST", f"/v1/views/{view}/resume", seconds=3600)
        except OSError as error:
            self.problems.append(f"view {view} could not be resumed: {error}")

    def put_search(self, searches: str, id: str, query: str) -> None:
        """Store a search, as a customer's program does."""
        try:
            self._ask("PUT", f"/v1/searches/{searches}/{id}", seconds=60, body={"query": query, "owner": id})
        except OSError as error:
            self.problems.append(f"the search {query!r} could not be stored: {error}")

    def stop(self) -> None:
        """Stop the server in good order, and with it the engine."""
        if NAME in self.processes.children:
            child = self.processes.children[NAME]
            child.say("stop")
            child.join(STOP_S)

    def _ask(self, method: str, path: str, *, seconds: float, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if self.address is None:
            raise ConnectionError("the server has not said its address")
        # Never through a proxy: it is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(self.address + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with opener.open(request, timeout=seconds) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:  # another status has a body too
            body = dict(json.load(error))
            if "error" in body:
                raise ConnectionError(body["error"]["message"]) from error
            return body
