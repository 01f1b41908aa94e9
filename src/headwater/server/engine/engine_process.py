"""The engine: the child process that runs the app, with Spark.

What it is: ``python -m headwater.server.engine.engine_process APP.py``, started by the supervisor: it runs the app
(ticks, captures, inlets, sinks) and does what only it can: verify, rebuild.
Invariants: it ends when its parent does, also when that was killed: its stdin is the lifeline. What it tells its parent
is a JSON object a line on a pipe of its own. Its Java runs no query of a stranger, and does not outlive it.
Not here: queries (``server/queries/query_engine.py``), starting it again (``supervisor.py``), the form of questions
(``engine_channel.py``).
Read next: ``supervisor.py``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.app_file import app_of
from headwater.errors import EngineUnavailable, HeadwaterError, TimedOut
from headwater.log.storage.file_descriptors import raise_limit
from headwater.server.engine.engine_channel import Answer, EngineChannel
from headwater.server.http.log_lines import log_to_stderr
from headwater.views.lifecycle.liveness import QUESTIONS
from headwater.views.spark.jvm import end as end_java

if TYPE_CHECKING:
    from headwater.app import App

STOP_SECONDS_MAX = 20.0


class EngineProcess:
    """An app at work, and its answers."""

    def __init__(self, app: App, tell: Callable[[dict[str, Any]], None]) -> None:
        self.app = app
        self.tell = tell
        self.stopping = threading.Event()
        self._ready = threading.Event()
        self._mending = threading.Lock()  # one rebuild or verification at a time

    # Running

    def run(self) -> int:
        """Run the app until stopped; the exit status."""
        try:
            self._take_over()
            self.app.run(on_tick=self._ticked)
            return 0
        except HeadwaterError as error:
            self.tell({"event": "failed", "error": error.to_dict()})
            return error.exit_status
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else ""
            self.tell({"event": "failed", "error": HeadwaterError(f"{type(error).__name__}: {first}").to_dict()})
            raise

    def _take_over(self) -> None:
        """Start Spark and take the app, before it is said to be ready."""
        if not self.app.views:
            raise HeadwaterError("the app declares no view", hint="Serve it with --no-engine.")
        _ = self.app._runtime.engine
        threading.Thread(target=self._when_running, name="headwater-ready", daemon=True).start()

    def _when_running(self) -> None:
        # The first tick fills new views and may take long; queries need not wait for it.
        self._ready.set()
        self.tell({"event": "ready", "epoch": self.app._runtime.epoch})

    def _ticked(self, report: Any) -> None:
        self.tell({"event": "tick", "tick": report.tick})
        if self.stopping.is_set():
            self.app._runtime.stop()

    def stop(self) -> None:
        """End after the running tick; whatever happens, not much later."""
        self.stopping.set()
        timer = threading.Timer(STOP_SECONDS_MAX, _end_now)
        timer.daemon = True
        timer.start()
        if self._ready.is_set():
            self.app._runtime.stop()
        else:  # Spark is just starting; nothing was begun
            end_java(self.app._runtime.running_spark)
            os._exit(0)

    # Answering

    def answer(self, request: dict[str, Any]) -> Answer:
        """The answer to one request."""
        if not self._ready.is_set():
            raise EngineUnavailable("the engine is starting", hint="Ask again in some seconds.")
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
        with self._mending, self._in_time(timeout):
            found = self.app._runtime.verify(view)
        return {"views": [{**asdict(each), "equal": each.equal} for each in found]}, None

    def _rebuild(self, *, view: str, timeout: float) -> Answer:
        del timeout  # a rebuild is not ended halfway: the views would have been computed for nothing
        with self._mending:
            return asdict(self.app.rebuild(view)), None

    def _resume(self, *, view: str, timeout: float) -> Answer:
        del timeout  # as a rebuild
        with self._mending:
            return asdict(self.app.get_view(view).resume()), None

    @contextmanager
    def _in_time(self, seconds: float) -> Iterator[None]:
        """Cancel the Spark jobs of this thread when the time is up."""
        context = self.app._runtime.spark.sparkContext
        group, over = uuid.uuid4().hex, threading.Event()
        context.setJobGroup(group, "a question to the server", True)
        QUESTIONS.add(group)

        def end() -> None:
            over.set()
            context.cancelJobGroup(group)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if over.is_set():
                raise TimedOut(
                    f"the query was ended after {seconds:g} s", hint="Ask for less, or give it more time."
                ) from error
            raise
        finally:
            timer.cancel()
            QUESTIONS.discard(group)
            context.setLocalProperty("spark.jobGroup.id", "")  # threads are used again


def _end_now() -> None:
    """With Java, which may hang: where this process began a session, everything in it was started by it."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Run the app of a file: ``FILE SOCKET PIPE``, the secret on stdin."""
    file, socket, pipe = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    secret = bytes.fromhex(sys.stdin.readline().strip())
    telling = threading.Lock()
    raise_limit()
    log_to_stderr()

    def tell(what: dict[str, Any]) -> None:
        with telling:
            os.write(pipe, (json.dumps(what, default=str) + "\n").encode())

    try:
        app = app_of(file)
    except HeadwaterError as error:
        tell({"event": "failed", "error": error.to_dict()})
        return error.exit_status
    engine = EngineProcess(app, tell)
    channel = EngineChannel(socket, secret, engine.answer)

    def lifeline() -> None:
        sys.stdin.read()  # until the parent closes it, or is gone
        engine.stop()

    threading.Thread(target=lifeline, name="headwater-lifeline", daemon=True).start()
    try:
        return engine.run()
    finally:
        channel.close()
        spark = app._runtime.running_spark
        app.close()
        end_java(spark)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # Spark's threads would hold the interpreter for a while
