"""``headwater key``: add, ls, rm.

What it is: the verbs on the keys of a server.
Invariants: a key is shown once, when it is made; the file keeps its hash. A running server applies a change at once.
Not here: the file (``server/http/keys.py``), checking keys (``server/http/guard.py``).
Read next: ``server/http/keys.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer, answer_list, say, write_json

app = typer.Typer(help="Keys: who may ask a server, and for what.", no_args_is_help=True)

KeyFile = Annotated[Path, typer.Option("--key-file", metavar="FILE", help="The file of keys.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.", show_default=False)]
KEY_FILE = Path("headwater-keys.json")


@app.command("add")
def add(
    name: NameArgument,
    scope: Annotated[
        list[str], typer.Option("--scope", "-s", help="produce, consume, query or admin; may be given again.")
    ],
    key_file: KeyFile = KEY_FILE,
    as_json: JsonOption = False,
) -> None:
    """Make a key and show it, this once.

    [cyan]headwater key add importer --scope produce[/cyan]
    [cyan]headwater key add dashboard -s query -s consume --key-file keys.json[/cyan]
    """
    from headwater.server.http.keys import Keys

    key = Keys(key_file).add(name, scope)
    if as_json:
        write_json({"name": name, "scopes": sorted(set(scope)), "key": key, "key_file": str(key_file)})
        return
    say(f"the key of [bold]{name}[/bold], which is not shown again:")
    typer.echo(key)


@app.command("ls")
def ls(key_file: KeyFile = KEY_FILE, as_json: JsonOption = False) -> None:
    """List the keys of a file: names and scopes.

    [cyan]headwater key ls --key-file keys.json[/cyan]
    """
    from headwater.server.http.keys import Keys

    found = [
        {"name": each["name"], "scopes": each["scopes"], "made_at": each.get("made_at")}
        for each in Keys(key_file).entries()
    ]
    columns: ListColumns = {"name": "name", "scopes": lambda each: ", ".join(each["scopes"]), "made": "made_at"}
    empty = f"no keys in {key_file}; make one: headwater key add NAME --scope query"
    answer_list(found, columns, empty=empty, as_json=as_json)


@app.command("rm")
def rm(name: NameArgument, key_file: KeyFile = KEY_FILE, as_json: JsonOption = False) -> None:
    """Take a key back.

    [cyan]headwater key rm importer[/cyan]
    """
    from headwater.server.http.keys import Keys

    Keys(key_file).remove(name)
    answer({"removed": name}, f"the key of [bold]{name}[/bold] is not good any more", as_json=as_json)
