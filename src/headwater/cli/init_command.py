"""``headwater init``: a small app to start from.

What it is: writes ``app.py``, which works at once, and a README of four lines, from a template.
Invariants: nothing that is there is overwritten; nothing is started.
Not here: the texts (``init_templates.py``), larger apps (``examples/``).
Read next: ``init_templates.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.init_templates import TEMPLATES
from headwater.cli.output import console, say, write_json
from headwater.errors import DeclarationConflict, InvalidDeclaration


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; it is made if it is not there.")] = Path(),
    template: Annotated[
        str, typer.Option(metavar="NAME", help="shop: topics and a view; accounts: commands and events.")
    ] = "shop",
    as_json: JsonOption = False,
) -> None:
    """Write a small app to start from. Nothing is overwritten.

    [cyan]headwater init shop && python shop/app.py[/cyan]
    [cyan]headwater init bank --template accounts && python bank/app.py[/cyan]
    """
    files = TEMPLATES.get(template)
    if files is None:
        raise InvalidDeclaration(
            f'there is no template "{template}"', hint=f"The templates are {' and '.join(TEMPLATES)}."
        )
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise DeclarationConflict(
            f"{directory / taken[0]} is there already",
            hint="Give another directory: headwater init DIR",
            files=[str(directory / name) for name in taken],
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write(text)
    written = [str(directory / name) for name in files]
    if as_json:
        write_json({"written": written})
        return
    say(f"wrote {' and '.join(written)}; now:")
    console().print(f"  python {directory / 'app.py'}", markup=False, soft_wrap=True)
