"""``headwater undo TABLE…``: inverse events for what a producer or an actor wrote.

What it is: shows what would be written with ``--dry-run``, and appends it without.
Invariants: status 1 when changes were left because of conflicts, else 0. The same command again is recognised.
Not here: what is written (``log/commits/undo.py``).
Read next: ``log/commits/undo.py``, ``docs/why.md``.
"""

from __future__ import annotations

import datetime as dt
import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import say, show_table
from headwater.errors import Misuse

if TYPE_CHECKING:
    from headwater.log.commits.undo import UndoReport

LEFT = 1
SHOWN_MAX = 50


def undo(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE…",
            help="Tables, or topics with a key.",
            show_default=False,
            autocompletion=completions.topics,
        ),
    ],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="Changes appended since.", show_default=False)],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="… and before.", show_default=False)],
    producer: Annotated[str | None, typer.Option("--producer", help="The producer's name.", show_default=False)] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="Who acted.", show_default=False)] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Restore keys, too, that somebody else has changed since.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what a producer or an actor changed in tables, by inverse events.

    [cyan]headwater undo users --producer importer --from 2026-01-31T10:00Z --to 2026-01-31T11:00Z --dry-run[/cyan]
    """
    from headwater.log.commits.undo import UndoScope
    from headwater.log.commits.undo import undo as undone

    scope = UndoScope(_moment(since, "--from"), _moment(until, "--to"), producer, actor)
    with opened(home) as log:
        report = undone(log, tables, scope, force=force, dry_run=dry_run, by=_who())
    if as_json:
        from headwater.log.schema.json_lines import json_line

        typer.echo(json_line(report.to_dict()))
    else:
        _show(report)
    if report.conflicts and not dry_run:
        raise typer.Exit(LEFT)


def _moment(text: str, option: str) -> dt.datetime:
    from headwater.cli.quantities import parse_place

    place = parse_place(text)
    if not isinstance(place, dt.datetime):
        raise Misuse(
            f"{option} is a time, not {text!r}", hint='Write it as "2026-01-31T10:00Z", or "2h" for two hours ago.'
        )
    return place


def _who() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without users
        return None


def _show(report: UndoReport) -> None:
    from headwater.log.schema.json_lines import json_line

    if report.repeated:
        say(f"{report.id} was done before, up to {report.token}")
        return
    would = "would be " if report.dry_run else ""
    say(f"{report.events:,} events in its scope; {len(report.changes):,} inverse events {would}written")
    if report.changes:
        rows = [
            (change.topic, change.action, json_line(change.row), change.first, f"{change.events:,}")
            for change in report.changes[:SHOWN_MAX]
        ]
        show_table(["table", "writes", "row", "undoes from", ">events"], rows)
        if len(report.changes) > SHOWN_MAX:
            say(f"… and {len(report.changes) - SHOWN_MAX:,} more; all with --json")
    if report.conflicts:
        say(f"{len(report.conflicts):,} conflicts, which are left as they are" + ("" if report.dry_run else ":"))
        listed = [(each.topic, json_line(each.row), each.reason) for each in report.conflicts[:SHOWN_MAX]]
        show_table(["table", "key", "why"], listed)
    if report.token is not None:
        say(f"written as {report.id}, up to {report.token}")
