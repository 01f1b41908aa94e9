"""A column of the serving store: how each Spark type is kept in SQLite, and how it comes back.

What it is: ``ServedColumn``, made from a name and a Spark type. ``stored`` turns an Arrow array into what SQLite keeps,
``loaded`` turns that into the same Arrow array again.
Invariants: no value is lost: ``loaded(stored(x))`` is x (with -0.0 as 0.0, which SQL takes for equal). Equal values
are stored as equal ones, so that SQLite's IS finds a row again. Numbers, texts, dates and times sort as in Spark.
The type that a column is declared with in SQLite names both: "TEXT: DATE", so that a query's result can be restored.
Not here: tables and transactions (``serving_store.py``).
Read next: ``serving_store.py``; the table of types in ``docs/serving.md``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.log.schema.ddl import parse_view_ddl, spark_type
from headwater.log.schema.far_times import DAY_US, FIRST_DAY, LAST_DAY, far_json_lines
from headwater.log.schema.json_lines import json_line
from headwater.log.schema.row_conversion import to_values

NOT_A_NUMBER = "NaN"  # SQLite would keep a NaN as NULL; as text it sorts after all numbers, as Spark has it
EXACT_DIGITS_MAX = 15  # a double holds every decimal of so many digits
TRUTH_VALUES = ("true", "false")
DECIMAL_COLLATION = "headwater_decimal"

Values = list[Any]


@dataclass(frozen=True)
class ServedColumn:
    """One column: its name, its Spark type, and how SQLite keeps it.

    >>> column = ServedColumn.of("at", "TIMESTAMP")
    >>> column.declaration
    '"at" "TEXT: TIMESTAMP"'
    >>> _, values = column.stored(pa.array([0, None], pa.timestamp("us", "UTC")))
    >>> values
    ['1970-01-01 00:00:00.000000Z', None]
    >>> column.loaded(values).type
    TimestampType(timestamp[us, tz=UTC])
    """

    name: str
    type: str  # as Spark writes it
    arrow: pa.DataType
    affinity: str

    @staticmethod
    def of(name: str, type: str) -> ServedColumn:
        """The column of a Spark type, however it is spelled."""
        arrow = arrow_type(name, type)
        return ServedColumn(name, spark_type(arrow), arrow, _affinity(arrow))

    @property
    def declaration(self) -> str:
        """The column in a CREATE TABLE."""
        collation = f" COLLATE {DECIMAL_COLLATION}" if self._is_long_decimal else ""
        return f"{quoted(self.name)} {quoted(f'{self.affinity}: {self.type}')}{collation}"

    @property
    def _is_long_decimal(self) -> bool:
        return self.affinity == "TEXT" and kinds.is_decimal(self.arrow)

    def stored(self, array: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Values]:
        """The stored form: a plain Arrow array (for hashing), and the values to be bound."""
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if array.type != self.arrow:
            array = array.cast(self.arrow)
        return _stored(array, self.arrow, self.affinity)

    def loaded(self, values: Values) -> pa.Array:
        """The Arrow array of what SQLite kept."""
        return _loaded(values, self.arrow, self.affinity)


def arrow_type(name: str, type: str) -> pa.DataType:
    """The Arrow type of a Spark type.

    >>> arrow_type("x", "decimal(10,2)"), arrow_type("x", "interval day to second")
    (Decimal128Type(decimal128(10, 2)), DurationType(duration[us]))
    """
    try:
        return parse_view_ddl(f"`x` {type}").field(0).type
    except HeadwaterError as error:
        raise InvalidDeclaration(
            f'column "{name}" has the type {type}, which the serving store cannot keep',
            hint=f"Cast it in the view's SQL, for instance to STRING. {error.hint or ''}".strip(),
            column=name,
            type=type,
        ) from error


@lru_cache(maxsize=1024)
def column_of_declaration(name: str, declared: str) -> ServedColumn | None:
    """The column whose declared type SQLite knows; None for an expression, whose type is SQLite's own.

    >>> column_of_declaration("d", "TEXT: DATE").type, column_of_declaration("n", "INT")
    ('DATE', None)
    """
    affinity, colon, type = declared.partition(": ")
    return ServedColumn.of(name, type) if colon and affinity else None


def quoted(name: str) -> str:
    """A name as SQL text."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """A text as SQL text.

    >>> text_literal("o'neill")
    "'o''neill'"
    """
    return "'" + value.replace("'", "''") + "'"


def shown_name(name: str) -> str:
    """A column's name in SQLite's views, where none can be ``true`` or ``false``: there a space follows it.

    >>> shown_name("True"), shown_name("truth")
    ('True ', 'truth')
    """
    return f"{name} " if name.lower() in TRUTH_VALUES else name


def declared_name(shown: str) -> str:
    """The column's name, of the one in SQLite's views.

    >>> declared_name("True "), declared_name("truth ")
    ('True', 'truth ')
    """
    return shown[:-1] if shown[-1:] == " " and shown[:-1].lower() in TRUTH_VALUES else shown


def compare_decimals(one: str, other: str) -> int:
    """The collation of DECIMALs that are kept as text."""
    left, right = Decimal(one), Decimal(other)
    return (left > right) - (left < right)


def inferred(values: Values) -> pa.Array:
    """The array of an expression's values, which may be of any of SQLite's types.

    >>> inferred([1, 2.5, None]).type, inferred([1, "a"]).to_pylist()
    (DataType(double), ['1', 'a'])
    """
    classes = {type(value) for value in values if value is not None}
    if classes <= {int, float} and len(classes) == 2:
        return pa.array(values, pa.float64())
    if len(classes) > 1:
        return pa.array([value if value is None or isinstance(value, str) else str(value) for value in values])
    return pa.array(values)


def row_hashes(stored: Sequence[pa.Array]) -> Values:
    """A 64-bit number for each row, the same for equal rows; what finds a row of a view without a key."""
    from xxhash import xxh3_64_intdigest

    parts = [_as_bytes(array) for array in stored]
    joined = pc.binary_join_element_wise(*parts, b"\x1f", null_handling="replace", null_replacement=b"\x00")
    return [xxh3_64_intdigest(row) - (1 << 63) for row in joined.to_pylist()]


def _as_bytes(array: pa.Array) -> pa.Array:
    if kinds.is_floating(array.type):
        array = pc.add(array, pa.scalar(0.0))
    return array.cast(pa.string() if not kinds.is_binary(array.type) else pa.binary()).cast(pa.binary())


# Storing


def _affinity(arrow: pa.DataType) -> str:
    if kinds.is_integer(arrow) or kinds.is_duration(arrow):
        return "INTEGER"
    if kinds.is_floating(arrow):
        return "REAL"
    if kinds.is_boolean(arrow) or kinds.is_null(arrow):
        return "NUMERIC"
    if kinds.is_decimal(arrow):
        return "NUMERIC" if arrow.precision <= EXACT_DIGITS_MAX else "TEXT"
    return "BLOB" if kinds.is_binary(arrow) else "TEXT"


def _stored(array: pa.Array, arrow: pa.DataType, affinity: str) -> tuple[pa.Array, Values]:
    if kinds.is_floating(arrow):
        array = array if arrow == pa.float64() else array.cast(pa.float64())
        values = array.to_pylist()
        if any(map(operator.ne, values, values)):  # NaN; asking Arrow takes 30 µs
            values = [NOT_A_NUMBER if value != value else value for value in values]
        return array, values
    if kinds.is_decimal(arrow):
        array = array.cast(pa.float64() if affinity == "NUMERIC" else pa.string())
    elif kinds.is_boolean(arrow):
        array = array.cast(pa.int8())
    elif kinds.is_duration(arrow):
        array = array.cast(pa.int64())
    elif kinds.is_null(arrow):
        array = array.cast(pa.int8())
    elif kinds.is_date(arrow) or kinds.is_timestamp(arrow):
        array = _moments_to_text(array, arrow)
    elif kinds.is_nested(arrow):
        array = pa.array([_json(_canonical(value, arrow)) for value in to_values(array)], pa.string())
    try:
        return array, array.to_pylist()
    except UnicodeDecodeError:
        values = to_values(array)
        return pa.array(values, pa.string()), values


def _moments_to_text(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    number = pa.int32() if kinds.is_date(arrow) else pa.int64()
    unit = 1 if kinds.is_date(arrow) else DAY_US
    span = pc.min_max(array.cast(number)).as_py()
    if span["min"] is None or (span["min"] >= FIRST_DAY * unit and span["max"] < (LAST_DAY + 1) * unit):
        return _iso(array, arrow)
    # A year that ISO text cannot say: the plain number of days or microseconds, so that it is not lost.
    texts, numbers = _iso(array, arrow).to_pylist(), array.cast(number).to_pylist()
    return pa.array(
        [
            str(number) if number is not None and not FIRST_DAY * unit <= number < (LAST_DAY + 1) * unit else text
            for text, number in zip(texts, numbers, strict=True)
        ],
        pa.string(),
    )


def _iso(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    if kinds.is_date(arrow) or arrow.tz is None:
        return array.cast(pa.string())
    # All are UTC. Arrow's own cast of a column with a time zone takes 25 times as long.
    return pc.binary_join_element_wise(array.view(pa.timestamp("us")).cast(pa.string()), "Z", "")


def _json(value: object) -> str | None:
    return None if value is None else json_line({"v": value})[len('{"v":') : -1]


def _canonical(value: Any, arrow: pa.DataType) -> Any:
    """The same value, written in one way only: no -0.0, and a MAP's entries in one order."""
    # Not identity.canonical, which does the same and cannot be read back: people find this as JSON in SQLite.
    if value is None:
        return None
    if kinds.is_floating(arrow):
        return value + 0.0
    if kinds.is_list(arrow):
        return [_canonical(each, arrow.value_type) for each in value]
    if kinds.is_struct(arrow):
        return {field.name: _canonical(value[field.name], field.type) for field in arrow}
    if kinds.is_map(arrow):
        pairs = value.items() if isinstance(value, dict) else value
        made = [(_canonical(key, arrow.key_type), _canonical(item, arrow.item_type)) for key, item in pairs]
        made.sort(key=lambda pair: repr(pair[0]))
        return dict(made) if isinstance(value, dict) else made
    return value


