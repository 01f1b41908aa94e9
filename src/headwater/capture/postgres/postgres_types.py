"""PostgreSQL types: the log's types for PostgreSQL's, and values from its texts.

What it is: ``arrow_of`` gives the log's type for a PostgreSQL type; ``to_arrow`` converts a column of texts to it.
Invariants: backfill and stream both pass through here, so a value is the same from either; both send texts, except for
types whose values the backfill's driver reads identically. A value that the log's type cannot hold (infinity, NaN in a
DECIMAL, a year beyond 9999) becomes null and is counted; the other values of the row stay.
Not here: the wire format (``pgoutput.py``), nested types of the log (``log/schema/nested_columns.py``).
Read next: ``docs/capture.md``, which has the table of types.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.capture.database import Losses
from headwater.log.schema.ddl import TIMESTAMP, TIMESTAMP_NTZ

NUMERIC = 1700
DECIMAL_DIGITS_MAX = 38
# The backfill's mark for an infinity, a year after this one, or one before Christ.
BEYOND, BEYOND_US = "10000-01-01", 253_402_300_800_000_000

SCALARS: dict[int, pa.DataType] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.int64(),  # oid
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: TIMESTAMP_NTZ,
    1184: TIMESTAMP,
}
# Every session must write values in the same way.
TEXT_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
}
# The arrays of those, and of text, uuid, numeric and json, by the number of their element.
ARRAYS = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1021: 700,
    1022: 701,
    1182: 1082,
    1115: 1114,
    1185: 1184,
    1009: 25,
    1015: 1043,
    1014: 1042,
    1003: 19,
    1231: NUMERIC,
    2951: 2950,
    199: 114,
    3807: 3802,
    1028: 26,
}
# Values of these lengths are never moved out of their row.
FIXED = {16, 18, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 2950, 19, 829, 790}
PLAIN_TEXT = {17, 25, 1042, 1043, 114}


def arrow_of(type_number: int, modifier: int) -> pa.DataType:
    """The log's type.

    >>> str(arrow_of(1700, (12 << 16 | 2) + 4)), str(arrow_of(1007, -1)), str(arrow_of(2950, -1))
    ('decimal128(12, 2)', 'list<item: int32>', 'string')
    """
    if type_number in ARRAYS:
        return pa.list_(arrow_of(ARRAYS[type_number], modifier))
    if type_number == NUMERIC and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        scale = (scale ^ 1024) - 1024  # eleven bits with a sign
        if 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
            return pa.decimal128(precision, scale)
    return SCALARS.get(type_number, pa.string())


def to_arrow(texts: pa.Array, arrow: pa.DataType, losses: Losses) -> pa.Array:
    """The values of a column of texts.

    >>> to_arrow(pa.array(["t", "f", None]), pa.bool_(), Losses()).to_pylist()
    [True, False, None]
    >>> losses = Losses()
    >>> to_arrow(pa.array(["2026-01-02", "infinity"]), pa.date32(), losses).to_pylist(), losses.values
    ([datetime.date(2026, 1, 2), None], 1)
    """
    if texts.type == arrow:  # text, or a type that the backfill reads natively
        return _without_marks(texts, losses) if kinds.is_timestamp(arrow) else texts
    read = _reader(arrow)
    try:
        return read(texts)
    except (pa.ArrowInvalid, ValueError):
        return _one_by_one(texts, arrow, read, losses)


def _reader(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if kinds.is_boolean(arrow):
        return lambda texts: pc.equal(texts, "t")
    if kinds.is_binary(arrow):
        return lambda texts: pa.array(
            [None if text is None else binascii.unhexlify(text[2:]) for text in texts.to_pylist()], pa.binary()
        )
    if kinds.is_list(arrow):
        return lambda texts: pa.array(
            [None if text is None else _elements(text, arrow.value_type) for text in texts.to_pylist()], arrow
        )
    return lambda texts: texts.cast(arrow)


def _without_marks(moments: pa.Array, losses: Losses) -> pa.Array:
    """Nulls in place of the times that the backfill could only mark."""
    marked = pc.equal(moments, pa.scalar(BEYOND_US, pa.int64()).cast(moments.type))
    lost = pc.sum(marked).as_py() or 0
    losses.values += lost
    return pc.if_else(marked, pa.scalar(None, moments.type), moments) if lost else moments


def _one_by_one(texts: pa.Array, arrow: pa.DataType, read: Callable[[pa.Array], pa.Array], losses: Losses) -> pa.Array:
    values = []
    for text in texts:
        try:
            values.append(read(pa.array([text.as_py()], pa.string()))[0])
        except (pa.ArrowInvalid, ValueError):
            values.append(pa.scalar(None, arrow))
            losses.values += 1
    return pa.array([value.as_py() for value in values], arrow)


def _elements(text: str, arrow: pa.DataType) -> list[object]:
    """The elements of PostgreSQL's text for an array of one dimension."""
    parts = split_array(text)
    column = pa.array(parts, pa.string())
    return list((column if kinds.is_string(arrow) else _reader(arrow)(column)).to_pylist())


def split_array(text: str) -> list[str | None]:
    """The texts of an array's elements.

    >>> split_array('{1,NULL,"a,b","NULL"}')
    ['1', None, 'a,b', 'NULL']
    """
    if text.startswith("["):  # bounds that do not begin at 1, as in [0:1]={1,2}
        text = text[text.index("=") + 1 :]
    if text == "{}":
        return []
    if text[1] == "{":
        raise ValueError("an array of several dimensions")
    parts: list[str | None] = []
    at, end = 1, len(text) - 1
    while at <= end:
        if text[at] == '"':
            at += 1
            part = []
            while text[at] != '"':
                if text[at] == "\\":
                    at += 1
                part.append(text[at])
                at += 1
            parts.append("".join(part))
            at += 2
        else:
            stop = text.find(",", at)
            stop = end if stop < 0 else stop
            word = text[at:stop]
            parts.append(None if word == "NULL" else word)
            at = stop + 1
    return parts
