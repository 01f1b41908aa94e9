"""A real server with a real engine, and a real browser that looks at it: one of each for all tests here.

What it is: the fixtures ``log``, ``served`` and ``look``.
Invariants: Spark is started once. A page that writes an error to the console, or throws one, fails its test. A browser
that is not installed is a failure that names the install line, never a skip.
Read next: ``test_live.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headwater.log.home import Log
from tests.browser.served import Served, chromium, seed

WIDE = {"width": 1280, "height": 900}
MISSING = (
    "Chromium is not installed, and these tests need it; "
    "on Debian: apt-get update && apt-get install -y --no-install-recommends chromium"
)

PATIENCE_MS = 30_000  # for what comes by itself, on a busy machine

Look = Callable[..., Page]
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with seed(tmp_path_factory.mktemp("browser") / "home") as log:
        yield log


@pytest.fixture(scope="session")
def served(log: Log) -> Iterator[Served]:
    server = Served(Path(log.home))
    server.ready()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    assert program, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def look(browser: Browser, served: Served) -> Iterator[Look]:
    """Open an address of the server in a browser of its own; errors of any page fail the test at its end."""
    contexts, wrong = [], list[str]()

    def opened(path: str, *, address: str | None = None, forgiven: str | None = None, **settings: object) -> Page:
        context = browser.new_context(**{"viewport": WIDE, **settings})  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: wrong.append(f"thrown: {error}"))

        def heard(text: str) -> None:
            if forgiven is None or forgiven not in text:
                wrong.append(text)

        page.on("console", lambda message: heard(message.text) if message.type in ("error", "warning") else None)
        page.goto((address or served.address) + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def go(page: Page, path: str) -> None:
    """To another page of the dashboard, as a link does, without loading it again."""
    page.evaluate("path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path)
