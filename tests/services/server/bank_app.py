"""The app of the tests of aggregates over HTTP: an account with rules, and commands that misbehave."""

import datetime as dt
import decimal
import os
import sys
import time

import headwater as hw
from headwater.aggregates import CommandContext, Rejected, command, event


class Account:
    def __init__(self) -> None:
        self.cents = 0
        self.rate = decimal.Decimal(0)
        self.by: str | None = None

    @command
    def deposit(self, context: CommandContext, cents: int) -> None:
        self.deposited(cents, context.actor)

    @command
    def withdraw(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds", missing=cents - self.cents)
        self.withdrawn(cents)

    @command
    def agree(self, rate: decimal.Decimal, since: dt.date) -> None:
        self.agreed(rate, since)

    @command
    def reserve(self, cents: int) -> None:
        self.reserved(cents)

    @command
    def hang(self, until: str) -> None:
        self.deposited(1, None)
        while not os.path.exists(until):
            time.sleep(0.01)

    @command
    def leave(self) -> None:
        print("a command prints this")
        os._exit(7)

    @command
    def quit(self) -> None:
        sys.exit(7)

    @command
    def divide(self, by: int) -> None:
        self.deposited(self.cents // by, None)

    @event
    def deposited(self, cents: int, by: str | None) -> None:
        self.cents += cents
        self.by = by

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents

    @event("rate DECIMAL(10, 4), since DATE")
    def agreed(self, rate: decimal.Decimal, since: dt.date) -> None:
        self.rate, self.since = rate, since

    @event(tentative="10 minutes")
    def reserved(self, cents: int) -> None:
        self.cents -= cents

    @reserved.cancelled
    def _freed(self, cents: int) -> None:
        self.cents += cents


app = hw.App("bank", home=os.environ["SERVED_SHOP_HOME"])
app.aggregate("account", Account, partitions=2)