# Loading


def _loaded(values: Values, arrow: pa.DataType, affinity: str) -> pa.Array:
    if kinds.is_floating(arrow):
        if NOT_A_NUMBER in values:
            values = [math.nan if value == NOT_A_NUMBER else value for value in values]
        return pa.array(values, pa.float64()).cast(arrow)
    if kinds.is_decimal(arrow):
        return pa.array(values, pa.float64() if affinity == "NUMERIC" else pa.string()).cast(arrow)
    if kinds.is_boolean(arrow):
        return pa.array(values, pa.int8()).cast(arrow)
    if kinds.is_date(arrow) or kinds.is_timestamp(arrow):
        return _moments_of_text(values, arrow)
    if kinds.is_nested(arrow):
        lines = ['{"v":' + ("null" if value is None else value) + "}" for value in values]
        schema = pa.schema([pa.field("v", arrow)])
        return far_json_lines(lines, schema).column(0) if lines else pa.array([], arrow)
    return pa.array(values, arrow)


def _moments_of_text(values: Values, arrow: pa.DataType) -> pa.Array:
    is_iso: Callable[[str], bool] = lambda text: text[4:5] == "-"  # noqa: E731
    if all(value is None or is_iso(value) for value in values):
        return pa.array(values, pa.string()).cast(arrow)
    number = pa.int32() if kinds.is_date(arrow) else pa.int64()
    plain = pa.array([None if value is None or is_iso(value) else int(value) for value in values], number).cast(arrow)
    iso = pa.array([value if value is not None and is_iso(value) else None for value in values], pa.string())
    return pc.coalesce(iso.cast(arrow), plain)
