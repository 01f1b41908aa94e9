"""A table's past: records of users and orders, views that join them as of a moment, and what these must hold.

What it is: random histories, ways to deliver them, and the answers computed in plain Python from the records alone, in
other words than the compiler's: for each order all records of its user are looked through.
Invariants: users' records keep their order in every delivery, and orders theirs: only how they interleave differs.
Not here: who runs the views (``test_as_of.py`` on DuckDB, ``tests/spark/test_views_as_of.py`` on Spark).
Read next: ``test_as_of.py``.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

Row = tuple[object, ...]
START = dt.datetime(2024, 1, 1, 20, tzinfo=dt.UTC)  # midnight is within the hours that are used
HOURS = 8


def moment(hour: int) -> dt.datetime:
    """So many hours after the beginning."""
    return START + dt.timedelta(hours=hour)


@dataclass(frozen=True)
class User:
    """One record of the table users. ``since`` may be missing in a tombstone."""

    id: int
    country: str
    since: int | None
    deleted: bool
    appended: int

    @property
    def counts_from(self) -> int:
        return self.appended if self.since is None else self.since


@dataclass(frozen=True)
class Order:
    """One record of the topic orders, which has a key."""

    order_id: int
    user_id: int
    amount: int
    at: int
    deleted: bool


Record = User | Order
Ticks = list[list[Record]]

AS_OF = "users FOR SYSTEM_TIME AS OF"
VIEWS = {
    "taxed": f"SELECT o.order_id, o.amount, u.country FROM orders o JOIN {AS_OF} o.at AS u ON o.user_id = u.id",
    "every": f"SELECT o.order_id, u.* FROM orders o LEFT JOIN {AS_OF} o.at AS u ON u.id = o.user_id",
    "daily": f"""SELECT u.country, CAST(o.at AS DATE) AS day, sum(o.amount) AS amount, count(*) AS orders
                 FROM orders o JOIN {AS_OF} o.at AS u ON o.user_id = u.id GROUP BY u.country, CAST(o.at AS DATE)""",
    "twice": f"""SELECT o.order_id, u.country, later.country AS country_later
                 FROM orders o JOIN {AS_OF} o.at AS u ON o.user_id = u.id
                 LEFT JOIN {AS_OF} o.at + INTERVAL 2 HOURS AS later ON o.user_id = later.id""",
    "unknown": f"SELECT o.order_id FROM orders o LEFT ANTI JOIN {AS_OF} o.at AS u ON o.user_id = u.id",
    "around": f"SELECT o.order_id, count(*) AS users FROM orders o CROSS JOIN {AS_OF} o.at AS u GROUP BY o.order_id",
    "moved": f"""SELECT o.order_id, u.country AS country_then, n.country AS country_now
                 FROM orders o JOIN {AS_OF} o.at AS u ON o.user_id = u.id JOIN users n ON n.id = o.user_id""",
}


def answers(records: Sequence[Record]) -> dict[str, list[Row]]:
    """What each view must hold when these records have come."""
    users = [record for record in records if isinstance(record, User)]
    latest = {order.order_id: order for order in records if isinstance(order, Order)}
    orders = [order for order in latest.values() if not order.deleted]
    now = {user.id: user for user in users}

    taxed, every, twice, unknown, around, moved = [], [], [], [], [], []
    daily: Counter[Row] = Counter()
    orders_daily: Counter[Row] = Counter()
    for order in orders:
        there = [found for name in now if (found := as_of(users, name, order.at)) is not None]
        around += [(order.order_id, len(there))] if there else []
        user = next((found for found in there if found.id == order.user_id), None)
        if user is None:
            every.append((order.order_id, None, None, None))
            unknown.append((order.order_id,))
            continue
        assert user.since is not None
        taxed.append((order.order_id, order.amount, user.country))
        every.append((order.order_id, user.id, user.country, moment(user.since)))
        later = as_of(users, order.user_id, order.at + 2)
        twice.append((order.order_id, user.country, later.country if later else None))
        group = (user.country, moment(order.at).date())
        daily[group] += order.amount
        orders_daily[group] += 1
        if not now[user.id].deleted:
            moved.append((order.order_id, user.country, now[user.id].country))
    return {
        "taxed": taxed,
        "every": every,
        "twice": twice,
        "unknown": unknown,
        "around": around,
        "moved": moved,
        "daily": [(*group, amount, orders_daily[group]) for group, amount in daily.items()],
    }


def as_of(users: Iterable[User], name: int, hour: int) -> User | None:
    """The row of a user as it was: later records of one time replace earlier ones."""
    found = None
    for user in users:
        if user.id == name and user.counts_from <= hour and (found is None or user.counts_from >= found.counts_from):
            found = user
    return None if found is None or found.deleted else found


@st.composite
def histories(draw: st.DrawFn, *, most: int = 10) -> tuple[list[User], list[Order]]:
    """Records of few users at few moments, so that ties and corrections are frequent."""
    hours, names = st.integers(0, HOURS), st.integers(1, 2)
    users = []
    for appended in range(draw(st.integers(2, most))):
        deleted = draw(st.integers(0, 3)) == 0
        since = None if deleted and draw(st.booleans()) else draw(hours)
        users.append(User(draw(names), draw(st.sampled_from(["DE", "FR", "IT"])), since, deleted, appended))
    orders = [
        Order(draw(st.integers(1, 6)), draw(names), draw(st.integers(1, 9)), draw(hours), draw(st.integers(0, 5)) == 0)
        for _ in range(draw(st.integers(1, most)))
    ]
    return users, orders


def delivered(users: Sequence[User], orders: Sequence[Order], how: str, seed: int) -> Ticks:
    """The records in ticks: users ``first``, ``last`` or ``between``."""
    random = Random(f"{how}{seed}")
    if how == "between":
        turns = [True] * len(users) + [False] * len(orders)
        random.shuffle(turns)
        ways = iter(users), iter(orders)
        records: list[Record] = [next(ways[0] if turn else ways[1]) for turn in turns]
    else:
        records = [*users, *orders] if how == "first" else [*orders, *users]
    ticks: Ticks = [[]]
    for record in records:
        if random.random() < 0.3:
            ticks.append([])
        ticks[-1].append(record)
    return ticks
