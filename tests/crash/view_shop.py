"""A small shop with views of several kinds, what it should show, and the judgement of what it shows.

What it is: ``declare`` makes the app, ``Shop`` sends random changes and keeps beside them the tables as they should be,
``judge`` compares the views' state, change feed and serving store with each other and with these tables.
Invariants: what is expected is computed in plain Python from the rows that were sent; amounts are whole numbers, so
that equal means equal.
Not here: the crashes (``test_views_survive_kill.py``).
Read next: ``test_views_survive_kill.py``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.views.serving.serving_store import ServingStore, store_path

VIEWS = ("revenue", "rich", "first_orders", "pages")
Bag = Counter[tuple[Any, ...]]


def declare(home: Any, state: str | None = None) -> hw.App:
    """The app: a join with a sum, a view over a view, a left join with a min, a count over a topic without a key."""
    app = hw.App("shop", home=home, state=state)
    app.topic("orders", "order_id BIGINT, user_id BIGINT, amount BIGINT", key="order_id", partitions=2)
    app.table("users", "id BIGINT, country STRING", key="id")
    app.topic("clicks", "user_id BIGINT, page STRING")
    app.view(
        "revenue",
        "SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders FROM orders o JOIN users u ON o.user_id = u.id "
        "GROUP BY u.country",
    )
    app.view("rich", "SELECT country, revenue FROM revenue WHERE revenue >= 100")
    app.view(
        "first_orders",
        "SELECT u.id, min(o.amount) AS least FROM users u LEFT JOIN orders o ON o.user_id = u.id GROUP BY u.id",
    )
    app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    return app


class Shop:
    """Sends random changes to the app's topics, and knows what the views should then show."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.orders: dict[int, tuple[int, int]] = {}
        self.users: dict[int, str] = {}
        self.clicks: Counter[str] = Counter()

    def trade(self, app: hw.App) -> hw.Token:
        """A few new, changed and deleted orders and users, and some clicks; the token covers them all."""
        chance = self.chance
        orders, users, clicks = app.get_topic("orders"), app.get_table("users"), app.get_topic("clicks")
        bought = {chance.randrange(40): (chance.randrange(8), chance.randrange(1, 60)) for _ in range(6)}
        moved = {chance.randrange(8): chance.choice(["DE", "FR", "IT"]) for _ in range(2)}
        pages = [chance.choice("abc") for _ in range(3)]
        token = orders.append(
            [{"order_id": key, "user_id": user, "amount": amount} for key, (user, amount) in bought.items()]
        )
        self.orders |= bought
        token |= users.upsert([{"id": key, "country": country} for key, country in moved.items()])
        self.users |= moved
        gone = chance.sample(sorted(self.orders), min(2, len(self.orders)))
        token |= orders.delete([{"order_id": key} for key in gone])
        for key in gone:
            del self.orders[key]
        if chance.random() < 0.3:
            left = chance.choice(sorted(self.users))
            token |= users.delete([{"id": left}])
            del self.users[left]
        token |= clicks.append([{"user_id": 1, "page": page} for page in pages])
        self.clicks.update(pages)
        return token

    def expected(self) -> dict[str, Bag]:
        """What each view should show now."""
        sums: dict[str, list[int]] = {}
        for user, amount in self.orders.values():
            if user in self.users:
                sums.setdefault(self.users[user], []).append(amount)
        bought: dict[int, list[int]] = {}
        for user, amount in self.orders.values():
            bought.setdefault(user, []).append(amount)
        return {
            "revenue": Counter((country, sum(each), len(each)) for country, each in sums.items()),
            "rich": Counter((country, sum(each)) for country, each in sums.items() if sum(each) >= 100),
            "first_orders": Counter((user, min(bought.get(user, [None]))) for user in self.users),  # type: ignore[type-var]
            "pages": Counter(self.clicks.items()),
        }


def bag(table: pa.Table) -> Bag:
    """A table's rows, each with how often it is there."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


class Replay:
    """A subscriber: it remembers the last tick that it has seen, and what the changes so far add up to."""

    def __init__(self, views: Iterable[str] = VIEWS) -> None:
        self.next_tick = 1
        self.rows: dict[str, Bag] = {view: Counter() for view in views}

    def go_on(self, app: hw.App) -> None:
        """Take every change that came since."""
        last = app._runtime.manifests.tick()
        for view, rows in self.rows.items():
            seen = self.next_tick - 1
            for table in app.get_view(view).changes(from_tick=self.next_tick):
                (tick,) = set(table.column("_commit_version").to_pylist())
                assert seen < tick <= last, f"tick {tick} of {view} is there again, or was never committed"
                seen = tick
                apply(rows, table)
        self.next_tick = last + 1


def apply(rows: Bag, table: pa.Table) -> None:
    """Apply one tick's changes to a bag; what leaves must be there."""
    names = [name for name in table.column_names if not name.startswith("_c")]
    types = table.column("_change_type").to_pylist()
    for row, kind in zip(table.select(names).to_pylist(), types, strict=True):
        if kind in ("delete", "update_preimage"):
            rows[tuple(row.values())] -= 1
            assert rows[tuple(row.values())] >= 0, f"{row} left without being there"
            if not rows[tuple(row.values())]:
                del rows[tuple(row.values())]
        else:
            rows[tuple(row.values())] += 1


def judge(app: hw.App, shop: Shop, replay: Replay) -> None:
    """The views are what they should be, in the change feed and in the serving store, as of the last tick."""
    expected = shop.expected()
    replay.go_on(app)
    with ServingStore(store_path(app.log.home, app.name)) as store:
        served = {view: bag(store.query(f"SELECT * FROM {view}")) for view in VIEWS}
        assert store.tick == app._runtime.manifests.tick()
    assert replay.rows == expected
    assert served == expected


def judge_from_the_beginning(app: hw.App, shop: Shop) -> None:
    """The same, with the change feed replayed from tick 1, and with every view computed anew from the log by Spark."""
    judge(app, shop, Replay())
    differences = app.verify()
    assert [difference.view for difference in differences] == list(VIEWS)
    assert all(difference.equal for difference in differences), differences
    assert {view: bag(app.sql(f"SELECT * FROM {view}")) for view in VIEWS} == shop.expected()
