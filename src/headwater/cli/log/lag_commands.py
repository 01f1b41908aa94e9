"""``headwater lag`` and ``headwater app forget``: every reader of every topic.

What it is: how far groups, apps and sinks are behind, and dropping the positions of an app that is gone.
Invariants: ``lag`` only reads. Forgetting an app removes no view and no state: its next tick stores them again.
Not here: single groups (``group_commands.py``). Read next: ``log/groups/readers.py``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, LogOption, opened, opened_log
from headwater.cli.output import say, show_table, write_json

app = typer.Typer(help="Apps as readers of topics.", no_args_is_help=True)


def lag(
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="Only of this topic.",
            show_default=False,
            autocompletion=completions.topics,
        ),
    ] = None,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far each group, app and sink is behind, and how near retention is to what it has not read.

    [cyan]headwater lag[/cyan]
    [cyan]headwater lag --json | jq '.readers[] | select(.lag > 1000)'[/cyan]
    """
    from headwater.log.groups.sink_lag import sink_lags

    with opened_log(home, log_address, as_json=as_json) as log:
        topics = [log.get_topic(topic)] if topic is not None else log.topics()
        readers = [each for found in topics for each in found.lag()]
        sinks = sink_lags(log.local) if topic is None and log.has_local else []
    if as_json:
        write_json({"readers": [each.to_dict() for each in readers], "sinks": [each.to_dict() for each in sinks]})
        return
    if not readers and not sinks:
        say("no topic of this home has a reader: a group, or an app with a view")
    if readers:
        rows = [
            (
                each.topic,
                each.reader,
                each.kind,
                f"{each.lag:,}",
                "" if each.retention_part is None or not each.lag else f"{each.retention_part:.0%}",
                each.state,
                each.seen_at,
            )
            for each in readers
        ]
        show_table(["topic", "reader", "kind", ">lag", ">retention", "state", "last sign of life"], rows)
    if sinks:
        lines = [(each.app, each.sink, each.view, each.state, each.lag_ticks, _rows(each.lag_rows)) for each in sinks]
        show_table(["app", "sink", "view", "state", ">ticks behind", ">rows behind"], lines)


def _rows(count: int | None) -> str:
    return "a full copy follows" if count is None else f"{count:,}"


@app.command("forget")
def forget(
    name: Annotated[str, typer.Argument(metavar="APP", help="The app's name.", show_default=False)],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let go of an app that is gone: rows are no longer kept for it, and producers do not wait for it.

    Its views stay as they are. If it runs again, it is a reader again.

    [cyan]headwater app forget shop[/cyan]
    """
    from headwater.log.groups.readers import forget_app

    with opened(home) as log:
        topics = forget_app(log, name)
    if as_json:
        write_json({"app": name, "forgotten": topics})
    else:
        say(f'forgot app [bold]"{name}"[/bold] as a reader of {", ".join(topics)}')
