"""A program of the tests in a process of its own, with Spark and all.

What it is: ``running``, for the tests that kill an app.
Invariants: at the end nothing of it is left: Java notices that its parent is gone, but not at once.
Not here: waiting for what it does (``tests/waiting.py``); servers (``tests/services/server/processes.py``).
Read next: ``tests/crash/view_runner.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.short_lived import SHORT_LIVED

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def running(module: str, *words: object, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """``python -m MODULE WORDS`` in a session of its own; its output is a pipe."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        text=True,
        errors="replace",
        env={**os.environ, **SHORT_LIVED, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        cwd=ROOT,
        start_new_session=True,
        **{"stdout": subprocess.PIPE, **streams},
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
