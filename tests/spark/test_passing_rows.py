"""A joined row that is there neither before nor after a tick does not fail the view.

What it is: joins whose sides change in one tick, so that their terms pair a row that came with one that left; the
expression of the view raises over that pair, and over no pair that there is.
Invariants: the view is what Spark answers over the rows after the tick; over a pair that is there it fails, as ever.
Not here: failures by rows that stay (``test_view_failures.py``, ``test_paused_views.py``).
Read next: ``src/headwater/views/stages/stage_run.py``.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import ViewFailed
from headwater.views import thresholds

pytestmark = pytest.mark.usefixtures("spark")

JANUARY, FEBRUARY, MARCH = (dt.datetime(2024, month, 1, tzinfo=dt.UTC) for month in (1, 2, 3))
JOINED = "FROM orders o JOIN prices p ON o.item = p.item"
CASES = {
    "projected": (f"SELECT o.id, CAST(p.price AS INT) * o.amount AS paid {JOINED}", [(1, 12), (2, 18)]),
    "filtered": (f"SELECT o.id, o.amount AS n {JOINED} WHERE CAST(p.price AS INT) > o.amount", [(1, 2), (2, 3)]),
    "grouped": (f"SELECT o.item, sum(CAST(p.price AS INT) * o.amount) AS paid {JOINED} GROUP BY o.item", [(1, 30)]),
    "outer": (
        f"SELECT o.id, CAST(p.price AS INT) * o.amount AS paid {JOINED.replace('JOIN', 'LEFT JOIN')}",
        [(1, 12), (2, 18)],
    ),
}


@pytest.mark.parametrize(("name", "large"), [*((name, False) for name in CASES), ("grouped", True)])
def test_a_pair_of_a_new_row_and_an_old_one_does_not_fail_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, large: bool
) -> None:
    sql, right = CASES[name]
    if large:
        for limit in ("TASK_ROWS_MAX", "LOCAL_ROWS_MAX", "SETTLED_ROWS_MAX", "CONSOLIDATED_ROWS_MAX"):
            monkeypatch.setattr(thresholds, limit, 0)
    with hw.App("shop", home=tmp_path) as app:
        orders = app.table("orders", "id BIGINT, item INT, amount INT", key="id")
        prices = app.table("prices", "item INT, price STRING", key="item")
        app.view("paid", sql)
        prices.upsert([{"item": 1, "price": "to be told"}])
        app.tick()

        orders.upsert([{"id": 1, "item": 1, "amount": 2}])
        prices.upsert([{"item": 1, "price": "9"}])
        app.tick()
        assert app.sql("SELECT * FROM paid").num_rows == 1
        orders.delete([{"id": 1}])
        prices.upsert([{"item": 1, "price": "to be told"}])
        app.tick()
        assert app.sql("SELECT * FROM paid").num_rows == 0
        orders.upsert([{"id": 1, "item": 1, "amount": 2}, {"id": 2, "item": 1, "amount": 3}])
        prices.upsert([{"item": 1, "price": "6"}])
        app.tick()

        assert sorted(tuple(row.values()) for row in app.sql("SELECT * FROM paid").to_pylist()) == right
        assert all(each.equal for each in app.verify())
        prices.upsert([{"item": 1, "price": "none"}])
        with pytest.raises(ViewFailed, match="CAST_INVALID_INPUT"):
            app.tick()


def test_a_new_version_and_new_orders_in_one_tick(tmp_path: Path) -> None:
    with hw.App("shop", home=tmp_path) as app:
        orders = app.table("orders", "id BIGINT, item INT, at TIMESTAMP", key="id")
        prices = app.table("prices", "item INT, price STRING, since TIMESTAMP", key="item", event_time="since")
        app.view(
            "paid",
            "SELECT o.id, CAST(p.price AS INT) AS paid FROM orders o "
            "JOIN prices FOR SYSTEM_TIME AS OF o.at AS p ON o.item = p.item",
        )
        prices.upsert([{"item": 1, "price": "to be told", "since": JANUARY}])
        app.tick()

        prices.upsert([{"item": 1, "price": "7", "since": FEBRUARY}])
        orders.upsert([{"id": 1, "item": 1, "at": MARCH}])
        app.tick()

        assert [tuple(row.values()) for row in app.sql("SELECT * FROM paid").to_pylist()] == [(1, 7)]
        assert all(each.equal for each in app.verify())
