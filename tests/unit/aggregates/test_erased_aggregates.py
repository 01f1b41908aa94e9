"""Aggregates that are persons: one is erased from the history, the others are as they were."""

from __future__ import annotations

from pathlib import Path

import headwater as hw
from headwater.aggregates import command, event
from headwater.upkeep.erasure.person_erasure import PersonErasure
from tests.every_byte import places_with

MARK = "zq-marker-zq"


class Account:
    name = ""
    cents = 0

    @command
    def open(self, name: str) -> None:
        self.opened(name)

    @command
    def deposit(self, cents: int) -> None:
        self.deposited(cents)

    @event
    def opened(self, name: str) -> None:
        self.name = name

    @event
    def deposited(self, cents: int) -> None:
        self.cents += cents


def test_an_aggregate_that_is_a_person_leaves_its_history(tmp_path: Path) -> None:
    with hw.App("bank", home=tmp_path / "home") as app:
        accounts = app.aggregate("account", Account, partitions=2, snapshot_every=2, personal="account_id")
        for id in ("ann", "zq-person-zq"):
            accounts.send(id, "open", name=MARK if id != "ann" else id, request_id=f"r-{id}")
            for _ in range(3):
                accounts.send(id, "deposit", cents=5)
        before = [(each.type, each.data) for each in accounts.history("ann")]
    assert places_with(tmp_path, MARK) != []

    with hw.App("bank", home=tmp_path / "home") as app:
        certificate = PersonErasure(app.log.local, "account_id", "zq-person-zq", markers=[MARK]).run()

        assert places_with(tmp_path, MARK, "zq-person-zq") == [], str(certificate)
        accounts = app.aggregate("account", Account, partitions=2, snapshot_every=2, personal="account_id")
        assert list(accounts.ids()) == ["ann"]
        assert [(each.type, each.data) for each in accounts.history("ann")] == before
        assert accounts.get("ann").cents == 15
        assert accounts.verify() == []
        assert accounts.send("zq-person-zq", "open", name="again").version == 1
        assert [row["type"] for row in app.get_topic("account").rows()].count("deposited") == 6
