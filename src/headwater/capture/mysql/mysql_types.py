"""MySQL types: the log's types for those of MariaDB and MySQL.

What it is: the log's type of a column from ``information_schema`` (``arrow_of_text``) and from the binlog
(``arrow_of_field``), the backfill's expression for a column (``selected``), and ``to_arrow``, the last step of both.
Invariants: both descriptions of one column give one type, and both sources of a value give one value; a test covers
all. A value that the log's type cannot hold (a zero date) becomes null and is counted.
Not here: the bytes of the binlog (``binlog_values.py``). Read next: ``docs/mysql.md``, which has the table of types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds

from headwater.capture.database import Losses
from headwater.capture.mysql import binlog_events
from headwater.capture.mysql.binlog_events import Field
from headwater.capture.mysql.binlog_values import BINARY_COLLATION, DATE, NEWDATE, OLD_DATETIME, OLD_TIME, OLD_TIMESTAMP
from headwater.log.schema.ddl import TIMESTAMP, TIMESTAMP_NTZ

DECIMAL_DIGITS_MAX = 38
UNSIGNED_LARGE = pa.decimal128(20, 0)  # the largest has twenty digits, and there is no wider whole number
WHOLE = {"tinyint": pa.int8(), "smallint": pa.int16(), "mediumint": pa.int32(), "int": pa.int32(), "bigint": pa.int64()}
WHOLE_UNSIGNED = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "bigint": UNSIGNED_LARGE,
}
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "time"}
SHAPES = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
}
BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"} | SHAPES
OTHERS = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": TIMESTAMP_NTZ,
    "timestamp": TIMESTAMP,
    "year": pa.int16(),
}
NUMBERS = {
    binlog_events.TINY: "tinyint",
    binlog_events.SHORT: "smallint",
    binlog_events.INT24: "mediumint",
    binlog_events.LONG: "int",
    binlog_events.LONGLONG: "bigint",
    binlog_events.FLOAT: "float",
    binlog_events.DOUBLE: "double",
    DATE: "date",
    NEWDATE: "date",
    OLD_DATETIME: "datetime",
    binlog_events.DATETIME2: "datetime",
    OLD_TIMESTAMP: "timestamp",
    binlog_events.TIMESTAMP2: "timestamp",
    binlog_events.YEAR: "year",
    binlog_events.ENUM: "enum",
    binlog_events.SET: "set",
    OLD_TIME: "time",
    binlog_events.TIME2: "time",
    binlog_events.GEOMETRY: "geometry",
}


@dataclass(frozen=True)
class Described:
    """A column as ``information_schema`` has it."""

    name: str
    kind: str  # data_type
    full: str  # column_type
    precision: int
    scale: int
    extra: str

    @property
    def generated(self) -> bool:
        """Whether the database computes it: such columns are not captured."""
        return "GENERATED" in self.extra.upper() and "DEFAULT_GENERATED" not in self.extra.upper()


def arrow_of_text(column: Described) -> pa.DataType | None:
    """The log's type of a column; None: not captured.

    >>> str(arrow_of_text(Described("n", "bigint", "bigint(20) unsigned", 20, 0, "")))
    'decimal128(20, 0)'
    """
    return _arrow(column.kind, "unsigned" in column.full, column.precision, column.scale)


def arrow_of_field(field: Field) -> pa.DataType | None:
    """The log's type of a column of the binlog.

    >>> fields = Field(binlog_events.DECIMAL, 12 << 8 | 2), Field(binlog_events.LONG, 0)
    >>> tuple(str(arrow_of_field(field)) for field in fields)
    ('decimal128(12, 2)', 'int32')
    """
    if field.kind == binlog_events.DECIMAL:
        return _arrow("decimal", field.unsigned, field.meta >> 8, field.meta & 0xFF)
    if field.kind == binlog_events.BIT:
        return _arrow("bit", False, (field.meta >> 8) * 8 + (field.meta & 0xFF), 0)
    if field.kind in (binlog_events.VARCHAR, binlog_events.VAR_STRING, binlog_events.STRING, binlog_events.BLOB):
        return pa.binary() if field.collation in (None, BINARY_COLLATION) else pa.string()
    return _arrow(NUMBERS.get(field.kind, ""), field.unsigned, 0, 0)


def _arrow(kind: str, unsigned: bool, precision: int, scale: int) -> pa.DataType | None:
    if kind in WHOLE:
        return WHOLE_UNSIGNED[kind] if unsigned else WHOLE[kind]
    if kind == "decimal":
        return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else pa.string()
    if kind == "bit":
        return pa.int64() if precision < 64 else UNSIGNED_LARGE
    if kind in TEXTS:
        return pa.string()
    return pa.binary() if kind in BYTES else OTHERS.get(kind)


def selected(column: Described) -> str:
    """The backfill's expression for a column, so that no value is rounded."""
    name = quoted(column.name)
    if column.kind == "float":  # its text has six digits
        return f"CAST({name} AS DOUBLE)"
    return f"{name} + 0" if column.kind == "bit" else name


def quoted(name: str) -> str:
    """A name in a statement.

    >>> quoted("my`table")
    '`my``table`'
    """
    return "`" + name.replace("`", "``") + "`"


def to_arrow(values: pa.Array, arrow: pa.DataType, losses: Losses) -> pa.Array:
    """A column in the log's type: from a backfill's texts, or from the values of the binlog's readers.

    >>> losses = Losses()
    >>> to_arrow(pa.array(["2026-01-02", "0000-00-00"]), pa.date32(), losses).to_pylist(), losses.values
    ([datetime.date(2026, 1, 2), None], 1)
    >>> to_arrow(pa.array([1, 2], pa.uint64()), pa.decimal128(20, 0), losses).to_pylist()
    [Decimal('1'), Decimal('2')]
    """
    if values.type == arrow:
        return values
    if kinds.is_binary(values.type) and not kinds.is_binary(arrow):
        values = values.cast(pa.string())
        if kinds.is_string(arrow):
            return values
    read = _reader(arrow)
    try:
        return read(values)
    except (pa.ArrowInvalid, ValueError):
        return _one_by_one(values, arrow, read, losses)


def _reader(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if kinds.is_timestamp(arrow) and arrow.tz is not None:
        return lambda values: values.cast(pa.timestamp("us")).cast(arrow)
    return lambda values: values.cast(arrow)


def _one_by_one(values: pa.Array, arrow: pa.DataType, read: Callable[[pa.Array], pa.Array], losses: Losses) -> pa.Array:
    """Convert value by value, to find those that do not fit."""
    found = []
    for place in range(len(values)):
        try:
            found.append(read(values.slice(place, 1))[0].as_py())
        except (pa.ArrowInvalid, ValueError):
            losses.values += 1
            found.append(None)
    return pa.array(found, arrow)
