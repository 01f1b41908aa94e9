"""The query page: a table, a plot, errors with their hint."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Look


def run(page: Page, sql: str) -> None:
    page.get_by_label("SQL").fill(sql)
    page.keyboard.press("Control+Enter")


def test_a_query_gives_a_table_and_a_plot(look: Look) -> None:
    page = look("/query")

    run(page, "SELECT country, revenue, orders FROM revenue WHERE country IN ('DE', 'FR', 'IT') ORDER BY country")

    result = page.get_by_role("region", name="Result")
    expect(result.locator("tbody tr")).to_have_count(3)
    expect(result.locator("tbody tr").first).to_contain_text("DE")
    plot = page.get_by_role("img", name="revenue by country, 3 points")
    expect(plot.locator("rect.bar")).to_have_count(3)
    page.get_by_label("Kind of plot").select_option("line")
    expect(plot.locator("polyline")).to_have_count(1)
    page.get_by_label("What is plotted").select_option("orders")
    expect(page.get_by_role("img", name="orders by country, 3 points")).to_be_visible()


def test_a_plot_reads_out_the_point_under_the_pointer_and_by_the_arrow_keys(look: Look) -> None:
    page = look("/query")
    run(page, "SELECT 'a' AS name, 10 AS n UNION ALL SELECT 'b', 20 UNION ALL SELECT 'c', 30 ORDER BY 1")
    figure, read_out = page.locator(".plot-figure"), page.locator(".read-out")

    figure.locator("rect.bar").nth(1).hover()

    expect(read_out).to_have_text("b: 20")
    expect(figure.locator(".cursor")).to_have_attribute("visibility", "visible")
    figure.press("ArrowRight")
    expect(read_out).to_have_text("c: 30")
    page.wait_for_timeout(2500)  # the page is updated every two seconds
    expect(read_out).to_have_text("c: 30")
    figure.press("Escape")
    expect(read_out).to_have_text("")


def test_a_plot_over_time_has_round_times_on_its_axis(look: Look) -> None:
    page = look("/query")

    run(
        page,
        "SELECT '2026-03-01T10:00:07Z' AS at, 1 AS n UNION ALL SELECT '2026-03-01T10:07:30Z', 2"
        " UNION ALL SELECT '2026-03-01T10:20:00Z', 3 ORDER BY 1",
    )
    page.get_by_label("Kind of plot").select_option("line")

    times = page.locator(".plot .tick.time").all_text_contents()
    assert len(times) >= 2
    assert all(re.fullmatch(r"\d\d:\d[05]", time) or re.fullmatch(r"\d\d:\d[02468]", time) for time in times)


def test_a_query_survives_a_refresh(look: Look) -> None:
    page = look("/query")
    run(page, "SELECT 41 + 1 AS answer")
    expect(page.get_by_role("region", name="Result")).to_contain_text("42")

    page.reload()

    expect(page.get_by_label("SQL")).to_have_value("SELECT 41 + 1 AS answer")


def test_an_error_is_shown_with_its_hint(look: Look) -> None:
    page = look("/query", forgiven="Failed to load resource")  # the browser itself tells of every status above 400

    run(page, "SELECT * FROM revenu")

    expect(page.get_by_role("alert")).to_contain_text("revenu")
    expect(page.get_by_role("alert")).to_contain_text("Hint:")


def test_spark_is_asked_too(look: Look) -> None:
    page = look("/query")

    page.get_by_label("Where it runs").select_option("spark")
    run(page, "SELECT count(DISTINCT page) AS pages FROM clicks WHERE page IN ('/', '/basket')")

    expect(page.get_by_role("region", name="Result").locator("td")).to_have_text("2")


def test_numbers_with_many_digits_are_shown_as_they_are(look: Look) -> None:
    page = look("/query")

    run(page, "SELECT 9007199254740993 AS many")

    expect(page.get_by_role("region", name="Result").locator("td")).to_have_text("9007199254740993")
