"""A coroutine in an event loop and a thread of its own.

What it is: ``in_own_loop``.
Invariants: it works in every process of the tests: where a browser is tested too, the main thread has a loop that runs.
Not here: what a server does in its loop (``tests/services/server``).
Read next: ``tests/browser/conftest.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns or raises."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
