"""File store: Parquet, CSV and Delta as attached stores.

What it is: ``FileStore`` reads a file or a folder through Arrow's datasets, a Delta table through ``deltalake`` at one
version. Each is one table.
Invariants: conditions are pushed down to Arrow, which skips what a file's statistics rule out. Only comparisons are
pushed down that Arrow makes as Spark does: not those of doubles that a NaN could pass, nor of times finer than
microseconds; and for a Delta table only those for which its statistics are right.
Not here: writing such files (``sinks/parquet_sink.py``, ``sinks/delta_sink.py``).
Read next: ``store.py``; ``docs/federation.md``.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as kinds

from headwater.errors import HeadwaterError, InvalidDeclaration, MissingExtra, StoreRefused, StoreUnavailable
from headwater.federation.attachments import Attachment
from headwater.federation.conditions import Both, Comparison, Condition, Like, Null, OneOf, text_of
from headwater.federation.literals import Value
from headwater.federation.store import (
    EQUAL,
    LESS,
    NULL,
    NUMBERED,
    ORDERED,
    PREFIX,
    Answered,
    Store,
    StoreColumn,
    StoreRequest,
    StoreStatement,
    StoreTable,
)
from headwater.log.schema.normalization import normalize_type

COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LARGE_UNSIGNED = pa.decimal128(20, 0)


class FileStore(Store):
    """A file or a folder, for one query."""

    dialect = "arrow"

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment)
        self._version = ""
        path = attachment.address.path
        if not path.exists():
            raise StoreUnavailable(
                f'store "{self.name}" does not exist: {path}',
                hint=f"Attach it again at its new place: headwater attach {self.name} PATH",
                store=self.name,
            )
        self._dataset = self._with_mapped_errors(self._opened)

    def _opened(self) -> Any:
        address = self.attachment.address
        if address.kind == "delta":
            table = _delta()(str(address.path))
            self._version = f" version {table.version()}"
            return table.to_pyarrow_dataset()
        partitioning = "hive" if address.path.is_dir() else None
        return ds.dataset(str(address.path), format=address.kind, partitioning=partitioning)

    def describe(self, parts: Sequence[str]) -> StoreTable:
        if parts:
            raise StoreRefused(
                f'store "{self.name}" is one table', hint=f"Write its name alone: FROM {self.name}.", store=self.name
            )
        fields = [field for field in self._dataset.schema if _held(field.type) is not None]
        if not fields:
            raise self.unknown(["…"], [])
        # A Delta table's statistics have times cut to milliseconds, and are wrong where doubles are NaN or infinite.
        rounded = self.attachment.address.kind == "delta"
        return self.shaped(parts, [_column(field, rounded=rounded) for field in fields])

    def statement(self, request: StoreRequest) -> StoreStatement:
        names = ", ".join(each.name for each in request.columns) or "nothing but the number of rows"
        filtered = "" if request.condition is None else f" where {text_of(request.condition)}"
        path = self.attachment.address.path
        return StoreStatement(f"read {names} of {path}{self._version}{filtered}, at most {request.rows_max} rows")

    def fetch(self, request: StoreRequest) -> Answered:
        statement = self.statement(request)
        chosen = None if request.condition is None else _expression(request.condition)
        names = [each.name for each in request.columns]

        def read() -> pa.Table:
            return self._dataset.scanner(columns=names, filter=chosen).head(request.rows_max)

        rows = self._with_mapped_errors(read, statement.text)
        if not names:
            return Answered(pa.table({NUMBERED: pa.nulls(rows.num_rows, pa.int64())}), statement)
        columns = [_fitted(rows.column(each.name), each.arrow) for each in request.columns]
        return Answered(pa.Table.from_arrays(columns, names=names), statement)

    def close(self) -> None:
        """See ``Store.close``."""

    def _with_mapped_errors(self, call: Callable[[], Any], statement: str | None = None) -> Any:
        try:
            return call()
        except HeadwaterError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines()
            raise StoreRefused(
                f'store "{self.name}" cannot be read as {self.attachment.address.kind}',
                detail=f"{lines[0] if lines else type(error).__name__}{f' (in: {statement})' if statement else ''}",
                hint="Look at the file; the kind can be given: parquet:PATH, csv:PATH, delta:PATH.",
                store=self.name,
                statement=statement,
            ) from error


def _held(arrow: pa.DataType) -> pa.DataType | None:
    """The column's type in Spark; None: Spark has none."""
    if kinds.is_uint64(arrow):
        return LARGE_UNSIGNED
    if kinds.is_time(arrow) or kinds.is_null(arrow):
        return pa.string()
    try:
        return normalize_type(arrow)
    except InvalidDeclaration:
        return None


