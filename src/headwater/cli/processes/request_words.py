"""Request words: the columns of a request, as they are written on a command line.

What it is: ``request_of``, which reads ``key=value`` words and a JSON object; the options that requests share.
Invariants: a word is read by the type of its column: ``cents=5`` is a number for a BIGINT and a text for a STRING.
Not here: checking the values (``log/schema/json_lines.py``). Read next: ``process_commands.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import Misuse

if TYPE_CHECKING:
    import pyarrow as pa

WordsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="The request's columns.", show_default=False)
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="JSON", help="The request as a JSON object; - reads stdin.", show_default=False),
]
RequestIdOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Sent again, it gives the first answer.", show_default=False),
]


def request_of(columns: pa.Schema, words: Sequence[str], document: str | None = None) -> dict[str, Any]:
    """A request with JSON's values, from words and from a JSON object.

    >>> import pyarrow as pa
    >>> request_of(pa.schema([("item", pa.string()), ("amount", pa.int64())]), ["item=7", "amount=7"])
    {'item': '7', 'amount': 7}
    """
    import pyarrow.types as kinds

    found = _document(sys.stdin.read() if document == "-" else document)
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise Misuse(f'"{word}" is not KEY=VALUE', hint=f"Its columns: {', '.join(columns.names) or 'none'}.")
        kind = columns.field(name).type if name in columns.names else None
        found[name] = text if kind is None or kinds.is_string(kind) else _value(text)
    return found


def _document(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Misuse(f"--data is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Misuse("--data is no JSON object", hint='For example --data \'{"item": "cup"}\'.')
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a date or a time; anything else is refused by its column
