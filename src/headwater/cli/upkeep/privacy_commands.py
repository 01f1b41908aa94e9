"""``headwater privacy``: where personal data is, and what is kept no longer.

What it is: the verbs ``map`` and ``expire``.
Invariants: ``map`` reads declarations alone: no rows, no Spark. ``expire`` leaves with status 0 when nothing is left to
be done, with 5 when something is; with ``--dry-run`` nothing is changed.
Not here: what is personal (``views/privacy/``), what expiry does (``upkeep/erasure/purpose_expiry.py``).
Read next: ``views/privacy/privacy_map.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import ListColumns, answer_list, say, write_json
from headwater.errors import Corruption, Misuse

app = typer.Typer(no_args_is_help=True, help="Personal data: where it is, what for, and who gets it.")


@app.callback()
def privacy() -> None:
    """Personal data: where it is, what for, and who gets it."""


@app.command("map")
def privacy_map(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """List the personal columns of topics and views, where they come from, their masks, and who gets them.

    [cyan]headwater privacy map shop.py[/cyan]
    [cyan]headwater privacy map shop.py --json | jq '.[] | select(.sinks != [])'[/cyan]
    """
    with app_of(file) as declared:
        found = [place.to_dict() for place in declared.privacy_map()]
    columns: ListColumns = {
        "in": "relation",
        "column": lambda each: each["column"] + (" (counts)" if each["counted"] else ""),
        "subject": lambda each: ", ".join(each["subjects"]),
        "purpose": lambda each: ", ".join(each["purposes"]),
        "keep": lambda each: ", ".join(each["keep"]),
        "mask": lambda each: each["mask"] or "",
        "comes from": _origins,
        "who gets it": _readers,
    }
    answer_list(found, columns, empty="no column of this app is declared personal", as_json=as_json)


@app.command("expire")
def expire(
    file: Annotated[
        Path | None,
        typer.Option(
            "--app", metavar="APP.py", help="The app whose views and sinks follow at once.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be blanked.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Blank the columns whose purposes have ended for their rows, in the log, views and sinks.

    An app that runs does so once a day. Leaves with status 0 when nothing is left to be done, with 5 when something is.

    [cyan]headwater privacy expire --dry-run[/cyan]
    [cyan]headwater privacy expire --app shop.py --json[/cyan]
    """
    from headwater.upkeep.erasure.purpose_expiry import PurposeExpiry

    if file is not None and home is not None:
        raise Misuse("--app and --home do not go together", hint="The app's file says where its home is.")
    if file is not None:
        with app_of(file) as declared:
            report = declared.expire(dry_run=dry_run)
    else:
        with opened(home) as log:
            work = PurposeExpiry(log)
            report = work.find() if dry_run else work.run()
    write_json(report.to_dict()) if as_json else say(str(report))
    if not (report.complete or dry_run):
        raise typer.Exit(Corruption.exit_status)


def _origins(each: dict[str, Any]) -> str:
    own = f"{each['relation']}.{each['column']}"
    return ", ".join(origin for origin in each["comes_from"] if origin != own)


def _readers(each: dict[str, Any]) -> str:
    said = ["server"] if each["served"] or each["kind"] == "topic" else []
    said += [f"group {name}" for name in each["groups"]]
    said += [f"sink {name}" for name in each["sinks"]] + [f"sink {name} (masked)" for name in each["masked_sinks"]]
    return ", ".join(said)
