"""A process that ticks the views of the bank until somebody kills it.

What it is: ``python -m tests.crash.transfer_ticker HOME``: the views that judge transfers, with a line for each tick
that changed what a judge says.
Invariants: a line is written after the tick was committed. Not here: the killing, and what the views must say
(``test_transfers_survive_kill.py``). Read next: that.
"""

from __future__ import annotations

import sys
import time

import headwater as hw
from headwater.views.spark import own_process
from headwater.views.tick.reports import TickReport
from tests.unit.aggregates.processes.transfer_bank import declare

VIEWS = {
    "held": """
        SELECT sum(CASE type WHEN 'deposited' THEN deposited.cents WHEN 'withdrawn' THEN -withdrawn.cents END) AS cents
        FROM account""",
    "booked": """
        SELECT split(request_id, '/')[1] AS id, count_if(type = 'withdrawn') AS taken,
               count_if(type = 'deposited') AS given
        FROM account WHERE request_id LIKE 'transfer/%' AND type IN ('withdrawn', 'deposited')
        GROUP BY split(request_id, '/')[1]""",
    "transit": """
        SELECT sum(t.started.cents * (b.taken - b.given)) AS cents, count_if(b.taken > 1 OR b.given > b.taken) AS wrong
        FROM transfer t JOIN booked b ON b.id = t.stream WHERE t.type = 'started'""",
}


def bank(home: str) -> hw.App:
    """The accounts, the process, and the views over both."""
    app = hw.App("bank", home=home)
    declare(app, deadline="1 hour")
    for name, sql in VIEWS.items():
        app.view(name, sql)
    return app


def moved_money(report: TickReport) -> bool:
    """Whether balances or what is in transit are others than before it."""
    return any(each.changes for each in report.views if each.view in ("held", "transit"))


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    own_process.claim()
    app = bank(sys.argv[1])
    app.tick()
    tell("ready")
    while True:  # not app.run(), which carries requests out as well: that is the runners' part here
        report = app.tick()
        if moved_money(report):
            tell(f"tick {report.tick}")
        elif not report.rows_in:
            time.sleep(0.02)
