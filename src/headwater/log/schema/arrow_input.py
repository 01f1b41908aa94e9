"""Arrow and pandas columns, cast to a topic's types.

What it is: ``fit`` returns an Arrow column in the topic's type if no value changes by that; ``pandas_column`` reads a
pandas column into Arrow first.
Invariants: a column that has the type is passed on without a copy; casts are Arrow's safe ones and only between types
of one meaning (a number is never text, a float never an integer); the first value that would change is named.
Not here: Python objects (``columns.py``, ``nested_columns.py``), matching columns to names (``row_conversion.py``).
Read next: ``row_conversion.py``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration
from headwater.log.schema.columns import TOO_LARGE, ColumnConverter, Misfit, shorten
from headwater.log.schema.normalization import normalize_type

# Whole floats beyond this may have lost digits on the way through float64.
EXACT_FLOAT_MAX = 2**53


def fit(array: pa.Array | pa.ChunkedArray, column: ColumnConverter) -> pa.Array:
    """The array in the column's type, or ``Misfit`` for the first value that would change."""
    array = _one_chunk(array, column)
    target = column.arrow
    if array.type == target:
        return array
    if kinds.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array.type, pa.BaseExtensionType):
        return fit(array.storage, column)
    if kinds.is_dictionary(array.type):
        return fit(array.dictionary_decode(), column)
    if kinds.is_run_end_encoded(array.type):
        return fit(pc.run_end_decode(array), column)
    if kinds.is_nested(target):
        return _fit_nested(array, column)
    if not _means_the_same(array.type, target):
        raise Misfit(
            _first_valid(array),
            _value(array, _first_valid(array)),
            column.expected,
            f"the column has the Arrow type {array.type}, which is not cast to {column.expected}",
            _cast_hint(array.type, target),
        )
    return _cast(array, column)


def pandas_column(series: Any, column: ColumnConverter) -> pa.Array:
    """A pandas column in the topic's type. pandas' missing values (NaN, NaT, NA, None) become null."""
    if series.dtype == object:
        missing = series.isna()
        if missing.any():
            series = series.astype(object).where(~missing, None)
        return column.convert(series.tolist())
    array = pa.array(series, from_pandas=True)
    if kinds.is_integer(column.arrow) and kinds.is_floating(array.type):
        return _whole_floats(_one_chunk(array, column), column)
    return fit(array, column)


def _whole_floats(array: pa.Array, column: ColumnConverter) -> pa.Array:
    """Integers that pandas turned into floats because one of them was missing."""
    fits = pc.and_(pc.equal(pc.floor(array), array), pc.less_equal(pc.abs(array), float(EXACT_FLOAT_MAX)))
    index = pc.index(fits, value=False).as_py()
    if index >= 0:
        value = array[index].as_py()
        raise Misfit(
            index, value, column.expected, f"{shorten(value)} is not a whole number, expected {column.expected}"
        )
    return _cast(array, column)


def _one_chunk(array: pa.Array | pa.ChunkedArray, column: ColumnConverter) -> pa.Array:
    if isinstance(array, pa.Array):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    if array.num_chunks == 0:
        return pa.array([], array.type)
    try:
        return pa.concat_arrays(array.chunks)
    except pa.ArrowInvalid:  # the offsets of text and lists are 32 bits wide
        raise Misfit(0, "…", column.expected, TOO_LARGE, "Append fewer rows at once.") from None


