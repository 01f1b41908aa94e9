"""The shop as an app: tables filled, views declared, lots given.

What it is: ``opened``, an app over a shop of some size whose views have ticked once.
Invariants: Spark has the driver memory that the scale says; an answer is checked whenever somebody asks for it here,
so no figure stands beside a wrong one.
Not here: the data (``shop.py``), timing.
Read next: ``latency.py``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headwater as hw
from bench.views.scale import Scale
from bench.views.shop import ORDERS_DDL, REVENUE, USERS_DDL, Lot, Shop, as_answer

# Five views of the same join, each of another shape.
FIVE_VIEWS = {
    "revenue": REVENUE,
    "baskets": REVENUE.replace("count(*) AS orders", "avg(o.amount) AS basket"),
    "large": REVENUE.replace("GROUP BY", "WHERE o.amount > 500 GROUP BY"),
    "small": REVENUE.replace("GROUP BY", "WHERE o.amount <= 500 GROUP BY"),
    "halves": REVENUE.replace("u.country,", "u.country, o.user_id % 2 AS half,") + ", o.user_id % 2",
}


@dataclass
class ShopApp:
    """A shop, and the app that follows it."""

    app: hw.App
    shop: Shop
    orders: Any
    users: Any
    load_seconds: float = 0.0

    def give(self, lot: Lot) -> None:
        """Append a lot: orders put and deleted, users moved."""
        self.orders.upsert(lot.put)
        if lot.deleted.num_rows:
            self.orders.delete(lot.deleted.select(["order_id"]))
        if lot.moved.num_rows:
            self.users.upsert(lot.moved)

    def tick_all(self) -> tuple[float, int]:
        """Tick until nothing waits; the seconds that took, and the rows read for it."""
        began, rows_read = time.perf_counter(), 0
        while True:
            report = self.app.tick()
            rows_read += sum(view.rows_read for view in report.views)
            if not report.behind:
                return time.perf_counter() - began, rows_read

    def check(self) -> None:
        """The revenue in the serving store must be the right one."""
        found = as_answer(self.app._runtime.serving.query("SELECT country, revenue, orders FROM revenue"))
        if found != self.shop.answer():
            raise AssertionError("the view does not hold the right answer; its time would mean nothing")


@contextlib.contextmanager
def opened(
    folder: Path,
    scale: Scale,
    *,
    orders: int,
    views: dict[str, str] | None = None,
    spark: dict[str, str] | None = None,
    **places: str,
) -> Iterator[ShopApp]:
    """An app whose tables hold a shop of this size and whose views are up to date and right.

    ``spark``: further settings; ``places``: the app's log and state, where they are not in the home.
    """
    shop = Shop(orders=orders, users=orders // 10)
    settings = {"spark.driver.memory": scale.driver_memory, **(spark or {})}
    with hw.App("shop", home=folder, spark=settings, **places) as app:
        tables = [app.table("orders", ORDERS_DDL, key="order_id"), app.table("users", USERS_DDL, key="id")]
        for name, sql in (views or {"revenue": REVENUE}).items():
            app.view(name, sql)
        opened_app = ShopApp(app, shop, *tables)
        opened_app.users.upsert(shop.users())
        for batch in shop.order_batches():
            opened_app.orders.upsert(batch)
        opened_app.load_seconds, _ = opened_app.tick_all()
        opened_app.check()
        yield opened_app
