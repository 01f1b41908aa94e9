"""Killed work: a piece of work in a process that kills itself, with ``kill -9``, at its Nth file operation.

What it is: ``kill_at``, for work that changes files through ``Files``.
Not here: crashes that lose what was not synced (``headwater.testing``).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from headwater.log.storage.files import Files

OPERATIONS = ("sync", "rename")


def kill_at(work: Callable[..., None], at: int, *arguments: str, operations: tuple[str, ...] = OPERATIONS) -> bool:
    """Do some work in a process that kills itself at its Nth operation; whether it had fewer, and ended."""
    child = multiprocessing.get_context("fork").Process(target=_doomed, args=(work, at, operations, *arguments))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode == 0


def _doomed(work: Callable[..., None], at: int, operations: tuple[str, ...], *arguments: str) -> None:
    done = [0]

    def counted(method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            done[0] += 1
            if done[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*given, **named)

        return call

    for name in operations:
        setattr(Files, name, counted(getattr(Files, name)))
    work(*arguments)
    os._exit(0)
