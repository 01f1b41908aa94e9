"""The supervisor: starts the engine and restarts it when it ends.

What it is: ``Supervisor``, one thread that owns the child process, and ``EngineState``, its state.
Invariants: one engine at a time. Restarts back off. A fenced engine (another process runs the app) is not restarted, or
the two would fence each other for ever. An engine's JVM ends with it. Reads of committed data need no engine.
Not here: the engine's work (``engine_process.py``), requests (``engine_channel.py``), stalls (``watchdog.py``).
Read next: ``engine_process.py``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headwater.backoff import Backoff
from headwater.clock import Clock, format_us
from headwater.errors import EngineUnavailable, Fenced
from headwater.server.engine.child_process import close_lifeline, start_child
from headwater.server.engine.engine_channel import PATH_BYTES_MAX, Answer, ask

logger = logging.getLogger("headwater.server")

AGAIN_FIRST_S, AGAIN_MAX_S = 0.5, 30.0
SOUND_S = 60.0  # an engine that lived so long starts again at once
STOP_S = 25.0
LEFT_S = 5.0  # for Java to clear up after an engine that has ended

STARTING, RUNNING, WAITING, FENCED, STOPPED, NONE = "starting", "running", "waiting", "fenced", "stopped", "none"


@dataclass(frozen=True)
class EngineState:
    """The state of the engine.

    ``state``: "starting", "running", "waiting" (it died, and is started again soon), "fenced" (another process runs
    the app), "stopped", or "none" (this server has no engine; another process may run the app).
    """

    state: str
    pid: int | None = None
    since_us: int = 0
    starts: int = 0
    stalls: int = 0  # how many were killed because they did not tick though rows waited
    epoch: int | None = None
    error: dict[str, Any] | None = None  # of the last one that failed

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        values = asdict(self)
        since_us = values.pop("since_us")
        return {**values, "since": format_us(since_us) if since_us else None}


class Supervisor:
    """Keeps an engine alive."""

    def __init__(
        self,
        file: Path,
        folder: Path,
        clock: Clock,
        *,
        accept_loss: bool = False,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.file = file
        self.folder = folder  # of the app, in the home
        self.clock = clock
        self.accept_loss = accept_loss
        self.on_change = on_change
        self._secret = b""
        self._socket = socket_path(folder, "engine.sock")
        self._state = EngineState(STOPPED)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> EngineState:
        """The engine's state."""
        return self._state

    def ask(self, request: dict[str, Any], *, timeout: float) -> Answer:
        """Send a request to the engine."""
        state = self._state
        if state.state != RUNNING:
            raise EngineUnavailable(
                f"the engine is {state.state}",
                detail=None if state.error is None else str(state.error["message"]),
                hint="Queries of the serving store work without the engine. See /health/ready.",
                engine=state.state,
            )
        return ask(self._socket, self._secret, request, timeout=timeout)

    # Its life

    def start(self) -> None:
        """Start the engine, and restart it when it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="headwater-supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the engine after its current tick."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            close_lifeline(process)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                _kill(process)
        if self._thread is not None:
            self._thread.join(STOP_S)  # it ends what the engine left
        self._change(state=STOPPED, pid=None)
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()
        if self._socket.parent != self.folder.absolute():
            with contextlib.suppress(OSError):
                self._socket.parent.rmdir()

    def restart(self, reason: str) -> None:
        """Kill a hanging engine with its JVM; it is restarted at once."""
        with self._lock:
            process = self._process
        if process is None or process.poll() is not None or self._stopping.is_set():
            return
        logger.error("killing and restarting the engine: %s", reason)
        error = EngineUnavailable(f"the engine was killed: {reason}", hint="See engine.log and spark.log.")
        self._change(stalls=self._state.stalls + 1, error=error.to_dict())
        _kill(process)

    def _run(self) -> None:
        failures, backoff = 0, Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                status: int | str = self._live()
            except OSError as error:  # out of memory or of file descriptors: may pass
                status = str(error)
            if self._stopping.is_set():
                return
            if status == Fenced.exit_status:
                self._change(state=FENCED, pid=None)
                logger.error("another process runs the app; this server continues without an engine")
                return
            failures = 0 if time.monotonic() - began > SOUND_S else failures + 1
            again_s = backoff.after(failures)
            logger.warning("the engine ended with status %s; restarting it in %g s", status, again_s)
            self._change(state=WAITING, pid=None)
            self._stopping.wait(again_s)

    def _live(self) -> int:
        """Run one engine until it ends; returns its exit status."""
        self._secret = secrets.token_bytes(32)
        process, messages = start_child(
            "headwater.server.engine.engine_process",
            [str(self.file), str(self._socket), *(["--accept-loss"] if self.accept_loss else [])],
            self._secret.hex(),
            self.folder / "engine.log",
        )
        with messages:
            with self._lock:
                self._process = process
            self._change(state=STARTING, pid=process.pid, starts=self._state.starts + 1, epoch=None)
            if self._stopping.is_set():
                close_lifeline(process)
            for line in messages:
                self._take_event(json.loads(line))
            return ended_with_all(process)

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self._change(state=RUNNING, epoch=event["epoch"], error=None)
        elif event["event"] == "failed":
            self._change(error=event["error"])
        elif self.on_change is not None:
            self.on_change()

    def _change(self, **changes: Any) -> None:
        if changes.get("state", self._state.state) != self._state.state:
            changes["since_us"] = self.clock.now_us()
        self._state = replace(self._state, **changes)
        if self.on_change is not None:
            self.on_change()


def ended_with_all(process: subprocess.Popen[bytes], grace: float = LEFT_S) -> int:
    """Wait for a child, then kill the rest of its session: a JVM that is stuck ends by nothing else."""
    status = process.wait()
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the session is empty
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    return status


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the child's session: the child and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def socket_path(folder: Path, name: str) -> Path:
    """A path in the app's folder; in a private temporary folder when that path is too long for a socket."""
    path = folder.absolute() / name
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        return path
    for base in (None, "/tmp", "/var/tmp"):
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="headwater-", dir=base)) / name
            if len(os.fsencode(made)) <= PATH_BYTES_MAX:
                return made
            made.parent.rmdir()
    return path
