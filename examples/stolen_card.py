"""Stolen cards: a few small payments, then a large one, within ten minutes; the card is blocked by a command.

What it is: a pattern over payments as a constraint: each match is told once, and the command it sends happens once.
Invariants: running this file declares, and starts nothing. The home is BANK_HOME, else ``./bank-data``.
Not here: who writes the payments: ``app.topic("payments").append``, HTTP, a capture.
Read next: ``headwater plan examples/stolen_card.py``, then ``docs/patterns.md``.
"""

import os
from typing import Any

import headwater as hw
from headwater.aggregates import Rejected, command, event

app = hw.App("bank", home=os.environ.get("BANK_HOME", "./bank-data"))
payments = app.topic("payments", "card STRING, amount DECIMAL(10,2), at TIMESTAMP", event_time="at")


class Card:
    blocked = False

    @command
    def block(self, reason: str) -> None:
        if self.blocked:
            raise Rejected("the card is blocked already")
        self.was_blocked(reason)

    @event
    def was_blocked(self, reason: str) -> None:
        self.blocked, self.reason = True, reason


cards = app.aggregate("card", Card)


def block(row: dict[str, Any], request_id: str) -> None:
    cards.send(row["card"], "block", reason=f"{row['tries']} small ones, then {row['amount']}", request_id=request_id)


stolen = app.constraint(
    "stolen cards",
    """
    SELECT card, tries, amount, until FROM payments MATCH_RECOGNIZE (
      PARTITION BY card ORDER BY at
      MEASURES count(small.*) AS tries, large.amount AS amount, large.at AS until
      PATTERN (small{3,} large) WITHIN INTERVAL 10 MINUTES
      DEFINE small AS amount < 5, large AS amount > 100
    )
    """,
    key=["card", "until"],
    compensate=block,
)

if __name__ == "__main__":
    app.run()
