"""Constraints: each violation that a view shows is compensated once.

What it is: stock and orders, a view of the items that are oversold, and a function that sends a command.
Invariants: the command of a violation happens once, though its function is called twice; one that went and came back is
another violation; what is refused or fails is kept, and keeps nothing else from being compensated.
Not here: sinks in general (``tests/services/sinks``). Read next: ``docs/processes.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.aggregates import Rejected, command, event
from headwater.errors import ProcessFailed

pytestmark = pytest.mark.usefixtures("spark")

OVERSOLD = """
    SELECT s.item, sum(o.amount) - max(s.amount) AS missing FROM stock s JOIN orders o ON o.item = s.item
    GROUP BY s.item HAVING sum(o.amount) > max(s.amount)"""


class Supplier:
    def __init__(self) -> None:
        self.ordered = 0

    @command
    def order(self, item: str, amount: int) -> None:
        if item == "unicorn":
            raise Rejected("nobody sells these")
        self.was_ordered(item, amount)

    @event
    def was_ordered(self, item: str, amount: int) -> None:  # noqa: ARG002
        self.ordered += amount


class Shop:
    """An app with the constraint, and what its function was called with."""

    def __init__(self, home: Path) -> None:
        self.app = hw.App("shop", home=home)
        self.stock = self.app.table("stock", "item STRING, amount BIGINT", key="item")
        self.orders = self.app.topic("orders", "item STRING, amount BIGINT")
        self.suppliers = self.app.aggregate("supplier", Supplier)
        self.called: list[tuple[str, str]] = []
        self.fails: set[str] = set()
        self.error: BaseException = RuntimeError("no line to the supplier")
        self.constraint = self.app.constraint("no oversell", OVERSOLD, key="item", compensate=self.compensate)

    def compensate(self, row: dict[str, Any], request_id: str) -> None:
        self.called.append((request_id, row["item"]))
        if row["item"] in self.fails:
            raise self.error
        self.suppliers.send("acme", "order", item=row["item"], amount=row["missing"], request_id=request_id)

    def sell(self, item: str, amount: int) -> None:
        self.orders.append([{"item": item, "amount": amount}])
        self.app.tick()

    def fill(self, item: str, amount: int) -> None:
        self.stock.upsert([{"item": item, "amount": amount}])
        self.app.tick()


def alerts(app: hw.App) -> list[tuple[str, str]]:
    return [(row["state"], row["message"]) for row in app.get_topic("_alerts").rows() if row["kind"] == "process"]


def test_a_violation_is_compensated_once_and_again_when_it_comes_back(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home")
    shop.fill("cup", 3)
    shop.fill("pot", 3)
    assert shop.constraint.drain() == 0

    shop.sell("cup", 4)
    shop.sell("cup", 1)  # the row changes, and it is the same violation
    shop.sell("pot", 9)
    assert shop.constraint.drain() == 2
    assert shop.constraint.drain() == 0
    shop.fill("cup", 5)  # it is gone
    shop.sell("cup", 2)  # and comes back
    assert shop.constraint.drain() == 1
    shop.app.close()

    # Another process finds nothing left, and sees a later one.
    again = Shop(tmp_path / "home")
    again.app.tick()
    assert again.constraint.drain() == 0
    again.fill("pot", 9)
    again.sell("pot", 1)
    assert again.constraint.drain() == 1
    ids = [("no oversell/1", "cup"), ("no oversell/2", "pot"), ("no oversell/3", "cup"), ("no oversell/4", "pot")]
    assert shop.called + again.called == ids
    assert again.suppliers.get("acme").ordered == 1 + 6 + 2 + 1
    again.app.close()


def test_one_that_came_and_went_before_its_function_was_called_is_compensated_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home")
    shop.fill("cup", 1)
    shop.sell("cup", 2)
    shop.fill("cup", 2)

    assert shop.constraint.drain() == 1
    assert [row["type"] for row in shop.app.get_topic("no_oversell_violations").rows()] == [
        "reached",
        "found",
        "reached",
        "gone",
        "reached",
        "compensated",
    ]
    shop.app.close()


def test_after_death_between_the_call_and_its_note_the_command_happens_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home")
    shop.fill("cup", 1)
    shop.sell("cup", 3)
    [id] = shop.constraint.open_ids()
    shop.compensate({"item": "cup", "missing": 2}, id)  # and here the process died
    shop.app.close()

    again = Shop(tmp_path / "home")
    assert again.constraint.drain() == 1

    assert again.called == [(id, "cup")]
    assert again.suppliers.get("acme").ordered == 2
    again.app.close()


def test_what_is_refused_is_kept_and_what_fails_keeps_nothing_else_waiting(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home")
    shop.fails.add("pot")
    shop.stock.upsert([{"item": item, "amount": 0} for item in ("pot", "unicorn", "cup")])
    for item in ("pot", "unicorn", "cup"):
        shop.sell(item, 1)

    with pytest.raises(ProcessFailed, match="no line to the supplier"):
        shop.constraint.drain()
    shop.error = SystemExit(3)  # it would end the thread that serves all
    with pytest.raises(ProcessFailed, match="SystemExit: 3"):
        shop.constraint.drain()

    assert shop.suppliers.get("acme").ordered == 1
    found = {each.row["item"]: (each.status, each.reason) for each in shop.constraint.violations()}
    assert found == {"pot": ("pending", None), "unicorn": ("refused", "nobody sells these")}
    assert [state for state, _ in alerts(shop.app)] == ["begin", "begin"]

    shop.fails.clear()
    assert shop.constraint.drain() == 1
    [refused] = shop.constraint.violations()
    shop.constraint.retry(refused.id)
    assert shop.constraint.open_ids() == [f"{refused.id}#2"]
    with pytest.raises(Rejected, match="was not refused"):
        shop.constraint.retry(refused.id)
    shop.app.close()


def test_it_runs_beside_the_ticks(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home")
    shop.stock.upsert([{"item": "cup", "amount": 1}])
    shop.app.start()

    token = shop.orders.append([{"item": "cup", "amount": 3}])
    list(shop.app.get_view("no_oversell").rows(at_least=token))
    end = next(shop.app.get_topic("supplier").read(follow=True, timeout="60 seconds"))

    shop.app.stop()
    assert end.num_rows == 1
    assert shop.suppliers.get("acme").ordered == 2
    shop.app.close()
