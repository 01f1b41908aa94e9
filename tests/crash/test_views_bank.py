"""The bank: money moves between accounts, and at every moment there is as much of it as before.

What it is: transfers are made, changed and taken back; views add up credits and debits, join the two to balances, and
add up the balances, which must be 0. Ticks die and are restarted; all the while somebody reads.
Invariants: in every tick that was published, in the change feed and in the serving store alike, the total is 0 and each
balance is the account's credits less its debits: no view is ever ahead of another.
Not here: the views at the end (``test_views_survive_kill.py``).
Read next: ``tick_points.py``.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.views.serving.serving_store import ServingStore, store_path
from tests.crash.ledger import many
from tests.crash.tick_points import COMMITS, Mortal, Points
from tests.crash.view_shop import Bag, apply, bag

ROUNDS = 8
VIEWS = ("credits", "debits", "balance", "total")


def declare(home: Path) -> hw.App:
    app = hw.App("bank", home=home)
    app.table("transfers", "id BIGINT, source BIGINT, target BIGINT, amount BIGINT", key="id")
    app.view("credits", "SELECT target AS account, sum(amount) AS amount FROM transfers GROUP BY target")
    app.view("debits", "SELECT source AS account, sum(amount) AS amount FROM transfers GROUP BY source")
    app.view(
        "balance",
        "SELECT coalesce(c.account, d.account) AS account, coalesce(c.amount, 0) - coalesce(d.amount, 0) AS balance "
        "FROM credits c FULL JOIN debits d ON c.account = d.account",
    )
    app.view("total", "SELECT sum(balance) AS total FROM balance")
    return app


def transfer(app: hw.App, chance: random.Random) -> None:
    """A few transfers, some of them in the place of earlier ones, and one taken back."""
    transfers = app.get_table("transfers")
    made = [
        {"id": chance.randrange(30), "source": chance.randrange(6), "target": chance.randrange(6), "amount": amount}
        for amount in chance.sample(range(1, 100), 5)
    ]
    transfers.upsert(list({row["id"]: row for row in made}.values()))
    transfers.delete([{"id": chance.randrange(30)}])
    transfers.upsert([{"id": 99, "source": 1, "target": 2, "amount": 7}])  # so that the bank is never without a total


def consistent(views: dict[str, Bag]) -> bool:
    credits, debits = (dict(views[view].keys()) for view in ("credits", "debits"))
    accounts = {*credits, *debits}
    wanted = Counter((account, credits.get(account, 0) - debits.get(account, 0)) for account in accounts)
    return views["balance"] == wanted and views["total"] == Counter([(0,)])


class Auditor(threading.Thread):
    """Reads the serving store over a connection of its own, tick by tick, while ticks go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.seen: set[int] = set()
        self.wrong: list[Any] = []
        self.done = threading.Event()

    def run(self) -> None:
        # One statement is one moment: the views one below the other, with the tick that they are of.
        parts = [
            f"SELECT '{view}' AS view, account, {amount} AS amount FROM {view}" for view, amount in COLUMNS.items()
        ]
        parts.append("SELECT 'total', NULL, total FROM total")
        sql = " UNION ALL ".join(parts)
        with ServingStore(self.path) as store:
            tick = 0
            while not self.done.is_set():
                if not store.wait(tick + 1, timeout=0.05):
                    continue
                tick = store.tick
                views: dict[str, Bag] = {view: Counter() for view in VIEWS}
                for row in store.query(sql).to_pylist():
                    key = (row["amount"],) if row["view"] == "total" else (row["account"], row["amount"])
                    views[row["view"]][key] += 1
                self.seen.add(tick)
                if not consistent(views):
                    self.wrong.append((tick, views))


COLUMNS = {"credits": "amount", "debits": "amount", "balance": "balance"}


@pytest.mark.usefixtures("spark")
def test_no_published_tick_shows_money_made_or_lost(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    with declare(quick_path / "home") as app:
        transfer(app, chance)
        app.tick()
        mortal = Mortal(app, monkeypatch)
        auditor = Auditor(store_path(app.log.home, app.name))
        auditor.start()
        for number in range(many(ROUNDS)):
            transfer(app, chance)
            commit = COMMITS[number // 2 % len(COMMITS)]
            mortal.dies(Points(crash_on=commit) if number % 2 else Points(crash_at=chance.randrange(40)))
            if number % 2:
                transfer(app, chance)
                app.tick()
        app.tick()
        last = app._runtime.manifests.tick()
        auditor.done.set()
        auditor.join()

        assert auditor.wrong == []
        assert len(auditor.seen) > 3
        assert consistent_at_every_tick(app) == last
        assert {view: bag(app._runtime.serving.query(f"SELECT * FROM {view}")) for view in VIEWS} == {
            view: bag(app.sql(f"SELECT * FROM {view}")) for view in VIEWS
        }
        assert all(difference.equal for difference in app.verify())
    assert len(mortal.deaths) >= many(ROUNDS) // 2
    assert {"manifest.commit: after", "serving.apply: before"} <= set(mortal.deaths)


def consistent_at_every_tick(app: hw.App) -> int:
    """Replay the change feeds of all views side by side; returns the last tick."""
    changes: dict[int, dict[str, Any]] = {}
    for view in VIEWS:
        for table in app.get_view(view).changes(from_tick=1):
            changes.setdefault(table.column("_commit_version")[0].as_py(), {})[view] = table
    views: dict[str, Bag] = {view: Counter() for view in VIEWS}
    for tick in sorted(changes):
        for view, table in changes[tick].items():
            apply(views[view], table)
        assert consistent(views), f"tick {tick}: {views}"
    return max(changes)
