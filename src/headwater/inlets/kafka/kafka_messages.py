"""Kafka messages: what was consumed, as rows that one transaction of the log writes.

What it is: ``MessageRows`` turns messages into ``PreparedMessages``: rows and tombstones in the order of the messages,
and the messages that are no rows, with the reason.
Invariants: the order of the messages of a partition is the order of their rows: a topic with a key routes by it, and
any other topic keeps a Kafka partition in one of its own. A message that is refused does not hold up the others. A
message without a value deletes the row of its key.
Not here: consuming (``kafka_reader.py``), formats (``value_formats.py``), the commit (``kafka_inlet.py``).
Read next: ``value_formats.py``, ``log/commits/transaction.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError, RowRefused
from headwater.inlets.dead_messages import DeadMessage
from headwater.inlets.kafka.value_formats import Row, RowChange, ValueFormat, key_value, moment_of, text_in
from headwater.inlets.message_bodies import arrow_table
from headwater.kafka.values.avro_values import plain_avro
from headwater.kafka.values.schema_registry import SchemaRegistry
from headwater.log.contract import EventTopic
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.schema.json_lines import json_rows

KEY_HEADER = "kafka-key"


@dataclass(frozen=True)
class MessageColumns:
    """The columns that take what a message has besides its value."""

    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None
    offset: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that were named, by what they take."""
        return {what: column for what, column in vars(self).items() if column is not None}


@dataclass(frozen=True)
class MessagePart:
    """Rows that follow each other, or the tombstones of such."""

    batch: pa.RecordBatch
    deleted: bool
    partition: int | None


