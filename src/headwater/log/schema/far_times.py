"""Far times: dates and times outside the years 1 to 9999, given as plain numbers.

What it is: ``far_rows`` and ``far_json_rows`` are ``to_batches`` and ``json_rows`` for values that Headwater wrote: a
date or time may be the number of days or microseconds since 1970 that ``to_values`` gave, and an interval its
microseconds.
Invariants: ``far_rows(to_rows(batch), schema)`` is the batch again. A number is accepted only where no date or datetime
can express the value: any other number is a mistake about its unit and refused.
Not here: appending, where every number is refused, since one in nanoseconds would look like a far time
(``columns.py``). Read next: ``row_conversion.py``; ``views/serving/serving_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema.columns import (
    Admission,
    ColumnConverter,
    DateColumn,
    IntervalColumn,
    LocalTimestampColumn,
    TimestampColumn,
    ValueRefused,
    Values,
    shorten,
)
from headwater.log.schema.json_lines import JSON_LEAVES, JsonDateColumn, json_objects
from headwater.log.schema.nested_columns import Leaves
from headwater.log.schema.row_conversion import RowConverter

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
DAY_US = 86_400_000_000


def far_rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of rows as ``to_rows`` gives them.

    >>> far_rows([{"day": 3_000_000}], pa.schema([("day", pa.date32())])).column(0).cast(pa.int32()).to_pylist()
    [3000000]
    >>> far_rows([{"day": 20_000}], pa.schema([("day", pa.date32())]))
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 0 (counted from 0), column "day": 20000 is of type int, expected DATE
      Hint: A number stands for a day outside of the years 1 to 9999 only.
    """
    return _converter(schema, as_json=False).batch(rows)


def far_json_rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """The same, of rows whose values are JSON's."""
    return _converter(schema, as_json=True).batch(rows)


def far_json_lines(lines: Iterable[str], schema: pa.Schema) -> pa.RecordBatch:
    """The same, of lines of JSON.

    >>> schema = pa.schema([("at", pa.timestamp("us"))])
    >>> far_json_lines(['{"at":400000000000000000}'], schema).column(0).cast(pa.int64()).to_pylist()
    [400000000000000000]
    """
    return far_json_rows(json_objects(lines, schema), schema)


class _Far(ColumnConverter):
    """A column of dates or times that takes numbers outside of Python's calendar."""

    what = "a time"
    unit = DAY_US
    storage = pa.int64()

    def admission(self, kind: type) -> Admission | None:
        return self._beyond if kind is int else super().admission(kind)

    def build(self, values: Values, types: set[type]) -> pa.Array:
        if int not in types:
            return super().build(values, types)
        near = super().build([None if type(value) is int else value for value in values], types - {int} | {type(None)})
        far = pa.array([value if type(value) is int else None for value in values], self.storage)
        return pc.coalesce(near, far.view(self.arrow))

    def _beyond(self, number: int) -> int:
        if FIRST_DAY * self.unit <= number < (LAST_DAY + 1) * self.unit:
            hint = f"A number stands for {self.what} outside of the years 1 to 9999 only."
            raise ValueRefused(f"{shorten(number)} is of type int, expected {self.expected}", hint)
        return number


class _FarTimestampColumn(_Far, TimestampColumn):
    pass


class _FarLocalTimestampColumn(_Far, LocalTimestampColumn):
    pass


class _FarDateColumn(_Far, DateColumn):
    what, unit, storage = "a day", 1, pa.int32()


class _FarJsonDateColumn(_Far, JsonDateColumn):
    what, unit, storage = "a day", 1, pa.int32()


class _JsonIntervalColumn(IntervalColumn):
    def admission(self, kind: type) -> Admission | None:
        return (lambda microseconds: microseconds) if kind is int else super().admission(kind)


FAR: Leaves = {
    TimestampColumn: _FarTimestampColumn,
    LocalTimestampColumn: _FarLocalTimestampColumn,
    DateColumn: _FarDateColumn,
}
FAR_JSON: Leaves = {**JSON_LEAVES, **FAR, DateColumn: _FarJsonDateColumn, IntervalColumn: _JsonIntervalColumn}


@lru_cache(maxsize=256)
def _converter(schema: pa.Schema, *, as_json: bool) -> RowConverter:
    return RowConverter(schema, leaves=FAR_JSON if as_json else FAR)
