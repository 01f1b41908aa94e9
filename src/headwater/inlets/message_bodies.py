"""Message bodies: JSON, JSON lines and Arrow, as rows.

What it is: ``rows_of`` reads an object, an array of objects, or JSON lines, with the strictness of
``log/schema/json_lines.py``; ``arrow_table`` reads a stream of Arrow IPC.
Invariants: any bytes give rows or ``RowRefused``, never another error; an empty body is refused. Foreign Arrow data is
validated before use.
Not here: the topic's schema (``ingest.py``). Read next: ``ingest.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from headwater.errors import RowRefused
from headwater.log.schema.columns import shorten
from headwater.log.schema.json_lines import json_decoder, json_objects


def rows_of(body: bytes, schema: pa.Schema, decoder: json.JSONDecoder | None = None) -> tuple[dict[str, Any], ...]:
    r"""The rows of a body: one object, an array of objects, or an object on each line.

    Whoever reads many may give the schema's ``decoder``: choosing it takes as long as a small body.

    >>> schema = pa.schema([("x", pa.int32())])
    >>> rows_of(b'{"x": 1}', schema)
    ({'x': 1},)
    >>> rows_of(b'[{"x": 1}, {"x": 2}]', schema)
    ({'x': 1}, {'x': 2})
    >>> rows_of(b'{"x": 1}\n{"x": 2}\n', schema)
    ({'x': 1}, {'x': 2})
    >>> rows_of(b'[1]', schema)
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 0 (counted from 0) of the array is not an object: 1
    """
    try:
        text = body.decode("utf-8").removeprefix("\ufeff").strip()
    except UnicodeDecodeError as failure:
        raise _refused("the body is not UTF-8", str(failure)) from None
    if not text:
        raise _refused("the body is empty", "An object, an array of objects, or an object on each line is expected.")
    try:
        value = (decoder or json_decoder(schema)).decode(text)
    except (ValueError, RecursionError) as failure:
        if "\n" in text and text.startswith("{"):
            return tuple(json_objects(text, schema))
        raise _refused(f"the body is not JSON: {failure}", f"It begins with {shorten(text)}") from None
    if isinstance(value, dict):
        return (value,)
    if not isinstance(value, list):
        raise _refused("the body is neither an object nor an array of objects", f"It is {shorten(text)}")
    for index, row in enumerate(value):
        if type(row) is not dict:
            raise RowRefused(
                f"row {index} (counted from 0) of the array is not an object: {shorten(row)}",
                row=index,
                column=None,
                value=shorten(row),
                expected="a JSON object",
            )
    return tuple(value)


def arrow_table(body: bytes) -> pa.Table:
    """The rows of a body that is a stream of Arrow IPC.

    >>> arrow_table(b"x")
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: the message is not a stream of Arrow IPC: ...
    """
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)  # offsets in foreign data may point anywhere
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RowRefused(f"the message is not a stream of Arrow IPC: {str(error)[:200]}", expected="Arrow") from None
    return table


def _refused(message: str, detail: str) -> RowRefused:
    return RowRefused(message, detail=detail, row=None, column=None, expected="JSON")
