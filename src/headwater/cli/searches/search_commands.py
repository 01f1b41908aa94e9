"""``headwater searches``: list, put, remove, percolate.

What it is: the verbs on the stored searches of an app's file.
Invariants: status 2 for a query that cannot be read, with its place; nothing is written then.
Not here: the searches (``searches/stored_searches.py``); the index of a search sink (``headwater search``).
Read next: ``searches/stored_searches.py``; ``docs/searches.md``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import answer, answer_list
from headwater.cli.processes.request_words import RequestIdOption
from headwater.errors import Misuse

app = typer.Typer(help="Stored searches: queries that wait for documents.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the searches.", show_default=False)]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The search's id.", show_default=False)]
OwnerOption = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="Only searches of this owner.", show_default=False)
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Only searches with such a tag.", show_default=False)
]


@app.command("list")
def list_(
    file: AppFileArgument,
    name: NameArgument,
    owner: OwnerOption = None,
    tag: TagOption = None,
    as_json: JsonOption = False,
) -> None:
    """List searches, with what is wrong with them and what they cost beyond the ordinary.

    [cyan]headwater searches list news.py watch --owner ada[/cyan]
    """
    with app_of(file) as declared:
        found = [each.to_dict() for each in declared.get_searches(name).find(owner=owner, tags=tag or ())]
    columns: dict[str, Any] = {
        "id": "id",
        "query": "query",
        "owner": lambda each: each["owner"] or "",
        "tags": lambda each: ", ".join(each["tags"]),
        "look back": lambda each: "yes" if each["look_back"] else "",
        "note": lambda each: _note(each),
    }
    answer_list(found, columns, empty="no searches", as_json=as_json)


def _note(search: dict[str, Any]) -> str:
    problem, cost = search["problem"], search["cost"]
    return f"broken: {problem.splitlines()[0]}" if problem else cost or ""


@app.command("put")
def put(
    file: AppFileArgument,
    name: NameArgument,
    id: IdArgument,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query.", show_default=False)],
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="Whose search it is.", show_default=False)
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated.", show_default=False)
    ] = None,
    look_back: Annotated[bool, typer.Option("--look-back", help="Match the documents that are there already.")] = False,
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a search, or another query under its id. Status 2 when the query cannot be read.

    [cyan]headwater searches put news.py watch cheap "rivers AND price:[10 TO 20]" --owner ada[/cyan]
    """
    with app_of(file) as declared:
        made = declared.get_searches(name).put(
            id, query, owner=owner, tags=tag or (), look_back=look_back, request_id=request_id
        )
    cost = f"; note that {made.cost}" if made.cost else ""
    answer(made.to_dict(), f'search "{id}" is stored{cost}', as_json=as_json)


@app.command("remove")
def remove(
    file: AppFileArgument,
    name: NameArgument,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The searches' ids.", show_default=False)],
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take searches away, with their matches.

    [cyan]headwater searches remove news.py watch cheap[/cyan]
    """
    with app_of(file) as declared:
        token = declared.get_searches(name).remove(*ids, request_id=request_id)
    answer({"ids": ids, "token": str(token)}, f"removed: {', '.join(ids)}", as_json=as_json)


@app.command("percolate")
def percolate(
    file: AppFileArgument,
    name: NameArgument,
    document: Annotated[
        str, typer.Argument(metavar="JSON", help="The document as JSON, or @FILE, or - for standard input.")
    ] = "-",
    owner: OwnerOption = None,
    tag: TagOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which searches a document would match. Nothing is written.

    [cyan]headwater searches percolate news.py watch '{"title": "Rivers", "price": 12}'[/cyan]
    """
    with app_of(file) as declared:
        found = declared.get_searches(name).percolate_json(_object(document), owner=owner, tags=tag or ())
    answer_list(found, {"search": "search", "score": "score"}, empty="no search matches", as_json=as_json)


def _object(word: str) -> dict[str, Any]:
    text = sys.stdin.read() if word == "-" else Path(word[1:]).read_text() if word.startswith("@") else word
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Misuse(f"the document is not JSON: {error}", hint='Write it as \'{"title": "…"}\'.') from error
    if not isinstance(found, dict):
        raise Misuse("the document is no JSON object", hint='Write its columns by name: \'{"title": "…"}\'.')
    return found
