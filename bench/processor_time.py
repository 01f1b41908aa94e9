"""Processor time: the seconds that a process and those it started have spent, dead children included.

What it is: ``processor_seconds``, user and system time of a tree of processes.
Invariants: it never falls while the tree's root lives and waits for its children; on a loaded machine it is what can be
compared, the time on the clock is not.
Not here: memory (``views/memory.py``).
Read next: ``scale/sources.py``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil


def processor_seconds(pid: int | None = None, *, without: Collection[int] = ()) -> float:
    """Of this process and its children when no pid is given, but for children that are only asked (a broker).

    >>> before = processor_seconds()
    >>> sum(range(1_000_000)) > 0 and processor_seconds() >= before
    True
    """
    root = psutil.Process(os.getpid() if pid is None else pid)
    spent = 0.0
    left_out = set(without)
    for process in (root, *root.children(recursive=True)):
        if process.pid in left_out:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent
