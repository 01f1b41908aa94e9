"""A process that runs the shop's views until somebody kills it.

What it is: ``python -m tests.crash.view_runner HOME [STATE]``: the app of ``view_shop.py``, with a line for each tick.
Invariants: a line is written after the tick was committed; the process is Headwater's own, as ``headwater run`` is.
Not here: the killing (``test_views_survive_kill.py``).
Read next: ``test_views_survive_kill.py``.
"""

from __future__ import annotations

import sys

from headwater.errors import HeadwaterError
from headwater.views.spark import own_process
from headwater.views.tick.reports import TickReport
from tests.crash.view_shop import declare


def tell(report: TickReport) -> None:
    sys.stdout.write(f"tick {report.tick}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    own_process.claim()  # else py4j logs a stack trace when Java dies in the middle of a call
    try:
        declare(*sys.argv[1:]).run(on_tick=tell)
    except HeadwaterError as error:  # as the command line tells it
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_status)
