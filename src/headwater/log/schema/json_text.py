"""JSON text of whole columns: many rows as lines of JSON, without a Python object for each value.

What it is: ``batch_to_json_lines``. Numbers, times and text that needs no escape become text in Arrow, a column at a
time; other columns go value by value, as in ``json_lines.py``.
Invariants: each line is the text that ``json_line`` writes of the same row.
Not here: reading, and the text of one row (``json_lines.py``). Read next: ``json_lines.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.log.schema.json_lines import json_text
from headwater.log.schema.row_conversion import to_values

ESCAPED = r'["\\\x00-\x1f]'  # what JSON's text must not hold as it is
# Years 1 to 9999, in microseconds and days since 1970: what is beyond is written as a number.
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)


def batch_to_json_lines(batch: pa.RecordBatch) -> list[str]:
    """Every row of a batch as a line of JSON.

    >>> batch_to_json_lines(pa.record_batch({"id": [1, 2]}))
    ['{"id":1}', '{"id":2}']
    """
    names = [json_text(name).replace("%", "%%") for name in batch.schema.names]
    line = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    if not names:
        return [line] * batch.num_rows
    return [line % values for values in zip(*map(_texts, batch.columns), strict=True)]


def _texts(array: pa.Array) -> list[str]:
    """The JSON text of each value."""
    quick = _quick(array)
    if quick is None:
        return list(map(json_text, to_values(array)))
    texts: list[str] = pc.fill_null(quick, "null").to_pylist()
    return texts


def _quick(array: pa.Array) -> pa.Array | None:
    """The texts as a column; None for columns that have no such way."""
    kind = array.type
    if kinds.is_integer(kind) or kinds.is_boolean(kind):
        return array.cast(pa.string())
    if kinds.is_string(kind):
        return _quoted(array) if _is_plain(array) else None
    if kinds.is_date32(kind) and _within(array, pa.int32(), DAYS):
        return _quoted(array.cast(pa.string()))
    if kinds.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        if not _within(array, pa.int64(), MICROSECONDS):
            return None
        # Without their zone, which is UTC: Arrow looks a zone up for every value, in 30 times the time.
        written = pc.replace_substring(array.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
        return _quoted(pc.replace_substring(written, ".000000", ""), 'Z"' if kind.tz else '"')
    return None


def _quoted(texts: pa.Array, end: str = '"') -> pa.Array:
    return pc.binary_join_element_wise('"', texts, end, "")


def _is_plain(array: pa.Array) -> bool:
    """Whether every text is UTF-8, and JSON as it is."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return not pc.any(pc.match_substring_regex(array, ESCAPED)).as_py()


def _within(array: pa.Array, number: pa.DataType, bounds: tuple[int, int]) -> bool:
    found = pc.min_max(array.cast(number)).as_py()
    return found["min"] is None or (bounds[0] <= found["min"] and found["max"] <= bounds[1])
