"""Services by a view: a request is answered from the tick that contains it, and never corrected."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import headwater as hw
from headwater.aggregates import Service
from headwater.errors import RequestExpired, ServiceFailed

pytestmark = pytest.mark.usefixtures("spark")

QUOTE = """
    SELECT r.request_id, r.amount * p.cents AS cents FROM quote_requests r JOIN prices p ON p.item = r.item"""


def declare(home: Path) -> tuple[hw.App, Service]:
    app = hw.App("shop", home=home)
    app.table("prices", "item STRING, cents BIGINT", key=["item", "cents"])
    return app, app.service_view("quote", request="item STRING, amount BIGINT", reply="cents BIGINT", sql=QUOTE)


def test_a_request_is_answered_from_its_own_tick_and_never_corrected(tmp_path: Path) -> None:
    app, quote = declare(tmp_path / "home")
    prices = app.get_table("prices")
    prices.upsert([{"item": "cup", "cents": 250}])
    app.tick()  # the sink has begun
    early = quote.post({"item": "cup", "amount": 2}, timeout="1 hour")
    nothing = quote.post({"item": "pot", "amount": 2}, timeout="1 hour")
    app.tick(sinks=False)
    prices.delete([{"item": "cup", "cents": 250}])
    prices.upsert([{"item": "cup", "cents": 300}, {"item": "pot", "cents": 9}])
    late = quote.post({"item": "cup", "amount": 2}, timeout="1 hour")
    app.tick(sinks=False)
    app.sync_sinks()

    assert [quote.wait(id).value() for id in (early, nothing, late)] == [{"cents": 500}, None, {"cents": 600}]
    app.tick()
    assert [quote.wait(id).value() for id in (early, nothing, late)] == [{"cents": 500}, None, {"cents": 600}]
    rows = [row["request_id"] for row in app.get_topic("quote_replies").rows()]
    assert sorted(rows) == sorted([early, nothing, late])
    assert app.get_table("quote_requests").to_arrow().num_rows == 0
    assert list(app.get_view("quote").rows()) == []  # what is answered has left the state
    app.close()


def test_what_has_expired_or_has_two_rows_is_answered_so(tmp_path: Path) -> None:
    app, quote = declare(tmp_path / "home")
    app.get_table("prices").upsert([{"item": "cup", "cents": 250}, {"item": "cup", "cents": 260}])
    expired = quote.post({"item": "tea", "amount": 2}, timeout="10 milliseconds")
    twice = quote.post({"item": "cup", "amount": 2}, timeout="1 hour")
    time.sleep(0.02)
    app.tick()

    with pytest.raises(RequestExpired):
        quote.wait(expired).value()
    with pytest.raises(ServiceFailed, match="its query gives 2 rows"):
        quote.wait(twice).value()
    app.close()


def test_it_is_answered_while_the_app_runs(tmp_path: Path) -> None:
    app, _ = declare(tmp_path / "home")
    app.get_table("prices").upsert([{"item": "cup", "cents": 250}])
    app.start()

    answers = [app.ask("quote", {"item": "cup", "amount": n}, timeout="60 seconds") for n in range(3)]

    app.stop()
    assert answers == [{"cents": 0}, {"cents": 250}, {"cents": 500}]
    app.close()
