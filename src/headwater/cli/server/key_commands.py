"""``headwater key``: add, rotate, ls, rm.

What it is: the verbs on the keys of a server.
Invariants: a key is shown once, when it is made; the file keeps its hash. A running server applies a change at once.
Not here: the file (``server/http/keys.py``), checking keys (``server/http/guard.py``).
Read next: ``server/http/keys.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer, answer_list, say, write_json
from headwater.cli.quantities import parse_seconds
from headwater.clock import format_us
from headwater.errors import InvalidDeclaration

app = typer.Typer(help="Keys: who may ask a server, and for what.", no_args_is_help=True)

KeyFile = Annotated[Path, typer.Option("--key-file", metavar="FILE", help="The file of keys.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.", show_default=False)]
KEY_FILE = Path("headwater-keys.json")
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", metavar="DURATION", help="Good for so long; default: for ever.", show_default=False),
]


@app.command("add")
def add(
    name: NameArgument,
    scope: Annotated[
        list[str],
        typer.Option("--scope", "-s", help="produce, consume, query, personal, rows or admin; may be given again."),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Good for this topic, view, aggregate … alone; * for a part of a name; may be given again.",
            show_default=False,
        ),
    ] = None,
    purpose: Annotated[
        list[str] | None,
        typer.Option(
            "--purpose",
            metavar="WORD",
            help="Sees masked columns of this purpose; may be given again.",
            show_default=False,
        ),
    ] = None,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            "--claim",
            metavar="NAME=VALUE",
            help="Where rows are told apart by this claim, sees those of this value; may be given again.",
            show_default=False,
        ),
    ] = None,
    expires: ExpiresOption = None,
    key_file: KeyFile = KEY_FILE,
    as_json: JsonOption = False,
) -> None:
    """Make a key and show it, this once.

    [cyan]headwater key add importer --scope produce --only orders --expires 90d[/cyan]
    [cyan]headwater key add dashboard -s query -s consume --key-file keys.json[/cyan]
    [cyan]headwater key add billing -s query --purpose billing[/cyan]
    [cyan]headwater key add acme -s query --claim tenant=acme[/cyan]
    """
    from headwater.server.http.keys import Keys

    claims: dict[str, list[str]] = {}
    for given in claim or []:
        told, equals, value = given.partition("=")
        if not equals:
            raise InvalidDeclaration(f"{given!r} is no claim", hint="Give a name and a value: --claim tenant=acme")
        claims.setdefault(told, []).append(value)
    key = Keys(key_file).add(
        name, scope, only=only or (), purposes=purpose or (), claims=claims, lasts_s=_lasting(expires)
    )
    _show(name, key, key_file, as_json=as_json)


@app.command("rotate")
def rotate(
    name: NameArgument,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="The old key is good for so long, beside the new one.")
    ] = "0s",
    expires: ExpiresOption = None,
    key_file: KeyFile = KEY_FILE,
    as_json: JsonOption = False,
) -> None:
    """Make a new key in place of an old one, with the same rights, and show it, this once.

    [cyan]headwater key rotate importer --grace 1d --expires 90d[/cyan]
    """
    from headwater.server.http.keys import Keys

    grace_s = parse_seconds(grace, "--grace", at_least="0s")
    key = Keys(key_file).rotate(name, grace_s=grace_s, lasts_s=_lasting(expires))
    _show(name, key, key_file, as_json=as_json)


def _lasting(expires: str | None) -> float | None:
    return None if expires is None else parse_seconds(expires, "--expires", at_least="1s")


def _show(name: str, key: str, key_file: Path, *, as_json: bool) -> None:
    from headwater.server.http.keys import Keys

    if as_json:
        entry = next(each for each in Keys(key_file).entries() if each["name"] == name)
        write_json({**_listed(entry), "key": key, "key_file": str(key_file)})
        return
    say(f"the key of [bold]{name}[/bold], which is not shown again:")
    typer.echo(key)


@app.command("ls")
def ls(key_file: KeyFile = KEY_FILE, as_json: JsonOption = False) -> None:
    """List the keys of a file: names, scopes, what they are limited to, and when they end.

    [cyan]headwater key ls --key-file keys.json[/cyan]
    """
    from headwater.server.http.keys import Keys

    found = [_listed(each) for each in Keys(key_file).entries()]
    columns: ListColumns = {
        "name": "name",
        "scopes": lambda each: ", ".join(each["scopes"]),
        "only": lambda each: ", ".join(each["only"]) or "everything",
        "sees": lambda each: "personal columns" if each["sees_everything"] else ", ".join(each["purposes"]),
        "claims": lambda each: ", ".join(f"{name}={'|'.join(values)}" for name, values in each["claims"].items()),
        "made": "made_at",
        "expires": lambda each: each["expires_at"] or "never",
    }
    empty = f"no keys in {key_file}; make one: headwater key add NAME --scope query"
    answer_list(found, columns, empty=empty, as_json=as_json)


def _listed(entry: dict[str, Any]) -> dict[str, Any]:
    ends, before = entry.get("ends_us"), entry.get("before")
    return {
        "name": entry["name"],
        "scopes": entry["scopes"],
        "only": entry.get("only", []),
        "purposes": entry.get("purposes", []),
        "claims": entry.get("claims", {}),
        "sees_everything": bool({"personal", "admin"} & set(entry["scopes"])),
        "made_at": entry.get("made_at"),
        "expires_at": None if ends is None else format_us(ends),
        "old_key_until": None if before is None else format_us(before["ends_us"]),
    }


@app.command("rm")
def rm(name: NameArgument, key_file: KeyFile = KEY_FILE, as_json: JsonOption = False) -> None:
    """Take a key back.

    [cyan]headwater key rm importer[/cyan]
    """
    from headwater.server.http.keys import Keys

    Keys(key_file).remove(name)
    answer({"removed": name}, f"the key of [bold]{name}[/bold] is not good any more", as_json=as_json)
