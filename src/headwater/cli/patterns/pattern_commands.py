"""``headwater pattern``: a pattern tried over the events that were recorded.

What it is: ``test``: reads a query from a file, matches its pattern over the home's log, and shows each row with its
match and its variable.
Invariants: nothing is declared, and nothing written.
Not here: the search (``views/lifecycle/pattern_trial.py``).
Read next: ``docs/patterns.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import say, show_table, write_json
from headwater.errors import Misuse

app = typer.Typer(help="Patterns over events: MATCH_RECOGNIZE.", no_args_is_help=True)

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


@app.command("test")
def run_pattern(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with a query.", show_default=False)],
    only: Annotated[
        str | None, typer.Option("--only", metavar="KEY", help="Only the rows of this partition.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 200,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which recorded rows match which variable of a pattern. Nothing is declared.

    [cyan]headwater pattern test stolen.sql --home bank-data[/cyan]
    [cyan]headwater pattern test stolen.sql --only c-7 --json[/cyan]
    """
    from headwater.federation.attachments import Attachments
    from headwater.views.lifecycle.pattern_trial import tried
    from headwater.views.runtime import AppRuntime

    try:
        sql = file.read_text(encoding="utf-8")
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}", hint="Name a file with a query.") from error
    with opened(home) as log:
        runtime = AppRuntime("pattern_test", log, (), {}, Attachments(log))
        try:
            with runtime.mapped_errors():
                found = tried(log, sql, runtime.spark, only, limit)["rows"]
        finally:
            runtime.close()
    if as_json:
        write_json({"rows": found})
        return
    _show(found)


def _show(found: list[dict[str, Any]]) -> None:
    from rich.text import Text

    if not found:
        say("no rows")
        return
    colours: dict[str, str] = {}
    lines = []
    for each in found:
        variable = each["variable"] or ""
        colour = colours.setdefault(variable, COLOURS[len(colours) % len(COLOURS)]) if variable else "dim"
        lines.append((each["match"], Text(variable or "·", style=colour), *each["row"].values()))
    show_table([">match", "variable", *found[0]["row"]], lines)
    matched = sum(each["match"] is not None for each in found)
    say(f"{matched} of {len(found)} rows are part of a match")