@dataclass
class PreparedMessages:
    """Rows to be written together, in order, and what could not be read."""

    parts: list[MessagePart] = field(default_factory=list)
    dead: list[DeadMessage] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows and tombstones there are."""
        return sum(part.batch.num_rows for part in self.parts)


@dataclass
class _Read:
    """What one message says: changes of rows, or whole tables of Arrow."""

    message: Any
    metadata: Metadata | None
    changes: list[RowChange] = field(default_factory=list)
    table: pa.RecordBatch | None = None

    def steps(self) -> Iterator[tuple[bool, int]]:
        """Whether rows go, and how many, in order."""
        if self.table is not None:
            yield False, self.table.num_rows
        for change in self.changes:
            yield change.gone, 1


class MessageRows:
    """Makes rows of messages, for one topic. Without a ``value_format`` a value is a stream of Arrow IPC."""

    def __init__(
        self,
        topic: EventTopic,
        value_format: ValueFormat | None,
        *,
        key: str = "text",
        columns: MessageColumns | None = None,
        registry: SchemaRegistry | None = None,
        tombstones: bool = True,
    ) -> None:
        self.topic = topic
        self.value_format = value_format
        self.key = key
        self.columns = (columns or MessageColumns()).named
        self.registry = registry
        self.tombstones = tombstones  # else a message without a value says nothing

    def prepared(self, messages: Sequence[Any]) -> PreparedMessages:
        """The rows of some messages, and those that are none."""
        done = PreparedMessages()
        for partition, group in self._groups(messages):
            read: list[_Read] = []
            for message in group:
                try:
                    read.append(self._read(message))
                except RowRefused as error:
                    done.dead.append(self._dead(message, error))
            done.parts += self._parts(read, partition, done.dead)
        return done

    def _groups(self, messages: Sequence[Any]) -> Iterable[tuple[int | None, Sequence[Any]]]:
        settings = self.topic.settings
        if settings.routed_by or settings.partitions == 1:
            return [(None, messages)]
        groups: dict[int, list[Any]] = {}
        for message in messages:
            groups.setdefault(message.partition() % settings.partitions, []).append(message)
        return groups.items()

    # One message

    def _read(self, message: Any) -> _Read:
        value, read = message.value(), _Read(message, _metadata(message))
        if value is None:
            if self.tombstones:
                read.changes = [RowChange(self._deleted(message), gone=True)]
            return read
        more = self._more(message)
        if self.value_format is None:
            read.table = self._table(value, more)
            return read
        read.changes = self.value_format.changes(value)
        if more:
            read.changes = [each if each.gone else RowChange({**each.row, **more}) for each in read.changes]
        return read

    def _table(self, value: bytes, more: Row) -> pa.RecordBatch:
        table = arrow_table(value)
        for column, each in more.items():
            arrow = self.topic.schema.field(column).type
            table = table.append_column(column, pa.array([each] * table.num_rows, arrow))
        return self.topic.row_batch(table)

    def _more(self, message: Any) -> Row:
        """The columns beside the value."""
        found: Row = {}
        for what, column in self.columns.items():
            if what == "key":
                key = message.key()
                found[column] = None if key is None else key_value(key, self.topic.schema.field(column).type)
            elif what == "timestamp":
                found[column] = _moment(message)
            elif what == "headers":
                found[column] = _headers(message)
            else:
                found[column] = message.partition() if what == "partition" else message.offset()
        return found

    def _deleted(self, message: Any) -> Row:
        """The key of the row that a message without a value deletes."""
        names, key = self.topic.settings.key, message.key()
        if not names or key is None:
            what = f'topic "{self.topic.name}" has no key' if key is not None else "it has no key"
            raise RowRefused(f"a message without a value deletes the row of its key, and {what}", expected="a value")
        if self.key == "text" and len(names) == 1:
            found: Any = key_value(key, self.topic.schema.field(names[0]).type)
        elif self.key == "avro":
            assert self.registry is not None
            found = plain_avro(self.registry.read(key))
        else:
            try:
                found = json.loads(text_in(key))
            except ValueError:
                raise RowRefused(f"the key is not JSON: {key[:100]!r}", expected="a JSON object") from None
        if isinstance(found, dict):
            found = found.get("payload", found) if "schema" in found else found
            keys = {name: found.get(name) for name in names}
        elif len(names) == 1:
            keys = {names[0]: found}
        else:
            raise RowRefused(f"the key {key[:100]!r} has not the columns {', '.join(names)}", expected="an object")
        at = self.topic.settings.event_time
        return keys if at is None else {at: _moment(message), **keys}

    # Many

    def _parts(self, read: list[_Read], partition: int | None, dead: list[DeadMessage]) -> list[MessagePart]:
        try:
            come, gone = self._batches(read)
        except RowRefused:  # one by one, to know which
            good: list[_Read] = []
            for each in read:
                try:
                    self._batches([each])
                    good.append(each)
                except RowRefused as error:
                    dead.append(self._dead(each.message, error))
            read = good
            come, gone = self._batches(read)
        parts: list[MessagePart] = []
        at = {False: 0, True: 0}
        for going, count in _runs(step for each in read for step in each.steps()):
            batch = (gone if going else come).slice(at[going], count)
            at[going] += count
            parts.append(MessagePart(batch, going, partition))
        return parts

    def _batches(self, read: list[_Read]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows that come, and the tombstones of those that go, of all of these messages."""
        changes = [(change, each.metadata) for each in read for change in each.changes]
        coming = [(change.row, said) for change, said in changes if not change.gone]
        tables = [with_metadata(each.table, each.metadata) for each in read if each.table is not None]
        if tables:
            whole = pa.concat_tables(map(_as_table, tables), promote_options="default").combine_chunks()
            come = whole.to_batches()[0] if whole.num_rows else tables[0].slice(0, 0)
        elif self.value_format is not None:
            come = self.value_format.batch([row for row, _ in coming])
            come = with_metadata(come, _all_of(said for _, said in coming))
        else:
            come = self.topic.row_batch([])
        going = [(change.row, said) for change, said in changes if change.gone]
        return come, with_metadata(self._tombstones([row for row, _ in going]), _all_of(said for _, said in going))

    def _tombstones(self, keys: list[Row]) -> pa.RecordBatch:
        if not keys:
            return _none(self.topic)
        settings = self.topic.settings
        if not settings.key:
            raise RowRefused(f'topic "{self.topic.name}" has no key, so nothing can be deleted from it')
        names = {*settings.key, *keys[0]}  # and perhaps the event time
        schema = pa.schema([column.with_nullable(True) for column in self.topic.schema if column.name in names])
        return self.topic.appender.tombstones(json_rows(keys, schema, not_null=frozenset(settings.key)))

    def _dead(self, message: Any, error: HeadwaterError) -> DeadMessage:
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        headers, key = _headers(message), message.key()
        if key is not None:
            headers[KEY_HEADER] = key.decode("utf-8", "replace")
        return DeadMessage(message.value() or b"", error, place, message.topic(), headers, _metadata(message))


def _runs(steps: Iterable[tuple[bool, int]]) -> Iterator[tuple[bool, int]]:
    """Consecutive steps of one kind as one.

    >>> list(_runs([(False, 2), (False, 1), (True, 1), (False, 1)]))
    [(False, 3), (True, 1), (False, 1)]
    """
    kind, total = False, 0
    for going, count in steps:
        if going != kind and total:
            yield kind, total
            total = 0
        kind, total = going, total + count
    if total:
        yield kind, total


def _all_of(said: Iterable[Metadata | None]) -> list[Metadata | None] | None:
    listed = list(said)
    return listed if any(each is not None for each in listed) else None


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _none(topic: EventTopic) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in topic.schema], schema=topic.schema)


def _headers(message: Any) -> dict[str, str]:
    return {name: (value or b"").decode("utf-8", "replace") for name, value in message.headers() or ()}


def _metadata(message: Any) -> Metadata | None:
    if not message.headers():
        return None
    headers = _headers(message)
    return Metadata.carried(headers.get("correlation_id"), headers.get("causation_id"), headers.get("actor"))


def _moment(message: Any) -> Any:
    kind, milliseconds = message.timestamp()
    return moment_of(milliseconds) if kind else None
