"""Pages: links, the keyboard, colours, a phone's width, and strings that mean harm."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import expect

from headwater.log.home import Log
from tests.browser.conftest import Look, go
from tests.browser.orders import order
from tests.browser.served import Served

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\'"&amp;'
PHONE = {"width": 360, "height": 740}
PLACES = (
    "/",
    "/topics",
    "/topics/orders",
    "/groups/orders/billing",
    "/views",
    "/views/revenue",
    "/views/minutes",
    "/sinks/revenue.sqlite",
    "/inlets/site",
    "/aggregates",
    "/aggregates/basket",
    "/ticks",
    "/alerts",
    "/query",
)


def test_the_graph_leads_to_a_view_and_the_way_back_works(look: Look) -> None:
    page = look("/")

    page.get_by_role("link", name=re.compile("^view revenue: ")).click()

    expect(page).to_have_url(re.compile("/views/revenue$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("revenue")
    expect(page.locator("pre.sql")).to_contain_text("GROUP BY u.country")
    expect(page.locator(".chip.accumulating")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Flow")).to_be_visible()
    page.go_forward()
    page.reload()
    expect(page.locator("pre.sql")).to_contain_text("GROUP BY u.country")


def test_the_graph_shows_everything_from_topics_to_sinks(look: Look) -> None:
    page = look("/")

    graph = page.get_by_role("region", name="Graph of the app")
    for name in (
        "topic clicks",
        "table orders",
        "table users",
        "view revenue",
        "view total",
        "sqlite revenue.sqlite",
        "group billing",
    ):
        expect(graph.get_by_role("link", name=re.compile(f"^{name}: "))).to_be_visible()

    lefts = [graph.locator(f"a.{kind}").first.bounding_box()["x"] for kind in ("inlet", "table", "view", "sink")]  # type: ignore[index]
    assert lefts == sorted(lefts)
    assert len(set(lefts)) == 4


def test_no_page_is_wider_than_a_phone(look: Look) -> None:
    page = look("/", viewport=PHONE)

    widths = {}
    for path in PLACES:
        go(page, path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Reading…")).to_have_count(0)
        widths[path] = page.evaluate("document.documentElement.scrollWidth")

    assert {path: width for path, width in widths.items() if width > PHONE["width"]} == {}


def test_a_group_has_its_lag_and_its_members(look: Look, log: Log) -> None:
    with log.get_topic("orders").consumer("billing", member="till"):
        page = look("/groups/orders/billing")
        expect(page.get_by_role("region", name="Members")).to_contain_text("till")

        order(log, user=5, times=10)

        expect(page.get_by_role("img", name=re.compile("^Lag of billing"))).to_be_visible()


def test_strings_of_rows_do_nothing_but_be_shown(look: Look, log: Log) -> None:
    log.get_topic("users").append([{"id": 900, "country": HOSTILE}])
    order(log, user=900)

    page = look("/views/revenue")
    expect(page.get_by_role("region", name="Rows of revenue").get_by_text(HOSTILE).first).to_be_visible()
    page.goto(page.url.replace("/views/revenue", "/topics/users"))
    expect(page.get_by_role("region", name="Last rows").get_by_text(HOSTILE).first).to_be_visible()
    page.goto(page.url.replace("/topics/users", "/query"))
    page.get_by_label("SQL").fill("SELECT * FROM revenue")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="Result").get_by_text(HOSTILE).first).to_be_visible()

    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


def test_the_policy_lets_no_script_in_and_nothing_comes_from_elsewhere(look: Look, served: Served) -> None:
    asked: list[str] = []
    page = look("/")
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    expect(page.get_by_role("heading", name="Flow")).to_be_visible()

    policy = httpx.get(served.address).headers["content-security-policy"]

    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith(served.address)] == []


def test_the_keyboard_is_enough(look: Look) -> None:
    page = look("/ticks")
    expect(page.get_by_role("slider")).to_be_visible()

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    slider = page.get_by_role("slider")
    expect(slider).to_be_focused()
    page.keyboard.press("Home")
    first = slider.get_attribute("aria-valuemin") or ""
    expect(slider).to_have_attribute("aria-valuenow", first)
    page.keyboard.press("ArrowRight")
    expect(slider).not_to_have_attribute("aria-valuenow", first)
    page.keyboard.press("Escape")
    expect(page.get_by_text("(the latest)")).to_be_visible()


def test_colours_follow_the_system_until_the_reader_chooses(look: Look) -> None:
    page = look("/alerts", color_scheme="dark")
    theme = page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")

    page.get_by_role("button", name="Use light colours").click()

    expect(theme).to_have_attribute("data-theme", "light")
    page.reload()
    expect(theme).to_have_attribute("data-theme", "light")


def test_the_api_has_a_page_of_its_own(look: Look, served: Served) -> None:
    page = look("/")

    page.get_by_role("navigation").get_by_role("link", name="API").click()

    expect(page).to_have_url(re.compile("/docs$"))
    expect(page.locator("details")).to_have_count(
        sum(len(verbs) for verbs in served.get("/openapi.json")["paths"].values())
    )


def test_what_is_not_there_is_said(look: Look) -> None:
    page = look("/views/nothing")

    expect(page.get_by_text("Unknown view")).to_be_visible()
    go(page, "/topics/nothing")
    expect(page.get_by_text("Unknown topic")).to_be_visible()
    go(page, "/views/a/b")
    expect(page.get_by_text("There is no page /views/a/b")).to_be_visible()
