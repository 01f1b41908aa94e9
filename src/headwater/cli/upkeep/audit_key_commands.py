"""``headwater audit key``: keys that sign checkpoints.

What it is: the verbs ``new`` and ``show``.
Invariants: a key is in a file of its own that is never replaced, and never shown; what is shown verifies.
Not here: signing (``audit_commands.py``). Read next: ``upkeep/audit/signed_note.py``; ``docs/audit.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import answer
from headwater.errors import Misuse

app = typer.Typer(no_args_is_help=True, help="Keys that sign checkpoints.")


@app.callback()
def key() -> None:
    """Keys that sign checkpoints."""


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key's file; outside of the home.")],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What it signs for, as in shop.example.com: no scheme.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Make a key that signs checkpoints, and show what verifies them.

    [cyan]headwater audit key new /etc/headwater/audit.key --name shop.example.com[/cyan]
    """
    from headwater.upkeep.audit.signed_note import SigningKey

    made = SigningKey.new(name)
    made.write(file)
    answer({"file": str(file), "name": name, "verifier": str(made.verifier)}, str(made.verifier), as_json=as_json)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key's file.")],
    log: Annotated[
        str,
        typer.Option("--log", metavar="TOPIC/PARTITION", help="For other programs: as the key of this one partition."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what verifies the checkpoints that a key signs.

    [cyan]headwater audit key show /etc/headwater/audit.key[/cyan]
    [cyan]headwater audit key show /etc/headwater/audit.key --log orders/0[/cyan]
    """
    from headwater.upkeep.audit.signed_note import SigningKey, is_name

    if log and not is_name(log):
        raise Misuse(f"{log!r} is no partition", hint="Write TOPIC/PARTITION, as in orders/0.")
    read = SigningKey.read(file).verifier
    verifier = read.named(f"{read.name}/{log}") if log else read
    answer({"name": verifier.name, "verifier": str(verifier)}, str(verifier), as_json=as_json)
