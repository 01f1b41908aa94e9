"""What happens is seen while it happens: rows, the tail of a topic, alerts; through a restart of the server too."""

from __future__ import annotations

import datetime as dt
import re

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from headwater.log.home import Log
from tests.browser.conftest import Look
from tests.browser.orders import order
from tests.browser.served import Served

SEEN_WITHIN_MS = 3000
ATTEMPTS = 8  # on a busy machine a tick may take long; once is enough to show that nothing here is slow by itself
DIGITS = re.compile(r"^[0-9]+$")


def cell(page: Page, country: str, column: int) -> Locator:
    return (
        page.get_by_role("region", name="Rows of revenue")
        .locator("tbody tr", has_text=country)
        .locator("td")
        .nth(column)
    )


def test_a_row_is_seen_to_change_within_three_seconds_of_an_append(look: Look, log: Log) -> None:
    page = look("/views/revenue")
    orders = cell(page, "DE", 2)
    expect(orders).to_have_text(DIGITS)

    seen = False
    for _ in range(ATTEMPTS):
        before = orders.inner_text()
        order(log, user=0)
        try:
            expect(orders).not_to_have_text(before, timeout=SEEN_WITHIN_MS)
        except AssertionError:
            expect(orders).not_to_have_text(before)
            continue
        seen = True
        break

    assert seen, f"no append was seen within {SEEN_WITHIN_MS} ms"


def test_cells_that_change_flash_and_the_feed_tells_of_them(look: Look, log: Log) -> None:
    page = look("/views/revenue")
    expect(cell(page, "FR", 2)).to_have_text(DIGITS)

    order(log, user=1, amount=7.25)

    expect(page.locator("tr", has_text="FR").locator("td[class*=flash]")).to_have_count(2)
    feed = page.get_by_role("region", name="Changes of revenue")
    expect(feed.locator("tr.came", has_text="FR").first).to_be_visible()
    expect(feed.locator("tr.went", has_text="FR").first).to_be_visible()


def test_a_large_view_is_read_page_by_page(look: Look, log: Log) -> None:
    page = look("/views/every_order")
    rows = page.get_by_role("region", name="Rows of every_order").locator("tbody tr")
    expect(rows.first.locator("td").first).to_have_text("0")

    page.get_by_role("button", name="Next").click()
    expect(rows.first.locator("td").first).to_have_text("50")
    page.get_by_label("descending").check()
    highest = int(rows.first.locator("td").first.inner_text())
    order(log, user=2)

    expect(rows.first.locator("td").first).not_to_have_text(str(highest))


def test_the_last_rows_of_a_topic_come_as_they_are_appended(look: Look, log: Log) -> None:
    page = look("/topics/clicks")
    expect(page.get_by_role("region", name="Last rows").locator("tbody tr").first).to_be_visible()

    log.get_topic("clicks").append([{"page": "/brand-new", "at": dt.datetime.now(dt.UTC)}])

    expect(page.get_by_role("region", name="Last rows").locator("tbody tr").first).to_contain_text("/brand-new")
    expect(page.get_by_text("7 days, then dropped")).to_be_visible()


def test_an_inlet_shows_what_it_let_in(look: Look, served: Served) -> None:
    address = served.get("/v1/status")["inlets"][0]["address"]
    page = look("/inlets/site")
    expect(page.get_by_text("Received")).to_be_visible()

    httpx.post(address, json={"page": "/by-webhook", "at": "2026-01-31T10:00:00Z"}).raise_for_status()

    expect(page.locator("dl div", has_text="Received").locator("dd")).not_to_have_text("0")


def test_late_rows_raise_an_alert_that_is_seen(look: Look, log: Log) -> None:
    page = look("/alerts")
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()

    order(log, user=3, times=300, late=dt.timedelta(hours=2))

    expect(page.get_by_text("came too late for view").first).to_be_visible()
    page.goto(page.url.replace("/alerts", "/views/minutes"))
    expect(page.get_by_role("region", name="Late rows")).to_contain_text("300")
    expect(page.get_by_role("navigation")).to_contain_text(re.compile("Alerts *[1-9]"))


def test_the_page_comes_back_by_itself_when_the_server_does(look: Look, log: Log, served: Served) -> None:
    # A second server over the same home, without an engine: the first one's goes on ticking meanwhile.
    other = Served(served.home, "--no-engine")
    page = look("/views/revenue", address=other.address, forgiven="net::ERR_")
    expect(cell(page, "PL", 2)).to_have_text(DIGITS)

    other.stop()
    expect(page.get_by_text("Reconnecting…")).to_be_visible()
    before = cell(page, "PL", 2).inner_text()
    order(log, user=3)
    other.start()

    expect(page.get_by_text("Reconnecting…")).not_to_be_visible()
    expect(cell(page, "PL", 2)).not_to_have_text(before)
    page.close()
    other.stop()


def test_verify_asks_the_engine_and_shows_what_it_found(look: Look) -> None:
    page = look("/views/total")

    page.get_by_role("button", name="Verify").click()

    expect(page.get_by_text(re.compile("Verified: its 1 row at tick [0-9,]+ are what the log gives"))).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/ticks"])
def test_figures_move_with_each_tick(look: Look, log: Log, path: str) -> None:
    page = look(path)
    figure = page.get_by_role("paragraph").filter(has_text=re.compile(r"tick [0-9,]+", re.IGNORECASE)).first
    before = figure.inner_text()

    order(log, user=4)

    expect(figure).not_to_have_text(before)
