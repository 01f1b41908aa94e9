"""The docs site can be built, without a network, and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    # A proxy that nobody is behind: whoever asked another site would fail.
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
    }

    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stderr  # strict: a link that leads nowhere is an error
    return folder


def test_every_page_of_the_docs_is_on_the_site(site: Path) -> None:
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    wanted |= {Path("index.html"), Path("architecture.html"), Path("changelog.html"), Path("contributing.html")}

    assert {str(path) for path in wanted if not (site / path).is_file()} == set()


def test_every_example_has_a_page(site: Path) -> None:
    wanted = {f"{path.name.replace('.', '_')}.html" for path in (ROOT / "examples").glob("*.*")}

    assert {path.name for path in (site / "examples").glob("*.html")} == wanted


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    app = (site / "reference" / "app.html").read_text(encoding="utf-8")
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")

    assert "Advance all views over what the log holds" in app
    assert "headwater capture watch" in commands
    assert "Keep running after the summary, until Ctrl-C." in commands


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?https?:|<link\b[^>]*\bstylesheet\b[^>]*\bhref=\"?https?:"
    )

    found = [
        (path.name, match.group(0))
        for path in site.rglob("*.html")
        for match in loads.finditer(path.read_text(encoding="utf-8"))
    ]

    assert found == []
