"""The apps that ``headwater init`` writes.

What it is: ``TEMPLATES``, the files of each template by name: ``shop`` (a topic, a table, a view) and ``accounts``
(events decided by commands, and a view over them).
Invariants: each ``app.py`` works at once, and starts nothing when it is imported.
Not here: writing them (``init_command.py``), larger apps (``examples/``).
Read next: ``docs/tutorial.md``, ``docs/aggregates.md``.
"""

from __future__ import annotations

SHOP = '''"""A first app: customers, their orders, and revenue by country, kept up to date.

    python app.py              append some rows, bring the view up to date, and show it
    headwater run app.py       keep the view up to date, until Ctrl-C
"""

import datetime as dt
from pathlib import Path

import headwater as hw

# The home: a directory with the log and everything derived from it. Nothing is started here.
app = hw.App("shop", home=Path(__file__).parent / "shop-data")

# A topic: events, in order. One key stays in one partition; `at` is when it happened.
orders = app.topic(
    "orders", "order_id BIGINT, customer_id BIGINT, amount DOUBLE, at TIMESTAMP", key="order_id", event_time="at"
)

# A table: the latest row of each key.
customers = app.table("customers", "id BIGINT, country STRING", key="id")

# A view: SQL that is kept up to date as rows come, change and go.
revenue = app.view(
    "revenue",
    """
    SELECT c.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN customers c ON o.customer_id = c.id
    GROUP BY c.country
    """,
)


def append_some_rows() -> hw.Token:
    """Any process may do this, while another one runs the app."""
    now = dt.datetime.now(dt.UTC)
    customers.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}, {"id": 3, "country": "DE"}])
    return orders.append(
        [
            {"order_id": 1, "customer_id": 1, "amount": 9.5, "at": now},
            {"order_id": 2, "customer_id": 2, "amount": 20.0, "at": now},
            {"order_id": 3, "customer_id": 3, "amount": 5.25, "at": now},
        ]
    )


if __name__ == "__main__":
    token = append_some_rows()
    app.tick()  # one advance of all views; app.run() goes on until stopped
    for row in revenue.rows(at_least=token):
        print(row)
    app.close()
'''
SHOP_README = """# A Headwater app
`python app.py` appends some rows and shows the view; `headwater run app.py` keeps it up to date.
`headwater query "SELECT * FROM revenue" --home shop-data` asks it; `headwater plan app.py` shows what its ticks cost.
Change the view in `app.py` and run it again: it is refilled from the log.
"""
ACCOUNTS = '''"""A first app with commands: accounts whose events are the truth, and their balances as a view.

    python app.py                                          send some commands, and show what came of them
    headwater aggregate send app.py account anna deposit cents=500
    headwater aggregate replay app.py account anna         what each event changed
    headwater run app.py                                   keep the view up to date, until Ctrl-C
"""

from pathlib import Path

import headwater as hw
from headwater.aggregates import Rejected, command, event

# The home: a directory with the log and everything derived from it. Nothing is started here.
app = hw.App("bank", home=Path(__file__).parent / "bank-data")


class Account:
    """Commands decide: they validate, reject, or emit events. Events change the state, and do nothing else."""

    def __init__(self) -> None:
        self.cents = 0

    @command
    def deposit(self, cents: int) -> None:
        if cents <= 0:
            raise Rejected("a deposit is more than nothing")
        self.deposited(cents)

    @command
    def withdraw(self, cents: int) -> None:
        if cents > self.cents:
            raise Rejected("no funds", missing=cents - self.cents)
        self.withdrawn(cents)

    @event
    def deposited(self, cents: int) -> None:
        self.cents += cents

    @event
    def withdrawn(self, cents: int) -> None:
        self.cents -= cents


accounts = app.aggregate("account", Account)

# A view over the events: each type of event is a column.
balances = app.view(
    "balances",
    """
    SELECT stream AS account,
           sum(CASE type WHEN 'deposited' THEN deposited.cents ELSE -withdrawn.cents END) AS cents
    FROM account WHERE version IS NOT NULL
    GROUP BY stream
    """,
)

if __name__ == "__main__":
    # A request id: when the command comes again, it gets the first answer, and nothing happens twice.
    outcome = accounts.send("anna", "deposit", cents=500, request_id="deposit-1")
    try:
        accounts.send("anna", "withdraw", cents=900)
    except Rejected as refused:
        print(f"rejected: {refused}")
    app.tick()  # one advance of all views; app.run() goes on until stopped
    for row in balances.rows(at_least=outcome.token):
        print(row)
    app.close()
'''
ACCOUNTS_README = """# A Headwater app
`python app.py` sends some commands and shows the view; `headwater run app.py` keeps it up to date.
`headwater aggregate history account anna --home bank-data` shows what happened to an account, and what was rejected.
`headwater aggregate verify app.py` decides every command again.
Change the class in `app.py`: the events stay, and the state is what the new code makes of them.
"""
TEMPLATES = {
    "shop": {"app.py": SHOP, "README.md": SHOP_README},
    "accounts": {"app.py": ACCOUNTS, "README.md": ACCOUNTS_README},
}
