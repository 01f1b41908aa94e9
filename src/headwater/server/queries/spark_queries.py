"""Spark queries: strangers' SQL for Spark, sent to a process that is there for nothing else.

What it is: ``SparkQueries``, which starts the query engine (``query_engine.py``) with the first query, asks it, and
ends it when nobody has asked for a while, or when a query of it cannot be ended otherwise.
Invariants: ticks have a Java of their own, so no query can fill its heap or take its threads. So many queries run at
once; the others wait, no longer than they may run. What the query engine leaves on the disk goes with it.
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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import EngineUnavailable, OutOfMemory, TimedOut, TooMany
from headwater.server.engine.engine_channel import GRACE_S, Answer, ask
from headwater.server.engine.supervisor import environment
from headwater.server.server_settings import ServerSettings
from headwater.views.serving.serving_queries import out_of_time

logger = logging.getLogger("headwater.server")

START_S = 90.0
IDLE_S = 600.0  # without a query; then its memory is given back
DISK_BYTES_MAX = 4 << 30


class QueryProcess:
    """One life of the query engine."""

    def __init__(self, told: Mapping[str, Any], log: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-query-"))  # for this user alone
        self.socket = self.folder / "socket"
        self.secret = secrets.token_bytes(32)
        local = self.folder / "local"
        local.mkdir()
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "headwater.server.queries.query_engine", str(self.socket), str(writing)]
        self._ready = open(reading, "rb")  # noqa: SIM115
        try:
            with open(log, "ab", buffering=0) as out:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    pass_fds=(writing,),
                    start_new_session=True,
                    env=environment(),
                )
        finally:
            os.close(writing)
        said = {**told, "secret": self.secret.hex(), "local": str(local)}
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(said).encode() + b"\n")
            self.process.stdin.flush()

    def wait_until_ready(self) -> bool:
        """Whether it has come to answer; it is killed when that takes too long."""
        timer = threading.Timer(START_S, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            return bool(self._ready.readline())
        finally:
            timer.cancel()

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def end(self) -> None:
        """Kill it with its Java, and remove what they wrote."""
        # Its group has its number, which nobody else gets while Java is in the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ready.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class SparkQueries:
    """The query engine of a server, as requests see it: they ask in threads."""

    def __init__(self, app: str, home: Path, settings: Mapping[str, str], limits: ServerSettings) -> None:
        self._told = {
            "app": app,
            "home": str(home),
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
        """The answer to a question, as ``query_engine.py`` takes it."""
        seconds = float(request["seconds_max"])
        if not self._free.acquire(timeout=seconds):
            raise TooMany(
                f"{self._at_once_max} queries of Spark run at once, and none of them ended in {seconds:g} s",
                hint="Ask again in a moment. The server's limit is --queries.",
            )
        try:
            process = self._running()
            began = time.monotonic()
            try:
                return ask(process.socket, process.secret, request, timeout=seconds)
            except TimedOut:
                if time.monotonic() - began < seconds + GRACE_S:
                    # Its jobs are cancelled, but a task that asks nobody goes on. Who is beside it need not suffer.
                    if self._free._value >= self._at_once_max - 1:
                        self._count_lost(process)
                    raise
                self._count_lost(process)
                logger.warning("a query of Spark could not be cancelled; its process was killed")
                raise out_of_time(seconds) from None
            except OutOfMemory:
                self._count_lost(process)  # its Java has ended, or is full of what nobody will ask for
                raise
            except EngineUnavailable as error:
                self._count_lost(process)
                raise EngineUnavailable(
                    "the Spark that ran this query has ended",
                    detail="This query, or one beside it, took more memory or time than it may.",
                    hint="Ask again, or for less.",
                ) from error
        finally:
            self._used = time.monotonic()
            self._free.release()

    def _running(self) -> QueryProcess:
        """The process, started if there is none."""
        with self._lock:
            if self._closed:
                raise EngineUnavailable("the server is stopping", hint="Ask again when it has started.")
            if self._process is not None and self._process.runs:
                return self._process
            if self._process is not None:
                self._process.end()
            self._process = QueryProcess(self._told, self._log)
            if not self._process.wait_until_ready():
                self._process.end()
                self._process = None
                raise EngineUnavailable(
                    "Spark could not be started for queries", hint="Look at queries.log of the app."
                )
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
            if left > 0 or self._free._value < self._at_once_max:  # one is asked
                self._watch_idle(max(1.0, left))
                return
            self._process.end()
            self._process = None

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process is not None:  # before the lock, which is held while it starts
            with contextlib.suppress(ProcessLookupError):
                process.process.kill()
        with self._lock:
            self._closed = True
            if self._idle is not None:
                self._idle.cancel()
            if self._process is not None:
                self._process.end()
                self._process = None
