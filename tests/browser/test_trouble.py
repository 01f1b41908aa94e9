"""What is wrong is seen on every page that it is about: a paused view, rows that wait while no tick comes."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from headwater.log.home import Log
from tests.browser.conftest import Look, go
from tests.browser.served import PATIENCE_S, Served, seed
from tests.waiting import eventually


def lasting(page: Page) -> Locator:
    """The alerts that last."""
    return page.locator("section.card").filter(has=page.get_by_role("heading", name="Lasting"))


def test_a_paused_view_is_marked_with_its_reader_until_it_is_resumed(look: Look, log: Log, served: Served) -> None:
    stock = log.get_topic("stock")
    stock.append([{"id": 1, "pieces": 12, "boxes": 3}])
    page = look("/views/per_box")
    rows = page.get_by_role("region", name="Rows of per_box").locator("tbody tr")
    expect(rows).to_have_text([re.compile("1 *4")])

    stock.append([{"id": 2, "pieces": 5, "boxes": 0}])

    notice = page.get_by_role("status").filter(has_text="Paused since")
    expect(notice).to_contain_text("it stands still at tick")
    expect(notice).to_contain_text("DIVIDE_BY_ZERO")
    expect(notice).to_contain_text("headwater view resume APP.py per_box")
    expect(rows).to_have_text([re.compile("1 *4")])  # of the last good tick
    go(page, "/views/largest_box")
    expect(notice).to_contain_text("it reads per_box, which is paused")
    go(page, "/views")
    marked = page.get_by_role("row").filter(has_text=re.compile("paused at tick [0-9,]+"))
    expect(marked).to_have_count(2)
    go(page, "/")
    expect(page.locator("svg a", has_text="per_box")).to_contain_text("paused")
    go(page, "/alerts")
    expect(lasting(page)).to_contain_text("View paused")

    stock.append([{"id": 2, "pieces": 5, "boxes": 1}])
    httpx.post(f"{served.address}/v1/views/per_box/resume", timeout=PATIENCE_S).raise_for_status()

    expect(lasting(page)).not_to_contain_text("View paused")
    go(page, "/views")
    expect(page.get_by_role("row").filter(has_text="per_box")).to_be_visible()
    expect(marked).to_have_count(0)
    go(page, "/views/per_box")
    expect(rows).to_have_count(2)
    expect(notice).to_have_count(0)


def test_rows_that_wait_while_no_tick_comes_are_said_on_every_page(look: Look, tmp_path: Path) -> None:
    with seed(tmp_path / "home") as log:  # thousands of rows, and nobody who takes them
        server = Served(Path(log.home), "--no-engine", "--stalled-after", "2s")
        page = look("/", address=server.address)

        expect(page.locator(".banner.bad")).to_contain_text(
            re.compile("[0-9]+ rows wait, and no tick has come for [0-9]+ s. The app does not run.")
        )
        expect(page.locator(".engine.bad")).to_contain_text("not running")
        go(page, "/alerts")
        expect(page.locator(".banner.bad")).to_be_visible()
        expect(lasting(page)).to_contain_text("Rows wait, and no tick comes")
        alerts = eventually(lambda: [a for a in server.get("/v1/status")["alerts"] if a["kind"] == "engine"])
        page.close()
        server.stop()

    assert alerts[0]["lasting"]