def _means_the_same(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast between these types can be lossless; the safe cast checks the values."""
    if kinds.is_timestamp(target):
        # A local time can be read as UTC; a moment cannot lose its zone.
        return bool(kinds.is_timestamp(source) and (source.tz is None or target.tz is not None))
    if kinds.is_floating(target) or kinds.is_decimal(target):
        same = kinds.is_floating(source) if kinds.is_floating(target) else kinds.is_decimal(source)
        return bool(same or kinds.is_integer(source))
    if kinds.is_string(target):
        return bool(kinds.is_string(source) or kinds.is_large_string(source) or kinds.is_string_view(source))
    if kinds.is_binary(target):
        return bool(
            kinds.is_binary(source)
            or kinds.is_large_binary(source)
            or kinds.is_binary_view(source)
            or kinds.is_fixed_size_binary(source)
        )
    return bool(
        (kinds.is_integer(target) and kinds.is_integer(source)) or (kinds.is_date(target) and kinds.is_date(source))
    )


def _cast(array: pa.Array, column: ColumnConverter) -> pa.Array:
    try:
        return _cast_exactly(array, column.arrow)
    except pa.ArrowInvalid:
        index = _first_failing(array, column.arrow)
        value = _value(array, index)
        raise Misfit(index, value, column.expected, *_unfit(array.type, column, value)) from None


def _unfit(source: pa.DataType, column: ColumnConverter, value: Any) -> tuple[str, str | None]:
    if kinds.is_timestamp(source):
        return f"{shorten(value)} is finer than a microsecond or out of range", "Round it to microseconds first."
    if kinds.is_floating(source) and kinds.is_floating(column.arrow):
        return f"{shorten(value)} would lose digits as {column.expected}", "Use DOUBLE, or cast to float32 first."
    return column.unfit(value)


def _cast_exactly(array: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_decimal(target) and kinds.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))  # every 64-bit integer; Arrow asks for the room beforehand
    result = array.cast(target)
    if kinds.is_floating(target) and kinds.is_floating(array.type) and array.type.bit_width > target.bit_width:
        back = result.cast(array.type)
        if not pc.all(pc.or_(pc.equal(back, array), pc.is_nan(array)), min_count=0).as_py():
            raise pa.ArrowInvalid("a float would lose digits")
    return result


def _first_failing(array: pa.Array, target: pa.DataType) -> int:
    """The first index whose value cannot be cast, by binary search."""
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            _cast_exactly(array.slice(start, middle - start), target)
        except pa.ArrowInvalid:
            stop = middle
        else:
            start = middle
    return start


def _fit_nested(array: pa.Array, column: ColumnConverter) -> pa.Array:
    try:
        if normalize_type(array.type) == column.arrow:
            return array.cast(column.arrow)
    except (InvalidDeclaration, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    # Parts that differ in name, order or type: value by value, which also names the bad one.
    return column.convert(array.to_pylist())


def _first_valid(array: pa.Array) -> int:
    return max(0, int(pc.index(pc.is_valid(array), value=True).as_py()))


def _value(array: pa.Array, index: int) -> Any:
    if index >= len(array):
        return None
    try:
        return array[index].as_py()
    except (ValueError, OverflowError):  # nanoseconds without pandas, a moment after the year 9999
        return array.slice(index, 1).view(pa.int64())[0].as_py() if kinds.is_temporal(array.type) else "…"


def _cast_hint(source: pa.DataType, target: pa.DataType) -> str:
    if kinds.is_timestamp(source) and kinds.is_timestamp(target):
        return "TIMESTAMP_NTZ cannot hold a time zone; declare the column TIMESTAMP."
    if kinds.is_decimal(target) and kinds.is_floating(source):
        return "A float has no exact decimal value; round and cast it to the decimal type first."
    return "Cast the column before appending, where you can see what the cast does."


def has_required_parts(arrow: pa.DataType) -> bool:
    """Whether this type has a NOT NULL field somewhere inside."""
    if kinds.is_struct(arrow):
        return any(not field.nullable or has_required_parts(field.type) for field in arrow)
    if kinds.is_map(arrow):
        return has_required_parts(arrow.key_type) or has_required_parts(arrow.item_type)
    return bool(kinds.is_list(arrow) and has_required_parts(arrow.value_type))


def refuse_hidden_nulls(array: pa.Array, column: ColumnConverter) -> None:
    """Refuse a null in a NOT NULL field inside the column, which Arrow does not check."""
    if _hides_null(array):
        column.convert(array.to_pylist())  # slow, and names the row and the field


def _hides_null(array: pa.Array) -> bool:
    if not has_required_parts(array.type):
        return False
    array = array.drop_null()
    if kinds.is_struct(array.type):
        parts = zip(array.type, array.flatten(), strict=True)
        return any((not field.nullable and part.null_count > 0) or _hides_null(part) for field, part in parts)
    # A map's keys and items ignore its offset, so a map is always read value by value.
    return kinds.is_map(array.type) or _hides_null(array.flatten())
