"""Commands: an account's deposits, decided by our aggregates and by applications of the library.

What it is: ``acts`` of each contender: the library's application (get the aggregate, call the command, save), with its
cache of aggregates, over each persistence, ours too; and our own aggregates with ``accounts.send``.
Invariants: a command is one event; the account refuses what is below one cent. The library's cache holds all of the
aggregates, which is its quickest setting: without it an aggregate is replayed from all of its events. All accounts are
there before the clock starts, on every side.
Not here: inserts (``recorders_bench.py``).
Read next: ``contenders.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.domain import event as triggers

import headwater as hw
from bench.decide.contenders import DISK, Contender, prepared
from bench.decide.turns import OURS, Act
from headwater.aggregates import Rejected, command, event

COLD = 10_000


class BankAccount(Aggregate):
    """The library's account."""

    def __init__(self) -> None:
        self.cents = 0

    @triggers("Deposited")
    def deposit(self, cents: int) -> None:
        if cents < 1:
            raise ValueError("a deposit is above zero")
        self.cents += cents


class Bank(Application[UUID]):
    """The library's application."""

    env = {"AGGREGATE_CACHE_MAXSIZE": str(COLD + 1)}  # noqa: RUF012

    def open(self, count: int) -> list[UUID]:
        accounts = [BankAccount() for _ in range(count)]
        for begin in range(0, count, 500):
            self.save(*accounts[begin : begin + 500])
        return [account.id for account in accounts]

    def deposit(self, account: UUID, cents: int) -> None:
        found: BankAccount = self.repository.get(account)
        found.deposit(cents)
        self.save(found)


class Account:
    """Ours."""

    def __init__(self) -> None:
        self.cents = 0

    @command
    def deposit(self, cents: int) -> None:
        if cents < 1:
            raise Rejected("a deposit is above zero")
        self.deposited(cents)

    @event
    def deposited(self, cents: int) -> None:
        self.cents += cents


def acts(contender: Contender, folder: Path, *, cold: int = COLD) -> Iterator[Act]:
    """What one contender does: one hot account, and many in turn."""
    bank: Any = Bank(contender.environment)
    prepared(contender, bank.factory)
    many = itertools.cycle(bank.open(cold))
    [one] = bank.open(1)
    by = ", the library's application" if contender.name == OURS else ""
    yield Act("command, one account", contender, lambda: bank.deposit(one, 5), by)
    yield Act(f"command, {COLD} accounts", contender, lambda: bank.deposit(next(many), 5), by)
    if contender.name == OURS:
        yield from own(contender, folder / contender.level.replace(" ", "-"), cold)


def own(contender: Contender, folder: Path, cold: int) -> Iterator[Act]:
    """Our aggregates. Each command has an id, so a repeated one is recognised; the library's have none."""
    accounts = hw.App("bank", home=folder / "accounts").aggregate("account", Account, partitions=8)
    requests, numbers = itertools.count(), itertools.cycle(range(cold))
    for number in range(cold):  # opened before, and in memory, as the library's are
        accounts.send(f"account-{number}", "deposit", cents=5)
    if contender.level == DISK:
        accounts.store.topic.change_settings(fsync="always")

    def send(account: Callable[[], str]) -> Callable[[], object]:
        return lambda: accounts.send(account(), "deposit", cents=5, request_id=str(next(requests)))

    yield Act("command, one account", contender, send(lambda: "hot"))
    yield Act(f"command, {COLD} accounts", contender, send(lambda: f"account-{next(numbers)}"))
