"""The demo's example app and its database.

What it is: the paths of ``examples/shop_live.py`` and ``shop_live.sql``, and ``furnish``, which creates the tables with
ten minutes of trade.
Invariants: the app's file is run as it is; the initial data follows from a seed. Customers of Iceland (the first ten)
order in these minutes only, so that the effect of a late order can be seen.
Not here: the load afterwards (``simulator.py``).
Read next: ``simulator.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

from headwater.errors import InvalidDeclaration

APP = "shop"
HOME_VARIABLE, DATABASE_VARIABLE = "SHOP_HOME", "SHOP_DATABASE"
PAGE_VIEWS, SEARCHES, CLICKS, ORDERS, TOLD = "page_views", "searches", "clicks", "orders", "told"
DESK = "order_desk"  # the aggregate that takes orders by commands

SEED = 7
COUNTRIES = ("DE", "FR", "IT", "PL", "ES", "SE", "NL")
QUIET_COUNTRY, QUIET_CUSTOMERS = "IS", 10
CUSTOMERS, FIRST_ORDERS, FIRST_MINUTES = 200, 1_000, 10
UNITS_AT_FIRST = 400

THINGS = {
    "kitchen": ("kettle", "pan", "knife", "grinder", "bread board", "tea pot"),
    "garden": ("spade", "hose", "lantern", "bird house", "bench", "watering can"),
    "office": ("lamp", "chair", "notebook", "fountain pen", "desk mat", "clock"),
    "travel": ("rucksack", "bottle", "umbrella", "blanket", "map case", "torch"),
}
MAKES = ("steel", "oak", "blue", "small")
NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana", "Ivo", "Jun", "Kim", "Lea", "Mia", "Nils", "Ona")


def example_file(name: str = "shop_live.py") -> Path:
    """The example that the demo runs: beside the package when installed, else in the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package, package.parents[1]):
        if (path := folder / "examples" / name).is_file():
            return path
    raise InvalidDeclaration(
        f"examples/{name}, which the demo runs, is not installed", hint="Run the demo in a checkout: make demo"
    )


def products() -> list[tuple[int, str, str, str]]:
    """The products: number, name, category, description.

    >>> products()[0]
    (1, 'steel kettle', 'kitchen', 'A steel kettle for your kitchen.')
    """
    made = [
        (category, f"{make} {thing}")
        for category, things in THINGS.items()
        for make, thing in zip(MAKES * 2, things, strict=False)
    ]
    return [
        (number, name, category, f"A {name} for your {category}.")
        for number, (category, name) in enumerate(made, start=1)
    ]


def first_price(product: int) -> Decimal:
    """The initial price of a product."""
    return Decimal(product * 379 % 90 + 5) + Decimal("0.90")


def furnish(connection: Any, now: dt.datetime) -> int:
    """Make the tables, with ten minutes of trade up to now; returns how many rows there are."""
    randomly = random.Random(SEED)
    begin = now - dt.timedelta(minutes=FIRST_MINUTES)
    listed = products()
    customers = [
        (
            number,
            f"{randomly.choice(NAMES)} {number}",
            QUIET_COUNTRY if number <= QUIET_CUSTOMERS else randomly.choice(COUNTRIES),
        )
        for number in range(1, CUSTOMERS + 1)
    ]
    orders, payments = [], []
    for number in range(1, FIRST_ORDERS + 1):
        # One in ten is from Iceland, spread evenly, so that every minute has some.
        customer = number // 10 % QUIET_CUSTOMERS + 1 if number % 10 == 0 else randomly.randint(11, CUSTOMERS)
        product, units = randomly.randint(1, len(listed)), randomly.randint(1, 3)
        at = begin + number * dt.timedelta(minutes=FIRST_MINUTES) / (FIRST_ORDERS + 1)
        amount = first_price(product) * units
        orders.append((number, customer, product, units, amount, at))
        payments.append((number, number, amount, at + dt.timedelta(seconds=2)))
    filled: dict[str, list[tuple[Any, ...]]] = {
        "customers": [*customers],
        "products": [*listed],
        "stock": [(number, UNITS_AT_FIRST) for number, *_ in listed],
        "prices": [(number, first_price(number), begin - dt.timedelta(days=1)) for number, *_ in listed],
        "orders": orders,
        "payments": payments,
    }
    connection.execute(example_file("shop_live.sql").read_text(encoding="utf-8"))
    with connection.cursor() as cursor:
        for table, rows in filled.items():
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
    return sum(len(rows) for rows in filled.values())
