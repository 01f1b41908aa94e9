"""Row conversion: user's rows to one Arrow record batch, and batches to rows.

What it is: ``to_batches`` takes dicts, dataclasses, pandas or Arrow data and returns one contiguous record batch with
exactly the topic's schema. A ``RowConverter`` is compiled once per schema.
Invariants: all or nothing: the first row that does not fit raises ``RowRefused`` with row, column, value and expected
type; no silent coercion; columns are matched by name; Arrow data that has the schema is not copied.
Not here: JSON lines (``json_lines.py``), single types (``columns.py``, ``nested_columns.py``), casts
(``arrow_input.py``). Read next: ``nested_columns.py``, ``topic.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import RowRefused
from headwater.hints import suggestion
from headwater.log.schema.arrow_input import fit, has_required_parts, pandas_column, refuse_hidden_nulls
from headwater.log.schema.columns import (
    ARROW_FAILURES,
    EPOCH,
    EPOCH_NTZ,
    MICROSECONDS,
    NULL,
    TOO_LARGE,
    ColumnConverter,
    Misfit,
    TimestampColumn,
    shorten,
)
from headwater.log.schema.nested_columns import Leaves, RecordColumn

# Up to this many rows one struct conversion is cheaper than one conversion per column.
FEW_ROWS_MAX = 32

Rows = Any  # dicts, dataclasses, a pandas DataFrame, Arrow data, or one dict


class RowConverter:
    """Turns rows into record batches of one schema. Compiled once, used for every append.

    ``not_null`` are the columns that may not be null besides those that the schema says NOT NULL.

    >>> converter = RowConverter(pa.schema([("id", pa.int64()), ("name", pa.string())]), frozenset({"id"}))
    >>> converter.batch([{"id": 1, "name": "a"}, {"id": 2}]).to_pylist()
    [{'id': 1, 'name': 'a'}, {'id': 2, 'name': None}]
    >>> converter.batch([{"id": 1}, {"id": "2"}])
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 1 (counted from 0), column "id": '2' is of type str, expected BIGINT
    """

    def __init__(
        self, schema: pa.Schema, not_null: frozenset[str] = frozenset(), *, leaves: Leaves | None = None
    ) -> None:
        self.schema = schema
        self.not_null = not_null | {field.name for field in schema if not field.nullable}
        self._record = RecordColumn(schema, self.not_null, leaves)
        self._required = [index for index, name in enumerate(schema.names) if name in self.not_null]
        # Other leaves convert in their own way, which the shortcut would skip.
        self._few = FewRows(self._record, schema) if leaves is None else None
        self._with_parts = [index for index, field in enumerate(schema) if has_required_parts(field.type)]

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """One record batch of these rows, whatever form they have."""
        try:
            if isinstance(rows, list) and rows and type(rows[0]) is dict:  # by far the most frequent
                return self._from_objects(rows)
            if isinstance(rows, pa.RecordBatch):
                return self._from_arrow(rows)
            return self._from_other(rows)
        except Misfit as misfit:
            raise refused(misfit) from None

    def _from_objects(self, rows: list[Any]) -> pa.RecordBatch:
        if self._few is not None and len(rows) <= FEW_ROWS_MAX:
            batch = self._few.batch(rows)
            if batch is not None:
                return batch
        return pa.RecordBatch.from_arrays(self._record.arrays(rows), schema=self.schema)

    def _from_other(self, rows: Rows) -> pa.RecordBatch:
        pandas = sys.modules.get("pandas")  # a DataFrame in hand means that it is imported
        if isinstance(rows, pa.Table):
            return self._from_arrow(rows)
        if pandas is not None and isinstance(rows, pandas.DataFrame):
            return self._from_pandas(rows)
        if isinstance(rows, Mapping) or hasattr(type(rows), "__dataclass_fields__"):
            return self._from_objects([rows])
        if isinstance(rows, (str, bytes)):
            raise RowRefused("text is not a list of rows", hint="JSON lines are appended with append_json.")
        if hasattr(rows, "__arrow_c_stream__"):  # Polars, DuckDB and other libraries with Arrow's stream interface
            return self._from_arrow(pa.table(rows))
        try:
            listed = list(rows)
        except TypeError:
            raise RowRefused(
                f"{shorten(rows)} is of type {type(rows).__name__}, which holds no rows",
                hint="Pass dicts, dataclasses, a pandas DataFrame, or Arrow data.",
            ) from None
        if listed and all(isinstance(item, (pa.RecordBatch, pa.Table)) for item in listed):
            return self._from_batches(listed)
        return self._from_objects(listed)

    def _from_batches(self, batches: list[Any]) -> pa.RecordBatch:
        converted, row = [], 0
        for batch in batches:
            try:
                converted.append(self._from_arrow(batch))
            except Misfit as misfit:
                raise misfit.inside(misfit.index + row, "") from None
            row += batch.num_rows
        return converted[0] if len(converted) == 1 else _joined(converted)

    def _from_arrow(self, data: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        if isinstance(data, pa.RecordBatch) and data.schema.equals(self.schema, check_metadata=True):
            self._refuse_nulls(data)
            return data
        names = data.schema.names
        return self._assemble(names, data.num_rows, lambda name, column: fit(data.column(name), column))

    def _from_pandas(self, frame: Any) -> pa.RecordBatch:
        index_names = [name for name in frame.index.names if name in self._record.known]
        if index_names and index_names[0] not in frame.columns:
            raise RowRefused(
                f'column "{index_names[0]}" is the index of the DataFrame', hint="Append frame.reset_index()."
            )
        names = list(frame.columns)
        return self._assemble(names, len(frame), lambda name, column: pandas_column(frame[name], column))

    def _assemble(
        self, names: list[Any], height: int, read: Callable[[str, ColumnConverter], pa.Array]
    ) -> pa.RecordBatch:
        """A batch from columns that are matched by name; one that is not given is null."""
        for name in names:
            if name not in self._record.known:
                columns = "The columns are " + ", ".join(self.schema.names) + "."
                hint = suggestion(str(name), self.schema.names, otherwise=columns)
                raise RowRefused(f"unknown column {shorten(name)}", hint=hint, column=str(name))
            if names.count(name) > 1:
                raise RowRefused(f'column "{name}" is given twice', hint="Drop one of them.", column=name)
        arrays = []
        for name, column, _ in self._record.parts:
            if name not in names:
                arrays.append(pa.nulls(height, column.arrow))
                continue
            try:
                arrays.append(read(name, column))
            except Misfit as misfit:
                raise misfit.inside(misfit.index, f".{name}") from None
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._refuse_nulls(batch)
        return batch

    def _refuse_nulls(self, batch: pa.RecordBatch) -> None:
        for index in self._required:
            array = batch.column(index)
            if array.null_count:
                row = array.is_null().index(True).as_py()
                name, column, _ = self._record.parts[index]
                reason = "null, but the column must not be null"
                raise Misfit(row, None, f"{column.expected} NOT NULL", reason).inside(row, f".{name}")
        for index in self._with_parts:
            name, column, _ = self._record.parts[index]
            try:
                refuse_hidden_nulls(batch.column(index), column)
            except Misfit as misfit:
                raise misfit.inside(misfit.index, f".{name}") from None


class FewRows:
    """A shortcut for a few plain dicts: the same batch with one call into pyarrow, not one for each column.

    A call costs 4 µs whatever it converts, which is most of the time of appending a single row. The shortcut takes only
    rows whose values all have a class in their column's ``exact``, and returns None otherwise.
    """

    def __init__(self, record: RecordColumn, schema: pa.Schema) -> None:
        self._names = schema.names
        self._struct = pa.struct(list(schema))
        self._moments = [
            (name, column.epoch, frozenset({datetime}) if required else column.exact)
            for name, column, required in record.parts
            if isinstance(column, TimestampColumn)
        ]
        self._plain = [
            (name, column.exact - NULL if required else column.exact)
            for name, column, required in record.parts
            if not isinstance(column, TimestampColumn)
        ]
        # A FLOAT must be looked at after the conversion, and parts must be looked into.
        self._usable = not any(kinds.is_nested(field.type) or kinds.is_float32(field.type) for field in schema)

    def batch(self, rows: list[Any]) -> pa.RecordBatch | None:
        if not (self._usable and rows and all(type(row) is dict and len(row) == len(self._names) for row in rows)):
            return None
        try:
            return pa.RecordBatch.from_struct_array(pa.array(list(map(self._checked, rows)), self._struct))
        except (KeyError, *ARROW_FAILURES):
            return None

    def _checked(self, row: dict[str, Any]) -> dict[str, Any]:
        for name, exact in self._plain:
            if type(row[name]) not in exact:
                raise TypeError
        if self._moments:
            row = row.copy()
            for name, epoch, exact in self._moments:
                value = row[name]
                if type(value) not in exact:
                    raise TypeError
                if value is not None:
                    since = value - (EPOCH_NTZ if value.tzinfo is None else epoch)
                    row[name] = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return row


def to_batches(rows: Rows, schema: pa.Schema, *, not_null: frozenset[str] = frozenset()) -> pa.RecordBatch:
    """One record batch of these rows with exactly this (normalized) schema.

    >>> from headwater.log.schema.normalization import normalize_schema
    >>> schema = normalize_schema("id BIGINT, at TIMESTAMP")
    >>> to_batches({"id": 1, "at": "2026-01-31T10:00:00Z"}, schema, not_null=frozenset({"id"})).num_rows
    1
    >>> to_batches([{"id": 1, "att": None}], schema)
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 0 (counted from 0), column "att": unknown column 'att'
      Hint: Did you mean "at"?
    """
    return converter_for(schema, not_null).batch(rows)


_converters: dict[tuple[int, frozenset[str]], RowConverter] = {}
CONVERTERS_MAX = 256


def converter_for(schema: pa.Schema, not_null: frozenset[str] = frozenset()) -> RowConverter:
    """The compiled converter of this schema object; the same one each time."""
    # By identity: hashing a schema takes as long as converting a row. The converter keeps its schema alive, so an
    # id cannot come to mean another one.
    converter = _converters.get((id(schema), not_null))
    if converter is None:
        if len(_converters) >= CONVERTERS_MAX:
            _converters.clear()
        converter = _converters[id(schema), not_null] = RowConverter(schema, not_null)
    return converter


def refused(misfit: Misfit) -> RowRefused:
    """The user's error for a value that does not fit."""
    column = misfit.path.removeprefix(".")
    where = f"row {misfit.index} (counted from 0)" + (f', column "{column}"' if column else "")
    return RowRefused(
        f"{where}: {misfit.reason}",
        hint=misfit.hint,
        row=misfit.index,
        column=column or None,
        value=shorten(misfit.value),
        expected=misfit.expected,
    )


