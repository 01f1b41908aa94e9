"""Peak memory: the most that a process and those it started ever held, as the kernel counted it.

What it is: ``peak_of``, over ``VmHWM`` of every process of a tree, and of this one with its JVM; ``forget_peaks``: from
then on it counts anew, so that a tick's peak can be told from that of what was done before it.
Invariants: a sum of peaks, so an upper bound of the tree's own peak; 0 where the kernel does not tell (not Linux).
Not here: limits (``views/spark/spark_session.py`` sets the driver's).
Read next: ``views/spark/spark_session.py``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def peak_of(pid: int | None = None) -> int:
    """Bytes; of this process and its children when no pid is given.

    >>> peak_of() > 1_000_000
    True
    """
    return sum(_peak(number) for number in _tree(pid))


def forget_peaks(pid: int | None = None) -> None:
    """Let the peaks of the process and its children begin at what they hold now, where the kernel can do that.

    >>> forget_peaks()
    """
    for number in _tree(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{number}/clear_refs").write_text("5")


def _tree(pid: int | None) -> list[int]:
    root = psutil.Process(os.getpid() if pid is None else pid)
    return [process.pid for process in (root, *root.children(recursive=True))]


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
