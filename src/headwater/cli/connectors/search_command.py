"""``headwater search PATH QUERY``: ask a full-text index that the search sink keeps.

What it is: the best rows of an index, with their scores.
Invariants: it only reads, and works while the app runs; it needs the index alone, neither the app nor its home.
Not here: keeping the index (``sinks/search_sink.py``).
Read next: ``sinks/search_sink.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import say, show_table, write_json


def search(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The index's folder.", show_default=False)],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The search query.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of rows.", min=1)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Look for words in a full-text index that a search sink keeps.

    [cyan]headwater search articles.index "breakfast -coffee"[/cyan]
    """
    from headwater.sinks.search_sink import SearchSink

    found = SearchSink(path, text=()).search(query, limit=limit)
    if as_json:
        write_json(found)
        return
    if not found:
        say("nothing found")
        return
    names = list(found[0])
    rows = [
        [value if isinstance(value, str) else json.dumps(value, default=str) for value in row.values()] for row in found
    ]
    show_table(names, rows)
