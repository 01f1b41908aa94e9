"""``headwater privacy``: where personal data is.

What it is: the verb ``map``.
Invariants: it reads declarations alone: no rows, no Spark.
Not here: what is personal (``views/privacy/``).
Read next: ``views/privacy/privacy_map.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from typing import Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer_list

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
        "mask": lambda each: each["mask"] or "",
        "comes from": _origins,
        "who gets it": _readers,
    }
    answer_list(found, columns, empty="no column of this app is declared personal", as_json=as_json)


def _origins(each: dict[str, Any]) -> str:
    own = f"{each['relation']}.{each['column']}"
    return ", ".join(origin for origin in each["comes_from"] if origin != own)


def _readers(each: dict[str, Any]) -> str:
    said = ["server"] if each["served"] or each["kind"] == "topic" else []
    said += [f"group {name}" for name in each["groups"]]
    said += [f"sink {name}" for name in each["sinks"]] + [f"sink {name} (masked)" for name in each["masked_sinks"]]
    return ", ".join(said)
