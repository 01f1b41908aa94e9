"""The contract of a log: what views, sinks, the server and the command line may ask of one.

What it is: ``EventLog`` and ``EventTopic``, protocols that the embedded log keeps (``home.py``, ``topic.py``), and that
others may; ``Capability``, by which a log declares what it offers beyond them.
Invariants: what is asked of a log outside ``log/`` is written here; a capability that is missing is refused where it is
asked for, with one sentence, and never imitated in silence. Offsets rise in each partition; only a log with
``GAPLESS_OFFSETS`` promises that a range holds as many rows as offsets. What an app keeps beside its log (manifests,
reports, sinks, alerts) is in the app's home, ``EventLog.local``, whichever log it reads.
Not here: how a log does it. Read next: ``home.py``, ``topic.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pyarrow as pa

from headwater.clock import Clock
from headwater.durations import Duration
from headwater.errors import NotOffered

if TYPE_CHECKING:
    from types import TracebackType

    from headwater.log.batch import Batch
    from headwater.log.catalog.registry import TopicRow
    from headwater.log.commits.append_request import RowsCondition
    from headwater.log.commits.value_versions import Expected
    from headwater.log.event_time.producer_progress import ProducerProgress
    from headwater.log.groups.consumer import ConsumerOptions
    from headwater.log.groups.readers import ReaderLag
    from headwater.log.groups.worker import WorkerOptions
    from headwater.log.home import Log
    from headwater.log.schema.event_metadata import Metadata
    from headwater.log.schema.personal_columns import Personal
    from headwater.log.storage.file_listing import Range
    from headwater.log.storage.framing import StoredRow
    from headwater.log.storage.wake import Waker
    from headwater.log.token import Token
    from headwater.log.topic_reader import Place, ReadOptions
    from headwater.log.topic_rows import TopicRows
    from headwater.log.topic_settings import TopicOptions, TopicSettings

Stops = dict[str, dict[int, int]]


class Capability(StrEnum):
    """What a log may offer beyond appending and reading. The value is what an error calls it.

    >>> import headwater as hw, tempfile
    >>> Capability.REQUEST_IDS in hw.Log(tempfile.mkdtemp()).capabilities
    True
    """

    GAPLESS_OFFSETS = "gapless offsets"  # a range holds as many rows as offsets
    CONSISTENT_CUTS = "consistent cuts"  # no tick has a row without its cause, over all topics
    TRANSACTIONS = "transactions over topics"
    CONDITIONAL_APPENDS = "conditional appends"  # expected=…, if_version=…, insert into a table with a key
    REQUEST_IDS = "request ids"
    PRODUCER_SEQUENCES = "sequences of named producers"  # captures need them
    WAKE_UP = "wake-up"  # readers are told of appends, and need not look
    NATIVE_FILES = "native files"  # Spark reads the log's own files
    CONSUMER_GROUPS = "consumer groups"
    WORK_GROUPS = "work groups"
    COMPACTION = "compaction"
    REMOVAL_BY_VALUE = "deletion from tables without a key"


def require(log: EventLog, capability: Capability, doing: str) -> None:
    """Refuse what a log does not offer.

    >>> import headwater as hw, tempfile
    >>> require(hw.Log(tempfile.mkdtemp()), Capability.WORK_GROUPS, "a worker")
    """
    if capability not in log.capabilities:
        raise NotOffered(
            f"{doing} needs {capability}, which the log at {log.shown} does not offer",
            hint="docs/kafka.md has what each log offers. The embedded log, a folder, offers all of it.",
            capability=str(capability),
        )


@dataclass(frozen=True)
class OpenedProducer:
    """A named producer of a topic: its number, its epoch, and the last sequence that it wrote (-1: none)."""

    id: int
    epoch: int
    last_sequence: int


class EventTopic(Protocol):
    """One topic of a log."""

    @property
    def log(self) -> EventLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def id(self) -> int:
        """Never used again, also when a topic of the same name is made anew."""
        ...

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> TopicSettings: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def privacy(self) -> dict[str, Personal]: ...
    @property
    def schema_version(self) -> int: ...
    @property
    def appender(self) -> TopicRows: ...
    def row(self) -> TopicRow:
        """The declaration as this process last saw it."""
        ...

    def refresh(self) -> None:
        """See the declaration as it is now."""
        ...

    def change_settings(self, **changes: Any) -> None:
        """Change settings that no declaration changes."""
        ...

    # Appending

    def append(
        self,
        rows: Any,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        request_id: str | None = None,
        partition: int | None = None,
        expected: Expected | None = None,
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> Token: ...
    def append_json(self, lines: str | bytes | Iterable[str | bytes]) -> Token: ...
    def append_batch(
        self,
        batch: pa.RecordBatch,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        producer_id: int = 0,
        epoch: int = 0,
        deleted: bool | pa.Array = False,
        first_chunk: int = 0,
        request_id: str | None = None,
        partition: int | None = None,
        expected: Expected | None = None,
    ) -> Token: ...
    def append_if(self, rows: pa.RecordBatch | StoredRow, *, partition: int, condition: RowsCondition) -> Token:
        """Append rows to a partition if a condition, checked under its lock, holds for all rows before it."""
        ...

    def append_messages(self, batch: pa.RecordBatch, ids: Collection[str]) -> Token:
        """Append the rows of messages and remember their ids, together; ``IdsKnown`` when one of them is remembered."""
        ...

    def known_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of some ids of messages that are remembered."""
        ...

    def count_dropped(self, rows: int) -> None:
        """Add to the number of rows that backpressure dropped."""
        ...

    def row_batch(self, rows: Any) -> pa.RecordBatch: ...
    def json_batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch: ...
    def delete(self, keys: Any, *, metadata: Metadata | None = None) -> Token: ...
    def remove(self, batch: pa.RecordBatch, *, request_id: str | None = None) -> Token:
        """Of a table without a key: take rows away, each of which must be there."""
        ...

    def version(self, *value: Any) -> int: ...
    def heartbeat(self, nothing_before: dt.datetime) -> Token: ...
    def open_producer(self, name: str) -> OpenedProducer:
        """Open a named producer; the previous holder of the name is shut out."""
        ...

    def producer_names(self) -> dict[int, str]:
        """The names of the topic's producers, by their numbers."""
        ...

    def sync(self) -> None:
        """Make what was appended durable."""
        ...

    # Offsets

    def start_offsets(self) -> dict[int, int]: ...
    def end_offsets(self) -> dict[int, int]:
        """The end of what is committed."""
        ...

    def end_offset(self, partition: int) -> int:
        """The end of what is committed in one partition."""
        ...

    def offsets_at(self, moment: dt.datetime) -> dict[int, int]: ...
    def places(self, place: Place, partitions: Sequence[int]) -> dict[int, int]:
        """An offset for each partition, of "earliest", a time, a token and so on."""
        ...

    def check_bounds(self, partition: int, offset: int, end: int) -> None:
        """Refuse an offset that is before the start, or after ``end``."""
        ...

    def whole_after(self, partition: int, offset: int) -> int:
        """The end of the append that an offset is in."""
        ...

    def start_moved_us(self, partition: int) -> int | None:
        """When retention last moved the start, where that is known."""
        ...

    # Reading

    def read(
        self,
        start: Place = "earliest",
        *,
        stop: Place | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        timeout: Duration | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Batch]: ...
    def rows(self, start: Place = "earliest", **options: Unpack[ReadOptions]) -> Iterator[dict[str, Any]]: ...
    def read_partition(
        self,
        partition: int,
        start: int,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Batch]: ...
    def read_unlocked(self, partition: int, start: int, *, stop: int, columns: Sequence[str]) -> Iterator[Batch]:
        """The same without taking a lock of any partition: for conditions, which are checked under one of them."""
        ...

    def rows_most(self, start: Mapping[int, int], stop: Mapping[int, int]) -> int:
        """At most so many rows are in a range, told without reading it; exact where nothing was compacted and offsets
        are gapless."""
        ...

    def progress(self, start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, ProducerProgress]:
        """How far each producer (0: anonymous ones) is in event time within a range."""
        ...

    def layout(self, start: Mapping[int, int], stop: Mapping[int, int]) -> Hashable:
        """What a frame over a range is made from: when it is another one, the frame is made again."""
        ...

    def ranges(self, start: Mapping[int, int], stop: Mapping[int, int]) -> list[Range]:
        """The pieces in which a range is read best, in order."""
        ...

    def wait(self, seen: Mapping[int, int], *, timeout: Duration) -> bool:
        """Sleep until a partition grows beyond ``seen``; False after ``timeout``."""
        ...

    def watched_by(self, waker: Waker) -> None:
        """Let appends to this topic wake a waker; a second call does nothing."""
        ...

    # Groups

    def consumer(self, group: str, **options: Unpack[ConsumerOptions]) -> Any: ...
    def worker(self, group: str, **options: Unpack[WorkerOptions]) -> Any: ...
    def groups(self) -> list[Any]: ...
    def group(self, name: str) -> Any: ...
    def producer(self, name: str | None = None, *, batch_rows: int = 8192, linger: float = 0.05) -> Any: ...
    def watermark(self) -> dict[str, Any]: ...
    def describe(self, *, times: bool = True) -> dict[str, Any]:
        """The declaration, offsets and sizes; without ``times`` no row is read."""
        ...

    def lag(self) -> list[ReaderLag]:
        """Who reads it, and how far behind."""
        ...


