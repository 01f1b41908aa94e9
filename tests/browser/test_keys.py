"""Keys: asked for once, kept for the tab, asked again when wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from headwater.server.http.keys import Keys
from tests.browser.conftest import Look
from tests.browser.served import Served

REFUSED = "Failed to load resource"  # the browser itself tells of every 401


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    scopes = {"reader": ["query", "consume"], "writer": ["produce"]}
    return {"file": str(file), **{name: Keys(file).add(name, given) for name, given in scopes.items()}}


@pytest.fixture(scope="module")
def locked(served: Served, keys: dict[str, str]) -> Iterator[Served]:
    server = Served(served.home, "--no-engine", "--key-file", keys["file"])
    yield server
    server.stop()


def test_the_key_is_asked_for_once_and_kept_for_the_tab(look: Look, locked: Served, keys: dict[str, str]) -> None:
    page = look("/views/revenue", address=locked.address, forgiven=REFUSED)

    page.get_by_role("textbox", name="Key").fill("hw_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("unknown key")).to_be_visible()
    page.get_by_role("textbox", name="Key").fill(keys["reader"])
    page.keyboard.press("Enter")

    rows = page.get_by_role("region", name="Rows of revenue")
    expect(rows.locator("tbody tr").first).to_be_visible()
    page.reload()
    expect(rows.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.context.cookies() == []
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("alert")).to_contain_text("lacks the scope admin")


def test_a_key_that_is_good_for_nothing_here_can_be_changed(look: Look, locked: Served, keys: dict[str, str]) -> None:
    page = look("/alerts", address=locked.address, forgiven=REFUSED)

    page.get_by_role("textbox", name="Key").fill(keys["writer"])
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Use another key").click()
    page.get_by_role("textbox", name="Key").fill(keys["reader"])
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Lasting")).to_be_visible()
