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
from headwater.cli.output import ListColumns, answer_list

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
        statuses = [sink.status().to_dict() for sink in declared.sinks]
    columns: ListColumns = {
        **{name: name for name in ("sink", "view", "to", "state")},
        ">tick": "tick",
        ">ticks behind": lambda each: each["lag"]["ticks"],
        ">changes": lambda each: "a full copy" if each["lag"]["changes"] is None else f"{each['lag']['changes']:,}",
        ">seconds": lambda each: f"{each['lag']['seconds']:,.0f}",
        "error": lambda each: each["error"]["message"] if each["error"] else "",
    }
    empty = "no sinks; declare one: app.sink(view, hw.sinks.SQLite(path))"
    answer_list(statuses, columns, empty=empty, as_json=as_json)
