"""A shop: orders and users come in, revenue by country is kept up to date.

What it is: a small app, for a start. Four views, one of them over another. ``shop_live.py`` is a larger one.
Invariants: running this file declares, and starts nothing; its home is SHOP_HOME, else ``./shop-data``.
Not here: appending. Any process does that: see ``docs/views.md``.
Read next: ``headwater plan examples/shop.py``, then ``headwater run examples/shop.py``.
"""

import os

import headwater as hw

app = hw.App("shop", home=os.environ.get("SHOP_HOME", "./shop-data"))

orders = app.topic(
    "orders",
    "order_id BIGINT, user_id BIGINT, amount DOUBLE, at TIMESTAMP",
    key="order_id",  # an order that comes again corrects the one before
    event_time="at",
    partitions=2,
)
users = app.table("users", "id BIGINT, country STRING", key="id")

app.view(
    "revenue",
    """
    SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN users u ON o.user_id = u.id
    GROUP BY u.country
    """,
)
app.view(
    "best_customers",  # the three of each country that spent most
    """
    SELECT country, id, spent FROM (
        SELECT u.country, u.id, sum(o.amount) AS spent,
               row_number() OVER (PARTITION BY u.country ORDER BY sum(o.amount) DESC, u.id) AS place
        FROM orders o JOIN users u ON o.user_id = u.id
        GROUP BY u.country, u.id)
    WHERE place <= 3
    """,
)
app.view(
    "minutes",  # what comes more than ten minutes late is set aside, in the topic minutes.late
    """
    SELECT window.start AS minute, sum(amount) AS revenue, count(*) AS orders
    FROM orders GROUP BY window(at, '1 minute')
    """,
    horizon="10 minutes",
)
app.view("total", "SELECT sum(revenue) AS revenue, sum(orders) AS orders FROM revenue")

if __name__ == "__main__":
    app.run()
