"""The request loop of a query worker.

What it is: ``answer_questions`` reads requests from a socket, one after the other, and writes answers that are ready to
send.
Invariants: a request that exceeds its time ends the whole process by a signal. After an unexpected error, or without
memory, the process answers and ends, and a new one starts clean. It ends with the server, which closes the socket.
Not here: the answers (``store_worker.py``, ``search_worker.py``), restarting workers (``query_workers.py``).
Read next: ``query_workers.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from headwater.errors import HeadwaterError, OutOfMemory
from headwater.server.http.renderings import Rendered

HEAD = struct.Struct("!II")  # the bytes of a JSON text, and of the body behind it
# SQLite ends a query by itself between two steps of its machine; one step may take as long as it likes.
GRACE_S = 0.5
FILE_BYTES_MAX = 64 << 20  # SQLite's shared index of the write-ahead log is a file; nothing else is written


def answer_questions(number: int, answer: Callable[..., Rendered], memory_bytes: int) -> None:
    """Answer requests until the socket closes."""
    with socket.socket(fileno=number) as channel, contextlib.suppress(ConnectionError, EOFError):
        while True:
            size, _ = HEAD.unpack(_received(channel, HEAD.size))
            question = json.loads(_received(channel, size))
            signal.setitimer(signal.ITIMER_REAL, question["seconds_max"] + GRACE_S)
            head, body, last = _answered(answer, question, memory_bytes)
            signal.setitimer(signal.ITIMER_REAL, 0)
            text = json.dumps({**head, "last": last}, default=str).encode()
            channel.sendall(b"".join((HEAD.pack(len(text), len(body)), text, body)))  # in one: the server wakes once
            if last:
                return


def _answered(
    answer: Callable[..., Rendered], question: dict[str, Any], memory_bytes: int
) -> tuple[dict[str, Any], bytes, bool]:
    """The answer, its body, and whether this process must end."""
    try:
        made = answer(**question)
        return {"kind": made.kind, "headers": dict(made.headers)}, made.body, False
    except MemoryError:
        # A failed allocation may leave broken state behind; a new process starts clean.
        error = OutOfMemory(
            f"the query needs more than {memory_bytes >> 20:,} MiB of memory",
            hint="Ask for less, or sort and group less at once. The server's limit is --query-memory-mib.",
            bytes_max=memory_bytes,
        )
        return {"error": error.to_dict()}, b"", True
    except HeadwaterError as error:
        return {"error": error.to_dict()}, b"", False
    except Exception as error:
        # Not str(error): an unexpected message may reveal internals.
        return {"error": HeadwaterError(f"unexpected {type(error).__name__}").to_dict()}, b"", True


def prepare_signals() -> None:
    """Ctrl-C is for the server; the alarm ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def limit(kind: int, has_bytes: int, memory_bytes: int) -> None:
    """Let this process have so much more memory of a kind than it has now, and write no file that is large."""
    resource.setrlimit(kind, (has_bytes + memory_bytes, has_bytes + memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def pages_bytes(place: int) -> int:
    """One number of /proc/self/statm, in bytes: 0 are all addresses, 5 those for data and stacks."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[place]) * os.sysconf("SC_PAGE_SIZE")


def _received(channel: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = channel.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
