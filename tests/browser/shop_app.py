"""The app that the browser looks at: small, with a view over a view, windows, sinks, and strings of any kind."""

import os

import headwater as hw
from headwater.aggregates import Rejected, command, event, step

HOME = os.environ["BROWSED_SHOP_HOME"]

app = hw.App("shop", home=HOME, spark={"spark.master": "local[2]"})

orders = app.topic(
    "orders",
    "order_id BIGINT, user_id BIGINT, amount DOUBLE, at TIMESTAMP",
    key="order_id",
    event_time="at",
    partitions=2,
)
users = app.table("users", "id BIGINT, country STRING", key="id")
clicks = app.topic("clicks", "page STRING, at TIMESTAMP", event_time="at", retention="7 days")
app.inlet("site", hw.inlets.Webhook(clicks, path="/clicks", port=0))

app.view(
    "revenue",
    """
    SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN users u ON o.user_id = u.id
    GROUP BY u.country
    """,
)
app.view(
    "minutes",
    """
    SELECT window.start AS minute, sum(amount) AS revenue, count(*) AS orders
    FROM orders GROUP BY window(at, '1 minute')
    """,
    horizon="10 minutes",
)
app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
app.view("every_order", "SELECT order_id, user_id, amount FROM orders")
app.topic("visits", "visitor STRING, page STRING, at TIMESTAMP", event_time="at")
app.view(
    "bought",
    hw.pattern("seen basket+ paid")
    .over("visits", by="visitor", order="at")
    .define(seen="page = '/'", basket="page = '/basket'", paid="page = '/checkout'")
    .measures(steps="count(basket.*)"),
)
app.view("total", "SELECT sum(revenue) AS revenue, sum(orders) AS orders FROM revenue")
stock = app.table("stock", "id BIGINT, pieces BIGINT, boxes BIGINT", key="id")
app.view("per_box", "SELECT id, pieces DIV boxes AS pieces FROM stock", on_error="pause")
app.view("largest_box", "SELECT max(pieces) AS pieces FROM per_box")
app.sink("revenue", hw.sinks.SQLite(f"{HOME}/copy.db"))
app.sink("total", hw.sinks.SQLite(f"{HOME}/total.db"))


class Basket:
    """A basket with a rule, and a reservation that may lapse."""

    def __init__(self) -> None:
        self.items = 0
        self.held = 0

    @command
    def put(self, items: int, note: str | None = None) -> None:
        if items > 100:
            raise Rejected("a basket has room for 100", room=100 - self.items)
        self.was_put(items, note)

    @command
    def hold(self, items: int) -> None:
        self.was_held(items)

    @event
    def was_put(self, items: int, note: str | None) -> None:
        self.items, self.note = self.items + items, note

    @event(tentative="10 minutes")
    def was_held(self, items: int) -> None:
        self.held += items

    @was_held.cancelled
    def _freed(self, items: int) -> None:
        self.held -= items


baskets = app.aggregate("basket", Basket, partitions=2)


@app.process("swap", request="source STRING, target STRING")
def swap(request):
    """What cannot be taken back: a request of it gets stuck."""
    yield step(baskets, request["source"], "put", items=1, undo=("put", {"items": 500}))
    yield step(baskets, request["target"], "put", items=500)
