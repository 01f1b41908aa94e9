"""Transaction: rows of several topics, group positions and acknowledgements, all or none.

What it is: ``Transaction``, made by ``log.transaction()``; ``CommitPlan``, what it writes, also for one append with a
request id.
Invariants: rows are checked when they are given and written when the block ends; an error in the block writes nothing.
The commit is decided by one transaction of the catalog, which holds the positions, the acknowledgements and the request
id too; without any of these, by its record. A fenced producer, a partition that the consumer no longer owns and a lost
lease refuse all of it. Readers of a partition see the rows together; ticks see those of all topics together.
Not here: the write (``atomic_append.py``), the cut (``consistent_cut.py``). Read next: ``atomic_append.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headwater.errors import ClosedError, Misuse
from headwater.log.commits.append_request import AppendRequest, RowsCondition, StaleSchema
from headwater.log.commits.atomic_append import PartWrite, append_atomically
from headwater.log.commits.commit_records import CommitRecord
from headwater.log.commits.request_ids import HOME, check_id, content_of
from headwater.log.commits.value_versions import Expected, ExpectedVersions
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.groups.consumer import Consumer
    from headwater.log.groups.messages import Message
    from headwater.log.groups.subscription import Subscription
    from headwater.log.groups.worker import Worker
    from headwater.log.home import Log
    from headwater.log.multiset import MultisetRemoval
    from headwater.log.producer import Producer
    from headwater.log.table import Table
    from headwater.log.topic import Topic

TABLE_HINT = "t.append(topic, rows) for a topic; app.get_table(name) finds the table of a topic with a key"
Settled = Callable[[], None]  # called after the commit
InCatalog = Callable[[sqlite3.Connection], Settled | None]  # checks and writes inside the deciding transaction


class _Repeated(Exception):
    """Another process has written the same request meanwhile."""

    def __init__(self, token: Token) -> None:
        self.token = token


@dataclass(frozen=True)
class TransactionRows:
    """The rows of one append in a transaction."""

    topic: Topic
    batch: pa.RecordBatch
    deleted: bool = False
    partition: int | None = None
    expected: Expected | ExpectedVersions | None = None
    condition: RowsCondition | None = None  # of rows of one partition

    def requests(self, routed: list[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, AppendRequest]]:
        """The rows as frames of the topic's latest schema, by partition."""
        for number, part in routed:
            request = self.topic.appender.request(number, part, deleted=self.deleted, expected=self.expected)
            if self.condition is not None:
                request.conditions = [*request.conditions, self.condition]
            yield number, request

    def routed(self) -> list[tuple[int, pa.RecordBatch]]:
        """The rows by partition."""
        if not self.batch.num_rows:
            return []
        if self.partition is not None:
            return [(self.partition, self.batch)]
        return self.topic.appender.route(self.batch, None)


@dataclass
class CommitPlan:
    """What is to be written together."""

    log: Log
    scope: int = HOME
    request_id: str | None = None
    rows: list[TransactionRows] = field(default_factory=list)
    in_catalog: list[InCatalog] = field(default_factory=list)
    removals: dict[int, MultisetRemoval] = field(default_factory=dict)  # by topic

    def write(self) -> Token:
        """Write all of it; the token contains every row."""
        content = self._content() if self.request_id is not None else b""
        if self.request_id is not None:
            known = self.log.request_ids.find(self.scope, self.request_id, content)
            if known is not None:
                return known
        for rows in self.rows:
            rows.topic.appender.require_room(rows.batch.num_rows)
        routed = [(rows, rows.routed()) for rows in self.rows]
        with ExitStack() as held:
            for _, removal in sorted(self.removals.items()):  # in one order, so two commits never wait for each other
                held.enter_context(removal.held())
            while True:
                try:
                    return self._written(routed, content)
                except StaleSchema:
                    for rows in self.rows:
                        rows.topic.refresh()
                except _Repeated as found:
                    return found.token

    def _written(self, routed: list[tuple[TransactionRows, list[tuple[int, pa.RecordBatch]]]], content: bytes) -> Token:
        requests: dict[tuple[int, int], tuple[Topic, PartWrite]] = {}
        for rows, parts in routed:
            for number, request in rows.requests(parts):
                known = requests.get((rows.topic.id, number))
                if known is not None:
                    known[1].request.extend(request)
                else:
                    part = PartWrite(rows.topic.partition(number), request)
                    requests[rows.topic.id, number] = rows.topic, part
        settled: list[Settled] = []
        decide = None
        if self.in_catalog or self.request_id is not None:

            def decide(record: CommitRecord | None) -> None:
                self._decide(record, _token(requests.values()), content, settled)

        writes = [part for _, part in requests.values()]
        if len(writes) == 1 and decide is None:  # whole by itself, without a record
            writes[0].writer.append(writes[0].request)
        elif writes:
            append_atomically(writes, self.log.cut_counter, self.log.commit_records, decide)
        elif decide is not None:
            decide(None)
        for each in settled:
            each()
        self.log.cut_counter.count(sum(part.request.written_rows for _, part in requests.values()))
        return _token(requests.values())

    def _decide(self, record: CommitRecord | None, token: Token, content: bytes, settled: list[Settled]) -> None:
        durable = any(rows.topic.settings.fsync == "always" for rows in self.rows)
        with self.log.catalog.write(durable=durable) as db:
            if self.request_id is not None:
                known = self.log.request_ids.find(self.scope, self.request_id, content, db)
                if known is not None:
                    raise _Repeated(known)
                now_us = self.log.clock.now_us()
                self.log.request_ids.note(db, self.scope, self.request_id, content, token, now_us)
            settled.clear()
            for enter in self.in_catalog:
                after = enter(db)
                if after is not None:
                    settled.append(after)
            if record is not None:
                db.execute("INSERT INTO commits VALUES (?)", (record.id,))

    def _content(self) -> bytes:
        return content_of((rows.topic.id, rows.deleted, rows.batch) for rows in self.rows)