def _fitted(column: pa.ChunkedArray, arrow: pa.DataType) -> pa.ChunkedArray:
    if column.type == arrow:
        return column
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    # Spark's times have microseconds; finer digits are cut off, as in Spark's own reader.
    return column.cast(arrow, safe=not kinds.is_timestamp(arrow))


def _column(field: pa.Field, *, rounded: bool) -> StoreColumn:
    arrow = _held(field.type)
    assert arrow is not None
    return StoreColumn(
        field.name, arrow, _operators(field.type, rounded=rounded), _admits(field.type), origin=field.type
    )


def _operators(arrow: pa.DataType, *, rounded: bool) -> frozenset[str]:
    if kinds.is_signed_integer(arrow) or kinds.is_date32(arrow):
        return ORDERED | NULL
    if kinds.is_boolean(arrow):
        return EQUAL | NULL
    if kinds.is_float64(arrow) and not rounded:
        return EQUAL | LESS | NULL  # in Spark a NaN is larger than all numbers, in Arrow it is not comparable
    if kinds.is_string(arrow) or kinds.is_large_string(arrow):
        return ORDERED | PREFIX | NULL
    if kinds.is_timestamp(arrow) and arrow.unit in ("us", "ms") and not rounded:
        return ORDERED | NULL
    return frozenset()


def _admits(arrow: pa.DataType) -> Callable[[Value], bool]:
    if kinds.is_signed_integer(arrow):
        bound = 1 << (arrow.bit_width - 1)
        return lambda value: isinstance(value, int) and -bound <= value < bound
    if kinds.is_timestamp(arrow) and arrow.unit == "ms":
        return lambda value: isinstance(value, dt.datetime) and value.microsecond % 1000 == 0
    return lambda _: True


def _expression(condition: Condition) -> Any:
    if isinstance(condition, Both):
        return functools.reduce(operator.and_, map(_expression, condition.parts))
    if isinstance(condition, Comparison | OneOf | Like | Null):
        return _single(condition)
    return functools.reduce(operator.or_, map(_expression, condition.parts))


def _single(condition: Comparison | OneOf | Like | Null) -> Any:
    column, field = condition.column, ds.field(condition.column.name)
    if isinstance(condition, Comparison):
        return COMPARED[condition.operator](field, _scalar(column, condition.value))
    if isinstance(condition, OneOf) and kinds.is_floating(column.origin):
        # Not isin, which distinguishes 0.0 from -0.0.
        return functools.reduce(operator.or_, [field == _scalar(column, value) for value in condition.values])
    if isinstance(condition, OneOf):
        return field.isin(pa.array([_scalar(column, value).as_py() for value in condition.values], column.origin))
    if isinstance(condition, Like):
        return pc.starts_with(field, condition.pattern[:-1])
    return field.is_null() if condition.is_null else field.is_valid()


def _scalar(column: StoreColumn, value: Value) -> Any:
    if kinds.is_timestamp(column.origin) and column.origin.tz is not None and isinstance(value, dt.datetime):
        value = value.replace(tzinfo=dt.UTC)
    return pa.scalar(value, column.origin)


def _delta() -> Any:
    with MissingExtra.raised_for("an attached Delta table", "delta"):
        from deltalake import DeltaTable
    return DeltaTable
