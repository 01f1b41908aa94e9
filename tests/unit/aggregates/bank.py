"""A bank for the tests of aggregates: accounts with deposits, withdrawals and reservations.

What it is: ``Account``, and a repository over a log of its own with a hand-driven clock.
Invariants: money is whole cents.
Not here: the tests. Read next: ``test_aggregate_repository.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater as hw
from headwater.aggregates import AggregateRepository, CommandContext, Rejected, command, event
from headwater.testing.manual_clock import ManualClock


class Account:
    """An account of the tests' bank."""

    def __init__(self) -> None:
        self.cents = 0
        self.held = 0
        self.notes: list[str] = []

    @command
    def deposit(self, cents: int, note: str | None = None) -> None:
        if cents <= 0:
            raise Rejected("a deposit is above zero", cents=cents)
        self.deposited(cents, note)

    @command
    def withdraw(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds", missing=cents - self.cents)
        self.withdrawn(cents)

    @command
    def move(self, out: int, back: int) -> None:
        self.withdrawn(out)
        self.deposited(back)

    @command
    def reserve(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds")
        self.reserved(cents)

    @command
    def label(self, context: CommandContext) -> None:
        self.deposited(1, f"{context.new_id()} {context.random.random()} {context.now.isoformat()} {context.actor}")

    @command
    def nothing(self) -> None:
        pass

    @command
    def break_down(self) -> None:
        self.deposited(5)
        raise ZeroDivisionError("the till is empty")

    @command
    def cheat(self) -> None:
        self.cents += 1_000_000
        raise Rejected("found out")

    @event
    def deposited(self, cents: int, note: str | None = None) -> None:
        self.cents += cents
        if note:
            self.notes.append(note)

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents

    @event(tentative="10 minutes")
    def reserved(self, cents: int) -> None:
        self.cents -= cents
        self.held += cents

    @reserved.confirmed
    def _spent(self, cents: int) -> None:
        self.held -= cents

    @reserved.cancelled
    def _freed(self, cents: int) -> None:
        self.held -= cents
        self.cents += cents


def repository(
    home: Path, declared: type = Account, *, clock: ManualClock | None = None, **options: Any
) -> AggregateRepository:
    """The accounts of a home, as another process would open them."""
    chosen = {"partitions": 2, "snapshot_every": 1000, **options}
    return AggregateRepository(hw.Log(home, clock=clock), "account", declared, **chosen)
