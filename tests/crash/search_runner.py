"""A process that keeps stored searches until somebody kills it.

What it is: ``python -m tests.crash.search_runner HOME``: the app of ``declare``, with a line for each tick.
Invariants: a line is written after the tick was committed.
Not here: the killing. Read next: ``test_searches_survive_kill.py``.
"""

from __future__ import annotations

import sys
from typing import Any

import headwater as hw
from headwater.views import thresholds
from headwater.views.spark import own_process
from headwater.views.tick.reports import TickReport
from tests.workloads.stored_searches import SCHEMA, TEXT


def declare(home: Any) -> tuple[hw.App, Any, Any]:
    """The app, its documents and its searches."""
    app = hw.App("news", home=home)
    articles = app.table("articles", SCHEMA, key="id")
    return app, articles, app.searches("watch", over=articles, text=TEXT)


def tell(report: TickReport) -> None:
    sys.stdout.write(f"tick {report.tick}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    own_process.claim()
    thresholds.KEPT_SEARCHES_MIN = 1  # every tick writes the index: some die while they do
    declare(sys.argv[1])[0].run(on_tick=tell)
