"""Command workers: clients' commands to aggregates, decided in expendable processes.

What it is: ``CommandWorkers``, a few processes of ``command_worker.py``. The id of an aggregate decides which of them
gets its commands, so each state is in the memory of one of them.
Invariants: no command method runs in the server's process, so none can end it, block it or take its memory; nor in the
engine's, so commands are answered while Spark starts or is gone. A process that takes too long is killed and replaced.
A command is never sent twice by itself: when its process ends without an answer, the client is told that it is not
known whether it was written, and what to do.
Not here: the routes (``server/routes/aggregate_routes.py``), the process (``command_worker.py``).
Read next: ``command_worker.py``; ``docs/server.md``, "Aggregates".
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.errors import CommitUnsure, HeadwaterError, Misuse, TooMany, Unavailable
from headwater.server.commands.command_counts import CommandCounts
from headwater.server.commands.command_worker import READY, RETRIED
from headwater.server.engine.engine_channel import raised
from headwater.server.http.query_places import ANYBODY, QueryPlaces
from headwater.server.http.renderings import Rendered
from headwater.server.queries.query_workers import LATE_S, START_S, QueryWorker
from headwater.server.queries.question_loop import GRACE_S

logger = logging.getLogger("headwater.server")

MODULE = "headwater.server.commands.command_worker"
WORKERS = 2
LOOK_S = 0.5
WAITING_MAX = 512  # for one worker


class CommandWorkers:
    """The command workers of one server. Belongs to its event loop."""

    def __init__(self, file: Path | None, seconds_max: float) -> None:
        self.counts = CommandCounts()
        self._file = file
        self._seconds_max = seconds_max
        self._places = [QueryPlaces(1, "commands", waiting_max=WAITING_MAX, limit="") for _ in range(WORKERS)]
        self._workers: list[QueryWorker | None] = [None] * WORKERS
        self._starting: set[int] = set()
        self._closed = False

    async def start(self, busy: Callable[[], bool]) -> None:
        """Have the processes ready, so that the first command need not wait for them: once the engine has started."""
        while busy():  # its start needs all cores; a command that comes meanwhile starts its process by itself
            await asyncio.sleep(LOOK_S)
        for number, places in enumerate(self._places):
            try:
                async with places.taken(ANYBODY, START_S):
                    await self._worker(number)
            except HeadwaterError as error:  # told again to whoever sends a command
                logger.warning("no process for commands: %s", error)

    async def send(self, aggregate: str, id: str, key: str, question: Mapping[str, Any]) -> Rendered:
        """Send a command, or settle a tentative event; counted."""
        began = time.monotonic()
        try:
            made = await self._ask(aggregate, id, key, question)
        except HeadwaterError as error:
            self.counts.refused(aggregate, time.monotonic() - began, error)
            raise
        headers = dict(made.headers)
        retried, repeated = int(headers.pop(RETRIED, "0")), made.body.endswith(b'"repeated": true}')
        self.counts.answered(aggregate, time.monotonic() - began, repeated=repeated, retried=retried)
        return Rendered(made.body, made.kind, headers)

    async def state(self, aggregate: str, id: str, key: str, version: int | None) -> Rendered:
        """The state of an aggregate, now or after some events."""
        return await self._ask(aggregate, id, key, {"what": "state", "version": version})

    async def _ask(self, aggregate: str, id: str, key: str, question: Mapping[str, Any]) -> Rendered:
        asked = {**question, "aggregate": aggregate, "id": id, "seconds_max": self._seconds_max}
        number = zlib.crc32(f"{aggregate} {id}".encode()) % WORKERS
        # A process that just starts runs the app's file first: who waits for it waits as long as that may take.
        starts = self._workers[number] is None or number in self._starting
        async with self._places[number].taken(key, START_S if starts else self._seconds_max):
            worker = await self._worker(number)
            late = asyncio.get_running_loop().call_later(self._seconds_max + GRACE_S + LATE_S, worker.kill_late)
            try:
                head, body = await worker.ask(json.dumps(asked).encode())
            except OSError as error:
                raise self._lost(number, worker, asked) from error
            except BaseException:  # who asked has gone, and an answer is still to come
                self._end(number, worker)
                raise
            finally:
                late.cancel()
            if head["last"]:
                self._end(number, worker)
        if "error" in head:
            raise raised(head["error"])
        return Rendered(body, head["kind"], head["headers"])

    async def _worker(self, number: int) -> QueryWorker:
        worker = self._workers[number]
        if worker is not None and worker.runs:
            return worker
        if worker is not None:
            self._end(number, worker)
        if self._file is None:
            raise Misuse("this server was started without an app's file", hint="Start it with headwater serve APP.py.")
        if self._closed:
            raise TooMany("the server is stopping", hint="Ask again when it has started.")
        loop = asyncio.get_running_loop()
        worker = await loop.run_in_executor(None, QueryWorker, MODULE, [str(self._file)])
        if self._closed:
            worker.end()
            raise TooMany("the server is stopping", hint="Ask again when it has started.")
        self._workers[number] = worker
        self._starting.add(number)
        try:
            await self._ready(number, worker)
        finally:
            self._starting.discard(number)
        return worker

    async def _ready(self, number: int, worker: QueryWorker) -> None:
        """Wait until it has run the app's file: how long that takes does not count against a command's time."""
        try:
            question = json.dumps({"what": READY, "aggregate": "", "id": "", "seconds_max": START_S})
            head, _ = await asyncio.wait_for(worker.ask(question.encode()), START_S)
        except (OSError, TimeoutError) as error:
            status = self._end(number, worker)
            raise Unavailable(
                f"the process that runs commands did not start (status {status})",
                hint="The server's standard error says more.",
            ) from error
        except BaseException:
            self._end(number, worker)
            raise
        if "error" in head:
            self._end(number, worker)
            raise raised(head["error"])

    def _end(self, number: int, worker: QueryWorker) -> int:
        if self._workers[number] is worker:
            self._workers[number] = None
        return worker.end()

    def _lost(self, number: int, worker: QueryWorker, asked: Mapping[str, Any]) -> HeadwaterError:
        """The error for a process that ended instead of answering."""
        status = self._end(number, worker)
        what = f'command "{asked["command"]}"' if "command" in asked else f"a request ({asked['what']})"
        over = worker.late or status == -signal.SIGALRM
        why = f"took longer than {self._seconds_max:g} s" if over else "ended its process"
        logger.warning(
            '%s to %s "%s" %s (status %d); the next one gets a new process',
            *(what, asked["aggregate"], asked["id"], why, status),
        )
        again = "Send it again with the same Idempotency-Key: a repetition gives the first answer."
        look = "Look at the history before you send it again; with an Idempotency-Key that is not needed."
        return CommitUnsure(
            f'{what} to {asked["aggregate"]} "{asked["id"]}" {why}',
            detail="It is not known whether its events were written.",
            hint=again if asked.get("request_id") else look,
            aggregate=asked["aggregate"],
            id=asked["id"],
        )

    def close(self) -> None:
        """End all processes."""
        self._closed = True
        for number, worker in enumerate(self._workers):
            if worker is not None:
                self._end(number, worker)
