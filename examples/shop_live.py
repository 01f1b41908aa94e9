"""A shop, live: its PostgreSQL is captured, its web pages send events, orders are commands, and views follow them all.

What it is: the app that ``headwater demo`` runs. Copy it: take out the views that you do not need, and put yours in.
Invariants: running this file declares, and starts nothing. The home is SHOP_HOME, else ``./shop-data``; the database
SHOP_DATABASE, else one on this machine, with the tables of ``shop_live.sql``.
Not here: a shop that writes to the database. ``headwater demo`` plays one.
Read next: ``headwater plan examples/shop_live.py``, then ``docs/demo.md``.
"""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.aggregates import Rejected, command, event

home = Path(os.environ.get("SHOP_HOME", "./shop-data"))
database = os.environ.get("SHOP_DATABASE", "postgresql://postgres@127.0.0.1/shop")
app = hw.App("shop", home=home)

# What comes in from the database: every committed change, exactly once. Columns and keys are those of the tables.


def captured(table: str, **settings: Any) -> None:
    app.table(table, source=hw.capture.Postgres(database, table=f"public.{table}"), **settings)


# What says something of a customer: found in every view, masked for readers without the right, and erased when asked
# for (docs/privacy.md, docs/erasure.md).
customer = hw.Personal("customer_id")

captured("customers", privacy={"id": customer, "name": hw.Personal("customer_id", by="id", mask="redact")})
captured("products")
captured("stock")
captured("prices", event_time="since")  # each price counts from its own moment on
captured("orders", event_time="at", lateness="10 seconds", privacy={"customer_id": customer})
captured("payments", event_time="at", proof=True)  # what was paid can be proven: headwater audit verify

# What the web pages send. Rows come late and out of order; by how much is said here.
page_views = app.topic(
    "page_views",
    "customer_id BIGINT, product_id BIGINT, action STRING, at TIMESTAMP",
    event_time="at",
    lateness="10 seconds",
    partitions=2,
    privacy={"customer_id": customer},
)
searches = app.topic(
    "searches",
    "id BIGINT, customer_id BIGINT, words STRING, at TIMESTAMP",
    event_time="at",
    privacy={"customer_id": customer},
)
clicks = app.topic("clicks", "search_id BIGINT, product_id BIGINT, at TIMESTAMP", event_time="at")
told = app.topic("told", "rule STRING, about STRING")  # the alerts that were raised

# How orders are taken: a command is checked by the rules of its order, and becomes an event or is rejected.


class Order:
    state, due = "new", Decimal(0)

    @command
    def place(self, customer_id: int, product_id: int, units: int, amount: Decimal) -> None:
        if self.state != "new":
            raise Rejected("the order was placed before")
        if units < 1:
            raise Rejected("an order has at least one unit", units=units)
        self.placed(customer_id, product_id, units, amount)

    @command
    def pay(self, amount: Decimal) -> None:
        if self.state != "placed":
            raise Rejected(f"an order that is {self.state} cannot be paid")
        if amount != self.due:
            raise Rejected("the order costs another amount", due=self.due)
        self.paid(amount)

    @command
    def cancel(self) -> None:
        if self.state != "placed":
            raise Rejected(f"an order that is {self.state} cannot be cancelled")
        self.withdrawn()

    @event("customer_id BIGINT, product_id BIGINT, units BIGINT, amount DECIMAL(10, 2)")
    def placed(self, customer_id: int, product_id: int, units: int, amount: Decimal) -> None:
        self.state, self.due = "placed", amount
        self.customer_id, self.product_id, self.units = customer_id, product_id, units

    @event("amount DECIMAL(10, 2)")
    def paid(self, amount: Decimal) -> None:
        self.state, self.due = "paid", self.due - amount

    @event
    def withdrawn(self) -> None:
        self.state = "withdrawn"


try:
    app.aggregate("order_desk", Order)
    app.view(
        "order_states",  # every order that was placed, and what became of it
        """
        SELECT stream AS order_id, max_by(type, version) AS state, max(placed.amount) AS amount
        FROM order_desk WHERE version IS NOT NULL GROUP BY stream
        """,
    )
except hw.errors.NotOffered:
    pass  # a log on Kafka checks nothing as it writes, so no command can be decided there; all else is the same

