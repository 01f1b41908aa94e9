"""An engine's process, as its parent sees it: running the app, or standing by until it is called.

What it is: ``EngineChild`` starts the process, reads what it reports, calls it and ends it.
Invariants: a child's reports are read by a thread of its own, so a child that stands by can end or be called at any
time. A child that runs another version of the app's file than the one on disk is never called.
Not here: which child runs when (``supervisor.py``); the child's own side (``engine_process.py``).
Read next: ``supervisor.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from headwater.server.engine.child_process import GO, STANDING_BY, close_lifeline, start_child

LEFT_S = 5.0  # for Java to clear up after an engine that has ended


class EngineChild:
    """One process of ``engine_process.py``."""

    def __init__(
        self, file: Path, socket: Path, log: Path, *, accept_loss: bool, standby: bool, watches: bool = False
    ) -> None:
        self.secret = secrets.token_bytes(32)
        self._file, self._version = file, _version(file)
        given = {"--accept-loss": accept_loss, "--standby": standby, "--watch": watches}
        options = [option for option, wanted in given.items() if wanted]
        self.process, messages = start_child(
            "headwater.server.engine.engine_process", [str(file), str(socket), *options], self.secret.hex(), log
        )
        self.stands_by = threading.Event()  # prepared, and waiting for the call
        self.ended = threading.Event()
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(messages,), name="headwater-engine-events", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id, which is that of its session too."""
        return self.process.pid

    def _read(self, messages: BinaryIO) -> None:
        with messages:
            for line in messages:
                event = json.loads(line)
                if event["event"] == STANDING_BY:
                    self.stands_by.set()
                self._events.put(event)
        self.ended.set()
        self._events.put(None)

    def events(self) -> Iterator[dict[str, Any]]:
        """What it reports, until it ends."""
        while (event := self._events.get()) is not None:
            yield event

    def call(self) -> bool:
        """Let a child that stands by run the app; False when it has ended or the app's file has changed."""
        if self.ended.is_set() or self._version != _version(self._file):
            return False
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{GO}\n".encode())
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let it end after its current tick."""
        close_lifeline(self.process)

    def kill(self) -> None:
        """Kill its session: the child and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait until it has ended; kill it when it has not in time."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def end(self, timeout: float) -> None:
        """Let it end, and wait until nothing of it is left."""
        self.close()
        self.wait(timeout)
        self.end_session()

    def end_session(self, grace: float = LEFT_S) -> None:
        """Kill what is left of its session: a JVM that is stuck ends by nothing else."""
        deadline = time.monotonic() + grace
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the session is empty
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(0.05)
            os.killpg(self.pid, signal.SIGKILL)


def _version(file: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        about = file.stat()
        return about.st_mtime_ns, about.st_size
    return None
