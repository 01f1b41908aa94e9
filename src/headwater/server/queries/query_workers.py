"""Query workers: clients' queries and searches, run in expendable processes.

What it is: ``QueryWorkers``, a few processes of one kind (``store_worker.py`` for SQL over the serving store,
``search_worker.py`` for full-text search), each with one request at a time, replaced on demand.
Invariants: no client's query runs in the server's process, so none can end it, block it or take its memory. Slots are
bounded and shared fairly among keys (``query_places.py``). A worker that exceeds its time limit is killed.
Not here: reads by key, which are the server's own SQL (``server/routes/view_routes.py``).
Read next: ``store_worker.py``, ``docs/server.md``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from headwater.errors import HeadwaterError, InvalidQuery, OutOfMemory, TooMany
from headwater.server.engine.engine_channel import raised
from headwater.server.http.query_places import ANYBODY, QueryPlaces
from headwater.server.http.renderings import Rendered
from headwater.server.queries.question_loop import GRACE_S, HEAD
from headwater.views.serving.serving_queries import out_of_time

logger = logging.getLogger("headwater.server")

READ_BYTES = 64 << 10
START_S = 60.0
LATE_S = 1.0  # a worker ends itself after GRACE_S; this is for a machine that is busy


class QueryWorker:
    """One process, and the socket to it."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.late = False
        self.used = False  # it has been asked before
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", module, str(number), *arguments]
            # Arenas and pools for threads that it has not would count as memory that it has taken.
            environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(number,), start_new_session=True, env=environment
            )

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    async def ask(self, question: bytes) -> tuple[dict[str, Any], bytes]:
        """Ask it one thing; ``ConnectionError`` when it ends instead of answering."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, HEAD.pack(len(question), 0) + question)
        found = await self._part(READ_BYTES)
        while len(found) < HEAD.size:
            found += await self._part(READ_BYTES)
        head_bytes, body_bytes = HEAD.unpack_from(found)
        place, start, size = len(found), HEAD.size + head_bytes, HEAD.size + head_bytes + body_bytes
        if place < size:
            whole = bytearray(size)
            whole[:place] = found
            view = memoryview(whole)
            while place < size:
                count = await loop.sock_recv_into(self._socket, view[place:])
                if not count:
                    raise ConnectionResetError("the worker has ended")
                place += count
            found = bytes(whole)
        return json.loads(found[HEAD.size : start]), found[start:]

    async def _part(self, size: int) -> bytes:
        found = await asyncio.get_running_loop().sock_recv(self._socket, size)
        if not found:
            raise ConnectionResetError("the worker has ended")
        return found

    def kill_late(self) -> None:
        """Its query's time was over long ago."""
        self.late = True
        self.process.kill()

    def end(self) -> int:
        """Kill it, if it has not ended; the status it ended with."""
        self._socket.close()
        self.process.kill()
        return self.process.wait()


class _Killed(Exception):
    """A worker that had answered before was killed."""


class QueryWorkers:
    """The workers of one server and one kind. Belongs to its event loop."""

    def __init__(self, module: str, *arguments: str, at_once_max: int, what: str) -> None:
        self._module = module
        self._arguments = arguments
        self._places = QueryPlaces(at_once_max, what)
        self._idle: list[QueryWorker] = []
        self._busy: set[QueryWorker] = set()
        self._closed = False

    async def ask(self, question: dict[str, Any], key: str) -> Rendered:
        """Send a request to a worker; returns its answer."""
        for _ in range(self._places.at_once_max):
            try:
                return await self._ask(question, key)
            except _Killed:  # from outside, perhaps, while it waited: the question is not at fault
                continue
        return await self._ask(question, key, again=False)

    async def _ask(self, question: dict[str, Any], key: str, *, again: bool = True) -> Rendered:
        seconds = float(question["seconds_max"])
        async with self._places.taken(key, seconds):
            worker = await self._worker()
            waited, worker.used = worker.used, True
            # Not wait_for, which would make a task of each query.
            late = asyncio.get_running_loop().call_later(seconds + GRACE_S + LATE_S, worker.kill_late)
            try:
                head, body = await worker.ask(json.dumps(question).encode())
            except OSError as error:
                status = worker.end()
                if again and waited and not worker.late and status == -signal.SIGKILL:
                    raise _Killed from error
                raise self._lost(worker, status, seconds) from error
            except BaseException:  # who asked has gone, and an answer is still to come
                worker.end()
                raise
            else:
                if head["last"]:  # it will not answer again
                    worker.end()
                else:
                    self._idle.append(worker)
            finally:
                late.cancel()
                self._busy.discard(worker)
        if "error" in head:
            raise raised(head["error"])
        return Rendered(body, head["kind"], head["headers"])

    async def _worker(self) -> QueryWorker:
        """The one that was used last, whose memory is warm; else a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.runs:
                self._busy.add(worker)
                return worker
            worker.end()
        loop = asyncio.get_running_loop()
        worker = await loop.run_in_executor(None, QueryWorker, self._module, self._arguments)
        if self._closed:
            worker.end()
            raise TooMany("the server is stopping", hint="Ask again when it has started.")
        self._busy.add(worker)
        return worker

    async def start(self) -> None:
        """Have one worker ready, so that the first query need not wait for it."""
        async with self._places.taken(ANYBODY, START_S):
            worker = await self._worker()
            self._busy.discard(worker)
            self._idle.append(worker)

    def _lost(self, worker: QueryWorker, status: int, seconds: float) -> HeadwaterError:
        """The error for a worker that ended instead of answering."""
        if worker.late:
            logger.warning("a query was still at work %g s after its time; its process was killed", GRACE_S + LATE_S)
        if worker.late or status == -signal.SIGALRM:
            return out_of_time(seconds)
        logger.warning("a query ended the process that ran it, with status %d; the next one gets a new process", status)
        if status == -signal.SIGKILL:
            return OutOfMemory("the query was ended because memory ran out", hint="Ask for less.")
        return InvalidQuery("the query ended the process that ran it", hint="Write it in another way.")

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in (*self._idle, *self._busy):
            worker.end()
        self._idle.clear()
