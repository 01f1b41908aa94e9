"""A bank for tests: accounts, and a process that moves money between them.

What it is: ``Account``, and ``declare``, which declares both in an app.
Invariants: an account that is closed takes nothing, so that compensation can be refused.
Not here: what is expected of them (``test_processes.py``). Read next: that.
"""

from __future__ import annotations

from headwater.aggregates import Rejected, command, event, step


class Account:
    def __init__(self):
        self.cents = 0
        self.closed = False

    @command
    def deposit(self, cents: int):
        if self.closed:
            raise Rejected("the account is closed")
        self.deposited(cents)

    @command
    def withdraw(self, cents: int):
        if cents > self.cents:
            raise Rejected("no funds", missing=cents - self.cents)
        self.withdrawn(cents)

    @command
    def close(self):
        self.was_closed()

    @command
    def open(self):
        self.was_opened()

    @event
    def deposited(self, cents: int):
        self.cents += cents

    @event
    def withdrawn(self, cents: int):
        self.cents -= cents

    @event
    def was_closed(self):
        self.closed = True

    @event
    def was_opened(self):
        self.closed = False


REQUEST = "source STRING, target STRING, cents BIGINT"


def declare(app, *, deadline=None, partitions=8):
    """Accounts, and the process "transfer" between them."""
    accounts = app.aggregate("account", Account, partitions=partitions)

    @app.process("transfer", request=REQUEST, deadline=deadline, partitions=partitions)
    def transfer(request):
        cents = request["cents"]
        yield step(accounts, request["source"], "withdraw", cents=cents, undo=("deposit", {"cents": cents}))
        yield step(accounts, request["target"], "deposit", cents=cents)
        return {"moved": cents}

    return accounts, transfer
