"""``headwater why VIEW KEY…``: the input events behind a row of a view.

What it is: asks a view of a home, without the app's file; a view by function needs the file, ``--file``.
Invariants: nothing is changed and no app is taken over; it works while the app runs.
Not here: finding the events (``views/provenance/why.py``).
Read next: ``views/provenance/why.py``, ``docs/why.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import console
from headwater.cli.views.query_command import AppOption, app_in

LIMIT = 20


def why(
    view: Annotated[
        str,
        typer.Argument(metavar="VIEW", help="The view's name.", show_default=False, autocompletion=completions.views),
    ],
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY…", help="The key's values, or COLUMN=VALUE.", show_default=False)
    ] = None,
    at_tick: Annotated[
        int | None, typer.Option("--at-tick", metavar="TICK", min=1, help="As of an earlier tick.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show so many events of each topic.")] = LIMIT,
    name: AppOption = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="APP.py", help="The app's file, for views by function.", show_default=False),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the input events behind a row of a view, stage by stage.

    [cyan]headwater why revenue DE[/cyan]
    [cyan]headwater why revenue DE --at-tick 120 --json[/cyan]
    [cyan]headwater why orders_by_day country=DE day=2026-01-31 --limit 5[/cyan]
    """
    from headwater.views.provenance.explanations import explained

    words = list(key or [])
    if file is not None:
        from headwater.app_file import app_of

        with app_of(file) as app:
            app.get_view(view)
            found = explained(app._runtime, view, words, {}, at_tick=at_tick, limit=limit, as_text=True)
    else:
        from headwater.views.runtime import AppRuntime

        app_name = app_in(home, name)
        with opened(home) as log:
            runtime = AppRuntime(app_name, log, (), {})
            try:
                found = explained(runtime, view, words, {}, at_tick=at_tick, limit=limit, as_text=True)
            finally:
                runtime.close()
    if as_json:
        from headwater.log.schema.json_lines import json_line

        typer.echo(json_line(found.to_dict()))
        return
    for line in found.lines():
        console().print(line, markup=False, highlight=False, soft_wrap=True)
