"""PostgreSQL's types: which one a view's column becomes, and its values as COPY takes them.

What it is: ``column_type`` and ``copy_text``: an Arrow table as CSV in which NULL and the empty text are different.
Invariants: no value is changed in silence. A text with a NUL, which PostgreSQL cannot hold, is refused, or has each NUL
replaced when the user asked for that. A struct, an array and a map are JSONB.
Not here: tables and transactions (``postgres_sink.py``).
Read next: ``postgres_sink.py``; the table of types in ``docs/sinks.md``.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.types as kinds

from headwater.errors import SinkRefused
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.row_conversion import to_values
from headwater.sinks.text_values import json_text

CSV = pyarrow.csv.WriteOptions(include_header=False, batch_size=8192)
PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
}


def column_type(arrow: pa.DataType) -> str:
    """The PostgreSQL type of an Arrow type.

    >>> column_type(pa.decimal128(10, 2)), column_type(pa.list_(pa.string())), column_type(pa.timestamp("us", "UTC"))
    ('numeric(10, 2)', 'jsonb', 'timestamptz')
    """
    if kinds.is_decimal(arrow):
        return f"numeric({arrow.precision}, {arrow.scale})"
    if kinds.is_nested(arrow):
        return "jsonb"
    return PLAIN[spark_type(arrow)]


def copy_text(rows: pa.Table, nul: str | None) -> memoryview:
    """The rows as COPY … (FORMAT csv) reads them.

    >>> bytes(copy_text(pa.table({"x": [1, None], "name": ["", None]}), None))
    b'1,""\\n,\\n'
    """
    columns = [_text(name, rows.column(name), nul) for name in rows.column_names]
    out = io.BytesIO()
    pyarrow.csv.write_csv(pa.Table.from_arrays(columns, names=rows.column_names), out, CSV)
    return out.getbuffer()


def _text(name: str, column: pa.ChunkedArray, nul: str | None) -> Any:
    arrow = column.type
    if kinds.is_string(arrow) or kinds.is_large_string(arrow):
        return _without_nul(name, column, nul)
    if kinds.is_timestamp(arrow) and arrow.tz is not None:
        # All are UTC. Arrow's own cast of a column with a time zone takes 25 times as long.
        plain = pa.chunked_array([chunk.view(pa.timestamp("us")) for chunk in column.chunks], pa.timestamp("us"))
        return pc.binary_join_element_wise(plain.cast(pa.string()), "Z", "")
    if kinds.is_decimal(arrow):
        return column.cast(pa.string())
    if kinds.is_binary(arrow) or kinds.is_large_binary(arrow) or kinds.is_fixed_size_binary(arrow):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if kinds.is_nested(arrow):
        return pa.array([json_text(value) for value in to_values(column.combine_chunks())], pa.string())
    return column


def _without_nul(name: str, column: pa.ChunkedArray, nul: str | None) -> Any:
    if not pc.any(pc.match_substring(column, "\0")).as_py():
        return column
    if nul is None:
        raise SinkRefused(
            f'a text in column "{name}" has a NUL character, which PostgreSQL cannot hold',
            hint='Replace it in the view\'s SQL, or by the sink: Postgres(dsn, nul="\\N{SYMBOL FOR NULL}").',
            column=name,
        )
    return pc.replace_substring(column, "\0", nul)
