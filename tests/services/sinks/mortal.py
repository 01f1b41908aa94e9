"""A process that brings a sink along, and kills itself with ``kill -9`` at a given place.

What it is: ``deliver`` opens the home and the sink as an app does, and catches up; every call that the sinks' own
modules make while they apply or fill, and every return from one, is a place where it can die; or some milliseconds
later, wherever it is then: in a library that is not Python, perhaps.
Invariants: it dies by SIGKILL, so nothing is cleaned up, flushed or rolled back by anybody but the other system.
Not here: the judging (``test_killed.py``).
Read next: ``test_killed.py``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

# What the first use of a home or a client would import: so each process is forked with all of it.
import pandas  # noqa: F401
import psycopg  # noqa: F401
import redis  # noqa: F401

import headwater.log.groups.worker
import headwater.sinks
from headwater.log.home import Log
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import Sink
from tests.services.sinks.synthetic import SyntheticView

WARNINGS = "warnings"
OWN = str(Path(headwater.sinks.__file__).parent) + os.sep


def deliver(home: Path, sink: Sink, view: SyntheticView, die_at: int | None, later_s: float, told: Any) -> None:
    """Catch up, and tell how many places were passed; or die at one of them, or a little later."""
    passed, inside = 0, 0

    def die() -> None:
        time.sleep(later_s)
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal passed, inside
        own = frame.f_code.co_filename.startswith(OWN)
        delivering = own and frame.f_code.co_name in ("apply", "fill")
        if delivering:
            inside += {"call": 1, "return": -1}.get(event, 0)
        calls_another = event in ("call", "return") and frame.f_back and frame.f_back.f_code.co_filename.startswith(OWN)
        # The last place is the return itself: the other system has it, and nobody here knows.
        if (own or calls_another) and (inside or (delivering and event == "return")):
            passed += 1
            if passed == die_at:
                threading.Thread(target=die, daemon=True).start() if later_s else die()

    # So that a sink which comes apart and is put right by a new copy does not pass for one that never did.
    logging.getLogger("headwater.sinks").addHandler(logging.FileHandler(home.parent / WARNINGS, delay=True))
    with Log(home, maintenance_interval=None) as log:
        task = SinkTask("copy", "the view", "app", sink, view, log)
        sys.setprofile(watch)
        status = task.catch_up()
        sys.setprofile(None)
        task.close()
    told.put((passed, str(status.state), status.error))
