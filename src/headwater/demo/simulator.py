"""Simulator: the shop's load on the database and on the topics of its web pages.

What it is: ``Simulator``, the role ``shop``: several times a second a transaction with orders, payments, stock, prices,
cancellations and moves; and page views, searches and clicks. Orders are taken by commands first (``order_desk.py``),
and booked in the database when they were accepted.
Invariants: it knows nothing of views. Some events are delayed, none is lost. A write is reported after its commit, with
its time.
Not here: late orders and mistakes on request (``scenario.py``).
Read next: ``example.py``, ``scenario.py``.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.demo.example import (
    CLICKS,
    COUNTRIES,
    CUSTOMERS,
    DATABASE_VARIABLE,
    FIRST_ORDERS,
    PAGE_VIEWS,
    SEARCHES,
    UNITS_AT_FIRST,
    first_price,
    products,
)
from headwater.demo.order_desk import OrderDesk
from headwater.errors import Unavailable

if TYPE_CHECKING:
    from headwater.demo.roles import Parent
    from headwater.log.contract import EventLog

BEATS_PER_SECOND = 4
ORDERS_A_BEAT, LOOKS_A_BEAT, SEARCHES_A_BEAT = 2, 8, 3
HELD_BACK, HELD_BACK_S = 0.1, (2.0, 8.0)  # so many of the events come so much later than they happened
OUT_OF_ORDER_S = 3.0  # orders are up to so much older than their commit
PAID_AFTER_S = 1.0
RETRY_S = 0.5
LATE_MINUTES = 3  # of the late order
Row = dict[str, Any]


class Simulator:
    """Everybody who writes."""

    def __init__(self, parent: Parent, log: EventLog) -> None:
        import psycopg

        self.parent = parent
        self.randomly = random.Random()
        self.database = psycopg.connect(os.environ[DATABASE_VARIABLE], autocommit=True)
        self.desk = OrderDesk(log)
        self.topics = {name: log.get_topic(name) for name in (PAGE_VIEWS, SEARCHES, CLICKS)}
        self.products = {number: name for number, name, *_ in products()}
        self.prices = {number: first_price(number) for number in self.products}
        self.units = dict.fromkeys(self.products, UNITS_AT_FIRST)
        self.orders = FIRST_ORDERS  # the last number that was given
        self.bad_order = 0
        self.searches = 0
        self.unpaid: list[tuple[float, int, Decimal]] = []
        self.held_back: list[tuple[float, str, Row]] = []

    def run(self) -> None:
        """Trade, until told to stop; pause when told to."""
        self.parent.tell(ready=True)
        trading, due = False, time.monotonic()
        self.repricing = False  # the capture cannot know prices from before it began
        while (word := self.parent.heard(0.0 if trading else None)) != "stop":
            if word == "go":
                trading, due = True, time.monotonic()
            elif word == "reprice":
                self.repricing = True
            elif word == "pause":
                trading = False
                self._pause()
            elif word == "late_order":
                self._late_order()
            elif word == "mistake":
                self._mistake()
            elif word == "bad_order":
                self._bad_order()
            elif word == "correction":
                self._correction()
            elif word == "rule":
                self._rule()
            if trading and time.monotonic() >= due:
                self._beat()
                due = max(due + 1 / BEATS_PER_SECOND, time.monotonic() - 1.0)
            if trading:
                self.parent.wait(max(0.0, due - time.monotonic()))

    # The database

    def _beat(self) -> None:
        with self.database.transaction():
            bought = [self._order() for _ in range(ORDERS_A_BEAT)]
            self._pay()
            for seldom, act in ((0.5, self._reprice), (0.3, self._move), (0.2, self._cancel)):
                if self.randomly.random() < seldom:
                    act()
        self.parent.tell(committed=[number for number, _, _ in bought], at_us=time.time_ns() // 1000)
        self._browse([(customer, product) for _, customer, product in bought])

    def _order(self) -> tuple[int, int, int]:
        customer, product = self.randomly.randint(11, CUSTOMERS), self.randomly.choice(list(self.products))
        at = _ago(self.randomly.uniform(0, OUT_OF_ORDER_S))
        number, amount = self._buy(customer, product, self.randomly.randint(1, 3), at)
        self.unpaid.append((time.monotonic() + PAID_AFTER_S, number, amount))
        return number, customer, product

    def _buy(
        self, customer: int, product: int, units: int, at: dt.datetime, *, booked: int | None = None
    ) -> tuple[int, Decimal]:
        self.orders += 1
        amount = self.prices[product] * units
        self.desk.place(self.orders, customer, product, units, amount)
        self.database.execute(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)",
            (self.orders, customer, product, units if booked is None else booked, amount, at),
        )
        self.units[product] -= units
        if self.units[product] < units:
            self.units[product] += UNITS_AT_FIRST
        self.database.execute("UPDATE stock SET units = %s WHERE product_id = %s", (self.units[product], product))
        return self.orders, amount

    def _pay(self) -> None:
        now = time.monotonic()
        due = [each for each in self.unpaid if each[0] <= now]
        self.unpaid = [each for each in self.unpaid if each[0] > now]
        for _, number, amount in due:
            self.desk.pay(number, amount)
            self._payment(number, amount)

    def _payment(self, order: int, amount: Decimal) -> None:
        self.database.execute("INSERT INTO payments VALUES (%s, %s, %s, %s)", (order, order, amount, _ago(0)))

    def _reprice(self) -> None:
        if not self.repricing:
            return
        product = self.randomly.choice(list(self.products))
        factor = self.randomly.choice((Decimal("0.9"), Decimal("1.1")))
        self.prices[product] = min(max(round(self.prices[product] * factor, 2), Decimal(2)), Decimal(500))
        self.database.execute(
            "UPDATE prices SET price = %s, since = %s WHERE product_id = %s", (self.prices[product], _ago(0), product)
        )

    def _move(self) -> None:
        customer = self.randomly.randint(11, CUSTOMERS)
        country = self.randomly.choice(COUNTRIES)
        self.database.execute("UPDATE customers SET country = %s WHERE id = %s", (country, customer))

    def _cancel(self) -> None:
        if len(self.unpaid) > 1:
            _, number, _ = self.unpaid.pop(0)
            self.desk.cancel(number)
            self.database.execute("DELETE FROM orders WHERE id = %s", (number,))

    # What is asked for

    def _late_order(self) -> None:
        """An order from Iceland that was made some minutes ago, on a phone without a network."""
        minute = _ago(60 * LATE_MINUTES).replace(second=0, microsecond=0)
        product = self.randomly.choice(list(self.products))
        with self.database.transaction():
            _, amount = self._buy(1, product, 2, minute + dt.timedelta(seconds=17))
        self.parent.tell(late_order={"minute": minute.isoformat(), "amount": str(amount)})

    def _mistake(self) -> None:
        """A payment of five too much, booked by hand: past the rules."""
        product = self.randomly.choice(list(self.products))
        with self.database.transaction():
            number, amount = self._buy(self.randomly.randint(11, CUSTOMERS), product, 1, _ago(0))
            self._payment(number, amount + 5)
        self.parent.tell(mistake=number)

    def _bad_order(self) -> None:
        """An order of one unit that is booked with none, and paid."""
        product = self.randomly.choice(list(self.products))
        with self.database.transaction():
            self.bad_order, amount = self._buy(self.randomly.randint(11, CUSTOMERS), product, 1, _ago(0), booked=0)
            self.desk.pay(self.bad_order, amount)
            self._payment(self.bad_order, amount)
        self.parent.tell(bad_order=self.bad_order)

    def _correction(self) -> None:
        """The bad order gets the unit that was bought."""
        self.database.execute("UPDATE orders SET units = 1 WHERE id = %s", (self.bad_order,))
        self.parent.tell(correction=self.bad_order)

    def _rule(self) -> None:
        """An order whose payment of five too much is rejected; the right one comes twice, and counts once."""
        product = self.randomly.choice(list(self.products))
        with self.database.transaction():
            number, amount = self._buy(self.randomly.randint(11, CUSTOMERS), product, 1, _ago(0))
            told = self.desk.tried(number, amount)
            self._payment(number, amount)
        self.parent.tell(rule=told)

    # The web pages

    def _browse(self, bought: list[tuple[int, int]]) -> None:
        for customer, product in bought:
            self._send(PAGE_VIEWS, {"customer_id": customer, "product_id": product, "action": "basket", "at": _ago(4)})
        for _ in range(LOOKS_A_BEAT):
            customer, product = self.randomly.randint(1, CUSTOMERS), self.randomly.choice(list(self.products))
            action = "basket" if self.randomly.random() < 0.1 else "look"
            at = _ago(self.randomly.uniform(0, 1))
            self._send(PAGE_VIEWS, {"customer_id": customer, "product_id": product, "action": action, "at": at})
        for _ in range(SEARCHES_A_BEAT):
            self.searches += 1
            product = self.randomly.choice(list(self.products))
            words, at = self.products[product].split(" ", 1)[1], _ago(1)
            customer = self.randomly.randint(1, CUSTOMERS)
            self._send(SEARCHES, {"id": self.searches, "customer_id": customer, "words": words, "at": at})
            if self.randomly.random() < 0.4:
                self._send(CLICKS, {"search_id": self.searches, "product_id": product, "at": _ago(0)})
        self._flush(time.monotonic())

    def _send(self, topic: str, row: Row) -> None:
        late = self.randomly.uniform(*HELD_BACK_S) if self.randomly.random() < HELD_BACK else 0.0
        self.held_back.append((time.monotonic() + late, topic, row))

    def _flush(self, until: float) -> None:
        due = [each for each in self.held_back if each[0] <= until]
        self.held_back = [each for each in self.held_back if each[0] > until]
        for name in self.topics:
            if rows := [row for _, of, row in due if of == name]:
                self._append(name, rows)

    def _append(self, name: str, rows: list[Row]) -> None:
        """Append until the log has them; under an id, so that rows whose answer was lost are not there twice."""
        request_id = uuid.uuid4().hex
        while True:
            try:
                self.topics[name].append(rows, request_id=request_id)
                return
            except Unavailable:
                self.parent.wait(RETRY_S)

    def _pause(self) -> None:
        """Send delayed events, then commit one more transaction, which marks the end."""
        self._flush(float("inf"))
        with self.database.transaction():
            number, _, _ = self._order()
        self.parent.tell(committed=[number], at_us=time.time_ns() // 1000, paused=number)


def _ago(seconds: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
