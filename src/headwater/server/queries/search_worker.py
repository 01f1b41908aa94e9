"""A search worker: a process that runs clients' searches over the index of a search sink.

What it is: ``python -m headwater.server.queries.search_worker FD MEMORY``, started by ``query_workers.py`` for the
first search. The search library cannot be interrupted, so a long search ends with its process.
Invariants: it is expendable. The system enforces its memory limit; address space is not limited, because an index is
mapped.
Not here: the index (``sinks/search_sink.py``), time and errors (``question_loop.py``).
Read next: ``question_loop.py``, ``query_workers.py``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from typing import Any

from headwater.server.http.renderings import JSON, Rendered
from headwater.server.queries.question_loop import answer_questions, limit, pages_bytes, prepare_signals
from headwater.sinks.search_sink import SearchSink
from headwater.views.serving.serving_queries import answer_too_large


def main(arguments: list[str]) -> None:
    """Answer requests until the server closes the socket."""
    number, memory_bytes = int(arguments[0]), int(arguments[1])
    prepare_signals()
    limit(resource.RLIMIT_DATA, pages_bytes(5), memory_bytes)
    answer_questions(number, _searched, memory_bytes)


def _searched(
    *, path: str, words: str, rows_max: int, bytes_max: int, seconds_max: float, facts: Mapping[str, Any]
) -> Rendered:
    del seconds_max  # the loop's
    rows = SearchSink(path, text=()).search(words, limit=rows_max)
    body = json.dumps({**facts, "rows": rows}).encode()
    if len(body) > bytes_max:
        raise answer_too_large(bytes_max)
    return Rendered(body, JSON, {})


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # nothing is to be given back, and it may have been short of memory
