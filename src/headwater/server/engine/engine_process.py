"""The engine: the child process of the server that runs the app with Spark.

What it is: ``python -m headwater.server.engine.engine_process APP.py SOCKET PIPE``, started by the supervisor: ticks,
captures, inlets and sinks; ``verify``, ``rebuild`` and ``resume`` on request. With ``--standby`` it starts Spark,
prepares the views and waits for the word ``GO`` on its standard input, having taken nothing over; with ``--watch`` it
goes by itself when no other process runs the app any more.
Invariants: it ends with its parent, even a killed one, because its standard input closes. It reports to its parent one
JSON object a line. Its JVM runs no client's query and does not outlive it.
Not here: queries (``server/queries/query_engine.py``), restarting (``supervisor.py``), the protocol
(``engine_channel.py``).
Read next: ``supervisor.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.app_file import app_of
from headwater.errors import EngineUnavailable, HeadwaterError
from headwater.log.storage.file_descriptors import raise_limit
from headwater.server.engine.child_process import GO, STANDING_BY, time_limit
from headwater.server.engine.engine_channel import Answer, EngineChannel
from headwater.server.http.log_lines import log_to_stderr
from headwater.views.lifecycle.standby import Standby
from headwater.views.serving.serving_queries import out_of_time
from headwater.views.spark import own_process
from headwater.views.spark.jvm import end as end_java

if TYPE_CHECKING:
    from headwater.app import App

STOP_SECONDS_MAX = 20.0
STANDBY_LOG = "spark-standby.log"  # the other one is still written to by the engine that runs


class EngineProcess:
    """Runs an app and answers requests."""

    def __init__(
        self,
        app: App,
        emit: Callable[[dict[str, Any]], None],
        *,
        accept_loss: bool = False,
        standby: bool = False,
        watches: bool = False,
    ) -> None:
        self.app = app
        self.accept_loss = accept_loss
        self.standby = standby
        self.watches = watches
        self.emit = emit
        self.called = threading.Event()  # to run the app; of no meaning for an engine that does not stand by
        self.stopping = threading.Event()
        self._plans = Standby(app._runtime)
        self._ready = threading.Event()
        self._mending = threading.Lock()  # rebuilds and verifications run one at a time

    # Running

    def run(self, listen: Callable[[], EngineChannel]) -> int:
        """Run the app until stopped, and answer on a channel; the exit status."""
        channel = None
        try:
            if self.standby or self.watches:
                self._stand_by()
            channel = listen()  # not sooner: its address is that of the engine which runs
            self._take_over()
            self.app.run(on_tick=self._ticked, accept_loss=self.accept_loss)
            return 0
        except HeadwaterError as error:
            self.emit({"event": "failed", "error": error.to_dict()})
            return error.exit_status
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else ""
            self.emit({"event": "failed", "error": HeadwaterError(f"{type(error).__name__}: {first}").to_dict()})
            raise
        finally:
            if channel is not None:
                channel.close()

    def _stand_by(self) -> None:
        """Prepare everything that can be, and wait until this engine is to run the app."""
        runtime = self.app._runtime
        log, runtime.java_log = runtime.java_log, runtime.folder / STANDBY_LOG
        self._plans.wait(self.called, on_ready=lambda: self.emit({"event": STANDING_BY}), watches=self.watches)
        with contextlib.suppress(OSError):  # Java goes on writing to the file, whatever its name
            runtime.java_log.replace(log)
        runtime.java_log = log
        runtime.prepare_again()

    def _take_over(self) -> None:
        """Start Spark and take the app over, before reporting ready."""
        if not self.app.views:
            raise HeadwaterError("the app declares no view", hint="Serve it with --no-engine.")
        _ = self.app._runtime.engine
        threading.Thread(target=self._when_running, name="headwater-ready", daemon=True).start()

    def _when_running(self) -> None:
        # Not after the first tick, which fills new views and may take long.
        self._ready.set()
        self.emit({"event": "ready", "epoch": self.app._runtime.epoch})

    def _ticked(self, report: Any) -> None:
        self.emit({"event": "tick", "tick": report.tick})
        self._plans.note_plans()
        if self.stopping.is_set():
            self.app._runtime.stop()

    def stop(self) -> None:
        """End after the running tick, or by force after ``STOP_SECONDS_MAX``."""
        self.stopping.set()
        timer = threading.Timer(STOP_SECONDS_MAX, _end_now)
        timer.daemon = True
        timer.start()
        if self._ready.is_set():
            self.app._runtime.stop()
        else:  # Spark is starting; no tick has begun
            end_java(self.app._runtime.running_spark)
            os._exit(0)

    # Answering

    def answer(self, request: dict[str, Any]) -> Answer:
        """The answer to one request."""
        if not self._ready.is_set():
            raise EngineUnavailable("the engine is starting", hint="Try again in a few seconds.")
        answers: dict[str, Callable[..., Answer]] = {
            "verify": self._verify,
            "rebuild": self._rebuild,
            "resume": self._resume,
        }
        arguments = dict(request)
        return answers[arguments.pop("verb")](**arguments)

    def _verify(self, *, view: str | None, timeout: float) -> Answer:
        if view is not None:
            self.app.get_view(view)
        with self._mending, time_limit(self.app._runtime.spark, timeout, out_of_time):
            found = self.app._runtime.verify(view)
        return {"views": [{**asdict(each), "equal": each.equal} for each in found]}, None

    def _rebuild(self, *, view: str, timeout: float) -> Answer:
        del timeout  # a rebuild is never cancelled: its work would be lost
        with self._mending:
            return asdict(self.app.rebuild(view)), None

    def _resume(self, *, view: str, timeout: float) -> Answer:
        del timeout
        with self._mending:
            return asdict(self.app.get_view(view).resume()), None


def _end_now() -> None:
    """Kill this process with its JVM, which may hang; a session leader kills its whole session."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main(arguments: list[str]) -> int:
    """``FILE SOCKET [--accept-loss] [--standby] [--watch] PIPE``, with the secret on standard input."""
    file, socket, pipe = Path(arguments[0]), Path(arguments[1]), int(arguments[-1])
    secret = bytes.fromhex(sys.stdin.readline().strip())
    writing = threading.Lock()
    raise_limit()
    own_process.claim()
    log_to_stderr()

    def emit(event: dict[str, Any]) -> None:
        with writing:
            os.write(pipe, (json.dumps(event, default=str) + "\n").encode())

    try:
        app = app_of(file)
    except HeadwaterError as error:
        emit({"event": "failed", "error": error.to_dict()})
        return error.exit_status
    options = arguments[2:-1]
    engine = EngineProcess(
        app, emit, accept_loss="--accept-loss" in options, standby="--standby" in options, watches="--watch" in options
    )

    def lifeline() -> None:
        for line in sys.stdin:  # ends when the parent closes it or dies
            if line.strip() == GO:
                engine.called.set()
        engine.stop()

    threading.Thread(target=lifeline, name="headwater-lifeline", daemon=True).start()
    try:
        return engine.run(lambda: EngineChannel(socket, secret, engine.answer))
    finally:
        spark = app._runtime.running_spark
        app.close()
        end_java(spark)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # does not wait for Spark's threads