def to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as dicts; TIMESTAMP as aware UTC datetimes, MAP as dicts; see ``to_values``.

    >>> to_rows(pa.record_batch({"id": [1, 2]}))
    [{'id': 1}, {'id': 2}]
    """
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    # Column by column: to_pylist takes ten times as long where there are timestamps.
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        for row, value in zip(rows, to_values(array), strict=True):
            row[name] = value
    return rows


def to_values(array: pa.Array) -> list[Any]:
    """One column's values as Python objects, each as it was appended.

    A date or time outside the years 1 to 9999 is the number of days or microseconds since 1970. In text that is not
    UTF-8 each wrong byte is U+FFFD, as in Java.

    >>> to_values(pa.array([0, None], pa.timestamp("us", tz="UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    >>> to_values(pa.array([0, 3_000_000], pa.date32()))
    [datetime.date(1970, 1, 1), 3000000]
    """
    arrow = array.type
    if kinds.is_timestamp(arrow):
        epoch = EPOCH_NTZ if arrow.tz is None else EPOCH
        since = array.cast(pa.timestamp("us", arrow.tz)).view(MICROSECONDS)
        listed = since.to_numpy(zero_copy_only=False).tolist()
        try:
            if listed.count(None) > array.null_count:  # numpy takes the smallest time for NaT
                raise OverflowError
            if array.null_count:
                return [None if value is None else epoch + value for value in listed]
            return list(map(epoch.__add__, listed))
        except OverflowError:
            return [_or_number(epoch, us, timedelta(microseconds=1)) for us in since.cast(pa.int64()).to_pylist()]
    if kinds.is_date32(arrow):
        try:
            return list(array.to_pylist())
        except (OverflowError, ValueError):
            return [_or_number(EPOCH.date(), day, timedelta(days=1)) for day in array.cast(pa.int32()).to_pylist()]
    if kinds.is_struct(arrow):
        columns = pa.RecordBatch.from_arrays(array.flatten(), names=[field.name for field in arrow])
        return _with_nulls(array, to_rows(columns))
    if kinds.is_list(arrow):
        values, bounds = _flat(array)
        elements = to_values(values)
        return _with_nulls(array, [elements[start:stop] for start, stop in bounds])
    if kinds.is_map(arrow):
        pairs, bounds = _flat(array)
        keys, items = (to_values(part) for part in pairs.flatten())
        flat = list(zip(keys, items, strict=True))
        form = list if kinds.is_nested(arrow.key_type) else dict  # a struct cannot be a dict's key
        return _with_nulls(array, [form(flat[start:stop]) for start, stop in bounds])
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:  # Spark's CAST(bytes AS STRING) may give anything
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]


def _or_number(epoch: date, since: int | None, unit: timedelta) -> date | int | None:
    """The time at this many units after the epoch; the number itself outside Python's calendar."""
    try:
        return None if since is None else epoch + since * unit
    except OverflowError:
        return since


def _flat(array: pa.Array) -> tuple[pa.Array, Iterable[tuple[int, int]]]:
    """A list's or map's elements end to end, and where each list starts and stops in them."""
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    return array.values.slice(first, offsets[-1] - first), pairwise([offset - first for offset in offsets])


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid:  # the offsets of text and lists are 32 bits wide
        raise RowRefused(f"the batches do not fit into one: {TOO_LARGE}", hint="Append fewer rows at once.") from None
