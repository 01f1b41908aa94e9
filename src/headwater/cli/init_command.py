"""``headwater init``: a small app to start from.

What it is: writes ``app.py``, which works at once, and a README of four lines.
Invariants: nothing that is there is overwritten; nothing is started.
Not here: larger apps (``examples/``).
Read next: ``docs/views.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, say, write_json
from headwater.errors import DeclarationConflict

APP = '''"""A first app: customers, their orders, and revenue by country, kept up to date.

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
README = """# A Headwater app
`python app.py` appends some rows and shows the view; `headwater run app.py` keeps it up to date.
`headwater query "SELECT * FROM revenue" --home shop-data` asks it; `headwater plan app.py` shows what its ticks cost.
Change the view in `app.py` and run it again: it is refilled from the log.
"""
FILES = {"app.py": APP, "README.md": README}


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; it is made if it is not there.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Write a small app to start from: a topic, a table, a view. Nothing is overwritten.

    [cyan]headwater init shop && python shop/app.py[/cyan]
    """
    taken = [name for name in FILES if (directory / name).exists()]
    if taken:
        raise DeclarationConflict(
            f"{directory / taken[0]} is there already",
            hint="Give another directory: headwater init DIR",
            files=[str(directory / name) for name in taken],
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write(text)
    written = [str(directory / name) for name in FILES]
    if as_json:
        write_json({"written": written})
        return
    say(f"wrote {' and '.join(written)}; now:")
    console().print(f"  python {directory / 'app.py'}", markup=False, soft_wrap=True)
