"""What a person waits for: from an append to the changed row in a browser's window.

What it is: ``screen``, a real ``headwater serve`` with its engine, and a real headless Chromium on a view's page.
Invariants: one append at a time, the next one when the one before was seen; the clock stops at the frame that shows it.
Not here: whether the page is right (``tests/browser``).
Read next: ``tests/browser/served.py``.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.server.parts import Scale
from bench.views.scale import Lines
from tests.browser.orders import order
from tests.browser.served import Served, chromium, seed

SEEN_MS_MAX = 3000
CELL = """() => [...document.querySelectorAll("[aria-label='Rows of revenue'] tbody tr")]
    .find((row) => row.innerText.includes("DE"))?.querySelectorAll("td")[2].innerText"""
CHANGED = f"(before) => {{ const now = ({CELL})(); return now !== undefined && now !== before; }}"


def screen(scale: Scale, folder: Path) -> Lines:
    """Appends, each until it is seen."""
    from playwright.sync_api import sync_playwright

    lines = Lines()
    program = chromium()
    if program is None:
        lines.missing("from an append to the changed row on the screen", "Chromium is not installed")
        return lines
    with seed(folder / "home") as log, sync_playwright() as playwright:
        served = Served(folder / "home", short_lived=False)
        try:
            served.ready()
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{served.address}/views/revenue")
            page.wait_for_function(f"() => ({CELL})() !== undefined", timeout=60_000)
            took = []
            for _ in range(scale.looks):
                before = page.evaluate(CELL)
                began = time.perf_counter()
                order(log, user=0)
                page.wait_for_function(CHANGED, arg=before, timeout=60_000)
                took.append(1000 * (time.perf_counter() - began))
                time.sleep(0.3)
            browser.close()
        finally:
            served.stop()
    first = took[0]  # before the engine is warm
    took.sort()
    title = f"from an append to the changed row on the screen, {scale.looks} times"
    lines.figure(f"{title}: p50", round(took[len(took) // 2]), "ms")
    lines.at_most(f"{title}: p95", round(took[int(0.95 * len(took))]), SEEN_MS_MAX, "ms, at most")
    lines.figure(f"{title}: the slowest", round(took[-1]), "ms")
    lines.figure(f"{title}: the very first", round(first), "ms")
    return lines
