"""The channel to the engine: requests and answers over a Unix socket.

What it is: ``ask`` sends one request and waits for the answer; ``EngineChannel`` listens in the child process and
answers each request in a thread.
Invariants: both sides prove that they know the secret, which is new for every child; only this user may open the
socket. Messages are JSON, tables Arrow; nothing is unpickled. Concurrent requests are bounded.
Not here: the requests (``engine_process.py``), starting the child (``child_process.py``).
Read next: ``engine_process.py``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater import errors
from headwater.errors import EngineUnavailable, HeadwaterError, TimedOut, TooMany

logger = logging.getLogger("headwater.server")

AT_ONCE_MAX = 16
REQUEST_BYTES_MAX = 1 << 20
PATH_BYTES_MAX = 100  # the system's limit for the name of a socket is 104 to 108
GRACE_S = 5.0  # beyond the limit that the engine itself enforces

Answer = tuple[dict[str, Any], pa.Table | bytes | None]  # bytes are an encoded body
TABLE, BODY = "table", "body"
BY_CODE = {
    each.code: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HeadwaterError)
}


def ask(path: Path, secret: bytes, request: dict[str, Any], *, timeout: float) -> Answer:
    """Send one request; an error of the other process is raised here."""
    try:
        with Client(str(path), "AF_UNIX", authkey=secret) as connection:
            connection.send_bytes(json.dumps(request).encode())
            if not connection.poll(timeout + GRACE_S):
                raise TimedOut(f"the engine has not answered after {timeout + GRACE_S:g} s", hint="Reduce the query.")
            head = json.loads(connection.recv_bytes())
            more = connection.recv_bytes() if head.get("more") else None
    except (OSError, EOFError, AuthenticationError) as error:
        raise EngineUnavailable(
            "the engine does not answer", detail=str(error) or type(error).__name__, hint="See /health/ready."
        ) from error
    if "error" in head:
        raise raised(head["error"])
    return head["answer"], _table(more) if head["more"] == TABLE and more is not None else more


def raised(described: dict[str, Any]) -> HeadwaterError:
    """The error of another process."""
    kind = BY_CODE.get(described["code"], HeadwaterError)
    return kind(described["message"], detail=described["detail"], hint=described["hint"], **described["data"])


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def _bytes(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


class EngineChannel:
    """Listens in the child process."""

    def __init__(self, path: Path, secret: bytes, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.path = path
        self._answer = answer
        self._secret = secret
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # left by a killed process
        before = os.umask(0o177)
        try:
            self._listener = Listener(str(path), "AF_UNIX", backlog=64)
        finally:
            os.umask(before)
        self._free = threading.Semaphore(AT_ONCE_MAX)
        threading.Thread(target=self._listen, name="headwater-channel", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), name="headwater-answer", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        from multiprocessing.connection import answer_challenge, deliver_challenge

        # Not in the accepting thread, where one silent client would block all others.
        with connection, contextlib.suppress(OSError, EOFError, AuthenticationError):
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            head, more = self._answered(connection.recv_bytes(REQUEST_BYTES_MAX))
            connection.send_bytes(json.dumps(head, default=str).encode())
            if more is not None:
                connection.send_bytes(more if isinstance(more, bytes) else _bytes(more))

    def _answered(self, request: bytes) -> tuple[dict[str, Any], pa.Table | bytes | None]:
        if not self._free.acquire(blocking=False):
            return {
                "error": TooMany("the engine has too many concurrent requests", hint="Try again later.").to_dict()
            }, None
        try:
            answer, more = self._answer(json.loads(request))
            kind = BODY if isinstance(more, bytes) else None if more is None else TABLE
            return {"answer": answer, "more": kind}, more
        except HeadwaterError as error:
            return {"error": error.to_dict()}, None
        except Exception as error:
            logger.exception("an unexpected error")
            bug = HeadwaterError(f"unexpected {type(error).__name__}", hint="See engine.log.")
            return {"error": bug.to_dict()}, None
        finally:
            self._free.release()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
