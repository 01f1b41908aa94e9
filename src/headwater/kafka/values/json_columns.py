"""JSON columns: many JSON objects, read column by column.

What it is: ``json_columns`` reads objects by Arrow's parser, four times as quick as one by one.
Invariants: the columns are those that ``far_json_rows`` reads, or None: what Arrow may read otherwise, or refuses, is
left to it.
Not here: messages, and what is read one by one (``kafka_values.py``). Read next: ``kafka_values.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
DAY = f"^{YEAR}-[0-9]{{2}}-[0-9]{{2}}"
MOMENT = f"{DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?"


def json_columns(values: Sequence[bytes], schema: pa.Schema) -> list[pa.Array] | None:
    """The columns of JSON objects; None where they are to be read one by one.

    It is asked for numbers, texts and truth values, and for dates and times in the form that we write; what it refuses
    is read again, row by row, and then told with its place.

    >>> json_columns([b'{"n":1}', b'{"n":2,"more":3}'], pa.schema([("n", pa.int64())]))[0].to_pylist()
    [1, 2]
    """
    if not all(_is_plain(field.type) or _form_of(field.type) for field in schema):
        return None
    text = b"\n".join(values)
    if text.count(b"\n") != len(values) - 1:
        return None  # a message of several lines
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, len(text) + 1)),
            parse_options=pj.ParseOptions(explicit_schema=_as_text(schema), unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)
        columns = [_timed(table.column(field.name).combine_chunks(), field.type) for field in schema]
    except pa.ArrowInvalid:
        return None
    return columns if table.num_rows == len(values) else None


def _is_plain(kind: pa.DataType) -> bool:
    known = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_float64)
    return any(test(kind) for test in known)


def _form_of(kind: pa.DataType) -> str | None:
    """The form in which dates and times of this type are written; None for other types."""
    if pa.types.is_date32(kind):
        return f"{DAY}$"
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return f"{MOMENT}$" if kind.tz is None else f"{MOMENT}Z$"
    return None


def _as_text(schema: pa.Schema) -> pa.Schema:
    """The schema with text where dates and times are."""
    return pa.schema([field.with_type(pa.string()) if _form_of(field.type) else field for field in schema])


def _timed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in its type; ``ArrowInvalid`` where a time has another form, or is none."""
    form = _form_of(kind)
    if form is None:
        return values
    if pc.any(pc.invert(pc.match_substring_regex(values, form))).as_py():
        raise pa.ArrowInvalid
    return values.cast(kind)
