"""The demo's reader of a change feed notices what a feed must never do."""

from __future__ import annotations

from typing import Any

from headwater.demo.replica import Replica


def change(kind: str, orders: int, tick: int) -> dict[str, Any]:
    return {"country": "DE", "orders": orders, "_change_type": kind, "_commit_version": tick}


def test_an_update_takes_the_place_of_the_row_before() -> None:
    replica = Replica(["country"])
    replica.take([change("insert", 1, tick=1)])

    replica.take([change("update_preimage", 1, tick=3), change("update_postimage", 2, tick=3)])

    assert replica.rows == {("DE",): {"country": "DE", "orders": 2}}
    assert (replica.tick, replica.ticks, replica.changes) == (3, 2, 3)
    assert replica.problems == []


def test_a_gap_is_noticed_by_the_row_that_leaves() -> None:
    replica = Replica(["country"])
    replica.take([change("insert", 1, tick=1)])

    replica.take([change("update_preimage", 2, tick=3), change("update_postimage", 3, tick=3)])

    assert len(replica.problems) == 1
    assert replica.problems[0].startswith("in tick 3 of the change feed a row left that was not there")


def test_a_repeat_is_noticed() -> None:
    replica = Replica(["country"])
    replica.take([change("insert", 1, tick=1)])

    replica.take([change("insert", 1, tick=1)])

    assert replica.problems == [
        "the change feed gave tick 1 after tick 1",
        "in tick 1 of the change feed a row came twice: {'country': 'DE', 'orders': 1}",
    ]
