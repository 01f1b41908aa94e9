"""The picture in README and docs: the dashboard of the demo's shop, as a browser shows it.

What it is: ``python -m tools.screenshots [PATH …]``: starts ``headwater demo``, lets the shop trade for a minute, and
writes ``docs/images/dashboard.png``; of other pages, when their paths are given, to ``build/screenshots``.
Invariants: the picture is of the real thing: a real PostgreSQL, server, engine and browser. It is small enough for a
repository. The demo is stopped by its process id, and removes what it made.
Not here: pictures of every page, which the tests take (``tests/browser/test_screenshots.py``).
Read next: ``src/headwater/demo/scenario.py``.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "dashboard.png"
OTHERS = ROOT / "build" / "screenshots"
SIZE = {"width": 1280, "height": 890}
BYTES_MAX = 200_000
DEMO_S, TRADE_S = 400, 80.0  # the engine is killed halfway through the demo


def opened(demo: subprocess.Popen[str]) -> str:
    """The dashboard's address, once the views are filled."""
    address = ""
    assert demo.stdout is not None
    for line in demo.stdout:
        print(line, end="")
        if "the dashboard: " in line:
            address = line.rpartition(" ")[2].strip()
        if "the views are there" in line:
            return address
    raise SystemExit("the demo ended before its views were there")


def main(paths: list[str]) -> None:
    """Make the pictures."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    home = Path(tempfile.gettempdir()) / "demo"  # it is in the picture
    home.mkdir()
    command = [sys.executable, "-m", "headwater.cli.main", "demo", "--seconds", str(DEMO_S), "--home", str(home)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = opened(demo)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(address)
            time.sleep(TRADE_S)  # its plots have something to show
            page.screenshot(path=PICTURE)
            OTHERS.mkdir(parents=True, exist_ok=True)
            for path in paths:
                page.goto(address + path)
                time.sleep(5)
                page.screenshot(path=OTHERS / f"{path.strip('/').replace('/', '-')}.png", full_page=True)
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)
        shutil.rmtree(home)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.name}: {size:,} bytes")
    assert size < BYTES_MAX, "too large for a repository"


if __name__ == "__main__":
    main(sys.argv[1:])
