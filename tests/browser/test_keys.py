"""Keys: asked for once, kept for the tab, asked again when wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headwater.server.keys import Keys
from tests.browser.conftest import Look
from tests.browser.served import Served

REFUSED = "Failed to load resource"  # the browser itself tells of every 401


@pytest.fixture
def locked(served: Served, tmp_path: Path) -> Iterator[tuple[Served, str]]:
    file = tmp_path / "keys.json"
    key = Keys(file).add("reader", ["query", "consume"])
    server = Served(served.home, "--no-engine", "--key-file", str(file))
    yield server, key
    server.stop()


def test_the_key_is_asked_for_once_and_kept_for_the_tab(look: Look, locked: tuple[Served, str]) -> None:
    server, key = locked
    page = look("/views/revenue", address=server.address, forgiven=REFUSED)

    page.get_by_label("Key").fill("hw_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("this key is not known here")).to_be_visible()
    page.get_by_label("Key").fill(key)
    page.keyboard.press("Enter")

    rows = page.get_by_role("region", name="Rows of revenue")
    expect(rows.locator("tbody tr").first).to_be_visible()
    page.reload()
    expect(rows.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.context.cookies() == []
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("alert")).to_contain_text("has not the scope admin")
