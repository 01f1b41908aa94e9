"""The columns that searches ask about, and values as they are compared.

What it is: ``SearchColumns``: which columns of the documents are text, analysed word by word, and which are values of
a type; and how a word of a query becomes a value of a column's type.
Invariants: a value of a query and a value of a document are equal, smaller or greater here exactly when Spark says so
of the column and the literal: whole numbers and doubles as numbers (NaN is the greatest), decimals exactly, texts by
their code points, dates as days and timestamps as microseconds since 1970 (without a zone: UTC).
Not here: the query language (``query_parser.py``); Arrow columns (``document_batch.py``).
Read next: ``query_parser.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.schema.ddl import spark_type
from headwater.searches.query_nodes import EVERY_TEXT
from headwater.searches.text_analysis import TOKENIZERS

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAY = re.compile(r"\d{4}-\d\d-\d\d$", re.ASCII)
MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?P<zone>Z|[+-]\d\d:\d\d)?)?$", re.ASCII)
DAY_US = 86_400_000_000


class ValueKind(StrEnum):
    """How values of a column are compared."""

    WHOLE = "whole number"
    DOUBLE = "number"
    DECIMAL = "decimal number"
    BOOLEAN = "true or false"
    STRING = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True)
class SearchColumn:
    """One column of the documents."""

    name: str
    type: str  # Spark's
    kind: ValueKind | None  # None: searches cannot ask about it
    array: bool = False
    text: bool = False  # analysed


class SearchColumns:
    """The columns of the documents of some searches.

    >>> columns = SearchColumns(pa.schema([("title", pa.string()), ("price", pa.int64())]), text=["title"])
    >>> columns.find("price").kind, columns.text
    (<ValueKind.WHOLE: 'whole number'>, ('title',))
    """

    def __init__(self, schema: pa.Schema, text: Sequence[str], *, tokenizer: str = "default") -> None:
        if tokenizer not in TOKENIZERS:
            raise InvalidDeclaration(
                f'there is no tokenizer "{tokenizer}"', hint=f"The tokenizers are {', '.join(TOKENIZERS)}."
            )
        self.schema = schema
        self.text = tuple(text)
        self.tokenizer = tokenizer
        self.by_name: dict[str, SearchColumn] = {}
        for field in schema:
            self.by_name[field.name] = _column(field, text=field.name in self.text)
        for name in self.text:
            found = self.by_name.get(name)
            if found is None:
                hint = suggestion(name, schema.names)
                raise InvalidDeclaration(f'the documents have no column "{name}"', hint=hint, column=name)
            if found.kind is not ValueKind.STRING:
                raise InvalidDeclaration(
                    f'column "{name}" is {found.type}: words are looked for in STRING and ARRAY<STRING>',
                    hint="Leave it out of text=; searches ask for its values by its name.",
                    column=name,
                )
        self._folded = {name.casefold(): column for name, column in self.by_name.items()}

    @cached_property
    def every_text(self) -> str:
        """What words without a column are looked for in."""
        return self.text[0] if len(self.text) == 1 else EVERY_TEXT

    def find(self, name: str) -> SearchColumn | None:
        """The column of a name; capital and small letters are alike, as in Spark."""
        return self.by_name.get(name) or self._folded.get(name.casefold())


def _column(field: pa.Field, *, text: bool) -> SearchColumn:
    kind = field.type
    array = kinds.is_list(kind) or kinds.is_large_list(kind)
    return SearchColumn(field.name, spark_type(kind), _kind(kind.value_type if array else kind), array, text)


def _kind(kind: pa.DataType) -> ValueKind | None:
    if kinds.is_integer(kind):
        return ValueKind.WHOLE
    if kinds.is_floating(kind):
        return ValueKind.DOUBLE
    if kinds.is_decimal(kind):
        return ValueKind.DECIMAL
    if kinds.is_boolean(kind):
        return ValueKind.BOOLEAN
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return ValueKind.STRING
    if kinds.is_date(kind):
        return ValueKind.DATE
    return ValueKind.TIMESTAMP if kinds.is_timestamp(kind) else None


class NotAValue(ValueError):
    """A word that is no value of a column's type; the message says what is."""


def value_of(column: SearchColumn, word: str) -> Any:
    """The value that a word stands for in a column. ``NotAValue`` when it is none.

    >>> value_of(SearchColumn("price", "BIGINT", ValueKind.WHOLE), "12")
    12
    >>> value_of(SearchColumn("day", "DATE", ValueKind.DATE), "1970-01-03")
    2
    """
    if column.kind is ValueKind.STRING:
        return word
    if column.kind is ValueKind.BOOLEAN:
        if word.lower() not in ("true", "false"):
            raise NotAValue(f"{column.name} is {column.type}: true or false")
        return word.lower() == "true"
    if column.kind is ValueKind.DATE:
        return _day(column, word)
    if column.kind is ValueKind.TIMESTAMP:
        return _moment(column, word)
    number = number_of(column, word)
    if column.kind is ValueKind.WHOLE:
        if number != number.to_integral_value():
            raise NotAValue(f"{column.name} is {column.type}: {word} is not a whole number")
        return int(number)
    return number if column.kind is ValueKind.DECIMAL else float(number)


def number_of(column: SearchColumn, word: str) -> Decimal:
    """The number that a word is."""
    try:
        number = Decimal(word)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise NotAValue(f"{column.name} is {column.type}: {word} is not a number")
    return number


def bound_of(column: SearchColumn, word: str) -> Any:
    """A bound of a range: as a value; of whole numbers it may lie between two of them."""
    if column.kind is ValueKind.WHOLE:
        number = number_of(column, word)
        return int(number) if number == number.to_integral_value() else number
    return value_of(column, word)


def is_day(word: str) -> bool:
    """Whether a word is a day without a time.

    >>> is_day("2026-01-31"), is_day("2026-01-31T10:00")
    (True, False)
    """
    return DAY.match(word) is not None


def has_zone(word: str) -> bool:
    """Whether a moment is written with its zone.

    >>> has_zone("2026-01-31T10:00:00Z"), has_zone("2026-01-31T10:00:00"), has_zone("2026-01-31")
    (True, False, False)
    """
    found = MOMENT.match(word)
    return found is not None and found["zone"] is not None


def _day(column: SearchColumn, word: str) -> int:
    try:
        if not is_day(word):  # Python knows more forms than Spark does
            raise ValueError
        return (dt.date.fromisoformat(word) - EPOCH.date()).days
    except ValueError:
        raise NotAValue(f"{column.name} is {column.type}: a day is written 2026-01-31") from None


def _moment(column: SearchColumn, word: str) -> int:
    try:
        if MOMENT.match(word) is None:
            raise ValueError
        moment = dt.datetime.fromisoformat(word)
    except ValueError:
        form = "2026-01-31, or 2026-01-31T10:30:00Z"
        raise NotAValue(f"{column.name} is {column.type}: a moment is written {form}") from None
    moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    return (moment - EPOCH) // dt.timedelta(microseconds=1)
