"""A picture of every page, wide and as on a phone, light and dark, for people to look at: ``build/screenshots``."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WIDE, Look, go

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
PICTURES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "group": "/groups/orders/billing",
    "views": "/views",
    "view": "/views/revenue",
    "windows": "/views/minutes",
    "sink": "/sinks/revenue.sqlite",
    "inlet": "/inlets/site",
    "aggregates": "/aggregates/basket",
    "ticks": "/ticks",
    "alerts": "/alerts",
    "query": "/query",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, {"width": 390, "height": 844}], ids=["wide", "phone"])
def test_every_page_is_pictured(look: Look, scheme: str, size: dict[str, int]) -> None:
    page = look("/", viewport=size, color_scheme=scheme)

    for name, path in PICTURES.items():
        go(page, path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Reading…")).to_have_count(0)
        if name == "query":
            page.get_by_role("button", name="Run").click()
            expect(page.get_by_role("region", name="Result")).to_be_visible()
        page.screenshot(path=FOLDER / f"{name}-{size['width']}-{scheme}.png", full_page=True)

    assert len(list(FOLDER.glob(f"*-{size['width']}-{scheme}.png"))) >= len(PICTURES)
