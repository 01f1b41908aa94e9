"""``headwater claim``: show, take, release, transfer.

What it is: the verbs on claims of an app's file.
Invariants: status 2 when a value is taken, with who has it.
Not here: deciding (``aggregates/claims.py``). Read next: that; ``docs/processes.md``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import answer
from headwater.cli.processes.request_words import RequestIdOption

app = typer.Typer(help="Claims: values that one owner has at a time.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the claims.", show_default=False)]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE", help="The value.", show_default=False)]
OwnerOption = Annotated[str, typer.Option("--owner", metavar="NAME", help="Who has it.", show_default=False)]
ClaimOption = Annotated[
    str, typer.Option("--claim", metavar="ID", help="The request that claimed it.", show_default=False)
]


@app.command("show")
def show(file: AppFileArgument, name: NameArgument, value: ValueArgument, as_json: JsonOption = False) -> None:
    """Show who has a value.

    [cyan]headwater claim show shop.py username ada[/cyan]
    """
    with app_of(file) as declared:
        found = declared.get_claims(name).get(value)
    sentence = f'"{value}" is free' if found is None else f'"{value}" is taken by {found.owner}, in request {found.id}'
    said = {"value": value, "owner": None, "id": None} if found is None else found.to_dict()
    answer({key: said[key] for key in ("value", "owner", "id")}, sentence, as_json=as_json)


@app.command("take")
def take(
    file: AppFileArgument,
    name: NameArgument,
    value: ValueArgument,
    owner: OwnerOption,
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Claim a value. Status 2 when it is taken.

    [cyan]headwater claim take shop.py username ada --owner user-7 --request-id signup-1[/cyan]
    """
    with app_of(file) as declared:
        made = declared.get_claims(name).claim(value, owner=owner, request_id=request_id)
    again = " (it was claimed before, by this request)" if made.repeated else ""
    answer(made.to_dict(), f'"{value}" is {owner}\'s, claimed in request {made.id}{again}', as_json=as_json)


@app.command("release")
def release(
    file: AppFileArgument,
    name: NameArgument,
    value: ValueArgument,
    owner: OwnerOption,
    claim: ClaimOption,
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a value up. Status 2 when it is not this owner's, or was claimed by another request.

    [cyan]headwater claim release shop.py username ada --owner user-7 --claim signup-1[/cyan]
    """
    with app_of(file) as declared:
        declared.get_claims(name).release(value, owner=owner, claim=claim, request_id=request_id)
    answer({"value": value, "released": True}, f'"{value}" is free', as_json=as_json)


@app.command("transfer")
def transfer(
    file: AppFileArgument,
    name: NameArgument,
    value: ValueArgument,
    owner: OwnerOption,
    claim: ClaimOption,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="The new owner.", show_default=False)],
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a value to another owner, without a moment at which it is free.

    [cyan]headwater claim transfer shop.py username ada --owner user-7 --claim signup-1 --to user-9[/cyan]
    """
    with app_of(file) as declared:
        made = declared.get_claims(name).transfer(value, owner=owner, claim=claim, to=to, request_id=request_id)
    answer(made.to_dict(), f'"{value}" is {to}\'s, claimed in request {made.id}', as_json=as_json)
