"""Topic: a named, typed, partitioned log.

What it is: the public interface of one topic: append, read, describe, consumers.
Invariants: ``append`` returns when the rows are as durable as the topic's policy says.
Not here: the append path (``topic_appender.py``), the buffered producer (``producer.py``).
Read next: ``topic_appender.py`` for writing, ``topic_reader.py`` for reading, ``log/groups/consumer.py`` and
``log/groups/worker.py`` for sharing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from headwater.durations import Duration, to_timeout
from headwater.log import topic_reader
from headwater.log.batch import Batch
from headwater.log.catalog.registry import TopicRow
from headwater.log.commits.request_ids import check_id
from headwater.log.commits.transaction import CommitPlan, TransactionRows
from headwater.log.commits.value_versions import Expected
from headwater.log.contract import OpenedProducer
from headwater.log.event_time import heartbeats
from headwater.log.event_time.producer_progress import ProducerProgress, progress_of
from headwater.log.multiset import Multiset, MultisetRemoval
from headwater.log.producer import Producer
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.schema.json_lines import json_objects
from headwater.log.storage.framing import StoredRow
from headwater.log.token import Token
from headwater.log.topic_appender import ANONYMOUS, AppendIdentity, TopicAppender
from headwater.log.topic_description import describe_topic, describe_watermark, topic_card
from headwater.log.topic_partitions import TopicPartitions
from headwater.log.topic_reader import Place, ReadOptions
from headwater.notebook import card_html

if TYPE_CHECKING:
    from headwater.log.commits.append_request import RowsCondition
    from headwater.log.groups.consumer import Consumer, ConsumerOptions
    from headwater.log.groups.groups import Group
    from headwater.log.groups.readers import ReaderLag
    from headwater.log.groups.worker import Worker, WorkerOptions
    from headwater.log.home import Log


class Topic(TopicPartitions):
    """A named, typed, partitioned log of events.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "order_id BIGINT, amount DOUBLE", key="order_id", partitions=2)
    >>> token = orders.append([{"order_id": 1, "amount": 9.5}, {"order_id": 2, "amount": 3.0}])
    >>> sorted(row["amount"] for row in orders.rows()), orders.start_offsets(), sum(orders.end_offsets().values())
    ([3.0, 9.5], {0: 0, 1: 0}, 2)
    >>> orders.name, orders.schema.names, orders.schema_version, orders.settings.key, orders.describe()["dropped_rows"]
    ('orders', ['order_id', 'amount'], 1, ('order_id',), 0)
    """

    def __init__(self, log: Log, row: TopicRow) -> None:
        super().__init__(log, row)
        self.appender = TopicAppender(self)

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
    ) -> Token:
        """Append rows: dicts, dataclasses, a pandas DataFrame, an Arrow table or batch. Returns a token.

        With ``producer`` and ``sequence`` (rising whole numbers), a retried append is recognised and not written twice,
        also after a restart. With ``request_id`` too, for requests that have a name of their own and no order: the
        repeated append returns the first one's token, with ``repeated`` set.

        Rows of a topic with ``key`` or ``ordered_by`` go to the partition of their value, others to any; ``partition``
        names it. ``expected`` is a condition on the stream of an ``ordered_by`` topic: its version (the number of its
        rows), "none" or "exists"; if another writer came first, ``VersionConflict`` says what the version is.
        ``after`` waits first until this home holds what a token names (``Log.wait_for``). ``metadata`` says who did it
        and what it belongs to: see ``Metadata``.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}], producer="importer", sequence=7)
        >>> _ = topic.append([{"x": 1}], producer="importer", sequence=7)
        >>> topic.end_offsets(), [topic.append([{"x": 2}], request_id="order-17").repeated for attempt in range(2)]
        ({0: 1}, [False, True])
        """
        batch = with_metadata(self.row_batch(rows), metadata)
        if after is not None:
            self.log.wait_for(after)
        return self.append_batch(
            batch, producer=producer, sequence=sequence, request_id=request_id, partition=partition, expected=expected
        )

    def version(self, *value: Any) -> int:
        """The version of one stream (the number of its rows), or of a table's row; 0 when it is not there.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> payments = log.topic("payments", "account BIGINT, cents BIGINT", ordered_by="account")
        >>> _ = payments.append([{"account": 7, "cents": 500}], expected="none")
        >>> payments.version(7), payments.version(8)
        (1, 0)
        >>> payments.append([{"account": 7, "cents": -500}], expected=0)
        Traceback (most recent call last):
            ...
        headwater.errors.VersionConflict: account=7 of "payments" has version 1; expected was 0
          Another writer came first. Nothing was written.
          Hint: Read it again, decide again, and append with the version that you have seen.
        """
        return self.appender.version(value)

    def append_json(self, lines: str | bytes | Iterable[str | bytes]) -> Token:
        """Append JSON lines, one object a line.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT, at TIMESTAMP")
        >>> str(topic.append_json('{"x": 1, "at": "2026-01-01T00:00:00Z"}'))
        't:0=1'
        """
        return self.append_batch(self.json_batch(json_objects(lines, self.schema)))

    def json_batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Dicts with JSON's values as a checked batch for ``append_batch``."""
        return self.appender.json_batch(rows)

    def row_batch(self, rows: Any) -> pa.RecordBatch:
        """Rows as ``append`` takes them, as a checked batch for ``append_batch``."""
        return self.appender.row_batch(rows)

    def delete(self, keys: Any, *, metadata: Metadata | None = None) -> Token:
        """Append tombstones for these keys (rows with the key columns). Only for a topic with a key.

        Where the topic has an event time, a row may give the time of the deletion; the default is the time of append.

        >>> import headwater as hw, tempfile
        >>> users = hw.Log(tempfile.mkdtemp()).topic("users", "id INT, name STRING", key="id")
        >>> _ = users.append([{"id": 1, "name": "Ada"}])
        >>> _ = users.delete([{"id": 1}])
        >>> list(users.rows(columns=["id", "name", "_deleted"]))[-1]
        {'id': 1, 'name': None, '_deleted': True}
        """
        return self.append_batch(with_metadata(self.appender.tombstones(keys), metadata), deleted=True)

    def producer(self, name: str | None = None, *, batch_rows: int = 8192, linger: float = 0.05) -> Producer:
        """A buffered producer: ``send`` one row at a time, written in batches.

        With a ``name`` it is idempotent, and a newer producer of the same name fences an older one.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> with topic.producer() as producer:
        ...     for x in range(3):
        ...         producer.send({"x": x})
        >>> topic.end_offsets()
        {0: 3}
        """
        return Producer(self, name, batch_rows=batch_rows, linger=linger)

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
    ) -> Token:
        """Append one record batch that has the topic's schema already (``append`` makes it so).

        ``deleted`` marks all rows, or each one (a topic of one partition), as tombstones. The columns of ``Metadata``
        may follow the topic's (``log/schema/event_metadata.py``).

        >>> import headwater as hw, pyarrow as pa, tempfile
        >>> users = hw.Log(tempfile.mkdtemp()).topic("users", "id BIGINT, name STRING", key="id")
        >>> rows = pa.record_batch({"id": [1, 2, 1], "name": ["Ada", "Bob", None]})
        >>> str(users.append_batch(rows, deleted=pa.array([False, False, True])))
        'users:0=3'
        """
        self.appender.refuse_events()
        if partition is not None:
            self.appender.checked_partition(partition)
        if self.settings.captured_by is not None and self.privacy:
            batch, deleted = self._without_erased(batch, deleted)
        identity = ANONYMOUS
        if producer is not None or sequence is not None:
            identity = AppendIdentity(producer, sequence, producer_id, epoch, first_chunk)
        if request_id is not None:
            return self.appender.append_once(batch, request_id, identity, deleted, partition, expected)
        return self.appender.append(batch, identity, deleted, partition, expected)

    def _without_erased(
        self, batch: pa.RecordBatch, deleted: bool | pa.Array
    ) -> tuple[pa.RecordBatch, bool | pa.Array]:
        """What a capture brings, without people who were erased."""
        from headwater.log.erasure.log_erasure import KeptOut

        marks = None if isinstance(deleted, bool) else deleted
        batch, kept = KeptOut(self).without(batch, marks)
        return batch, deleted if kept is None else kept

    def append_if(self, rows: pa.RecordBatch | StoredRow, *, partition: int, condition: RowsCondition) -> Token:
        """Append rows to a partition if a condition, checked under its lock, holds for all rows before it."""
        return self.appender.append_if(rows, partition, condition)

    # Reading

    def places(self, place: Place, partitions: Sequence[int]) -> dict[int, int]:
        """An offset for each partition, of "earliest", a time, a token and so on."""
        self.open_partitions()
        return topic_reader.offsets_for(self, place, partitions)

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
    ) -> Iterator[Batch]:
        """Batches from ``start``, up to ``stop`` or to the end as it is now; or for ever with ``follow``.

        ``start`` and ``stop`` are "earliest", "latest", an offset, {partition: offset}, a datetime or a token.
        ``columns`` may name system columns too: _offset, _partition, _appended_at, _producer, _deleted, and
        those of ``Metadata``: _correlation_id, _causation_id, _actor.
        With ``follow``, reading ends after ``timeout`` (seconds, or "1 minute") without rows.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT, y INT")
        >>> _ = topic.append([{"x": n, "y": -n} for n in range(5)])
        >>> [batch.num_rows for batch in topic.read(topic.offsets_at(dt.datetime(2026, 1, 1)))]
        [5]
        >>> [batch.data.column("y").to_pylist() for batch in topic.read(3, columns=["y"])]
        [[-3, -4]]
        """
        self.log.check_open()
        self.open_partitions()
        return topic_reader.read(
            self, start, stop, partitions, columns, follow=follow, timeout=to_timeout(timeout), rows_max=rows_max
        )

    def rows(self, start: Place = "earliest", **options: Unpack[ReadOptions]) -> Iterator[dict[str, Any]]:
        """The same as ``read``, row by row as dicts.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}])
        >>> list(topic.rows(columns=["_offset", "x"]))
        [{'_offset': 0, 'x': 1}]
        """
        for batch in self.read(start, **options):
            yield from batch.to_pylist()

    def read_partition(
        self,
        partition: int,
        start: int,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Batch]:
        """Batches of one partition up to ``stop`` or the end; never waits.

        A batch may be empty where compaction left a gap: continue at its ``next_offset``.
        """
        self._open_partition(partition)
        yield from topic_reader.read_partition(self, self._idle_readers, partition, start, stop, columns, rows_max)

    def read_unlocked(self, partition: int, start: int, *, stop: int, columns: Sequence[str]) -> Iterator[Batch]:
        """The same without taking a lock of any partition: for conditions, which are checked under one of them."""
        return topic_reader.read_partition(self, self._idle_readers, partition, start, stop, columns, None)

    # Tables and producers

    def remove(self, batch: pa.RecordBatch, *, request_id: str | None = None) -> Token:
        """Take rows, with their weights, out of a table without a key; one that is not there refuses all."""
        if request_id is not None:
            check_id(request_id)
        taken = MultisetRemoval(Multiset(self), [batch])
        return CommitPlan(
            self.log, self.id, request_id, [TransactionRows(self, batch)], removals={self.id: taken}
        ).write()

    def open_producer(self, name: str) -> OpenedProducer:
        """Open a named producer; the previous holder of the name is shut out.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> topic.open_producer("importer").last_sequence, topic.producer_names()
        (-1, {1: 'importer'})
        """
        number, epoch = self.log.registry.open_producer(self.id, name)
        last = max(partition.last_sequence(number) for partition in self._partitions)
        return OpenedProducer(number, epoch, last)

    def append_messages(self, batch: pa.RecordBatch, ids: Collection[str]) -> Token:
        """Append the rows of messages and remember their ids, together; ``IdsKnown`` when one of them is remembered."""
        if not ids:
            return self.append_batch(batch)
        log = self.log
        plan = CommitPlan(log, rows=[TransactionRows(self, batch)])
        plan.in_catalog.append(lambda db: log.request_ids.claim(db, self.id, ids, log.clock.now_us()))
        return plan.write()

    def known_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of some ids of messages that are remembered."""
        return self.log.request_ids.known(self.id, ids)

    def count_dropped(self, rows: int) -> None:
        """Add to the number of rows that backpressure dropped."""
        self.log.registry.count_dropped(self.id, rows)

    def change_settings(self, **changes: Any) -> None:
        """Change settings that no declaration changes."""
        self.log.registry.change_settings(self.id, self.settings.with_changes(changes))
        self.refresh()

    def producer_names(self) -> dict[int, str]:
        """The names of the topic's producers, by their numbers."""
        return self.log.registry.producer_names(self.id)

    # Event time

    def progress(self, start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, ProducerProgress]:
        """How far each producer (0: anonymous ones) is in event time within a range."""
        return progress_of(self, start, stop)

    def heartbeat(self, nothing_before: dt.datetime) -> Token:
        """Promise that anonymous appends will bring no more rows before a moment.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("clicks", "at TIMESTAMP", event_time="at")
        >>> _ = topic.heartbeat(dt.datetime(2026, 1, 1, 12))
        >>> topic.watermark()["watermark"]
        '2026-01-01T12:00:00.000Z'
        """
        return heartbeats.send(self, nothing_before)

    def watermark(self) -> dict[str, Any]:
        """The watermark of the topic and of each of its producers."""
        return describe_watermark(self)

    # Groups

    def consumer(self, group: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A member of a consumer group: whole partitions, in order. See ``Consumer``.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}])
        >>> with topic.consumer("billing", member="till") as consumer:
        ...     consumer.poll(timeout=10).to_pylist(), topic.group("billing").lag()
        ([{'x': 1}], {0: 1})
        """
        from headwater.log.groups.consumer import Consumer

        return Consumer(self, group, **options)

    def worker(self, group: str, **options: Unpack[WorkerOptions]) -> Worker:
        """A member of a work group: single messages, each acknowledged. See ``Worker``.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}])
        >>> with topic.worker("mailers", lease="1 minute") as worker:
        ...     messages = worker.take(1, timeout=10)
        ...     worker.accept(messages)
        >>> [message.row for message in messages], [group.name for group in topic.groups()]
        ([{'x': 1}], ['mailers'])
        """
        from headwater.log.groups.worker import Worker

        return Worker(self, group, **options)

    def groups(self) -> list[Group]:
        """All groups of this topic."""
        from headwater.log.groups.groups import groups_of

        return groups_of(self)

    def group(self, name: str) -> Group:
        """One group of this topic."""
        from headwater.log.groups.groups import Group

        return Group(self, name)

    def describe(self, *, times: bool = True) -> dict[str, Any]:
        """The topic's declaration, offsets and sizes, as plain values; without ``times`` no segment is read."""
        return describe_topic(self, times=times)

    def lag(self) -> list[ReaderLag]:
        """Who reads it, and how far behind."""
        from headwater.log.maintenance.reader_alerts import lag_of

        return lag_of(self)

    def _repr_html_(self) -> str:
        return card_html(f"Topic {self.name}", lambda: topic_card(self, "Topic"))

    def __repr__(self) -> str:
        return f"Topic({self.name}, {to_ddl(self.schema)})"
