"""The order desk: orders are taken by commands to an aggregate, and booked when they were accepted.

What it is: ``OrderDesk``, the way of the shop's process to the aggregate ``order_desk`` of ``examples/shop_live.py``;
``desk_account``, what the account at the end finds.
Invariants: every command has a request id, so one whose answer was lost may be sent again. Where the log decides
nothing as it writes (Kafka), there is no desk, and orders are booked without one.
Not here: the rules (``examples/shop_live.py``).
Read next: ``simulator.py``, ``audit.py``.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.app_file import app_of
from headwater.demo.example import DESK, FIRST_ORDERS, example_file
from headwater.errors import Rejected
from headwater.log.contract import Capability, EventLog

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository, Outcome
    from headwater.testing.postgres_server import PostgresServer
    from headwater.views.serving.serving_store import ServingStore


class OrderDesk:
    """Takes orders by commands."""

    def __init__(self, log: EventLog) -> None:
        self._orders: AggregateRepository | None = None
        if Capability.CONDITIONAL_APPENDS in log.capabilities:
            self._orders = app_of(example_file()).get_aggregate(DESK)

    def place(self, number: int, customer: int, product: int, units: int, amount: Decimal) -> None:
        """An order is placed."""
        self._send(number, "place", customer_id=customer, product_id=product, units=units, amount=amount)

    def pay(self, number: int, amount: Decimal) -> Outcome | None:
        """An order is paid."""
        return self._send(number, "pay", amount=amount)

    def cancel(self, number: int) -> None:
        """An order is cancelled."""
        self._send(number, "cancel")

    def tried(self, number: int, amount: Decimal) -> dict[str, Any]:
        """Pay five too much, which is rejected; then pay, and send that again."""
        reason = None
        try:
            self._send(number, "pay", request_id=f"wrong-{number}", amount=amount + 5)
        except Rejected as error:
            reason = error.message
        first, again = self.pay(number, amount), self.pay(number, amount)
        repeated = first is not None and again is not None and again.repeated and again.version == first.version
        return {"order": number, "reason": reason, "repeated": repeated}

    def _send(self, number: int, command: str, *, request_id: str | None = None, **arguments: Any) -> Outcome | None:
        if self._orders is None:
            return None
        return self._orders.send(str(number), command, request_id=request_id or f"{command}-{number}", **arguments)


def desk_account(server: PostgresServer, store: ServingStore) -> tuple[dict[str, int], list[str]]:
    """How many commands there were, and what is wrong with them: decided again, in the books, and in the view."""
    with app_of(example_file()) as app:
        orders = app.get_aggregate(DESK)
        histories = {int(id): orders.history(id) for id in orders.ids()}
        problems = [f"order desk: {difference}" for difference in orders.verify()]
    types = {number: [event.type for event in events if event.version] for number, events in histories.items()}
    if any(count > 1 for found in types.values() for count in Counter(found).values()):
        problems.append("order desk: an order was placed, paid or withdrawn twice")
    placed = {
        (number, event.data["amount"])
        for number, events in histories.items()
        for event in events
        if event.type == "placed" and "withdrawn" not in types[number]
    }
    asked = "SELECT id, amount FROM orders WHERE id > %s"
    if placed != {tuple(row) for row in server.execute(asked, [FIRST_ORDERS])}:
        problems.append("the orders that were accepted by commands are not those in PostgreSQL")
    states = {row["order_id"]: row["state"] for row in store.query("SELECT * FROM order_states").to_pylist()}
    if states != {str(number): found[-1] for number, found in types.items() if found}:
        problems.append("view order_states differs from the histories of the orders")
    rejected = sum(event.type == "rejected" for events in histories.values() for event in events)
    return {"accepted": sum(map(len, types.values())), "rejected": rejected}, problems