app.view(
    "revenue",  # by country and minute. An order that comes late corrects its minute; a customer who moves, all of them
    """
    SELECT window.start AS minute, c.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN customers c ON c.id = o.customer_id
    GROUP BY window(o.at, '1 minute'), c.country
    """,
)
app.view(
    "conversion",  # of each search's words: how many searches there were, and how many led to a click within a minute
    """
    SELECT s.words, count(DISTINCT s.id) AS searches, count(DISTINCT c.search_id) AS clicked
    FROM searches s LEFT JOIN clicks c
      ON c.search_id = s.id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 MINUTE
    GROUP BY s.words
    """,
)
app.view(
    "top_products",  # the three of each category that sold best
    """
    SELECT category, name, revenue, units FROM (
        SELECT p.category, p.name, sum(o.amount) AS revenue, sum(o.units) AS units,
               row_number() OVER (PARTITION BY p.category ORDER BY sum(o.amount) DESC, p.name) AS place
        FROM orders o JOIN products p ON p.id = o.product_id
        GROUP BY p.category, p.name)
    WHERE place <= 3
    """,
)
app.view(
    "abandoned_baskets",  # put into the basket, and not bought within 20 seconds; told once, when that is certain
    """
    SELECT b.customer_id, b.product_id, b.at
    FROM page_views b LEFT JOIN orders o
      ON o.customer_id = b.customer_id AND o.product_id = b.product_id
     AND o.at BETWEEN b.at AND b.at + INTERVAL 20 SECONDS
    WHERE b.action = 'basket' AND o.id IS NULL
    """,
    emit="final",
    closes="at + INTERVAL 20 SECONDS",
)
app.view(
    "hesitations",  # looked at two things or more, and put one into the basket within half a minute
    """
    SELECT * FROM page_views MATCH_RECOGNIZE (
      PARTITION BY customer_id ORDER BY at
      MEASURES count(look.*) AS looks, basket.product_id AS product_id,
               timestampdiff(SECOND, FIRST(look.at), basket.at) AS seconds
      PATTERN (look{2,} basket) WITHIN INTERVAL 30 SECONDS
      DEFINE look AS action = 'look', basket AS action = 'basket'
    )
    """,
)
app.view(
    "customer_360",  # all that is known of a customer, from four sources, in one row
    """
    SELECT c.id, c.name, c.country, f.orders, f.ordered, f.paid, f.looks
    FROM customers c JOIN (
        SELECT customer_id, sum(orders) AS orders, sum(ordered) AS ordered, sum(paid) AS paid, sum(looks) AS looks
        FROM (SELECT customer_id, 1 AS orders, amount AS ordered, CAST(0 AS DECIMAL(10,2)) AS paid, 0 AS looks
              FROM orders
              UNION ALL
              SELECT o.customer_id, 0, 0, p.amount, 0 FROM payments p JOIN orders o ON o.id = p.order_id
              UNION ALL
              SELECT customer_id, 0, 0, 0, 1 FROM page_views)
        GROUP BY customer_id) f ON f.customer_id = c.id
    """,
)
app.view(
    "stock_levels",  # what can be bought, and how much of it is left
    """
    SELECT p.id, p.name, p.category, p.description, s.units, r.price,
           CASE WHEN s.units <= 0 THEN 'sold out' WHEN s.units < 20 THEN 'low' ELSE 'there' END AS level
    FROM products p JOIN stock s ON s.product_id = p.id JOIN prices r ON r.product_id = p.id
    """,
)
app.view(
    "prices_paid",  # each order at the price as it was then, and what it would cost at the price of now
    """
    SELECT o.product_id, sum(o.units * was.price) AS at_its_time, sum(o.units * is.price) AS at_the_price_of_now
    FROM orders o
    JOIN prices FOR SYSTEM_TIME AS OF o.at AS was ON was.product_id = o.product_id
    JOIN prices is ON is.product_id = o.product_id
    GROUP BY o.product_id
    """,
)
app.view(
    "unit_prices",  # what a unit went for. An order of no units pauses this view, and no other
    """
    SELECT product_id, min(amount / units) AS lowest, max(amount / units) AS highest FROM orders GROUP BY product_id
    """,
    on_error="pause",
)
app.view(
    "alarms",  # what should never be: money that does not fit, and stock below nothing
    """
    SELECT 'a payment of another amount than its order' AS rule, p.id, CAST(p.amount - o.amount AS STRING) AS found
    FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.amount <> o.amount
    UNION ALL
    SELECT 'more was sold than there was' AS rule, product_id AS id, CAST(units AS STRING) AS found
    FROM stock WHERE units < 0
    """,
)

# Searches that wait: customers put them at any time, and are told what there is, and what is there no more.
wishes = app.searches("wishes", over="stock_levels", text=["name", "description"], key="id")

# Where it goes: a copy in SQLite, a full-text index, and somebody who is told.
app.sink("revenue", hw.sinks.SQLite(home / "reports.db"))
app.sink("customer_360", hw.sinks.SQLite(home / "reports.db"))
app.sink("stock_levels", hw.sinks.Search(home / "catalogue.index", text=["name", "description"], terms=["level"]))


def tell(alert: Any) -> None:
    told.append([{"rule": alert["row"]["rule"], "about": f"{alert['row']['id']}: {alert['row']['found']}"}])


app.sink("alarms", hw.sinks.Alert("true", to=tell))

if __name__ == "__main__":
    app.run()
