"""A steady shop: eight views over tables whose sizes stay the same, and one who changes rows at a fixed rate.

What it is: ``declared`` gives the app its tables and views; ``Changes`` appends to them, some rows at a time.
Invariants: orders and users are replaced and never added, clicks go with their retention, and the views that group by
time have a horizon: whatever grows is not the data. What is drawn depends on the seed alone. One who cannot keep the
rate drops appends instead of catching up, and counts them.
Not here: what is measured (``samples.py``).
Read next: ``samples.py``.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Any

import numpy as np

import headwater as hw

ORDERS, USERS, COUNTRIES = 20_000, 1_000, 40
JOIN = "FROM orders o JOIN users u ON u.id = o.user_id"
VIEWS = {
    "revenue": f"SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders {JOIN} GROUP BY u.country",
    "baskets": f"SELECT u.country, avg(o.amount) AS basket {JOIN} WHERE o.amount > 10 GROUP BY u.country",
    "extremes": f"SELECT u.country, min(o.amount) AS least, max(o.amount) AS most {JOIN} GROUP BY u.country",
    "customers": "SELECT user_id, sum(amount) AS spent, count(*) AS orders FROM orders GROUP BY user_id",
    "large": "SELECT id, user_id, amount FROM orders WHERE amount > 990",
    "leaders": "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 10",
    "modest": "SELECT u.id, u.country FROM users u LEFT JOIN orders o ON o.user_id = u.id AND o.amount > 900"
    " WHERE o.id IS NULL",
}
CLICKS = "SELECT window.start AS minute, page, count(*) AS clicks FROM clicks GROUP BY window(at, '1 minute'), page"
SEGMENTS = {"segment_bytes_max": 1 << 20}
CHANGED_ROWS = 3  # orders in one append


def declared(app: hw.App) -> tuple[hw.Table, hw.Table, hw.Topic]:
    """The tables and views; returns orders, users and clicks."""
    users = app.table("users", "id BIGINT, country STRING", key="id", compact=True, **SEGMENTS)
    orders = app.table("orders", "id BIGINT, user_id BIGINT, amount DOUBLE", key="id", compact=True, **SEGMENTS)
    clicks = app.topic(
        "clicks", "page STRING, at TIMESTAMP", event_time="at", lateness="1 second", retention_bytes=2 << 20, **SEGMENTS
    )
    for name, sql in VIEWS.items():
        app.view(name, sql)
    app.view("minutes", CLICKS, horizon="2 minutes")
    return orders, users, clicks


class Changes:
    """Appends so many times a second, in a thread of its own."""

    def __init__(self, orders: hw.Table, users: hw.Table, clicks: hw.Topic, *, rate: float) -> None:
        self.orders, self.users, self.clicks = orders, users, clicks
        self.rate = rate
        self.random = np.random.default_rng(7)
        self.appends, self.dropped = 0, 0
        self.problem: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-changes", daemon=True)

    def fill(self) -> None:
        """All users and orders."""
        self.users.upsert([self._user(number) for number in range(USERS)])
        self.orders.upsert([self._order(number) for number in range(ORDERS)])

    def _user(self, number: int) -> dict[str, Any]:
        return {"id": number, "country": f"c{self.random.integers(0, COUNTRIES):02d}"}

    def _order(self, number: int) -> dict[str, Any]:
        amount = float(self.random.integers(4, 4_000)) * 0.25
        return {"id": number, "user_id": int(self.random.integers(0, USERS)), "amount": amount}

    def append(self) -> None:
        """One append: orders, now and then a user who moves; and a click."""
        if self.appends % 20 == 0:
            self.users.upsert([self._user(int(self.random.integers(0, USERS)))])
        else:
            self.orders.upsert(
                [self._order(int(each)) for each in self.random.choice(ORDERS, CHANGED_ROWS, replace=False)]
            )
        if self.appends % 4 == 0:
            self.clicks.append([{"page": f"p{self.random.integers(0, 5)}", "at": dt.datetime.now(dt.UTC)}])
        self.appends += 1

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and raise what went wrong."""
        self._stop.set()
        self._thread.join()
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self.append()
                due += 1 / self.rate
                late = int((time.monotonic() - due) * self.rate)
                if late > 0:
                    self.dropped += late
                    due += late / self.rate
        except Exception as error:
            self.problem = error
