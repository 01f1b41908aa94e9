"""The pages of aggregates: the list, one kind, and the life of one as commands come."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WIDE, Look
from tests.browser.served import Served
from tests.browser.test_pages import PHONE
from tests.browser.test_screenshots import FOLDER

HOSTILE = '<img src=x onerror="window.hacked=1">'


def send(served: Served, id: str, command: str, **arguments: object) -> httpx.Response:
    path = f"{served.address}/v1/aggregates/basket/{id}/{command}"
    headers = {"Headwater-Actor": "anna", "Idempotency-Key": f"{id}-{command}-{arguments}"}
    return httpx.post(path, json=arguments, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def lived(served: Served) -> str:
    """A basket with events, a rejected command, and tentative events: one cancelled, one that waits."""
    assert send(served, "b-7", "put", items=3, note=HOSTILE).status_code == 200
    assert send(served, "b-7", "put", items=500).status_code == 422
    held = send(served, "b-7", "hold", items=1).json()["version"]
    settled = httpx.post(f"{served.address}/v1/aggregates/basket/b-7/tentative/{held}/cancel", timeout=60)
    assert settled.status_code == 200
    assert send(served, "b-7", "hold", items=2).status_code == 200
    return "b-7"


def test_an_aggregate_is_found_from_the_graph_over_its_kind_to_its_life(look: Look, lived: str) -> None:
    page = look("/")

    page.get_by_role("link", name=re.compile("^aggregate basket: ")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("basket")
    expect(page.get_by_role("region", name="Commands")).to_contain_text("items: int")
    page.get_by_role("region", name="Ids").get_by_role("link", name=lived).click()

    expect(page).to_have_url(re.compile("/aggregates/basket/b-7$"))
    expect(page.locator(".life li")).to_have_count(5)


def test_a_life_tells_data_senders_rejections_and_what_became_of_tentative_events(look: Look, lived: str) -> None:
    page = look(f"/aggregates/basket/{lived}")

    steps = page.locator(".life li")
    expect(steps.nth(4)).to_contain_text("was_put")
    expect(steps.nth(4)).to_contain_text("from anna")
    expect(steps.nth(3)).to_contain_text("put was rejected")
    expect(steps.nth(3)).to_contain_text("a basket has room for 100 (room 97)")
    expect(steps.nth(2)).to_contain_text("cancelled; its deadline was")
    expect(steps.nth(1)).to_contain_text("event 2")
    expect(steps.nth(0)).to_contain_text("holds until")
    expect(page.locator(".card", has=page.get_by_role("heading", name="State"))).to_contain_text("Event 4, was_held")
    assert page.evaluate("window.hacked") is None


def test_the_state_beside_it_is_that_of_the_chosen_event_by_keyboard(look: Look, lived: str) -> None:
    page = look(f"/aggregates/basket/{lived}")
    state = page.locator(".card", has=page.get_by_role("heading", name="State"))
    expect(state).to_contain_text("As of now, version 4.")

    page.get_by_role("button", name="Show the state after event 2").focus()
    page.keyboard.press("Enter")

    expect(state).to_contain_text("After event 2.")
    expect(state.locator(".facts div", has_text="held").locator("dd")).to_have_text("1")
    state.get_by_role("button", name="Show it as of now").click()
    expect(state).to_contain_text("As of now, version 4.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_life_fits_every_width_and_is_pictured(look: Look, lived: str, scheme: str, size: dict[str, int]) -> None:
    page = look(f"/aggregates/basket/{lived}", viewport=size, color_scheme=scheme)
    expect(page.locator(".life li")).to_have_count(5)
    expect(page.get_by_text("As of now, version 4.")).to_be_visible()

    page.screenshot(path=FOLDER / f"aggregate-{size['width']}-{scheme}.png", full_page=True)

    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_command_appears_without_a_reload(look: Look, served: Served) -> None:
    send(served, "b-8", "put", items=1)
    page = look("/aggregates/basket/b-8")
    expect(page.locator(".life li")).to_have_count(1)

    send(served, "b-8", "put", items=2)

    expect(page.locator(".life li")).to_have_count(2)
    expect(page.locator(".facts div", has_text="items").locator("dd")).to_have_text("3")


def test_an_id_that_is_not_there_is_said(look: Look) -> None:
    page = look("/aggregates/basket/nobody", forgiven="404")

    expect(page.get_by_role("alert")).to_contain_text('there is no basket "nobody"')


def test_a_request_that_is_stuck_is_shown_with_its_reason(look: Look, served: Served) -> None:
    made = httpx.post(f"{served.address}/v1/processes/swap", json={"source": "b-1", "target": "b-2"}, timeout=60)
    assert made.status_code == 200, made.text

    page = look("/aggregates")

    pending = page.get_by_role("region", name="Requests under way")
    expect(pending).to_contain_text("stuck", timeout=30_000)
    expect(pending).to_contain_text("a basket has room for 100")
    expect(pending.get_by_role("link")).to_contain_text("of basket b-")
