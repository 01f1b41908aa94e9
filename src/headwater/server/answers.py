"""Answers: values as JSON, NDJSON, Arrow; errors in one shape, each with its HTTP status.

What it is: how everything that the server says is written.
Invariants: a row is written as ``headwater topic tail --json`` writes it, so that it can be appended again; every error
is ``{"error": {code, message, detail, hint, data}}`` with a code of ``errors.py``, and no stack trace.
Not here: what is said (the routes).
Read next: ``errors.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from starlette.responses import Response

from headwater import errors
from headwater.errors import HeadwaterError
from headwater.log.json_lines import json_line
from headwater.log.rows import to_rows

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"

# The most special class counts.
STATUSES: dict[type[HeadwaterError], int] = {
    errors.Misuse: 400, errors.UnknownTopic: 404, errors.UnknownGroup: 404, errors.UnknownView: 404,
    errors.UnknownSink: 404, errors.UnknownPath: 404, errors.DeclarationConflict: 409, errors.OffsetOutOfRange: 416,
    errors.Unauthenticated: 401, errors.Forbidden: 403, errors.TooLarge: 413, errors.MissingExtra: 501,
    errors.ClosedError: 409, errors.Conflict: 409, errors.Unavailable: 503, errors.TooMany: 429,
    errors.TimedOut: 504, errors.NotYetCovered: 504, errors.ViewPaused: 409, errors.DiskFull: 507,
    errors.Corruption: 500, HeadwaterError: 500,
}  # fmt: skip
RETRY_SECONDS = 1


def status_of(error: HeadwaterError) -> int:
    """The HTTP status of an error.

    >>> status_of(errors.UnknownTopic("…")), status_of(errors.RowRefused("…")), status_of(errors.Fenced("…"))
    (404, 400, 409)
    """
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_answer(error: HeadwaterError) -> Response:
    """An error, as every client gets it."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # In ASCII: a message may quote what cannot be written as UTF-8.
    body = json.dumps({"error": error.to_dict()}, default=str)
    return Response(body, status, headers, media_type=JSON)


def plain_answer(value: Any, status: int = 200) -> Response:
    """Plain values as JSON."""
    return Response(json.dumps(value, default=str), status, media_type=JSON)


def row_texts(table: pa.Table | pa.RecordBatch) -> Iterable[str]:
    """Each row of a table as JSON."""
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    return (json_line(row) for batch in batches for row in to_rows(batch))


def rows_text(table: pa.Table | pa.RecordBatch) -> str:
    """The rows of a table as a JSON array.

    >>> rows_text(pa.table({"id": [1, 2]}))
    '[{"id":1},{"id":2}]'
    """
    return "[" + ",".join(row_texts(table)) + "]"


def table_answer(table: pa.Table, facts: Mapping[str, Any], accept: str | None) -> Response:
    """A table in the form that the client asks for; what else is to be said is in headers, or beside the rows."""
    headers = {f"Headwater-{name.replace('_', '-').title()}": _header(value) for name, value in facts.items()}
    wanted = accepted(accept)
    if wanted == ARROW:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        return Response(out.getvalue().to_pybytes(), 200, headers, media_type=ARROW)
    if wanted == NDJSON:
        return Response("".join(f"{line}\n" for line in row_texts(table)), 200, headers, media_type=NDJSON)
    said = json.dumps(dict(facts), default=str)
    return Response(f'{said[:-1]}{", " if facts else ""}"rows":{rows_text(table)}}}', 200, media_type=JSON)


def accepted(accept: str | None) -> str:
    """Which of the three forms a client asks for; JSON when it does not matter to it.

    >>> accepted("text/html, application/x-ndjson;q=0.9"), accepted("*/*"), accepted(None)
    ('application/x-ndjson', 'application/json', 'application/json')
    """
    for part in (accept or "").split(","):
        kind = part.split(";")[0].strip().lower()
        if kind in (JSON, NDJSON, ARROW):
            return kind
    return JSON


def _header(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode("ascii", "backslashreplace").decode()
