"""Headlines: what each view of the shop says at the moment, in a few words.

What it is: one small query of the serving store for each view of ``examples/shop_live.py``.
Invariants: all of it is read from the serving store, without Spark; all answers are of the store's last tick, or of one
between two.
Not here: showing them (``screen.py``).
Read next: ``screen.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.demo.example import FIRST_MINUTES
from headwater.demo.screen import Headline
from headwater.views.serving.serving_store import ServingStore

# Each gives one row: how many rows the view has, and what it says.
SAYING = {
    "revenue": """
        SELECT count(*), (SELECT printf('%s at %s: %.2f', country, substr(minute, 12, 5), revenue) FROM revenue
                          ORDER BY minute DESC, revenue DESC LIMIT 1) FROM revenue""",
    "order_states": """
        SELECT count(*), printf('%d orders placed, %d paid, %d withdrawn', coalesce(sum(state = 'placed'), 0),
                                coalesce(sum(state = 'paid'), 0), coalesce(sum(state = 'withdrawn'), 0))
        FROM order_states""",
    "conversion": """
        SELECT count(*), printf('%d of %d searches led to a click', sum(clicked), sum(searches)) FROM conversion""",
    "top_products": """
        SELECT count(*), (SELECT printf('%s, %.2f', name, revenue) FROM top_products ORDER BY revenue DESC LIMIT 1)
        FROM top_products""",
    "abandoned_baskets": "SELECT count(*), printf('%d baskets were left', count(*)) FROM abandoned_baskets",
    "hesitations": """
        SELECT count(*), (SELECT printf('customer %d took product %d after %d looks', customer_id, product_id, looks)
                          FROM hesitations ORDER BY looks DESC, customer_id LIMIT 1) FROM hesitations""",
    "customer_360": """
        SELECT count(*), (SELECT printf('%s (%s): %d orders, %.2f, paid %.2f', name, country, orders, ordered, paid)
                          FROM customer_360 ORDER BY CAST(ordered AS REAL) DESC LIMIT 1) FROM customer_360""",
    "stock_levels": """
        SELECT count(*), (SELECT printf('least of all: %d of %s', units, name) FROM stock_levels ORDER BY units LIMIT 1)
        FROM stock_levels""",
    "prices_paid": """
        SELECT count(*), printf('sold for %.2f; at the prices of now %.2f',
                                sum(CAST(at_its_time AS REAL)), sum(CAST(at_the_price_of_now AS REAL)))
        FROM prices_paid""",
    "unit_prices": """
        SELECT count(*), (SELECT printf('product %d went for %.2f to %.2f', product_id, lowest, highest)
                          FROM unit_prices ORDER BY CAST(highest AS REAL) - CAST(lowest AS REAL) DESC LIMIT 1)
        FROM unit_prices""",
    "wishes": "SELECT count(*), printf('%d things that are searched for are there', count(*)) FROM wishes",
    "alarms": "SELECT count(*), coalesce(max(rule || ': ' || id), 'nothing') FROM alarms",
}
OF_THE_DATABASE = ("revenue", "top_products", "stock_levels", "prices_paid")
BY_COUNTRY = f"""
    SELECT country, sum(CAST(revenue AS REAL)) AS money, sum(orders) AS orders FROM revenue
    WHERE minute >= (SELECT datetime(max(minute), '-{FIRST_MINUTES} minutes') FROM revenue)
    GROUP BY country ORDER BY money DESC"""


def headlines(store: ServingStore, paused: Mapping[str, str]) -> list[Headline]:
    """The present rows of every view; of a paused one, the reason instead of what they say."""
    found = []
    for view, asked in SAYING.items():
        rows, says = store.query(asked).to_pylist()[0].values()
        found.append(Headline(view, rows, f"paused: {paused[view]}" if view in paused else says or ""))
    return found


def filled(found: Sequence[Headline]) -> bool:
    """Whether all views show something that are made of the database's tables alone.

    >>> filled([Headline("revenue", 9, "…"), Headline("alarms", 0, "nothing")])
    True
    """
    return all(each.rows for each in found if each.view in OF_THE_DATABASE)


def by_country(store: ServingStore) -> list[tuple[str, float, int]]:
    """The revenue of the last minutes by country, the largest first."""
    return [(row["country"], row["money"], row["orders"]) for row in store.query(BY_COUNTRY).to_pylist()]
