"""JSON lines: the one JSON form of rows, read and written.

What it is: ``json_lines`` reads text into a record batch with the strictness of ``row_conversion.py``; ``json_line``
writes it. TIMESTAMP and DATE are ISO-8601 text (never epoch numbers, which have no unit),
BINARY is base64, DECIMAL a number that never passes through a float, NaN and Infinity are the strings "NaN",
"Infinity", "-Infinity", and a MAP whose key is not text is a list of [key, value] pairs.
Invariants: reading a written line gives the same row; a name that occurs twice in an object is refused. A date or time
outside the years 1 to 9999 is written as a number, which only ``far_times.py`` reads.
Not here: many rows at once (``json_text.py``), files and streams (``cli/log/input_files.py``).
Read next: ``columns.py``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import RowRefused
from headwater.log.schema.columns import (
    Admission,
    BinaryColumn,
    DateColumn,
    DecimalColumn,
    FloatColumn,
    ValueRefused,
    Values,
    shorten,
)
from headwater.log.schema.nested_columns import Leaves
from headwater.log.schema.row_conversion import RowConverter

_write_text = json.JSONEncoder(ensure_ascii=False).encode
NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_lines(
    text: bytes | str | Iterable[str | bytes], schema: pa.Schema, *, not_null: frozenset[str] = frozenset()
) -> pa.RecordBatch:
    """A record batch from JSON lines: a whole text, or its lines one by one. Empty lines are skipped.

    >>> from headwater.log.schema.normalization import normalize_schema
    >>> schema = normalize_schema("id BIGINT, price DECIMAL(10,2), at TIMESTAMP")
    >>> json_lines('{"id": 1, "price": 9.90, "at": "2026-01-31T10:00:00Z"}', schema).to_pylist()[0]["price"]
    Decimal('9.90')
    >>> json_lines('{"id": 1, "at": 1769853600}', schema)
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 0 (counted from 0), column "at": 1769853600 is of type int, expected TIMESTAMP
      Hint: A number does not say its unit; pass a datetime or ISO-8601 text.
    """
    return json_rows(json_objects(text, schema), schema, not_null=not_null)


def json_objects(text: bytes | str | Iterable[str | bytes], schema: pa.Schema) -> list[dict[str, Any]]:
    """The objects of JSON lines as dicts; where the schema holds a DECIMAL, fractions are exact.

    >>> json_objects('{"id": 1}', pa.schema([("id", pa.int64())]))
    [{'id': 1}]
    """
    return _objects(_lines(text), exact_numbers=_holds_decimal(schema))


def json_decoder(schema: pa.Schema) -> json.JSONDecoder:
    """A strict JSON decoder for rows of a schema: no duplicate name, no NaN, exact fractions where DECIMAL needs them.

    >>> json_decoder(pa.schema([("price", pa.decimal128(10, 2))])).decode('{"price": 9.90}')
    {'price': Decimal('9.90')}
    """
    return _decoder(exact_numbers=_holds_decimal(schema))


def json_rows(
    rows: list[dict[str, Any]], schema: pa.Schema, *, not_null: frozenset[str] = frozenset()
) -> pa.RecordBatch:
    """A record batch from dicts whose values are JSON's: times as text, BINARY as base64.

    >>> json_rows([{"day": "2026-01-31"}], pa.schema([("day", pa.date32())])).to_pylist()
    [{'day': datetime.date(2026, 1, 31)}]
    """
    return _converter_for(schema, not_null).batch(rows)


def json_line(row: dict[str, Any]) -> str:
    """One row as a line of JSON, without the line's end.

    >>> json_line({"at": datetime(2026, 1, 31, 10, tzinfo=UTC), "raw": b"hi", "ratio": math.nan})
    '{"at":"2026-01-31T10:00:00Z","raw":"aGk=","ratio":"NaN"}'
    """
    return _write(row)


def json_text(value: Any) -> str:
    """One value as JSON.

    >>> json_text(b"hi"), json_text("hi"), json_text(None)
    ('"aGk="', '"hi"', 'null')
    """
    return _write(value)


# --- reading ---


class JsonDateColumn(DateColumn):
    """DATE as "2026-01-31"."""

    def admission(self, kind: type) -> Admission | None:
        return _parse_day if kind is str else super().admission(kind)


class JsonBinaryColumn(BinaryColumn):
    """BINARY as base64."""

    def admission(self, kind: type) -> Admission | None:
        return _parse_base64 if kind is str else super().admission(kind)


class JsonDecimalColumn(DecimalColumn):
    """DECIMAL as a number or as text; the parser hands fractions over as Decimal."""

    def admission(self, kind: type) -> Admission | None:
        return _parse_decimal if kind is str else super().admission(kind)


class JsonFloatColumn(FloatColumn):
    """FLOAT and DOUBLE as a number, or as one of the strings "NaN", "Infinity", "-Infinity"."""

    def convert(self, values: Values) -> pa.Array:
        # 1e999 is read as infinity; infinity itself is written "Infinity".
        if math.inf in values or -math.inf in values:
            values = [_TooLarge(value) if type(value) is float and math.isinf(value) else value for value in values]
        return super().convert(values)

    def admission(self, kind: type) -> Admission | None:
        admissions: dict[type, Admission] = {str: _parse_not_number, Decimal: _float_of, _TooLarge: _refuse_too_large}
        return admissions.get(kind) or super().admission(kind)


class _TooLarge(float):
    """A number that is too large for DOUBLE."""


JSON_LEAVES: Leaves = {
    DateColumn: JsonDateColumn,
    BinaryColumn: JsonBinaryColumn,
    DecimalColumn: JsonDecimalColumn,
    FloatColumn: JsonFloatColumn,
}


@lru_cache(maxsize=256)
def _converter_for(schema: pa.Schema, not_null: frozenset[str]) -> RowConverter:
    return RowConverter(schema, not_null, leaves=JSON_LEAVES)


def _holds_decimal(schema: pa.Schema) -> bool:
    def holds(arrow: pa.DataType) -> bool:
        return bool(kinds.is_decimal(arrow)) or any(holds(arrow.field(i).type) for i in range(arrow.num_fields))

    return any(holds(field.type) for field in schema)


def _lines(text: bytes | str | Iterable[str | bytes]) -> list[str | bytes]:
    lines: Iterable[str | bytes]
    if isinstance(text, str):
        lines = text.split("\n")  # not splitlines(), which also splits inside of strings, at U+2028
    elif isinstance(text, (bytes, bytearray, memoryview)):
        lines = bytes(text).split(b"\n")
    else:
        lines = text
    return [line for line in lines if line and not line.isspace()]


def _objects(lines: list[str | bytes], *, exact_numbers: bool) -> list[dict[str, Any]]:
    decoder = _decoder(exact_numbers=exact_numbers)
    rows = []
    for index, line in enumerate(lines):
        try:
            text = line if isinstance(line, str) else bytes(line).decode("utf-8")
            row = decoder.decode(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as failure:
            _refuse_line(index, line, str(failure))
        if type(row) is not dict:
            _refuse_line(index, line, "it is not an object", "Write one object on each line, without an array around.")
        rows.append(row)
    return rows


@lru_cache(maxsize=2)
def _decoder(*, exact_numbers: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=Decimal if exact_numbers else None, parse_constant=_refuse_constant, object_pairs_hook=_object
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shorten(twice)} stands twice in an object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is not JSON; write it as the string "{name}"')


def _refuse_line(index: int, line: str | bytes, reason: str, hint: str | None = None) -> NoReturn:
    raise RowRefused(
        f"row {index} (counted from 0) is not a line of JSON: {reason}",
        detail=f"The line is {shorten(line)}",
        hint=hint,
        row=index,
        column=None,
        value=shorten(line),
        expected="a JSON object",
    )


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueRefused(f"{shorten(text)} is not an ISO-8601 date", 'Write it as "2026-01-31".') from None


def _parse_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueRefused(f"{shorten(text)} is not base64", "BINARY is written as base64 in JSON.") from None


def _parse_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueRefused(f"{shorten(text)} is not a decimal number") from None


def _parse_not_number(text: str) -> float:
    if text not in NOT_NUMBERS:
        raise ValueRefused(f"{shorten(text)} is of type str, expected a number", 'Only "NaN" and "±Infinity" are text.')
    return NOT_NUMBERS[text]


def _float_of(number: Decimal) -> float:
    nearest = float(number)
    return nearest if math.isfinite(nearest) else _refuse_too_large(number)


def _refuse_too_large(number: Any) -> NoReturn:
    raise ValueRefused(f"{shorten(number)} is a number too large for DOUBLE", 'Infinity is written "Infinity".')


# --- writing ---


def _write_float(value: float) -> str:
    if math.isfinite(value):
        return float.__repr__(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _write_moment(value: datetime) -> str:
    if value.tzinfo is None:
        return f'"{value.isoformat()}"'
    return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"'


def _write_dict(value: dict[Any, Any]) -> str:
    if all(type(name) is str for name in value):
        return "{" + ",".join([f"{_write_text(name)}:{_write(part)}" for name, part in value.items()]) + "}"
    return _write_list(list(value.items()))


def _write_list(value: Iterable[Any]) -> str:
    return "[" + ",".join(map(_write, value)) + "]"


WRITERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: _write_float,
    str: _write_text,
    bytes: lambda value: f'"{base64.b64encode(value).decode()}"',
    date: lambda value: f'"{value.isoformat()}"',
    datetime: _write_moment,
    timedelta: lambda value: str(value // timedelta(microseconds=1)),
    # As a number, digit for digit; json.dumps would convert it to a float.
    Decimal: lambda value: format(value, "f"),
    dict: _write_dict,
    list: _write_list,
    tuple: _write_list,
}


def _write(value: Any) -> str:
    return WRITERS[type(value)](value)
