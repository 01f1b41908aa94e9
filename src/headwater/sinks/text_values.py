"""Text values: values and keys for systems that store only text.

What it is: ``plain_text`` for people, ``json_text`` for programs, ``key_text`` for a key of several columns,
``json_rows`` for rows as lines of JSON.
Invariants: different values of one type, and different keys, have different texts, and null has its own. Dates, times,
decimals and bytes are written as in the log's JSON (``log/schema/json_lines.py``).
Not here: where the texts go.
Read next: ``redis_sink.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.log.schema.json_lines import WRITERS, json_line
from headwater.log.schema.row_conversion import to_rows, to_values

NULL_KEY = "\\N"


def json_text(value: Any) -> str | None:
    """A value as JSON; None for null.

    >>> json_text({"tags": ["a", None]})
    '{"tags":["a",null]}'
    """
    return None if value is None else WRITERS[type(value)](value)


def plain_text(value: Any) -> str | bytes | None:
    """A value as text without quotes; bytes as they are.

    >>> import datetime as dt
    >>> plain_text(dt.date(2026, 1, 31)), plain_text("it's"), plain_text(0.5), plain_text(b"raw"), plain_text(None)
    ('2026-01-31', "it's", '0.5', b'raw', None)
    """
    if value is None or isinstance(value, str | bytes):
        return value
    written = WRITERS[type(value)](value)
    return written[1:-1] if written.startswith('"') else written


def key_text(values: Sequence[Any]) -> str:
    r"""A key as one text: its values with colons between, and with colons and backslashes in them escaped.

    >>> key_text(["DE", 7]), key_text(["a:b"]), key_text([None])
    ('DE:7', 'a\\:b', '\\N')
    """
    return ":".join(NULL_KEY if value is None else _escaped(value) for value in values)


def _escaped(value: Any) -> str:
    text = plain_text(value)
    text = text.hex() if isinstance(text, bytes) else str(text)
    return text.replace("\\", "\\\\").replace(":", "\\:")


def key_texts(rows: pa.Table, key: Sequence[str]) -> list[str]:
    """The key of each row as one text.

    >>> key_texts(pa.table({"id": [1, 2], "n": [5, 6]}), ["id"])
    ['1', '2']
    """
    columns = [to_values(rows.column(name).combine_chunks()) for name in key]
    return [key_text(values) for values in zip(*columns, strict=True)]


def json_rows(rows: pa.Table) -> list[str]:
    """Each row as an object of JSON.

    >>> json_rows(pa.table({"id": [1], "name": ["Ada"]}))
    ['{"id":1,"name":"Ada"}']
    """
    return [json_line(row) for batch in rows.to_batches() for row in to_rows(batch)]
