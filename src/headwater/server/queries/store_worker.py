"""A store worker: a process that runs queries of strangers over the serving store, and nothing else.

What it is: ``python -m headwater.server.queries.store_worker FD STORE MEMORY``, started by ``store_queries.py``: it
reads questions from a socket, one after the other, and writes answers that are ready to be sent.
Invariants: it can be lost at any moment. It has a limit of memory, which the system keeps; it cannot write files; a
query that does not end in time, though SQLite was asked to end it, is ended by a signal that ends the whole process. It
ends when the server does, which closes the socket.
Not here: which SQL is let through (``views/serving/sql_authorizer.py``), starting workers again (``store_queries.py``).
Read next: ``store_queries.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError, OutOfMemory, Unavailable
from headwater.server.http.renderings import JSON, rendered
from headwater.views.serving.serving_columns import inferred
from headwater.views.serving.serving_queries import Bounds
from headwater.views.serving.serving_store import ServingStore

HEAD = struct.Struct("!II")  # the bytes of a JSON text, and of the body behind it
# SQLite ends a query by itself between two steps of its machine; one step may take as long as it likes.
GRACE_S = 0.5
FILE_BYTES_MAX = 64 << 20  # SQLite's shared index of the write-ahead log is a file; nothing else is written


def main(arguments: list[str]) -> None:
    """Answer questions until nobody asks any more."""
    number, path, memory_bytes = int(arguments[0]), arguments[1], int(arguments[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever it is doing
    pa.set_cpu_count(1)
    # The allocator takes addresses for its own use before it has need of them; plain malloc does not.
    pa.set_memory_pool(pa.system_memory_pool())
    rendered(pa.Table.from_arrays([inferred([1])], names=["warm"]), {}, JSON)  # imports what it needs
    _limit(memory_bytes)
    with socket.socket(fileno=number) as channel, contextlib.suppress(ConnectionError, EOFError):
        store = ServingStore(path, spill=False)
        while True:
            size, _ = HEAD.unpack(_received(channel, HEAD.size))
            question = json.loads(_received(channel, size))
            signal.setitimer(signal.ITIMER_REAL, question["seconds_max"] + GRACE_S)
            head, body, last = _answer(store, question, memory_bytes)
            signal.setitimer(signal.ITIMER_REAL, 0)
            text = json.dumps({**head, "last": last}, default=str).encode()
            channel.sendall(b"".join((HEAD.pack(len(text), len(body)), text, body)))  # in one: the server wakes once
            if last:
                return


def _answer(store: ServingStore, question: dict[str, Any], memory_bytes: int) -> tuple[dict[str, Any], bytes, bool]:
    """What to say, its body, and whether this process should not go on."""
    try:
        made = _asked(store, **question)
        return {"kind": made.kind, "headers": dict(made.headers)}, made.body, False
    except MemoryError:
        # Whoever asked for memory and got none may have left something half done: a new process begins clean.
        error = OutOfMemory(
            f"the query needs more than {memory_bytes >> 20:,} MiB of memory",
            hint="Ask for less, or sort and group less at once. The server's limit is --query-memory-mib.",
            bytes_max=memory_bytes,
        )
        return {"error": error.to_dict()}, b"", True
    except HeadwaterError as error:
        return {"error": error.to_dict()}, b"", False
    except Exception as error:
        # Not str(error): what nobody foresaw may tell what nobody should know.
        return {"error": HeadwaterError(f"unexpected {type(error).__name__}").to_dict()}, b"", True


def _asked(
    store: ServingStore,
    *,
    sql: str,
    params: Any,
    rows_max: int,
    bytes_max: int,
    seconds_max: float,
    waited: float,
    kind: str,
) -> Any:
    began = time.monotonic()
    if not store.path.exists():
        raise Unavailable(
            "no view is filled yet", detail="The first tick of the app fills them.", hint="Look at /health/ready."
        )
    tick, table = store.asked(sql, params, Bounds(rows_max + 1, bytes_max, seconds_max))
    truncated, table = table.num_rows > rows_max, table.slice(0, rows_max)
    return rendered(
        table, facts_of(table, tick, "store", truncated, waited + time.monotonic() - began), kind, bytes_max
    )


def facts_of(table: pa.Table, tick: int, engine: str, truncated: bool, seconds: float) -> dict[str, Any]:
    """What is said of an answer beside its rows."""
    return {
        "tick": tick,
        "engine": engine,
        "truncated": truncated,
        "count": table.num_rows,
        "seconds": round(seconds, 4),
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
    }


def _limit(memory_bytes: int) -> None:
    """Let this process have so much more memory than it has now, and write no file that is large."""
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + memory_bytes, now + memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _received(channel: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = channel.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # nothing is to be given back, and it may have been short of memory