def _token(parts: Iterable[tuple[Topic, PartWrite]]) -> Token:
    frontier: dict[str, dict[int, int]] = {}
    for topic, part in parts:
        frontier.setdefault(topic.name, {})[part.writer.number] = part.request.next_offset
    return Token(frontier)


class Transaction:
    """Rows of several topics and tables, positions and acknowledgements: all or none.

    Made by ``log.transaction()`` and ``app.transaction()``. Rows are written when the block ends without an error.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> orders = app.topic("orders", "order_id BIGINT, item STRING")
    >>> stock = app.table("stock", "item STRING, left BIGINT", key="item")
    >>> with app.transaction() as t:
    ...     t.append(orders, [{"order_id": 1, "item": "cup"}])
    ...     t.upsert(stock, [{"item": "cup", "left": 9}])
    >>> str(t.token)
    'orders:0=1;stock:0=1'

    With a ``request_id``, a transaction that is repeated is recognised and not written twice:

    >>> for attempt in range(2):
    ...     with app.transaction(request_id="order-2") as t:
    ...         t.append(orders, [{"order_id": 2, "item": "pot"}])
    ...     print(t.token, t.token.repeated)
    orders:0=2 False
    orders:0=2 True
    """

    def __init__(
        self,
        log: Log,
        *,
        request_id: str | None = None,
        producer: Producer | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        log.check_open()
        self._commit = CommitPlan(log, HOME, None if request_id is None else check_id(request_id))
        self._metadata = metadata
        self._token: Token | None = None
        self._ended = False
        self._on_commit: list[Callable[[Token], object]] = []
        if producer is not None:
            self._commit.in_catalog.append(producer.require_newest)

    @property
    def token(self) -> Token:
        """Where the rows are; after the commit."""
        if self._token is None:
            raise Misuse("a transaction has a token when it is committed", hint="Read it after the with block.")
        return self._token

    def append(
        self, topic: EventTopic, rows: Any, *, partition: int | None = None, expected: Expected | None = None
    ) -> None:
        """Append rows to a topic; the same rows and conditions as ``Topic.append`` takes.

        Conditions look at what was there before the transaction.
        """
        _require("topic", topic, "appender", "t.append(topic, rows); a table takes t.upsert, t.insert and t.delete")
        number = None if partition is None else topic.appender.checked_partition(partition)
        batch, own = topic.row_batch(rows), _own(topic)
        if expected is not None:
            own.appender.check_expected(batch, expected)
        self._add(TransactionRows(own, batch, False, number, expected))

    def append_batch(
        self,
        topic: EventTopic,
        batch: pa.RecordBatch,
        *,
        deleted: bool = False,
        partition: int | None = None,
        versions: ExpectedVersions | None = None,
    ) -> None:
        """Append a batch that has the topic's schema, or tombstones; see ``Topic.append_batch``.

        ``versions``: what each key must have, or all is refused; for a topic with a key.
        """
        self._add(TransactionRows(_own(topic), batch, deleted, partition, versions))

    def append_if(self, topic: EventTopic, batch: pa.RecordBatch, *, partition: int, condition: RowsCondition) -> None:
        """Append a batch to a partition if a condition holds for the rows before it; see ``Topic.append_if``."""
        self._add(TransactionRows(_own(topic), batch, False, partition, condition=condition))

    def upsert(self, table: Table, rows: Any) -> None:
        """Insert rows into a table, or replace those of the same key."""
        _require("table", table, "upserts", TABLE_HINT)
        self._add(TransactionRows(_own(table.topic), table.upserts(rows)))

    def insert(self, table: Table, rows: Any) -> None:
        """Add rows to a table; one whose key is there refuses the transaction."""
        _require("table", table, "upserts", TABLE_HINT)
        self._add(TransactionRows(_own(table.topic), table.inserts(rows), expected="none" if table.key else None))

    def delete(self, table: Table, rows: Any) -> None:
        """Delete rows of a table by their key; without a key whole rows, each of which deletes an equal one.

        A row that was not there before the transaction refuses all of it.
        """
        _require("table", table, "upserts", TABLE_HINT)
        batch = table.deletes(rows)
        self._add(TransactionRows(_own(table.topic), batch, deleted=not table.is_multiset))
        if table.is_multiset:
            self._removal(_own(table.topic)).batches.append(batch)

    def commit(self, consumer: Consumer | Subscription, what: Any = None) -> None:
        """Commit a consumer's or subscription's positions together with the rows; see their ``commit``.

        So a program that reads rows and writes others does each exactly once:

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> numbers, squares = log.topic("numbers", "n BIGINT"), log.topic("squares", "n BIGINT")
        >>> _ = numbers.append([{"n": 3}])
        >>> with numbers.consumer("squarer") as consumer:
        ...     batch = consumer.poll(timeout=10)
        ...     with log.transaction() as t:
        ...         t.append(squares, [{"n": row["n"] ** 2} for row in batch])
        ...         t.commit(consumer, batch)
        >>> list(squares.rows()), numbers.group("squarer").lag()
        ([{'n': 9}], {0: 0})
        """
        self._open()
        self._commit.in_catalog.append(consumer.commit_in(what))

    def accept(self, messages: Iterable[Message]) -> None:
        """Accept messages of a worker together with the rows; a lost lease refuses all of it."""
        self._open()
        by_worker: dict[int, tuple[Worker, list[Message]]] = {}
        for message in messages:
            by_worker.setdefault(id(message.worker), (message.worker, []))[1].append(message)
        for worker, theirs in by_worker.values():
            self._commit.in_catalog.append(worker.accept_in(theirs))

    def store_position(self, reader: str, *, before: str | None, after: str) -> None:
        """Move the position of a reader of a foreign source together with the rows (``stored_positions.py``).

        When it is not at ``before`` (None: it has not begun), all is refused with ``PositionMoved``.
        """
        self._open()
        self._commit.in_catalog.append(lambda db: self._commit.log.positions.move_in(db, reader, before, after))

    def on_commit(self, call: Callable[[Token], object]) -> None:
        """Call a function with the token when the transaction has been committed."""
        self._on_commit.append(call)

    def _add(self, rows: TransactionRows) -> None:
        self._open()
        if rows.topic.log is not self._commit.log:
            raise Misuse(
                f'topic "{rows.topic.name}" belongs to another log', hint="A transaction holds topics of one home."
            )
        self._commit.rows.append(replace(rows, batch=with_metadata(rows.batch, self._metadata)))

    def _removal(self, topic: Topic) -> MultisetRemoval:
        from headwater.log.multiset import Multiset, MultisetRemoval

        known = self._commit.removals.get(topic.id)
        if known is None:
            known = self._commit.removals[topic.id] = MultisetRemoval(Multiset(topic))
        return known

    def _open(self) -> None:
        if self._ended:
            raise ClosedError("this transaction has ended", hint="Begin another one: log.transaction().")

    def __enter__(self) -> Transaction:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open()
        self._ended = True
        if kind is None:
            self._token = self._commit.write()
            for call in self._on_commit:
                call(self._token)

    def __repr__(self) -> str:
        rows = sum(each.batch.num_rows for each in self._commit.rows)
        return f"<Transaction of {rows} rows, {'ended' if self._ended else 'open'}>"


def _own(topic: EventTopic) -> Topic:
    """A topic of this kind of log; ``Transaction._add`` refuses those of any other."""
    return cast("Topic", topic)


def _require(what: str, given: object, has: str, hint: str) -> None:
    """Refuse a topic where a table belongs, or the reverse, before anything is done with it."""
    if not hasattr(given, has):
        raise Misuse(f"{given!r} is not a {what}", hint=f"Call {hint}.")
