"""Store: the contract of an attached store.

What it is: ``Store`` describes tables and fetches from them; ``StoreTable`` and ``StoreColumn`` hold a table's columns
and the operators that may be pushed down; ``StoreRequest`` is a query's request, ``Answered`` its result.
Invariants: a store is opened for one query and closed after it. All fetches of one query are of one moment, where the
store has moments (a read-only transaction). ``operators`` of a column names only comparisons that are true there
whenever they are true in Spark.
Not here: the comparisons of a query (``conditions.py``).
Read next: ``postgres_store.py``, ``file_store.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headwater.errors import StoreRefused
from headwater.federation.attachments import Attachment
from headwater.hints import suggestion

if TYPE_CHECKING:
    from headwater.federation.conditions import Condition
    from headwater.federation.literals import Value

EQUAL = frozenset({"="})
UNEQUAL = frozenset({"<>"})
LESS = frozenset({"<", "<="})
GREATER = frozenset({">", ">="})
NULL = frozenset({"null"})  # IS NULL; that something is not null may always be asked
LIKE = frozenset({"like"})
PREFIX = frozenset({"prefix"})  # LIKE with one % at its end, and nothing else
NUMBERED = "_one"  # the only column of what is fetched for a query that needs none
ORDERED = EQUAL | UNEQUAL | LESS | GREATER


class ComparedAs(StrEnum):
    """What Spark compares a column as."""

    WHOLE = "whole"
    EXACT = "exact"
    FLOATING = "floating"
    TEXT = "text"
    TRUTH = "truth"
    DAY = "day"
    MOMENT = "moment"
    OTHER = "other"


def kind_of(arrow: pa.DataType) -> ComparedAs:
    """The kind of a type of the log's.

    >>> str(kind_of(pa.decimal128(10, 2))), str(kind_of(pa.list_(pa.int32())))
    ('exact', 'other')
    """
    tests = {
        ComparedAs.WHOLE: pa.types.is_integer,
        ComparedAs.EXACT: pa.types.is_decimal,
        ComparedAs.FLOATING: pa.types.is_float64,
        ComparedAs.TEXT: pa.types.is_string,
        ComparedAs.TRUTH: pa.types.is_boolean,
        ComparedAs.DAY: pa.types.is_date32,
        ComparedAs.MOMENT: pa.types.is_timestamp,
    }
    return next((kind for kind, fits in tests.items() if fits(arrow)), ComparedAs.OTHER)


def _any_value(_: Value) -> bool:
    return True


@dataclass(frozen=True)
class StoreColumn:
    """A column: its type here, and what the store may be asked about it."""

    name: str
    arrow: pa.DataType
    operators: frozenset[str] = frozenset()
    admits: Callable[[Value], bool] = field(default=_any_value, compare=False)  # values that it may be compared with
    read_as: str | None = None  # how the store is asked for it, when not by its name
    origin: Any = None  # the store's own type

    @property
    def kind(self) -> ComparedAs:
        """What Spark compares it as."""
        return kind_of(self.arrow)


@dataclass(frozen=True)
class StoreTable:
    """A table of a store."""

    title: str  # crm.public.customers
    parts: tuple[str, ...]  # public, customers
    columns: tuple[StoreColumn, ...]

    def column(self, name: str) -> StoreColumn | None:
        """A column by its name; Spark does not tell cases apart."""
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)

    @property
    def schema(self) -> pa.Schema:
        """As Spark sees it."""
        return pa.schema([(each.name, each.arrow) for each in self.columns])


@dataclass(frozen=True)
class StoreRequest:
    """What a query wants of one table."""

    shape: StoreTable
    columns: tuple[StoreColumn, ...]
    condition: Condition | None
    rows_max: int


@dataclass(frozen=True)
class StoreStatement:
    """What is sent to a store."""

    text: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answered:
    """What came. ``lost``: values that have no place in their column's type, and are null here."""

    table: pa.Table
    statement: StoreStatement
    lost: int = 0


class Store(ABC):
    """A store, opened for one query. A subclass connects in its ``__init__``."""

    dialect: ClassVar[str]

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.name = attachment.name

    @abstractmethod
    def describe(self, parts: Sequence[str]) -> StoreTable:
        """A table by what is behind the attachment's name; raises ``StoreRefused`` when there is none."""

    @abstractmethod
    def statement(self, request: StoreRequest) -> StoreStatement:
        """What ``fetch`` will send."""

    @abstractmethod
    def fetch(self, request: StoreRequest) -> Answered:
        """The rows. At most ``rows_max`` of them."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back. Called once, also after an error."""

    def title(self, parts: Sequence[str]) -> str:
        """A table's whole name, as a query writes it."""
        return ".".join([self.name, *parts])

    def shaped(self, parts: Sequence[str], columns: Sequence[StoreColumn]) -> StoreTable:
        """A shape, once it is sure that Spark can tell its columns apart."""
        seen: dict[str, str] = {}
        for each in columns:
            if each.name.lower() in seen:
                raise StoreRefused(
                    f"{self.title(parts)} has the columns {seen[each.name.lower()]} and {each.name}, which Spark does "
                    "not tell apart",
                    hint="Make a view in the store that gives one of them another name, and query that.",
                    store=self.name,
                )
            seen[each.name.lower()] = each.name
        return StoreTable(self.title(parts), tuple(parts), tuple(columns))

    def unknown(self, parts: Sequence[str], known: Sequence[str]) -> StoreRefused:
        """There is no such table."""
        return StoreRefused(
            f'{self.attachment.address.kind} store "{self.name}" has no table {".".join(parts)}',
            hint=suggestion(".".join(parts), list(known)),
            store=self.name,
            table=".".join(parts),
        )

    def misnamed(self, parts: Sequence[str], form: str) -> StoreRefused:
        """A name with too many or too few parts."""
        return StoreRefused(
            f"{self.title(parts)} is not the name of a table", hint=f"Write {self.name}.{form}.", store=self.name
        )

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
