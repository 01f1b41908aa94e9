"""The README and the docs are true: their examples run, their commands exist, their links lead somewhere.

What it is: every Markdown file of the repository, read as a machine would.
Invariants: the ``python`` fences of one file run as one program, in their order, in an empty directory, with the
line numbers of the file. What is below a ``<!-- no-run -->`` line is left out: it is still to come, or never ends.
Not here: docstring examples (``make test`` runs them as doctests); the list of errors (``test_errors.py``).
Read next: ``CONTRIBUTING.md``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.short_lived import SHORT_LIVED

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NO_RUN = "<!-- no-run -->"
SHELL = {"bash", "console", "sh", "shell"}
RUN_SECONDS_MAX = 280
APP_ROWS_MAX = 20
STARTS_SPARK = re.compile(r"\.tick\(|SparkSession")
# One process for all pages: what starts Spark takes seconds. Each finds its directory empty.
IN_TURN = """
import pathlib, runpy, shutil, sys
for script in sys.argv[1:]:
    runpy.run_path(script)
    for left in pathlib.Path().iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
print("all ran")
"""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Fence:
    """One fenced block: its language, the line of its first row, and its rows without their indentation."""

    language: str
    first_line: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A Markdown file, taken apart. ``prose`` has the line number of each line outside the fences."""

    fences: tuple[Fence, ...]
    prose: tuple[tuple[int, str], ...]


def parsed(text: str) -> Page:
    fences: list[Fence] = []
    prose: list[tuple[int, str]] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    before = ""
    for number, line in lines:
        opening = re.match(r"^(\s*)(`{3,})\s*(\w*)", line)
        if opening is None:
            if before != NO_RUN:
                prose.append((number, line))
            before = line.strip() or before
            continue
        indent, ticks, language = opening.groups()
        rows = []
        for _, row in lines:
            if row.strip() == ticks:
                break
            rows.append(row.removeprefix(indent))
        if before != NO_RUN:
            fences.append(Fence(language, number + 1, tuple(rows)))
        before = ""
    return Page(tuple(fences), tuple(prose))


def program(page: Page) -> str:
    """The page's Python, each row on its own line of the file, so that a traceback points into the page."""
    rows: list[str] = []
    for fence in page.fences:
        if fence.language == "python":
            rows += [""] * (fence.first_line - 1 - len(rows))
            rows += fence.rows
    return "\n".join(rows) + "\n" if rows else ""


def commands(page: Page) -> Iterator[tuple[int, str]]:
    """Every ``headwater ...`` line of the page's shell fences and inline code."""
    for fence in page.fences:
        if fence.language in SHELL:
            for number, row in enumerate(fence.rows, start=fence.first_line):
                for part in re.split(r" \| | && |; ", row.removeprefix("$ ").split(" #")[0]):
                    if part.startswith("headwater "):
                        yield number, part
    for number, line in page.prose:
        for code in re.findall(r"`(headwater [^`]*)`", line):
            yield number, code.split(" | ")[0]


@cache
def command_line() -> Any:
    from typer.main import get_command

    from headwater.cli.main import app

    return get_command(app)


