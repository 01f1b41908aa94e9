"""Spark queries: clients' Spark SQL, sent to the query engine.

What it is: ``SparkQueries``, which starts the query engine (``query_engine.py``) for the first query and ends it when
it is idle, or when a query cannot be cancelled.
Invariants: ticks have a JVM of their own, whose heap and threads no query can take. Concurrent queries are bounded; the
others wait, no longer than they may run. The query engine's temporary files are removed with it.
Not here: the engine that runs the app (``server/engine/supervisor.py``).
Read next: ``query_engine.py``, ``docs/server.md``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import EngineUnavailable, OutOfMemory, TimedOut, TooMany
from headwater.server.engine.child_process import close_lifeline, start_child
from headwater.server.engine.engine_channel import GRACE_S, Answer, ask
from headwater.server.server_settings import ServerSettings
from headwater.views.serving.serving_queries import out_of_time

logger = logging.getLogger("headwater.server")

START_S = 90.0
IDLE_S = 600.0  # without a query; then its memory is given back
DISK_BYTES_MAX = 4 << 30


class QueryProcess:
    """One process of the query engine."""

    def __init__(self, config: Mapping[str, Any], log: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-query-"))  # for this user alone
        self.socket = self.folder / "socket"
        self.secret = secrets.token_bytes(32)
        local = self.folder / "local"
        local.mkdir()
        line = json.dumps({**config, "secret": self.secret.hex(), "local": str(local)})
        self.process, self._ready = start_child("headwater.server.queries.query_engine", [str(self.socket)], line, log)

    def wait_until_ready(self) -> bool:
        """Whether it started; it is killed when that takes too long."""
        timer = threading.Timer(START_S, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            return bool(self._ready.readline())
        finally:
            timer.cancel()

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """Kill it with its JVM, and remove its files."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ready.close()
        close_lifeline(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class SparkQueries:
    """The query engine of a server. Its methods block: call them in a thread."""

    def __init__(
        self, app: str, home: Path, settings: Mapping[str, str], limits: ServerSettings, log: str | None = None
    ) -> None:
        self._config = {
            "app": app,
            "home": str(home),
            "log": log,  # its address, where it is not in the home
            "settings": dict(settings),
            "seconds_max": limits.query_seconds_max,
            "memory_bytes": limits.spark_query_memory_bytes,
            "disk_bytes_max": DISK_BYTES_MAX,
        }
        self._log = Path(home) / "views" / app / "queries.log"
        self._at_once_max = limits.queries_at_once_max
        self._free = threading.BoundedSemaphore(limits.queries_at_once_max)
        self._lock = threading.Lock()
        self._process: QueryProcess | None = None
        self._used = 0.0
        self._idle: threading.Timer | None = None
        self._closed = False

    def ask(self, request: dict[str, Any]) -> Answer:
        """Run a query in the query engine."""
        seconds = float(request["seconds_max"])
        if not self._free.acquire(timeout=seconds):
            raise TooMany(
                f"{self._at_once_max} Spark queries run already, and none ended within {seconds:.2g} s",
                hint="Try again in a moment. The server's limit is --queries.",
            )
        try:
            process = self._running()
            began = time.monotonic()
            try:
                return ask(process.socket, process.secret, request, timeout=seconds)
            except TimedOut:
                if time.monotonic() - began < seconds + GRACE_S:
                    # Its jobs are cancelled, but a running task may go on. Spare concurrent queries.
                    if self._free._value >= self._at_once_max - 1:
                        self._count_lost(process)
                    raise
                self._count_lost(process)
                logger.warning("a Spark query could not be cancelled; its process was killed")
                raise out_of_time(seconds) from None
            except OutOfMemory:
                self._count_lost(process)  # its JVM has ended, or its heap is full
                raise
            except EngineUnavailable as error:
                self._count_lost(process)
                raise EngineUnavailable(
                    "the Spark process of this query has ended",
                    detail="This query, or a concurrent one, exceeded its memory or time.",
                    hint="Try again, or reduce the query.",
                ) from error
        finally:
            self._used = time.monotonic()
            self._free.release()

    def _running(self) -> QueryProcess:
        """The process, started when needed."""
        with self._lock:
            if self._closed:
                raise EngineUnavailable("the server is stopping", hint="Try again after its restart.")
            if self._process is not None and self._process.runs:
                return self._process
            if self._process is not None:
                self._process.end()
            self._process = QueryProcess(self._config, self._log)
            if not self._process.wait_until_ready():
                self._process.end()
                self._process = None
                raise EngineUnavailable("Spark could not be started for queries", hint="See queries.log of the app.")
            self._watch_idle(IDLE_S)
            return self._process

    def _count_lost(self, process: QueryProcess) -> None:
        with self._lock:
            if self._process is process:
                self._process = None
                process.end()

    def _watch_idle(self, seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(seconds, self._end_if_idle)
        self._idle.daemon = True
        self._idle.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._process is None:
                return
            left = self._used + IDLE_S - time.monotonic()
            if left > 0 or self._free._value < self._at_once_max:  # a query runs
                self._watch_idle(max(1.0, left))
                return
            self._process.end()
            self._process = None

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process is not None:  # before the lock, which is held during a start
            with contextlib.suppress(ProcessLookupError):
                process.process.kill()
        with self._lock:
            self._closed = True
            if self._idle is not None:
                self._idle.cancel()
            if self._process is not None:
                self._process.end()
                self._process = None
