"""Interrupts: which errors of a user's function are its own, and which one is meant for the whole program.

What it is: ``is_interrupt``, asked wherever a user's function is called and its failure must not end the caller.
Invariants: whatever a function raises is its failure, ``SystemExit`` too: a thread that serves all goes on. Only
Ctrl-C, which Python raises in the main thread, is for the program.
Not here: what becomes of a failure (``processes/process_run.py``, ``services/``).
Read next: ``processes/process_runner.py``.
"""

from __future__ import annotations

import threading


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is Ctrl-C in the main thread, which is to be raised on.

    >>> is_interrupt(KeyboardInterrupt()), is_interrupt(SystemExit(3)), is_interrupt(ValueError())
    (True, False, False)
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
