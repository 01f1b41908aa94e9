"""``headwater sink``: ls.

What it is: the status and lag of each sink of an app file.
Invariants: it connects to no other system, does not take the app over, and works while the app runs.
Not here: running sinks (``cli/views/run_command.py``); the search index (``search_command.py``).
Read next: ``sinks/runner/sink_status.py``.
"""

from __future__ import annotations

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import say, show_table, write_json

app = typer.Typer(help="Sinks: what carries views to other systems.", no_args_is_help=True)


@app.callback()
def sink() -> None:
    """Sinks: what carries views to other systems."""


@app.command("ls")
def ls(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """List an app's sinks: how each is, and how far it is behind its view.

    [cyan]headwater sink ls shop.py[/cyan]
    """
    with app_of(file) as declared:
        statuses = [carriage.status() for carriage in declared.sinks]
    if as_json:
        write_json([status.to_dict() for status in statuses])
        return
    if not statuses:
        say("no sinks; declare one: app.sink(view, hw.sinks.SQLite(path))")
        return
    rows = [
        (
            status.sink,
            status.view,
            status.to,
            status.state,
            status.tick,
            status.lag.ticks,
            "a full copy" if status.lag.changes is None else f"{status.lag.changes:,}",
            f"{status.lag.seconds:,.0f}",
            status.error["message"] if status.error else "",
        )
        for status in statuses
    ]
    columns = ["sink", "view", "to", "state", ">tick", ">ticks behind", ">changes", ">seconds", "error"]
    show_table(columns, rows)
