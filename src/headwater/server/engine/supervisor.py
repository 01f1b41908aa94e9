"""The supervisor: starts the engine, notices its death, and starts it again.

What it is: ``Supervisor``, one thread that holds the child process, and ``EngineState``, what it knows of it.
Invariants: there is one engine at a time; one that dies is started again, more and more seldom; one that was shut out
by another process that runs the app is not, for the two would shut out each other for ever. Nothing of an engine, its
Java included, outlives it for long. Nothing here is needed to answer from what is committed.
Not here: what the engine does (``engine_process.py``), asking it (``engine_channel.py``), noticing that it hangs
(``watchdog.py``).
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
import sys
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
from headwater.server.engine.engine_channel import PATH_BYTES_MAX, Answer, ask

logger = logging.getLogger("headwater.server")

AGAIN_FIRST_S, AGAIN_MAX_S = 0.5, 30.0
SOUND_S = 60.0  # an engine that lived so long starts again at once
STOP_S = 25.0
LEFT_S = 5.0  # for Java to clear up after an engine that has ended

STARTING, RUNNING, WAITING, FENCED, STOPPED, NONE = "starting", "running", "waiting", "fenced", "stopped", "none"


@dataclass(frozen=True)
class EngineState:
    """What is known of the engine.

    ``state``: "starting", "running", "waiting" (it died, and is started again soon), "fenced" (another process runs
    the app), "stopped", or "none" (this server has no engine; somebody else runs the app).
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

    def __init__(self, file: Path, folder: Path, clock: Clock, *, on_change: Callable[[], None] | None = None) -> None:
        self.file = file
        self.folder = folder  # of the app, in the home
        self.clock = clock
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
        """How the engine is."""
        return self._state

    def ask(self, request: dict[str, Any], *, timeout: float) -> Answer:
        """Ask the engine something."""
        state = self._state
        if state.state != RUNNING:
            raise EngineUnavailable(
                f"the engine is {state.state}",
                detail=None if state.error is None else str(state.error["message"]),
                hint="Queries of the serving store work without it; see /health/ready.",
                engine=state.state,
            )
        return ask(self._socket, self._secret, request, timeout=timeout)

    # Its life

    def start(self) -> None:
        """Start the engine, and watch over it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="headwater-supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the engine after its running tick, and stop watching."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            let_go(process)
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

    def start_anew(self, reason: str) -> None:
        """Kill an engine that hangs, with its Java; it is started again at once."""
        with self._lock:
            process = self._process
        if process is None or process.poll() is not None or self._stopping.is_set():
            return
        logger.error("the engine is killed and started again: %s", reason)
        error = EngineUnavailable(f"the engine was killed: {reason}", hint="engine.log and spark.log may say why.")
        self._change(stalls=self._state.stalls + 1, error=error.to_dict())
        _kill(process)

    def _run(self) -> None:
        failures, backoff = 0, Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                status: int | str = self._live()
            except OSError as error:  # no memory, no file: what an engine could not be started for may pass
                status = str(error)
            if self._stopping.is_set():
                return
            if status == Fenced.exit_status:
                self._change(state=FENCED, pid=None)
                logger.error("another process runs the app; this server goes on without an engine")
                return
            failures = 0 if time.monotonic() - began > SOUND_S else failures + 1
            again_s = backoff.after(failures)
            logger.warning("the engine ended with status %s; it is started again in %g s", status, again_s)
            self._change(state=WAITING, pid=None)
            self._stopping.wait(again_s)

    def _live(self) -> int:
        """One engine's life; its exit status."""
        self._secret = secrets.token_bytes(32)
        reading, writing = os.pipe()
        command = [
            sys.executable,
            "-m",
            "headwater.server.engine.engine_process",
            str(self.file),
            str(self._socket),
            str(writing),
        ]
        with open(self.folder / "engine.log", "ab", buffering=0) as log, open(reading, "rb") as told:
            try:
                # A session of its own: Ctrl-C is for the server, which stops the engine in order.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing,),
                    start_new_session=True,
                    env=environment(),
                )
            finally:
                os.close(writing)
            with self._lock:
                self._process = process
            self._change(state=STARTING, pid=process.pid, starts=self._state.starts + 1, epoch=None)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(self._secret.hex().encode() + b"\n")
                process.stdin.flush()
            if self._stopping.is_set():
                let_go(process)
            for line in told:
                self._told(json.loads(line))
            return ended_with_all(process)

    def _told(self, what: dict[str, Any]) -> None:
        if what["event"] == "ready":
            self._change(state=RUNNING, epoch=what["epoch"], error=None)
        elif what["event"] == "failed":
            self._change(error=what["error"])
        elif self.on_change is not None:
            self.on_change()

    def _change(self, **changes: Any) -> None:
        if changes.get("state", self._state.state) != self._state.state:
            changes["since_us"] = self.clock.now_us()
        self._state = replace(self._state, **changes)
        if self.on_change is not None:
            self.on_change()


def ended_with_all(process: subprocess.Popen[bytes], grace: float = LEFT_S) -> int:
    """Wait for a child that leads a session, and end what it left there: a Java that is stuck ends by nothing else."""
    status = process.wait()
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    return status


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Close a child's lifeline."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """At once, with everything that it has started: all of it is in the session that began with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """Ours; Spark's workers are to be the same Python as we are."""
    return {"PYSPARK_PYTHON": sys.executable, **os.environ}


def socket_path(folder: Path, name: str) -> Path:
    """In the app's folder of the home; elsewhere, for this user alone, when that name is too long for a socket."""
    path = folder.absolute() / name
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        return path
    # The temporary directory's own name may be long as well; the system's is short.
    for base in (None, "/tmp", "/var/tmp"):
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="headwater-", dir=base)) / name
            if len(os.fsencode(made)) <= PATH_BYTES_MAX:
                return made
            made.parent.rmdir()
    return path
