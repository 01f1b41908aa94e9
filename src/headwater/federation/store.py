"""Store: the contract of an attached store.

What it is: ``Store`` describes tables and fetches from them; ``StoreTable`` and ``StoreColumn`` hold a table's columns
and the operators that may be pushed down; ``StoreRequest`` is a query's request, ``Answered`` its result.
Invariants: a store is opened for one query and closed after it. All fetches of one query are of one moment, where the
store has moments (a read-only transaction). ``operators`` of a column names only comparisons that are true there
whenever they are true in Spark.
Not here: the comparisons of a query (``conditions.py``). Read next: ``postgres_store.py``, ``file_store.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headwater.errors import StoreRefused, StoreUnavailable
from headwater.federation.attachments import Attachment
from headwater.hints import suggestion

if TYPE_CHECKING:
    from headwater.federation.conditions import Condition
    from headwater.federation.literals import Value

EQUAL = frozenset({"="})
UNEQUAL = frozenset({"<>"})
LESS = frozenset({"<", "<="})
GREATER = frozenset({">", ">="})
NULL = frozenset({"null"})  # IS NULL; IS NOT NULL may always be pushed down
LIKE = frozenset({"like"})
PREFIX = frozenset({"prefix"})  # LIKE with one % at its end, and nothing else
NUMBERED = "_one"  # the only column fetched for a query that needs none
ORDERED = EQUAL | UNEQUAL | LESS | GREATER
CORRECT_ADDRESS = "Correct user, password and database of its address: headwater attach ls shows it."


class ComparedAs(StrEnum):
    """The kind of comparison that Spark makes for a column."""

    WHOLE = "whole"
    EXACT = "exact"
    FLOATING = "floating"
    TEXT = "text"
    TRUTH = "truth"
    DAY = "day"
    MOMENT = "moment"
    OTHER = "other"


def kind_of(arrow: pa.DataType) -> ComparedAs:
    """The kind of one of the log's types.

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
    """A column: its type in Spark, and the operators that may be pushed down."""

    name: str
    arrow: pa.DataType
    operators: frozenset[str] = frozenset()
    admits: Callable[[Value], bool] = field(default=_any_value, compare=False)  # values that it may be compared with
    read_as: str | None = None  # the store's expression for it, when not its name
    origin: Any = None  # the store's own type

    @property
    def kind(self) -> ComparedAs:
        """The kind of comparison that Spark makes for it."""
        return kind_of(self.arrow)


@dataclass(frozen=True)
class StoreTable:
    """A table of a store."""

    title: str  # crm.public.customers
    parts: tuple[str, ...]  # public, customers
    columns: tuple[StoreColumn, ...]

    def column(self, name: str) -> StoreColumn | None:
        """A column by its name, case-insensitively as in Spark."""
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(each.name, each.arrow) for each in self.columns])


@dataclass(frozen=True)
class StoreRequest:
    """A query's request to one table."""

    shape: StoreTable
    columns: tuple[StoreColumn, ...]
    condition: Condition | None
    rows_max: int


@dataclass(frozen=True)
class StoreStatement:
    """The statement for a store."""

    text: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answered:
    """The result of a fetch. ``lost``: values that do not fit their column's type and are null."""

    table: pa.Table
    statement: StoreStatement
    lost: int = 0


def _with(statement: str | None, detail: str) -> str:
    return f"{detail} (in: {statement})" if statement else detail


class Store(ABC):
    """A store, opened for one query. A subclass connects in its ``__init__``."""

    dialect: ClassVar[str]

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.name = attachment.name

    @abstractmethod
    def describe(self, parts: Sequence[str]) -> StoreTable:
        """A table by the parts after the attachment's name; raises ``StoreRefused`` when there is none."""

    @abstractmethod
    def statement(self, request: StoreRequest) -> StoreStatement:
        """The statement that ``fetch`` will send."""

    @abstractmethod
    def fetch(self, request: StoreRequest) -> Answered:
        """The rows. At most ``rows_max`` of them."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Called once, also after an error."""

    def title(self, parts: Sequence[str]) -> str:
        """A table's whole name, as a query writes it."""
        return ".".join([self.name, *parts])

    def shaped(self, parts: Sequence[str], columns: Sequence[StoreColumn]) -> StoreTable:
        """A checked table: its column names differ for Spark."""
        seen: dict[str, str] = {}
        for each in columns:
            if each.name.lower() in seen:
                raise StoreRefused(
                    f"{self.title(parts)} has the columns {seen[each.name.lower()]} and {each.name}, which are "
                    "equal for Spark",
                    hint="Make a view in the store that gives one of them another name, and query that.",
                    store=self.name,
                )
            seen[each.name.lower()] = each.name
        return StoreTable(self.title(parts), tuple(parts), tuple(columns))

    def unknown(self, parts: Sequence[str], known: Sequence[str]) -> StoreRefused:
        """The error for an unknown table."""
        return StoreRefused(
            f'{self.attachment.address.kind} store "{self.name}" has no table {".".join(parts)}',
            hint=suggestion(".".join(parts), list(known)),
            store=self.name,
            table=".".join(parts),
        )

    def refuses(self, statement: str | None, detail: str, hint: str = "See the detail.") -> StoreRefused:
        """The error for a statement that the store does not take; for a refused connection without one."""
        return StoreRefused(
            f'store "{self.name}" refuses',
            detail=_with(statement, detail),
            hint=hint,
            store=self.name,
            statement=statement,
        )

    def timed_out(self, statement: str | None, detail: str) -> StoreUnavailable:
        """The error for an answer that takes longer than the attachment's ``timeout``."""
        return StoreUnavailable(
            f'store "{self.name}" did not answer within {self.attachment.timeout:g} s',
            detail=_with(statement, detail),
            hint=f"Filter more narrowly, or raise the limit: headwater attach {self.name} … --timeout 5m.",
            store=self.name,
            statement=statement,
        )

    def unavailable(self, statement: str | None, detail: str, *, reached: bool = False) -> StoreUnavailable:
        """The error for a store that does not answer now."""
        return StoreUnavailable(
            f'store "{self.name}" cannot be {"read now" if reached else "reached"}',
            detail=_with(statement, detail) if reached else detail,
            hint="Try again; check which process holds it." if reached else "Check that it runs.",
            store=self.name,
            statement=statement,
        )

    def misnamed(self, parts: Sequence[str], form: str) -> StoreRefused:
        """The error for a name with too many or too few parts."""
        return StoreRefused(
            f"{self.title(parts)} is not the name of a table", hint=f"Write {self.name}.{form}.", store=self.name
        )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