def problem_of(command: Any, words: list[str]) -> str | None:
    """Why these words are no call of this command; None when they are one. ``ls|tail`` means each of them."""
    options = {"--help"} | {
        name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    children = getattr(command, "commands", None)
    for place, word in enumerate(words):
        if word.startswith("-") and not re.fullmatch(r"-[\d.]*", word):
            if word.split("=")[0] not in options:
                return f"no option {word}"
        elif children is not None and re.match(r"\w", word):
            problems = [
                problem_of(children[name], words[place + 1 :]) if name in children else f"no command {name}"
                for name in word.split("|")
            ]
            return next((problem for problem in problems if problem), None)
    return None


def leaf_commands(command: Any, path: str = "headwater") -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path
        return
    for name, child in children.items():
        if not child.hidden:
            yield from leaf_commands(child, f"{path} {name}")


def heading_anchors(text: str) -> set[str]:
    prose = [line for _, line in parsed(text).prose]
    titles = [line.lstrip("#").strip() for line in prose if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def run_in_turn(pages: dict[Path, str], folder: Path) -> None:
    """Run the programs of some pages in one process, one after the other."""
    scripts = []
    for page, code in pages.items():
        scripts.append(folder / f"{page.stem}.py")
        scripts[-1].write_text(code, encoding="utf-8")
    directory = folder / "empty"
    directory.mkdir()
    environment = {**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}

    run = subprocess.run(
        [sys.executable, "-c", IN_TURN, *map(str, scripts)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )

    assert run.returncode == 0, f"with the page's own line numbers:\n{run.stderr}"
    assert run.stdout.splitlines()[-1] == "all ran"


def test_the_python_of_the_pages_runs(tmp_path: Path) -> None:
    programs = {page: program(parsed(page.read_text(encoding="utf-8"))) for page in PAGES}
    with_spark = {page: code for page, code in programs.items() if STARTS_SPARK.search(code)}
    without = {page: code for page, code in programs.items() if code and page not in with_spark}

    assert {"README.md", "spark.md", "tutorial.md", "views.md"} <= {page.name for page in with_spark}
    assert {"log.md", "serving.md", "tables.md"} <= {page.name for page in without}
    # Those that need no Spark come first, so that it is not there for them.
    run_in_turn({**without, **with_spark}, tmp_path)


def test_the_first_app_of_the_readme_is_short_and_needs_nothing_before_it() -> None:
    first = next(
        fence for fence in parsed((ROOT / "README.md").read_text(encoding="utf-8")).fences if fence.language == "python"
    )

    assert first.rows[0] == "import headwater as hw"  # it is the first of its page: that it runs is tested above
    assert len(first.rows) <= APP_ROWS_MAX


@each_page
def test_the_commands_of_a_page_exist(page: Path) -> None:
    mentioned = list(commands(parsed(page.read_text(encoding="utf-8"))))

    wrong = []
    for number, text in mentioned:
        words = [word for word in shlex.split(text.replace("…", " "))[1:] if word != "..."]
        problem = problem_of(command_line(), words)
        if problem:
            wrong.append(f"{page.name}:{number}: {text}: {problem}")

    assert wrong == []


def test_every_command_is_documented() -> None:
    pages = [parsed(page.read_text(encoding="utf-8")) for page in PAGES]
    mentioned = " \n".join(text for page in pages for _, text in commands(page)) + " "

    missing = [path for path in leaf_commands(command_line()) if not re.search(rf"{path}(?![\w-])", mentioned)]

    assert missing == []


def test_every_setting_of_a_topic_is_documented() -> None:
    from headwater.log.topic_settings import SETTING_NAMES

    text = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")

    missing = [name for name in SETTING_NAMES if f"`{name}`" not in text]

    assert missing == []


@each_page
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = parsed(page.read_text(encoding="utf-8")).prose
    links = [(number, link) for number, line in prose for link in re.findall(r"\]\(([^)\s]+)\)", line)]

    broken = []
    for number, link in links:
        if re.match(r"[a-z]+:", link):  # an address elsewhere
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(f"{page.name}:{number}: {link}")
        elif anchor and anchor not in heading_anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{page.name}:{number}: {link}: no such heading")

    assert broken == []


def test_a_page_is_taken_apart_as_written() -> None:
    text = "\n".join(
        [
            "# A title, with `headwater topic ls`",
            "```python",
            "x = 1",
            "```",
            "<!-- no-run -->",
            "```python",
            "while True: pass",
            "```",
            "- a list",
            "  ```python",
            "  assert x == 1",
            "  ```",
            "```console",
            "$ headwater topic tail orders -f | wc -l  # follows",
            "```",
        ]
    )

    page = parsed(text)

    assert program(page).splitlines() == ["", "", "x = 1", "", "", "", "", "", "", "", "assert x == 1"]
    assert list(commands(page)) == [(14, "headwater topic tail orders -f"), (1, "headwater topic ls")]
    assert heading_anchors(text) == {"a-title-with-headwater-topic-ls"}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    import typer
    from typer.main import get_command

    app, topic = typer.Typer(), typer.Typer()
    app.add_typer(topic, name="topic")

    @topic.command("tail")
    def tail(name: str, follow: bool = typer.Option(False, "--follow", "-f")) -> None: ...

    @topic.command("ls")
    def ls() -> None: ...

    command = get_command(app)

    assert problem_of(command, ["topic", "tail", "orders", "-f"]) is None
    assert problem_of(command, ["topic", "ls|tail"]) is None
    assert problem_of(command, ["topic", "ls|head"]) == "no command head"
    assert problem_of(command, ["topik", "ls"]) == "no command topik"
    assert problem_of(command, ["topic", "tail", "orders", "--json"]) == "no option --json"
    assert list(leaf_commands(command)) == ["headwater topic tail", "headwater topic ls"]
