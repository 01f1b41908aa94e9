"""CSV text into typed columns.

What it is: a batch of text columns becomes a batch of the topic's types, column by column, in Arrow.
Invariants: a value that does not fit is refused with its row, column, text and the expected type; nothing is rounded or
guessed. An empty field is null, a quoted empty one is empty text. Times are ISO 8601, without a zone UTC; BINARY is
base64, as in JSON lines.
Not here: splitting lines and quotes (Arrow's CSV reader, ``input_files.py``); nested columns, which CSV has no word
for.
Read next: ``log/schema/columns.py`` for the same rules over Python values.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import RowRefused
from headwater.log.schema.ddl import to_ddl


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns of the schema; unknown columns stay text and are refused by name later.

    >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    >>> typed(pa.record_batch({"id": ["1", "2"], "name": ["a", None]}), schema).column("id").to_pylist()
    [1, 2]
    >>> typed(pa.record_batch({"id": ["1", "two"]}), schema)
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 1 (counted from 0), column "id": 'two' is not a BIGINT
    """
    columns = []
    for name in batch.schema.names:
        column = batch.column(name)
        columns.append(_typed(name, column, schema.field(name).type) if name in schema.names else column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _typed(name: str, column: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_nested(target):
        raise RowRefused(
            f'column "{name}" is {_ddl(target)}, which CSV cannot hold', hint="Use JSON lines or Parquet.", column=name
        )
    if kinds.is_string(target) or kinds.is_large_string(target):
        return column.cast(target)
    if kinds.is_binary(target):
        return _one_by_one(name, column, target, _octets)
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        # Arrow names no value; and times without a zone are UTC here.
        reader = _moment_reader(target) if kinds.is_timestamp(target) else _scalar_reader(target)
        return _one_by_one(name, column, target, reader)


def _one_by_one(name: str, column: pa.Array, target: pa.DataType, read: Callable[[str], Any]) -> pa.Array:
    values = []
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(None if text is None else read(text))
        except ValueError:
            expected = _ddl(target)
            raise RowRefused(
                f'row {row} (counted from 0), column "{name}": {text!r} is not a {expected}',
                hint='Times are written as "2026-01-31T10:00:00Z".' if kinds.is_timestamp(target) else None,
                row=row,
                column=name,
                value=text,
                expected=expected,
            ) from None
    return pa.array(values, target)


def _moment_reader(target: pa.DataType) -> Callable[[str], dt.datetime]:
    def zoned(text: str) -> dt.datetime:
        moment = dt.datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)

    def plain(text: str) -> dt.datetime:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            raise ValueError
        return moment

    return plain if target.tz is None else zoned


def _scalar_reader(target: pa.DataType) -> Callable[[str], Any]:
    return lambda text: pa.scalar(text).cast(target).as_py()


def _octets(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _ddl(kind: pa.DataType) -> str:
    return to_ddl(pa.schema([pa.field("c", kind)])).removeprefix("c ")