class EventTransaction(Protocol):
    """Rows of several topics and tables, all or none: written when the block ends without an error."""

    @property
    def token(self) -> Token: ...
    def append(
        self, topic: EventTopic, rows: Any, *, partition: int | None = None, expected: Expected | None = None
    ) -> None: ...
    def append_batch(
        self, topic: EventTopic, batch: pa.RecordBatch, *, deleted: bool = False, partition: int | None = None
    ) -> None: ...
    def append_if(
        self, topic: EventTopic, batch: pa.RecordBatch, *, partition: int, condition: RowsCondition
    ) -> None: ...
    def upsert(self, table: Any, rows: Any) -> None: ...
    def insert(self, table: Any, rows: Any) -> None: ...
    def delete(self, table: Any, rows: Any) -> None: ...
    def commit(self, consumer: Any, what: Any = None) -> None: ...
    def accept(self, messages: Iterable[Any]) -> None: ...
    def store_position(self, reader: str, *, before: str | None, after: str) -> None:
        """Move the position of a reader of a foreign source; ``PositionMoved`` refuses all when it is elsewhere."""
        ...

    def on_commit(self, call: Any) -> None: ...
    def __enter__(self) -> EventTransaction: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class EventLog(Protocol):
    """An ordered, typed log of topics."""

    clock: Clock
    closed: bool
    read_only: bool

    @property
    def capabilities(self) -> frozenset[Capability]: ...
    @property
    def address(self) -> str:
        """What opens it in another process."""
        ...

    @property
    def shown(self) -> str:
        """The address without secrets, for people."""
        ...

    @property
    def identity(self) -> str:
        """Names the log, wherever it is opened; another one when the log is made anew."""
        ...

    @property
    def home(self) -> Path:
        """The folder of the app's home."""
        ...

    @property
    def has_local(self) -> bool:
        """Whether it was opened with a home: a reader in another process needs none."""
        ...

    @property
    def local(self) -> Log:
        """The app's home: a folder with a catalog, for what is not in the log. An embedded log is its own."""
        ...

    def topic(self, name: str, schema: str | pa.Schema, **settings: Unpack[TopicOptions]) -> EventTopic: ...
    def multiset(self, name: str, schema: str | pa.Schema, **settings: Any) -> EventTopic:
        """Declare a table without a key."""
        ...

    def get_topic(self, name: str) -> EventTopic: ...
    def find_topic(self, name: str) -> EventTopic | None: ...
    def topics(self) -> Sequence[EventTopic]: ...
    def topic_names(self) -> list[str]: ...
    def delete_topic(self, name: str) -> None: ...
    def wait_for(self, token: Token | str, *, timeout: Duration = "30 seconds") -> None: ...
    def transaction(
        self,
        *,
        request_id: str | None = None,
        producer: Any = None,
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> EventTransaction: ...
    def stored_position(self, reader: str) -> str | None:
        """Where a reader of a foreign source is: what ``EventTransaction.store_position`` stored last."""
        ...

    def cut(self, topics: Iterable[EventTopic]) -> Stops:
        """The ends of these topics at one moment."""
        ...

    def limited_cut(
        self,
        topics: Sequence[EventTopic],
        begin: Mapping[str, Mapping[int, int]],
        end: Mapping[str, Mapping[int, int]],
        offsets_max: Mapping[str, int | None],
    ) -> Stops:
        """The latest cut up to ``end`` at which no topic is more than so many offsets after ``begin``."""
        ...

    def check_open(self) -> None: ...
    def close(self) -> None: ...
