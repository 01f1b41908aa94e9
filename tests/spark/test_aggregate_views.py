"""Views over the events of aggregates.

What it is: random commands, ticks in between, sealed segments, a restart, and event types that come later.
Invariants: after every tick a view is what addition makes of the outcomes that were told; a view that is read with an
outcome's token holds its events.
Not here: commands by themselves (``tests/unit/aggregates/``). Read next: ``docs/aggregates.md``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

import headwater as hw
from headwater.aggregates import AggregateRepository, Rejected, event
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from tests.unit.aggregates.bank import Account

pytestmark = pytest.mark.usefixtures("spark")

BALANCES = """
    SELECT stream AS account, count(*) AS events,
           sum(CASE type WHEN 'deposited' THEN deposited.cents WHEN 'withdrawn' THEN -withdrawn.cents END) AS cents
    FROM account WHERE version IS NOT NULL GROUP BY stream"""
REFUSED = "SELECT rejected.reason, count(*) AS times FROM account WHERE type = 'rejected' GROUP BY rejected.reason"


class Savings(Account):
    """An account with a type of event that older code does not have."""

    @event
    def interest_paid(self, cents: int) -> None:
        self.cents += cents


def open_app(home: Path, declared: type) -> tuple[hw.App, AggregateRepository]:
    app = hw.App("bank", home=home)
    accounts = app.aggregate("account", declared, partitions=2)
    app.view("balances", BALANCES)
    app.view("refused", REFUSED)
    return app, accounts


def test_views_are_the_sum_of_the_events(tmp_path: Path) -> None:
    chance, told = random.Random(7), defaultdict[str, list[int]](list)
    refused = 0
    app, accounts = open_app(tmp_path / "home", Account)
    for lap in range(4):
        for _ in range(15):
            id, cents = str(chance.randrange(4)), chance.randrange(1, 30)
            try:
                if chance.random() < 0.5:
                    outcome = accounts.send(id, "deposit", cents=cents)
                    told[id].append(cents)
                else:
                    outcome = accounts.send(id, "withdraw", cents=cents)
                    told[id].append(-cents)
            except Rejected:
                refused += 1
        app.tick()

        rows = app.get_view("balances").rows(at_least=outcome.token)
        assert {row["account"]: (row["events"], row["cents"]) for row in rows} == {
            id: (len(all_of), sum(all_of)) for id, all_of in told.items()
        }
        assert list(app.get_view("refused").rows()) == [{"reason": "no funds", "times": refused}]
        if lap == 1:
            assert isinstance(app.log, Log)
            for partition in range(2):
                app.log.get_topic("account").partition(partition).roll()
                seal_partition(app.log.get_topic("account"), partition)
        if lap == 2:
            app.close()
            app, accounts = open_app(tmp_path / "home", Savings)

    assert [found.equal for found in app.verify()] == [True, True]
    assert accounts.verify() == []
    app.close()
