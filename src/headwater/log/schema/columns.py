"""Column converters for types without parts: Python values to one Arrow column, strictly.

What it is: one small class for each kind of Spark type; ``convert`` takes a list of values and returns an Arrow array.
Invariants: no value changes (pyarrow itself would cut 1.5 to 1, take bytes for text and integers for times). A list is
checked by the *set* of its classes, so a valid list costs one pass in C; the first bad value is searched for only after
a failure and raised as a ``Misfit`` with its index.
Not here: lists, maps and structs (``nested_columns.py``), rows and their error messages (``row_conversion.py``).
Read next: ``nested_columns.py``.
"""

from __future__ import annotations

import math
import operator
import re
import reprlib
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema.ddl import spark_type

Values = Sequence[Any]
Admission = Callable[[Any], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NTZ = datetime(1970, 1, 1)
MICROSECONDS = pa.duration("us")
NULL = frozenset({type(None)})
# Python's own parser drops what is finer than a microsecond; we refuse it.
FINER_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")
TOO_LARGE = "the column holds more than 2 GiB in one batch"
ARROW_FAILURES = (pa.ArrowException, OverflowError, TypeError, ValueError)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlist = _short.maxtuple = _short.maxdict = 4
_short.maxlevel = 2


def shorten(value: Any) -> str:
    """The value as an error message shows it.

    >>> shorten("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        start = bytes(value[:16])
        return repr(start) if len(start) == len(value) else f"{start!r}… ({len(value)} bytes)"
    return _short.repr(value)


class Misfit(Exception):
    """One value that does not fit: its index, the value, and the reason."""

    def __init__(self, index: int, value: Any, expected: str, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.index = index
        self.value = value
        self.expected = expected
        self.reason = reason
        self.hint = hint
        self.path = ""

    def inside(self, index: int, part: str) -> Misfit:
        """The same misfit, seen from the list, map or struct that holds the value."""
        self.index = index
        self.path = part + self.path
        return self


class ValueRefused(Exception):
    """Raised by an admission: the value's class fits, the value does not."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class ColumnConverter:
    """Converts values of one type to an Arrow array. Subclasses say which classes fit."""

    exact: ClassVar[frozenset[type]]

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow
        self.expected = spark_type(arrow)

    def convert(self, values: Values) -> pa.Array:
        """The Arrow array of these values, or ``Misfit`` for the first that does not fit."""
        types = set(map(type, values))
        if not types <= self.exact:
            values = self._admit_all(values, types)
            types = set(map(type, values))
        try:
            array = self.build(values, types)
        except ARROW_FAILURES as failure:
            raise self._first_failing(values, failure) from None
        if isinstance(array, pa.ChunkedArray):  # pyarrow's answer to more than 2 GiB of text
            raise Misfit(0, "…", self.expected, TOO_LARGE, "Append fewer rows at once.")
        return array

    def build(self, values: Values, types: set[type]) -> pa.Array:  # noqa: ARG002
        """The array, when every class is one of ``exact``. pyarrow's exceptions pass through."""
        return pa.array(values, self.arrow)

    def admission(self, kind: type) -> Admission | None:  # noqa: ARG002
        """The lossless conversion of a class outside ``exact``; None when there is none."""
        return None

    def unfit(self, value: Any) -> tuple[str, str | None]:
        """Reason and hint for a value whose class is right and which pyarrow refused."""
        return f"{shorten(value)} does not fit {self.expected}", None

    def unfit_class(self, value: Any) -> tuple[str, str | None]:
        """Reason and hint for a value whose class is wrong."""
        return f"{shorten(value)} is of type {type(value).__name__}, expected {self.expected}", None

    def _admit_all(self, values: Values, types: set[type]) -> list[Any]:
        admissions = {kind: self.admission(kind) for kind in types - self.exact}
        admitted: list[Any] = []
        for index, value in enumerate(values):
            kind = type(value)
            if kind not in admissions:
                admitted.append(value)
                continue
            admission = admissions[kind]
            if admission is None:
                raise Misfit(index, value, self.expected, *self.unfit_class(value))
            try:
                admitted.append(admission(value))
            except ValueRefused as refusal:
                raise Misfit(index, value, self.expected, refusal.reason, refusal.hint) from None
        return admitted

    def _first_failing(self, values: Values, failure: BaseException) -> Misfit:
        for index, value in enumerate(values):
            try:
                self.build((value,), {type(value)})
            except ARROW_FAILURES:
                return Misfit(index, value, self.expected, *self.unfit(value))
        return Misfit(0, "…", self.expected, f"the column cannot be built: {failure}")


def _is_whole(kind: type) -> bool:
    return (issubclass(kind, int) and not issubclass(kind, bool)) or issubclass(kind, np.integer)


class InferredColumn(ColumnConverter):
    """A column whose type pyarrow infers from fitting values, and from no others.

    The inference then also checks every value's class, and is cheaper: 52 ns instead of 86 for a text.
    """

    def convert(self, values: Values) -> pa.Array:
        try:
            array = pa.array(values)
            if array.type == self.arrow and not isinstance(array, pa.ChunkedArray):
                return array
        except ARROW_FAILURES:
            pass  # the long way finds the value, or a class that can be admitted
        return super().convert(values)


class IntegerColumn(InferredColumn):
    """TINYINT to BIGINT: integers only; a float is refused even when it is whole."""

    exact = NULL | {int}

    def admission(self, kind: type) -> Admission | None:
        return operator.index if _is_whole(kind) else None

    def unfit(self, value: Any) -> tuple[str, str | None]:
        top = 2 ** (self.arrow.bit_width - 1)
        return f"{shorten(value)} is outside of {self.expected}, which holds {-top} to {top - 1}", None


class FloatColumn(ColumnConverter):
    """FLOAT and DOUBLE: floats, and integers that the type holds exactly."""

    exact = NULL | {float, int}

    def build(self, values: Values, types: set[type]) -> pa.Array:
        array = super().build(values, types)
        # pyarrow turns 1e300 into an infinite FLOAT. The FLOAT nearest to a double is meant; infinity is not.
        if self.arrow.bit_width == 32 and pc.any(pc.is_inf(array)).as_py():
            infinite = pc.is_inf(array).fill_null(False).to_pylist()
            if any(math.isfinite(value) for value, is_infinite in zip(values, infinite, strict=True) if is_infinite):
                raise OverflowError
        return array

    def admission(self, kind: type) -> Admission | None:
        if _is_whole(kind):
            return operator.index
        if issubclass(kind, float) or kind in (np.float32, np.float16):
            return float
        return None

    def unfit(self, value: Any) -> tuple[str, str | None]:
        if isinstance(value, int):
            return f"{shorten(value)} cannot be held exactly by {self.expected}", "Use BIGINT or DECIMAL for it."
        return f"{shorten(value)} is too large for {self.expected}", "Use DOUBLE for it."


class StringColumn(InferredColumn):
    """STRING: text only; bytes are not decoded for the caller."""

    exact = NULL | {str}

    def admission(self, kind: type) -> Admission | None:
        return str.__str__ if issubclass(kind, str) else None

    def unfit(self, value: Any) -> tuple[str, str | None]:
        return (
            f"{shorten(value)} cannot be written as UTF-8",
            "It holds half a surrogate pair; decode it correctly first.",
        )

    def unfit_class(self, value: Any) -> tuple[str, str | None]:
        reason, hint = super().unfit_class(value)
        return reason, "Decode it first, or declare the column BINARY." if isinstance(value, bytes) else hint


class BooleanColumn(ColumnConverter):
    """BOOLEAN: True and False, not 0 and 1."""

    exact = NULL | {bool}

    def admission(self, kind: type) -> Admission | None:
        return bool if issubclass(kind, np.bool_) else None


class BinaryColumn(ColumnConverter):
    """BINARY: bytes, bytearray, memoryview."""

    exact = NULL | {bytes, bytearray}

    def admission(self, kind: type) -> Admission | None:
        return bytes if issubclass(kind, (bytes, bytearray, memoryview)) else None


class DateColumn(ColumnConverter):
    """DATE: a date. A datetime is refused, since its time of day would be lost."""

    exact = NULL | {date}

    def admission(self, kind: type) -> Admission | None:
        if issubclass(kind, date) and not issubclass(kind, datetime):
            return lambda value: date(value.year, value.month, value.day)
        return None

    def unfit_class(self, value: Any) -> tuple[str, str | None]:
        reason, hint = super().unfit_class(value)
        return reason, "Its time of day would be lost; pass value.date()." if isinstance(value, datetime) else hint


class TimestampColumn(ColumnConverter):
    """TIMESTAMP: a datetime or ISO-8601 text; without a zone it is taken as UTC."""

    exact = NULL | {datetime}
    epoch = EPOCH

    def build(self, values: Values, types: set[type]) -> pa.Array:
        # pyarrow asks each aware datetime for its offset (600 ns each). Subtracting an epoch that has the same tzinfo
        # needs no offset, refuses a mixture of naive and aware, and the differences convert at once: 130 ns.
        try:
            return self._since(self._epoch_for(values), values, types)
        except TypeError:
            if self.epoch is EPOCH_NTZ:
                raise
            zoned = [v if v is None or v.utcoffset() is not None else v.replace(tzinfo=UTC) for v in values]
            return self._since(EPOCH, zoned, types)

    def _epoch_for(self, values: Values) -> datetime:
        first = next((value for value in values if value is not None), EPOCH)
        return EPOCH_NTZ if first.tzinfo is None else self.epoch

    def _since(self, epoch: datetime, values: Values, types: set[type]) -> pa.Array:
        if len(types) == 1 and datetime in types:
            since = list(map(epoch.__rsub__, values))  # type: ignore[attr-defined]
        else:
            since = [None if value is None else value - epoch for value in values]
        return pa.array(since, MICROSECONDS).view(self.arrow)

    def admission(self, kind: type) -> Admission | None:
        if issubclass(kind, str):
            return parse_moment
        if kind.__name__ == "NaTType":  # pandas' missing time calls itself a datetime
            return None
        return _plain_moment if issubclass(kind, datetime) else None

    def unfit_class(self, value: Any) -> tuple[str, str | None]:
        reason, hint = super().unfit_class(value)
        if isinstance(value, (int, float, Decimal)):
            hint = "A number does not say its unit; pass a datetime or ISO-8601 text."
        elif type(value) is date:
            hint = "A date has no time of day; pass a datetime."
        return reason, hint


class LocalTimestampColumn(TimestampColumn):
    """TIMESTAMP_NTZ: a datetime or ISO-8601 text without a zone."""

    epoch = EPOCH_NTZ

    def unfit(self, value: Any) -> tuple[str, str | None]:
        return f"{shorten(value)} carries a time zone, which TIMESTAMP_NTZ cannot hold", "Declare the column TIMESTAMP."


class IntervalColumn(ColumnConverter):
    """INTERVAL DAY TO SECOND, which views have and topics have not: a timedelta."""

    exact = NULL | {timedelta}


class VoidColumn(ColumnConverter):
    """VOID, likewise: null only."""

    exact = NULL


class DecimalColumn(ColumnConverter):
    """DECIMAL: Decimal and int, neither rounded nor cut."""

    exact = NULL | {Decimal, int}

    def admission(self, kind: type) -> Admission | None:
        if _is_whole(kind):
            return operator.index
        return Decimal if issubclass(kind, Decimal) else None

    def unfit(self, value: Any) -> tuple[str, str | None]:
        if isinstance(value, Decimal) and not value.is_finite():
            return f"{shorten(value)} is not a number that {self.expected} can hold", None
        digits = f"{self.arrow.precision - self.arrow.scale} digits before the point and {self.arrow.scale} after it"
        return (
            f"{shorten(value)} does not fit {self.expected}, which holds {digits}",
            "Round it first if that is meant.",
        )

    def unfit_class(self, value: Any) -> tuple[str, str | None]:
        reason, hint = super().unfit_class(value)
        if isinstance(value, (float, np.floating)):
            exact = shorten(str(Decimal(float(value))))
            hint = f'A float has no exact decimal value: {shorten(value)} is {exact}. Pass Decimal("…").'
        return reason, hint


def parse_moment(text: str) -> datetime:
    """A time from ISO-8601 text, to the microsecond.

    >>> parse_moment("2026-01-31T10:00:00.5Z").isoformat()
    '2026-01-31T10:00:00.500000+00:00'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueRefused(
            f"{shorten(text)} is not an ISO-8601 time",
            'Write it as "2026-01-31T10:00:00Z", with or without a fraction.',
        ) from None
    if FINER_THAN_MICROSECONDS.search(text):
        raise ValueRefused(
            f"{shorten(text)} is finer than a microsecond", "Times are kept to the microsecond; round it first."
        )
    return moment


def _plain_moment(value: datetime) -> datetime:
    if getattr(value, "nanosecond", 0):
        raise ValueRefused(
            f"{shorten(value)} is finer than a microsecond", "Times are kept to the microsecond; round it first."
        )
    return datetime.combine(value.date(), value.timetz())
