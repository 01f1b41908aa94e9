"""Freed memory: what ticks have let go of goes back to the system.

What it is: ``release_memory``, after a tick of many rows, and ``return_freed``, for every hundredth tick.
Invariants: nothing that is in use is touched; where the C library has no such call, less is given back.
Not here: what is remembered, and for how long (``views/state/small_runs.py``, ``log/storage/checksums.py``).
Read next: ``engine.py``.

A tick of few rows makes some thousand small objects in C, in as many threads as there are views, and what stays longer
lies between what goes. So the heaps of the C library and of Arrow grow for hours, full of holes: 12 + 18 MB were free
after 500 ticks of eight views. To give them back takes 3 ms.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable

import pyarrow as pa

HELD_BYTES_MIN = 32 << 20


def release_memory() -> None:
    """Give back what a large tick held: its rows may be in cycles of Python objects, and what was freed stays in the
    heaps of C and of Arrow (80 to 180 MB in that of C after 5 million changes).

    A look at every object of the process takes 0.1 s and more: only where Arrow still holds much.
    """
    if pa.total_allocated_bytes() >= HELD_BYTES_MIN:
        gc.collect()
    return_freed()


def return_freed() -> None:
    """Give back the free pages of the heaps of C and of Arrow."""
    _malloc_trim()(0)
    pa.default_memory_pool().release_unused()


@functools.cache
def _malloc_trim() -> Callable[[int], int]:
    """The call of the GNU C library that gives back every free page; elsewhere one that does nothing."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda pad: pad
    return found
