"""PostgreSQL's types: the type of a view's column, and its values for COPY.

What it is: ``column_type`` and ``copy_text``: an Arrow table as CSV in which NULL differs from the empty text.
Invariants: no value changes silently. A text with a NUL, which PostgreSQL cannot store, is refused, or its NULs are
replaced if the user asked for it. Structs, arrays and maps are JSONB. Years before 1 are written as BC; PostgreSQL
refuses dates before 4713 BC.
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
from headwater.log.schema.ddl import DAY_TO_SECOND, spark_type
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
    DAY_TO_SECOND: "interval",
    "VOID": "text",
}
DAY_US, SECOND_US = 86_400_000_000, 1_000_000
YEAR_1_DAY = -719_162  # 0001-01-01


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
    if kinds.is_timestamp(arrow) or kinds.is_date32(arrow):
        return _moments(column)
    if kinds.is_duration(arrow):
        return pa.array([_interval(value) for value in column.cast(pa.int64()).to_pylist()], pa.string())
    if kinds.is_null(arrow):
        return column.cast(pa.string())
    if kinds.is_decimal(arrow):
        return column.cast(pa.string())
    if kinds.is_binary(arrow) or kinds.is_large_binary(arrow) or kinds.is_fixed_size_binary(arrow):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if kinds.is_nested(arrow):
        return pa.array([json_text(value) for value in to_values(column.combine_chunks())], pa.string())
    return column


def _moments(column: pa.ChunkedArray) -> Any:
    """Dates and times as text: those before the year 1 as PostgreSQL has them.

    >>> _moments(pa.chunked_array([pa.array([-719_163, 0, None], pa.int32()).view(pa.date32())])).to_pylist()
    ['0001-12-31 BC', '1970-01-01', None]
    """
    arrow, first, zone = column.type, YEAR_1_DAY, ""
    if kinds.is_timestamp(arrow):
        # All are UTC. Arrow's own cast of a column with a time zone takes 25 times as long.
        zone = "Z" if arrow.tz is not None else ""
        column = pa.chunked_array([chunk.view(pa.timestamp("us")) for chunk in column.chunks], pa.timestamp("us"))
        first *= DAY_US
    earliest = pc.min(column.cast(pa.int64() if kinds.is_timestamp(arrow) else pa.int32())).as_py()
    texts = column.cast(pa.string())
    if zone:
        texts = pc.binary_join_element_wise(texts, zone, "")
    if earliest is None or earliest >= first:
        return texts
    return pa.array([None if text is None else _with_era(text) for text in texts.to_pylist()], pa.string())


def _with_era(text: str) -> str:
    """A date as PostgreSQL reads it, which has no year 0 and no negative ones.

    >>> _with_era("-0249-10-15 19:33:20.000000Z"), _with_era("10183-09-21")
    ('0250-10-15 19:33:20.000000Z BC', '10183-09-21')
    """
    year, dash, rest = text[1:].partition("-") if text.startswith("-") else text.partition("-")
    if not text.startswith("-") and int(year) > 0:
        return text
    return f"{int(year) + 1:04d}{dash}{rest} BC"


def _interval(microseconds: int | None) -> str | None:
    """A length of time as PostgreSQL reads it.

    >>> _interval(-90_000_000_001), _interval(0), _interval(None)
    ('-1 days -01:00:00.000001', '0 days 00:00:00.000000', None)
    """
    if microseconds is None:
        return None
    sign = "-" if microseconds < 0 else ""
    days, rest = divmod(abs(microseconds), DAY_US)
    seconds, fraction = divmod(rest, SECOND_US)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"{sign}{days} days {sign}{clock}"


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
