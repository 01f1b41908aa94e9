"""The dashboard's files keep their rules: small, each says what it is, none parses HTML or asks another site.

What it is: what a machine can check of ``server/dashboard`` without a browser.
Not here: what it does in one (``tests/browser``).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater import server

FOLDER = Path(server.__file__).parent / "dashboard"
FILES = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css", ".html"))
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
LINES_MAX = 300
# Ways by which text could become something else than text, and what the content security policy refuses anyway.
HARMFUL = re.compile(
    r"\.(?:inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|createContextualFragment"
    r"|setAttribute\(\s*[\"']style|javascript:"
)
NAMESPACE = "http://www.w3.org/2000/svg"

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))


@each_file
def test_a_file_is_small_and_says_what_it_is(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= LINES_MAX
    assert any(re.match(r"\s*(//|/\*|<!--) ?[A-Z].{20,}", line) for line in lines[:3])


@each_file
def test_no_file_parses_html_or_asks_another_site(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(NAMESPACE, "")

    assert HARMFUL.findall(text) == []
    assert re.findall(r"(?:https?:)?//[a-z][\w-]*\.[a-z]", text) == []


@each_file
def test_pages_have_no_scripts_or_styles_of_their_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8") if path.suffix == ".html" else ""

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", text) == []


def test_every_import_is_there() -> None:
    missing = []
    for path in SCRIPTS:
        for name in re.findall(r"from \"(\.[^\"]+)\"", path.read_text(encoding="utf-8")):
            if not (path.parent / name).is_file():
                missing.append(f"{path.name}: {name}")

    assert missing == []
    assert len(SCRIPTS) > 10
