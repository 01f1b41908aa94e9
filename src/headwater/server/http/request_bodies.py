"""Request bodies: JSON (an object or an array), NDJSON and Arrow IPC streams as rows of a topic or table; durations.

Invariants: all or nothing: the first row that does not fit refuses the whole body. Unknown types are refused, never
guessed.
Not here: appending (``server/routes/topic_routes.py``); the size limit (``guard.py``).
Read next: ``log/schema/json_lines.py``.
"""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator

from headwater.durations import parse_us
from headwater.errors import Misuse, RowRefused
from headwater.log.schema.json_lines import json_decoder, json_objects, json_rows
from headwater.server.http.arrow_bodies import table_of
from headwater.server.http.renderings import ARROW, JSON, NDJSON

LINES = (NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines")


def _seconds(given: Any) -> Any:
    """The seconds of a text such as "2 minutes"; anything else as it is, for pydantic to judge.

    >>> _seconds("2 minutes"), _seconds(0.5), _seconds("soon")
    (120.0, 0.5, 'soon')
    """
    found = parse_us(given) if isinstance(given, str) else None
    return given if found is None else found / 1_000_000


Seconds = Annotated[float, BeforeValidator(_seconds)]  # a field of a body: a number of seconds, or a text


def rows_of(body: bytes, kind: str, schema: pa.Schema, *, not_null: frozenset[str] = frozenset()) -> Any:
    """The rows of a body, as a record batch, or an Arrow table as it came.

    >>> schema = pa.schema([("id", pa.int64())])
    >>> rows_of(b'[{"id": 1}, {"id": 2}]', "application/json; charset=utf-8", schema).to_pylist()
    [{'id': 1}, {'id': 2}]
    """
    plain = kind.split(";")[0].strip().lower()
    if plain == ARROW:
        return table_of(body)
    if plain in LINES:
        return json_rows(json_objects(body, schema), schema, not_null=not_null)
    if plain in (JSON, ""):
        return json_rows(_objects(body, schema), schema, not_null=not_null)
    raise Misuse(
        f"rows cannot be read from {plain[:60]!r}", hint=f"Content-Type is one of {JSON}, {NDJSON} and {ARROW}."
    )


def _objects(body: bytes, schema: pa.Schema) -> list[dict[str, Any]]:
    try:
        found = json_decoder(schema).decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RowRefused(f"the body is not JSON: {error}", hint="One object, or an array of objects.") from error
    rows = found if isinstance(found, list) else [found]
    for place, row in enumerate(rows):
        if type(row) is not dict:
            raise RowRefused(
                f"row {place} (counted from 0) is not an object", hint="One object, or an array of objects.", row=place
            )
    return rows
