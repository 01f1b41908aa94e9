"""Captured database: the contract that each database implements.

What it is: ``SourceTable`` and ``SourceColumn`` (a table's schema in its database), ``BackfillChunk`` and
``ChunkRead``, and three protocols: ``CaptureSource`` (the user's declaration), ``CapturedDatabase`` (the operations on
a database), and ``Stream`` (its replication log).
Invariants: a stream delivers committed transactions, whole and in the order of their commits, and the same ones again
after a restart from an older position. A chunk is read at one snapshot, and the stream knows of each transaction
whether that snapshot saw it.
Not here: the use of the rows (``change_writer.py``, ``capture.py``); the databases
(``capture/postgres/postgres_database.py``, ``capture/mysql/mysql_database.py``). Read next: ``capture.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from headwater.capture.change_writer import ChangeWriter
    from headwater.capture.door import Door, OpenDoor
    from headwater.capture.text_rows import TextRows
    from headwater.log.contract import EventLog


@dataclass
class Losses:
    """The number of values that became null because the log's type cannot hold them."""

    values: int = 0


Unsent = Any  # of each row, whether its value was not sent because it is the one of before; None: all were


@dataclass(frozen=True)
class SourceColumn:
    """A column of a captured table, and what becomes of it at the door (``door.py``)."""

    name: str
    arrow: pa.DataType
    read: Callable[[pa.Array, pa.DataType, Losses], pa.Array]  # the database's values, in the log's type
    weight: int = 0  # bytes in the database's row per byte of text; 0: never moved out of its row
    padded: bool = False  # a cast to text would drop its blanks
    plain: bool = False  # the backfill reads it natively, not as text
    taken: bool = True  # nothing is kept of others
    logged: pa.DataType | None = None  # the log's type, where it is another one than that of the values
    enter: Callable[[pa.Array, Unsent], pa.Array] | None = None  # what is kept in place of the values

    @property
    def kind(self) -> pa.DataType:
        """The type of its values in the log."""
        return self.arrow if self.logged is None else self.logged


@dataclass(frozen=True)
class SourceTable:
    """A table as its database has it now."""

    table: str  # with its schema: public.users
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]  # none: a multiset
    rows_estimated: int = 0

    @cached_property
    def taken(self) -> tuple[SourceColumn, ...]:
        """The columns of which something is kept."""
        return tuple(column for column in self.columns if column.taken)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are kept, in the log's types."""
        return pa.schema([pa.field(column.name, column.kind, column.name not in self.key) for column in self.taken])

    @property
    def hides_key(self) -> bool:
        """Whether rows cannot be told apart by the first key column as the database has it."""
        return any(column.enter is not None for column in self.columns if column.name in self.key[:1])

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """The indexes of the key's columns."""
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key)

    @cached_property
    def has_large(self) -> bool:
        """Whether a row may have values that an update does not send again."""
        return any(column.weight for column in self.columns)


@dataclass(frozen=True)
class BackfillChunk:
    """A range of a table's first key column, from ``low`` (not included) to ``high`` (included); None: no bound."""

    number: int
    low: str | None
    high: str | None


@dataclass(frozen=True)
class ChunkRead:
    """One chunk, read at one snapshot."""

    snapshot: str
    reach: int  # past this position, the stream has passed all that the snapshot saw
    batches: Iterator[TextRows]


@dataclass(frozen=True)
class CaptureLag:
    """The lag of a capture, as its database sees it."""

    bytes: int | None  # of its log that it retains for the capture; None: nothing
    active: bool
    state: str


class CaptureSource(Protocol):
    """The declaration of a table's source."""

    @property
    def table(self) -> str:
        """The table, as its database names it."""

    @property
    def door(self) -> Door | None:
        """What of the table is taken, if not all of it as it is."""

    def capture_name(self, app: str) -> str:
        """Tables whose captures have one name are captured together."""

    def server(self, app: str, log: EventLog | None = None) -> CapturedDatabase:
        """The database, not connected yet."""


class Stream(Protocol):
    """A database's replication log from some position on."""

    position: int  # everything before it was handed over

    def read(self, seconds: float) -> bool:
        """Pass on received changes, waiting this long for the first; whether any came."""

    def confirm(self, position: int) -> None:
        """Let the database forget what is before this position. Called when it is durable in the log."""

    def ask(self) -> None:
        """Request the end of the log, which an idle database does not send by itself."""

    def close(self) -> None:
        """Close the connection."""


class CapturedDatabase(Protocol):
    """One database, and the capture's position in its replication log."""

    name: str  # of the capture: the slot
    doors: Mapping[str, OpenDoor]  # by table: applied to what ``describe`` and the stream say of it
    base: int  # the result of ``create``: places are counted from here. Set by the capture, also after a restart

    def describe(self, table: str) -> SourceTable:
        """A table's columns and key. Called when the table is declared, and when the stream says that it changed."""

    def identity(self) -> str:
        """The identity of this database; a restored copy has another one."""

    def remove_leftovers(self, *, ours: bool) -> None:
        """Before ``create``: remove the leftover of an interrupted attempt; refuse a slot of another owner."""

    def create(self, tables: Sequence[str]) -> int:
        """Create the capture's position in the log, from which on changes of these tables are retained; returns it."""

    def check(self, confirmed: Callable[[], int | None]) -> None:
        """Raise ``CaptureLost`` when the position in the log is gone, or is beyond the ``confirmed`` one."""

    def claim(self) -> None:
        """Raise ``SourceUnavailable`` while another process streams from this position."""

    def include(self, tables: Sequence[str], stopping: Callable[[], bool]) -> None:
        """Add these tables to the stream, and wait until every running transaction includes them."""

    def chunks(self, shape: SourceTable) -> list[BackfillChunk]:
        """Split a table into chunks for its backfill."""

    def read(self, shape: SourceTable, chunk: BackfillChunk) -> ChunkRead:
        """Read one chunk. Called by several threads at once."""

    def reach(self) -> int:
        """A position at or after everything committed so far, which the stream will pass."""

    def stream(self, changes: ChangeWriter, position: int) -> Stream:
        """Begin to stream at a position."""

    def lag(self) -> CaptureLag:
        """The amount of log that the database retains for the capture."""

    def drop(self) -> None:
        """Remove everything that ``create`` made, if it exists."""

    def text(self, position: int) -> str:
        """A position as the database writes it."""

    def place(self, position: int) -> int:
        """A position as a number for sequences: see ``position.py``."""

    def filled(self, table: str, columns: Sequence[str]) -> bool:
        """Whether older rows may have values in these added columns, for example by a DEFAULT."""

    def in_chunk(self, shape: SourceTable, chunk: BackfillChunk, key: str) -> bool:
        """Whether a row belongs to this chunk, by the text of its first key column."""

    def close(self) -> None:
        """Close the connections."""
