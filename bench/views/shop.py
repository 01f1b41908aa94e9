"""The shop: orders and users, and the mixed changes that everybody is measured with.

What it is: a base of orders and users by rule and seed, changes to them (of 100, 50 are new orders, 25 are new
amounts, 15 are deletions, 10 are users who move), the view's SQL, and the right answer.
Invariants: each key changes at most once in one lot of changes, because a peer (Pathway) leaves the order of two
changes to one key open; amounts are multiples of a quarter, so that sums are exact in any order and answers can be
compared with ``==``. What is drawn depends on the seed alone.
Not here: timing (``throughput.py`` and its neighbours), the files that peers read (``peers/inputs.py``).
Read next: ``throughput.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ORDERS_DDL = "order_id BIGINT, user_id BIGINT, amount DOUBLE"
USERS_DDL = "id BIGINT, country STRING"
ORDERS_SCHEMA = pa.schema([("order_id", pa.int64()), ("user_id", pa.int64()), ("amount", pa.float64())])
USERS_SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])
REVENUE = """
    SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN users u ON o.user_id = u.id
    GROUP BY u.country"""

COUNTRIES = 50
SHARES = (0.50, 0.25, 0.15)  # new orders, new amounts, deletions; the rest are users who move
BATCH_ROWS = 100_000

Answer = dict[str, tuple[float, int]]  # revenue and orders by country


@dataclass(frozen=True)
class Lot:
    """Some changes: orders put (new, or with a new amount), orders deleted, users moved; whole rows each.

    ``put_before`` and ``moved_before`` are the rows that they replace, for who must be told.
    """

    put: pa.Table
    put_before: pa.Table
    deleted: pa.Table
    moved: pa.Table
    moved_before: pa.Table

    @property
    def count(self) -> int:
        """How many changes there are."""
        return self.put.num_rows + self.deleted.num_rows + self.moved.num_rows


class Shop:
    """A shop at its current state; ``draw`` makes changes and moves the state on.

    >>> shop = Shop(orders=1_000, users=100)
    >>> lot = shop.draw(100)
    >>> lot.put.num_rows, lot.deleted.num_rows, lot.moved.num_rows
    (75, 15, 10)
    >>> sum(orders for _, orders in shop.answer().values()) == 1_000 + 50 - 15
    True
    """

    def __init__(self, *, orders: int, users: int, seed: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        self.user_of = self._random.integers(0, users, orders)
        self.amount_of = self._amounts(orders)
        self.alive = np.ones(orders, dtype=bool)
        self.country_of = self._random.integers(0, COUNTRIES, users)

    def order_batches(self) -> Iterator[pa.Table]:
        """All orders that are there, in batches."""
        present = np.flatnonzero(self.alive)
        for start in range(0, len(present), BATCH_ROWS):
            yield self._orders(present[start : start + BATCH_ROWS])

    def users(self) -> pa.Table:
        """All users."""
        return self._users(np.arange(len(self.country_of)))

    def draw(self, count: int) -> Lot:
        """So many mixed changes, made to the state as well."""
        new, amounts, deleted = (int(count * share) for share in SHARES)
        return self.draw_of(new=new, amounts=amounts, deleted=deleted, moved=count - new - amounts - deleted)

    def draw_of(self, *, new: int = 0, amounts: int = 0, deleted: int = 0, moved: int = 0) -> Lot:
        """So many changes of each kind, made to the state as well."""
        touched = self._distinct(np.flatnonzero(self.alive), amounts + deleted)
        changed, gone = touched[:amounts], touched[amounts:]
        movers = self._distinct(np.arange(len(self.country_of)), moved)
        deleted_rows, put_before, moved_before = self._orders(gone), self._orders(changed), self._users(movers)
        self.amount_of[changed] += 0.25 * self._random.integers(1, 400, len(changed))
        self.alive[gone] = False
        self.country_of[movers] = (
            self.country_of[movers] + self._random.integers(1, COUNTRIES, len(movers))
        ) % COUNTRIES
        added = np.arange(len(self.alive), len(self.alive) + new)
        self.user_of = np.concatenate([self.user_of, self._random.integers(0, len(self.country_of), new)])
        self.amount_of = np.concatenate([self.amount_of, self._amounts(new)])
        self.alive = np.concatenate([self.alive, np.ones(new, dtype=bool)])
        put = self._random.permutation(np.concatenate([changed, added]))
        return Lot(self._orders(put), put_before, deleted_rows, self._users(movers), moved_before)

    def answer(self) -> Answer:
        """What the view must hold now."""
        country = self.country_of[self.user_of[self.alive]]
        revenue = np.bincount(country, weights=self.amount_of[self.alive], minlength=COUNTRIES)
        orders = np.bincount(country, minlength=COUNTRIES)
        return {_name(c): (float(revenue[c]), int(orders[c])) for c in range(COUNTRIES) if orders[c]}

    def _amounts(self, count: int) -> np.ndarray:
        return self._random.integers(4, 4_000, count) * 0.25

    def _distinct(self, places: np.ndarray, count: int) -> np.ndarray:
        if count > len(places):
            raise ValueError(f"{count} different keys were asked for and there are {len(places)}; use more rows")
        return self._random.choice(places, count, replace=False)

    def _orders(self, places: np.ndarray) -> pa.Table:
        columns = [pa.array(places), pa.array(self.user_of[places]), pa.array(self.amount_of[places])]
        return pa.Table.from_arrays(columns, schema=ORDERS_SCHEMA)

    def _users(self, places: np.ndarray) -> pa.Table:
        codes = pa.array(self.country_of[places].astype(np.int32))
        countries = pa.DictionaryArray.from_arrays(codes, _names()).cast(pa.string())
        return pa.Table.from_arrays([pa.array(places), countries], schema=USERS_SCHEMA)


def as_answer(rows: pa.Table) -> Answer:
    """A view's rows as an answer."""
    return {row["country"]: (row["revenue"], row["orders"]) for row in rows.to_pylist()}


def _name(country: int) -> str:
    return f"c{country:02d}"


def _names() -> pa.Array:
    return pa.array([_name(country) for country in range(COUNTRIES)])
