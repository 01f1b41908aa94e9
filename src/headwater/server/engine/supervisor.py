"""The supervisor: starts the engine and restarts it when it ends; with a standby, another one takes over at once.

What it is: ``Supervisor``, one thread that owns the engine's process, another that keeps a standby, and
``EngineState``, its state.
Invariants: one engine runs at a time; a standby takes nothing over before it is called, and is called only when the
engine has ended. Restarts back off. A fenced engine (another process runs the app) is not restarted, or the two would
fence each other for ever; but one that watches (``watches``) stands by and goes when no other process runs the app, so
it is started again. An engine's JVM ends with it. Reads of committed data need no engine.
Not here: the engine's work (``engine_process.py``), its process (``engine_child.py``), requests
(``engine_channel.py``), stalls (``watchdog.py``).
Read next: ``engine_process.py``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headwater.backoff import Backoff
from headwater.clock import Clock, format_us
from headwater.errors import EngineUnavailable, Fenced
from headwater.server.engine.child_process import STANDING_BY
from headwater.server.engine.engine_channel import PATH_BYTES_MAX, Answer, ask
from headwater.server.engine.engine_child import EngineChild

logger = logging.getLogger("headwater.server")

AGAIN_FIRST_S, AGAIN_MAX_S = 0.5, 30.0
SOUND_S = 60.0  # an engine that lived so long starts again at once
STOP_S = 25.0
STANDBY_AFTER_S = 10.0  # that an engine has run: its first ticks need the processor more
STANDBY_LOOK_S = 1.0

STARTING, RUNNING, WAITING, FENCED, STOPPED, NONE = "starting", "running", "waiting", "fenced", "stopped", "none"
STANDBY = "standby"
READY = "ready"


@dataclass(frozen=True)
class EngineState:
    """The state of the engine.

    ``state``: "starting", "running", "standby" (another process runs the app, and this one will when that ends),
    "waiting" (it died, and is started again soon), "fenced" (another process runs the app), "stopped", or "none" (this
    server has no engine; another process may run the app).
    """

    state: str
    pid: int | None = None
    since_us: int = 0
    starts: int = 0
    stalls: int = 0  # how many were killed because they did not tick though rows waited
    epoch: int | None = None
    error: dict[str, Any] | None = None  # of the last one that failed
    standby: str | None = None  # "starting" or "ready"; None: there is none
    standby_pid: int | None = None

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
        standby: bool = False,
        watches: bool = False,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.file = file
        self.folder = folder  # of the app, in the home
        self.clock = clock
        self.accept_loss = accept_loss
        self.keeps_standby = standby
        self.watches = watches  # the engine stands by while another process, on any machine, runs the app
        self.on_change = on_change
        self._socket = socket_path(folder, "engine.sock")
        self._state = EngineState(STOPPED)
        self._engine: EngineChild | None = None
        self._standby: EngineChild | None = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ending: list[threading.Thread] = []  # each ends what a child has left

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
        engine = self._engine
        assert engine is not None
        return ask(self._socket, engine.secret, request, timeout=timeout)

    # Its life

    def start(self) -> None:
        """Start the engine, and restart it when it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._threads = [threading.Thread(target=self._run, name="headwater-supervisor", daemon=True)]
        if self.keeps_standby:
            self._threads.append(threading.Thread(target=self._keep_standby, name="headwater-standby", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the engine after its current tick."""
        self._stopping.set()
        with self._lock:
            children = [child for child in (self._engine, self._standby) if child is not None]
        for child in children:
            child.close()
        for child in children:
            child.wait(STOP_S)
        for thread in self._threads:
            thread.join(STOP_S)
        for thread in self._ending:
            thread.join(STOP_S)
        self._change(state=STOPPED, pid=None, standby=None, standby_pid=None)
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()
        if self._socket.parent != self.folder.absolute():
            with contextlib.suppress(OSError):
                self._socket.parent.rmdir()

    def restart(self, reason: str) -> None:
        """Kill a hanging engine with its JVM; it is restarted at once."""
        with self._lock:
            engine = self._engine
        if engine is None or engine.process.poll() is not None or self._stopping.is_set():
            return
        logger.error("killing and restarting the engine: %s", reason)
        error = EngineUnavailable(f"the engine was killed: {reason}", hint="See engine.log and spark.log.")
        self._change(stalls=self._state.stalls + 1, error=error.to_dict())
        engine.kill()

    def _run(self) -> None:
        failures, backoff, next_one = 0, Backoff(AGAIN_FIRST_S, AGAIN_MAX_S), None
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                status: int | str = self._live(next_one or self._start(standby=False))
            except OSError as error:  # out of memory or of file descriptors: may pass
                status = str(error)
            if self._stopping.is_set():
                return
            if status == Fenced.exit_status and not self.watches:
                self._change(state=FENCED, pid=None)
                logger.error("another process runs the app; this server continues without an engine")
                return
            # An engine that never ran has failed by what it is to do, and a standby would as well.
            next_one = self._called_standby() if self._state.state == RUNNING else None
            if next_one is not None:
                logger.warning("the engine ended with status %s; the standby takes over", status)
                continue
            failures = 0 if time.monotonic() - began > SOUND_S else failures + 1
            again_s = backoff.after(failures)
            logger.warning("the engine ended with status %s; restarting it in %g s", status, again_s)
            self._change(state=WAITING, pid=None)
            self._stopping.wait(again_s)

    def _start(self, *, standby: bool) -> EngineChild:
        log = self.folder / "engine.log"
        return EngineChild(
            self.file, self._socket, log, accept_loss=self.accept_loss, standby=standby, watches=self.watches
        )

    def _live(self, engine: EngineChild) -> int:
        """Run one engine until it ends; returns its exit status."""
        with self._lock:
            self._engine = engine
        self._change(state=STARTING, pid=engine.pid, starts=self._state.starts + 1, epoch=None)
        if self._stopping.is_set():
            engine.close()
        for event in engine.events():
            self._take_event(event)
        status = engine.process.wait()
        self._end_beside(engine.end_session)  # the next one needs nothing that this one's JVM still holds
        return status

    def _end_beside(self, end: Callable[[], None]) -> None:
        """End a child in a thread, for which ``stop`` waits."""
        self._ending = [thread for thread in self._ending if thread.is_alive()]
        thread = threading.Thread(target=end, name="headwater-ended", daemon=True)
        thread.start()
        self._ending.append(thread)

    # The standby

    def _keep_standby(self) -> None:
        """Start a standby when the engine has run for a while, and another one when it has ended or was called."""
        failures, backoff = 0, Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while not self._stopping.wait(STANDBY_LOOK_S) and self._state.state != FENCED:
            child = self._standby
            if child is None:
                ran_s = (self.clock.now_us() - self._state.since_us) / 1e6
                if self._state.state == RUNNING and ran_s >= STANDBY_AFTER_S:
                    with contextlib.suppress(OSError):  # out of memory or of file descriptors: may pass
                        self._replace_standby(None, self._start(standby=True))
            elif child.ended.is_set():
                ready = child.stands_by.is_set()
                self._replace_standby(child, None)
                child.end_session()
                failures = 0 if ready else failures + 1
                logger.warning("the standby ended with status %s", child.process.wait())
                self._stopping.wait(backoff.after(failures))
            elif child.stands_by.is_set() and self._state.standby == STARTING:
                self._replace_standby(child, child, READY)
        if (child := self._standby) is not None:
            child.end(STOP_S)

    def _replace_standby(self, old: EngineChild | None, new: EngineChild | None, state: str = STARTING) -> bool:
        """Put another child, or none, into the place of the standby; False when it is no longer ``old``."""
        with self._lock:
            if self._standby is not old:
                return False
            self._standby = new
            self._change(standby=None if new is None else state, standby_pid=None if new is None else new.pid)
            return True

    def _called_standby(self) -> EngineChild | None:
        """The standby, called to run the app; None when there is none, or it cannot."""
        child = self._standby
        if child is None or not self._replace_standby(child, None):
            return None
        if child.call():
            return child
        self._end_beside(partial(child.end, STOP_S))
        return None

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self._change(state=RUNNING, epoch=event["epoch"], error=None)
        elif event["event"] == STANDING_BY:
            if self.watches:
                self._change(state=STANDBY)
        elif event["event"] == "failed":
            self._change(error=event["error"])
        elif self.on_change is not None:
            self.on_change()

    def _change(self, **changes: Any) -> None:
        with self._lock:  # two threads change it: the engine's, and the one that keeps a standby
            if changes.get("state", self._state.state) != self._state.state:
                changes["since_us"] = self.clock.now_us()
            self._state = replace(self._state, **changes)
        if self.on_change is not None:
            self.on_change()


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
