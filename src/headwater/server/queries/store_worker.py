"""A store worker: a process that runs clients' SQL over the serving store.

What it is: ``python -m headwater.server.queries.store_worker FD STORE MEMORY``, started by ``query_workers.py``.
Invariants: it is expendable. The system enforces its memory limit, and it cannot write files.
Not here: which SQL is allowed (``views/serving/sql_authorizer.py``), time and errors (``question_loop.py``).
Read next: ``question_loop.py``, ``query_workers.py``.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from functools import partial
from typing import Any

import pyarrow as pa

from headwater.errors import Unavailable
from headwater.server.http.renderings import JSON, Rendered, rendered
from headwater.server.queries.question_loop import answer_questions, limit, pages_bytes, prepare_signals
from headwater.views.privacy.hidden_columns import hidden_from_json
from headwater.views.serving.serving_columns import inferred
from headwater.views.serving.serving_queries import Bounds
from headwater.views.serving.serving_store import ServingStore


def main(arguments: list[str]) -> None:
    """Answer requests until the server closes the socket."""
    number, path, memory_bytes = int(arguments[0]), arguments[1], int(arguments[2])
    prepare_signals()
    pa.set_cpu_count(1)
    # The allocator takes addresses for its own use before it has need of them; plain malloc does not.
    pa.set_memory_pool(pa.system_memory_pool())
    rendered(pa.Table.from_arrays([inferred([1])], names=["warm"]), {}, JSON)  # imports what it needs
    limit(resource.RLIMIT_AS, pages_bytes(0), memory_bytes)
    answer_questions(number, partial(_asked, ServingStore(path, spill=False)), memory_bytes)


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
    hidden: dict[str, Any],
) -> Rendered:
    began = time.monotonic()
    if not store.path.exists():
        raise Unavailable(
            "no view is filled yet", detail="The first tick of the app fills them.", hint="See /health/ready."
        )
    tick, table = store.asked(sql, params, Bounds(rows_max + 1, bytes_max, seconds_max, hidden_from_json(hidden)))
    truncated, table = table.num_rows > rows_max, table.slice(0, rows_max)
    return rendered(
        table, facts_of(table, tick, "store", truncated, waited + time.monotonic() - began), kind, bytes_max
    )


def facts_of(table: pa.Table, tick: int, engine: str, truncated: bool, seconds: float) -> dict[str, Any]:
    """The metadata of an answer."""
    return {
        "tick": tick,
        "engine": engine,
        "truncated": truncated,
        "count": table.num_rows,
        "seconds": round(seconds, 4),
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # nothing is to be given back, and it may have been short of memory
