"""``headwater view diagnose APP.py VIEW``: the records that make a view's query fail.

What it is: bisects the records of the failed tick to a smallest failing set, shows it, and on request sets it aside.
Invariants: without ``--set-aside`` nothing changes and the app is not taken over. Status 0 when nothing fails, 1 when
records were found and remain.
Not here: finding (``views/lifecycle/diagnosis.py``), setting aside (``views/lifecycle/set_aside.py``).
Read next: ``views/lifecycle/diagnosis.py``.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, say, write_json

if TYPE_CHECKING:
    from headwater.views.lifecycle.diagnosis import Findings

FOUND = 1
LIMIT = 10


def diagnose(
    file: AppFileArgument,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Stop after so many records.")] = LIMIT,
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Exclude the records from the app's views; they go to a dead-letter topic."),
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Reason in the dead letter; default: the error.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the records of the failed tick that make a view's query fail.

    With --set-aside, of each set that fails together the last record is left out by all views of the app from now on;
    this takes the app over. Then: headwater view resume.

    [cyan]headwater view diagnose shop.py revenue[/cyan]
    [cyan]headwater view diagnose shop.py revenue --set-aside --reason "divisor 0, see ticket 12"[/cyan]
    """
    with app_of(file) as app:
        app.get_view(view)  # fails before Spark starts
        found = app.get_view(view).diagnose(limit=limit)
        tick = None
        if set_aside and found.culprits:
            places = [culprit.records[-1][0] for culprit in found.culprits]
            first = found.culprits[0].error
            tick = app._runtime.set_aside(places, reason=reason or first.detail or first.message, by=_who()).tick
    if as_json:
        write_json({**found.to_dict(), "set_aside_with_tick": tick})
    else:
        _show(found)
        if tick is not None:
            say(f"set aside with tick {tick}; now: headwater view resume {file} {view}")
    if found.culprits and tick is None:
        raise typer.Exit(FOUND)


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without users
        return ""


def _show(found: Findings) -> None:
    out = console()
    if not found.culprits:
        say(f"{found.view}: its query succeeds over all {found.tried:,} records; resume it")
        return
    say(f"{found.view}: {found.tried:,} records, {found.runs} runs of its query")
    for culprit in found.culprits:
        for place, row in culprit.records:
            out.print(f"{place}: {row}", markup=False, soft_wrap=True)
        out.print(f"  {culprit.error.detail or culprit.error.message}", markup=False, soft_wrap=True)
    if found.others_fail:
        say("other records fail too; find more with --limit")
