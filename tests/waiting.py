"""Waiting for another process or thread, in every test.

What it is: ``eventually``.
Invariants: the time limit is for a test that fails; nothing is measured by it. Looks become rarer: most are requests,
and asked fifty times a second they took a third of the core on which a server starts.
Read next: ``tests/app_process.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS_MAX = 120.0


def eventually(
    look: Callable[[], Any], what: str | Callable[[], str] = "it did not come", *, seconds: float = SECONDS_MAX
) -> Any:
    """What ``look`` finds, as soon as it finds something."""
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(min(0.25, max(0.005, waited / 10)))
    return found
