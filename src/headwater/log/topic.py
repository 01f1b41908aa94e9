"""Topic: a named, typed, partitioned log.

What it is: the public interface of one topic: append, read, describe, consumers.
Invariants: ``append`` returns when the rows are as durable as the topic's policy says.
Not here: the append path (``topic_appender.py``), the buffered producer (``producer.py``).
Read next: ``topic_appender.py`` for writing, ``topic_reader.py`` for reading, ``log/groups/consumer.py`` and
``log/groups/worker.py`` for sharing.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from headwater.clock import Clock
from headwater.durations import Duration, to_seconds, to_timeout
from headwater.log import topic_reader
from headwater.log.batch import Batch
from headwater.log.catalog.registry import TopicRow
from headwater.log.commits.value_versions import Expected
from headwater.log.event_time import heartbeats
from headwater.log.producer import Producer
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.schema.json_lines import json_objects
from headwater.log.storage.file_listing import FileList, list_files
from headwater.log.storage.partition_reader import PartitionReader
from headwater.log.storage.partition_tail import deleted
from headwater.log.storage.partition_writer import PartitionWriter
from headwater.log.token import Token
from headwater.log.topic_appender import ANONYMOUS, AppendIdentity, TopicAppender
from headwater.log.topic_description import describe_topic, describe_watermark, topic_card
from headwater.log.topic_reader import Place, ReadOptions
from headwater.log.topic_settings import TopicSettings
from headwater.notebook import card_html

if TYPE_CHECKING:
    from headwater.log.groups.consumer import Consumer, ConsumerOptions
    from headwater.log.groups.groups import Group
    from headwater.log.groups.worker import Worker, WorkerOptions
    from headwater.log.home import Log


class Topic:
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
        self.log = log
        self._row = row
        self._refresh_lock = threading.Lock()
        self.appender = TopicAppender(self)
        self._make_handles()
        if not log.read_only:
            for partition in self._partitions:
                log.files.make_dir(partition.directory, label="topic.make_directory")

    def _make_handles(self) -> None:
        numbers = range(self._row.settings.partitions)
        self._partitions = [self._partition(number) for number in numbers]
        self._readers = [self.new_reader(number) for number in numbers]
        self._idle_readers = topic_reader.IdleReaders()

    def after_fork(self) -> None:
        """Make new handles in a forked child, so that the file locks keep it apart from its parent."""
        self._refresh_lock = threading.Lock()
        for partition in self._partitions:
            partition.abandon()
        self._make_handles()

    def _partition(self, number: int) -> PartitionWriter:
        log = self.log
        return PartitionWriter(
            self.directory / str(number),
            number,
            self.row,
            log.registry,
            log.files,
            log.clock,
            log.cut_counter,
            log.commit_records,
            on_dirty=log.mark_dirty,
            on_roll=log.wake_maintenance,
            on_recovery=self._recovered,
        )

    def _recovered(self, partition: PartitionWriter, recovery: Any) -> None:
        self.log.note_recovery(self, partition.number, recovery)

    # Declaration

    def row(self) -> TopicRow:
        """The catalog's row, as cached by this process."""
        return self._row

    @property
    def id(self) -> int:
        """The topic's number in this home; never used again."""
        return self._row.id

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._row.name

    @property
    def settings(self) -> TopicSettings:
        """Everything declared besides the columns."""
        return self._row.settings

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the latest version."""
        return self._row.schema

    @property
    def schema_version(self) -> int:
        """The latest version's number, from 1."""
        return self._row.version

    @property
    def clock(self) -> Clock:
        """The log's clock."""
        return self.log.clock

    @property
    def directory(self) -> Path:
        """The directory of the partitions' files."""
        return self.log.home / "topics" / self._row.directory_name

    def refresh(self) -> None:
        """Look up schema versions and settings that another process declared."""
        with self._refresh_lock:
            row = self.log.registry.find(self._row.name)
            if row is None or row.id != self._row.id:
                raise deleted(self._row.name)
            self._row = row

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
        if partition is not None:
            self.appender.checked_partition(partition)
        identity = ANONYMOUS
        if producer is not None or sequence is not None:
            identity = AppendIdentity(producer, sequence, producer_id, epoch, first_chunk)
        if request_id is not None:
            return self.appender.append_once(batch, request_id, identity, deleted, partition, expected)
        return self.appender.append(batch, identity, deleted, partition, expected)

    # Reading

    def start_offsets(self) -> dict[int, int]:
        """The first offset that is kept, by partition."""
        return {reader.number: reader.start_offset() for reader in self._readers}

    def end_offsets(self) -> dict[int, int]:
        """The offset that the next append will get, by partition."""
        self.open_partitions()
        return {reader.number: reader.end_offset() for reader in self._readers}

    def offsets_at(self, moment: dt.datetime) -> dict[int, int]:
        """The first offset at or after an event time (or append time), by partition."""
        self.open_partitions()
        return topic_reader.offsets_for(self, moment, range(self.settings.partitions))

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
        self.open_partitions()
        yield from topic_reader.read_partition(self, self._idle_readers, partition, start, stop, columns, rows_max)

    def wait(self, seen: Mapping[int, int], *, timeout: Duration) -> bool:
        """Sleep until a partition grows beyond ``seen``; False after ``timeout`` (seconds, or "1 minute")."""
        waker, deadline = self.log.waker, self.clock.monotonic() + to_seconds(timeout, what="timeout")
        for number in seen:
            waker.watch(self.directory / str(number))
        while True:
            count = waker.count()
            if any(self._readers[number].end_offset() > offset for number, offset in seen.items()):
                return True
            left = deadline - self.clock.monotonic()
            if left <= 0 or self.log.closed:
                return False
            waker.wait(count, left)

    def files(self, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
        """The sealed Parquet files of an offset range, and the ranges that are still Arrow. For Spark.

        >>> import headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
        >>> _ = topic.append([{"x": 1}])
        >>> topic.files({0: 0}, {0: 1}).tails
        (Range(partition=0, start=0, stop=1),)
        """
        self.open_partitions()
        return list_files(self, start, stop)

    def reader(self, partition: int) -> PartitionReader:
        """This handle's own reader of a partition (shared between its threads)."""
        return self._readers[partition]

    def new_reader(self, partition: int) -> PartitionReader:
        """A further reader, for one follower."""
        return PartitionReader(self.directory / str(partition), partition, self.row_for_reading, self.log.registry)

    def row_for_reading(self, version: int = 0) -> TopicRow:
        """The topic's row; looked up again when a reader meets a newer schema version."""
        if version > self._row.version:
            self.refresh()
        return self._row

    def partition(self, number: int) -> PartitionWriter:
        """The writer of one partition."""
        return self._partitions[number]

    def open_partitions(self) -> None:
        """Recover every partition once per process, before its first use."""
        self.log.check_open()
        if not self.log.read_only:
            for partition in self._partitions:
                partition.open()

    # Event time

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

    def describe(self) -> dict[str, Any]:
        """The topic's declaration, offsets and sizes, as plain values."""
        return describe_topic(self)

    def close(self) -> None:
        """Close the descriptors. ``Log.close`` does it for all topics."""
        for partition in self._partitions:
            partition.close()
        for reader in self._readers:
            reader.close()
        self._idle_readers.close()

    def _repr_html_(self) -> str:
        return card_html(f"Topic {self.name}", lambda: topic_card(self, "Topic"))

    def __repr__(self) -> str:
        return f"Topic({self.name}, {to_ddl(self.schema)})"
