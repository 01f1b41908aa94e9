"""The picture in README and docs: the dashboard of a running shop, as a browser shows it.

What it is: ``python -m tools.screenshots``: serves the app of ``tests/browser``, lets orders come for a minute, and
writes ``docs/images/dashboard.png``.
Invariants: the picture is of the real thing: a real server, engine and browser. It is small enough for a repository.
Read next: ``tests/browser/served.py``.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import tempfile
import time
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

from headwater.log.home import Log
from tests.browser.served import PAGES, Served, seed

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "dashboard.png"
SIZE = {"width": 1280, "height": 890}
BYTES_MAX = 150_000
SECONDS = 75.0


def trade(log: Log, webhook: str, seconds: float) -> None:
    """Orders and page views, now more, now fewer, for some seconds."""
    numbers = iter(range(1_000_000, 2_000_000))
    chance = random.Random(7)
    end = time.monotonic() + seconds
    consumer = log.topic("orders").consumer("billing", member="till")
    while time.monotonic() < end:
        now = dt.datetime.now(dt.UTC)
        log.topic("orders").append([
            {"order_id": next(numbers), "user_id": chance.randrange(60), "amount": chance.randrange(500, 9000) / 100,
             "at": now}
            for _ in range(chance.randrange(4, 40))
        ])  # fmt: skip
        clicks = [{"page": chance.choice(PAGES), "at": now.isoformat()} for _ in range(chance.randrange(10, 90))]
        httpx.post(webhook, json=clicks).raise_for_status()
        if chance.random() < 0.6:
            consumer.poll(timeout=0)
            consumer.commit()
        time.sleep(chance.uniform(0.1, 0.5))
    consumer.close()


def main() -> None:
    """Make the picture."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    home = Path(tempfile.mkdtemp(prefix="headwater-")) / "home"
    log = seed(home)
    server = Served(home)
    try:
        server.ready()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(server.address)
            trade(log, server.get("/v1/status")["inlets"][0]["address"], SECONDS)
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURE)
            browser.close()
    finally:
        server.stop()
        log.close()
        shutil.rmtree(home.parent)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.name}: {size:,} bytes")
    assert size < BYTES_MAX, "too large for a repository"


if __name__ == "__main__":
    main()
