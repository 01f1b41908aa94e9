"""The page of a pattern: which recorded rows matched which variable, as a picture."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Look
from tests.browser.served import PATIENCE_S


def test_a_pattern_is_shown_over_the_recorded_events_with_its_variables_coloured(look: Look) -> None:
    page = look("/views/bought")

    page.get_by_role("link", name="Which rows matched which variable").click()

    ann = page.get_by_role("img", name="ann: 4 rows, 4 matched")
    expect(ann).to_be_visible(timeout=PATIENCE_S * 1000)  # Spark may have to start
    assert [square.get_attribute("class") for square in ann.locator("g").all()] == [
        "variable-0",
        "variable-1",
        "variable-1",
        "variable-2",
    ]
    expect(page.get_by_role("img", name="bob: 2 rows, 0 matched").locator("g.unmatched")).to_have_count(2)
    expect(page.get_by_label("Variables").locator("li")).to_have_text(["seen", "basket", "paid"])
    expect(page.get_by_role("region", name="Rows").locator("tr.marked")).to_have_count(4)
    page.get_by_label("Only the partition").fill("bob")
    page.get_by_role("button", name="Show").click()
    expect(ann).to_have_count(0)
    expect(page.get_by_text("0 of 2 rows are part of a match")).to_be_visible()
