"""Renderings: a table as JSON, NDJSON or an Arrow stream.

What it is: ``rendered``, which makes the body and the headers of an answer.
Invariants: a row is written as ``headwater topic tail --json`` writes it and can be appended again. Rendering stops at
its byte limit. Nothing of HTTP is imported, so query processes render their own answers and the server passes bytes on.
Not here: responses and errors (``answers.py``).
Read next: ``answers.py``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.log.schema.json_lines import json_line
from headwater.log.schema.row_conversion import to_rows
from headwater.views.serving.serving_queries import answer_too_large

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Rendered:
    """A body, and what goes with it."""

    body: bytes
    kind: str
    headers: Mapping[str, str]


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


def rendered(table: pa.Table, facts: Mapping[str, Any], kind: str, bytes_max: int | None = None) -> Rendered:
    """A table in one of the three forms; what else is to be said is in headers, or in JSON beside the rows.

    >>> rendered(pa.table({"id": [1]}), {"tick": 7}, JSON).body
    b'{"tick": 7, "rows":[{"id":1}]}'
    """
    if kind == ARROW:
        return Rendered(_arrow(table, bytes_max), kind, _headers(facts))
    if kind == NDJSON:
        return Rendered(_joined((f"{line}\n" for line in row_texts(table)), "", bytes_max), kind, _headers(facts))
    said = json.dumps(dict(facts), default=str)[:-1] + (", " if facts else "")
    rows = _joined(row_texts(table), ",", bytes_max)
    return Rendered(b"".join((said.encode(), b'"rows":[', rows, b"]}")), kind, {})


def _joined(texts: Iterable[str], between: str, bytes_max: int | None) -> bytes:
    if bytes_max is None:
        return between.join(texts).encode()
    out, separator = io.BytesIO(), b""
    for text in texts:
        out.write(separator)
        out.write(text.encode())
        separator = between.encode()
        if out.tell() > bytes_max:
            raise answer_too_large(bytes_max)
    return out.getvalue()


def _arrow(table: pa.Table, bytes_max: int | None) -> bytes:
    if bytes_max is not None and table.nbytes > bytes_max:
        raise answer_too_large(bytes_max)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue().to_pybytes())


def _headers(facts: Mapping[str, Any]) -> dict[str, str]:
    return {f"Headwater-{name.replace('_', '-').title()}": _header(value) for name, value in facts.items()}


def _header(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode("ascii", "backslashreplace").decode()
