"""Values of messages: the rows of a topic of the log as messages of Kafka, and back.

What it is: ``KafkaValues``. Of a topic with a key each row is a message, JSON or Avro under its key, and a deletion is
one without a value: so Kafka compacts what the log would. Rows without a key are Arrow streams of up to 1 000 rows; or
JSON, Avro or bytes as they are, a row each. The topic's ``values`` say which, and if not, ``rows=`` of the address.
Invariants: what is read is what was written, in the topic's latest schema. A message that is not what the topic holds,
or in another partition than that of its key, is ``RowRefused``, which names its place; nothing of it is guessed. Fields
that are no columns are passed over. All rows of a message have its offset: of a topic without a key, ``_offset`` counts
messages.
Not here: keys (``kafka_keys.py``), columns of many values (``values/``), producing (``kafka_appender.py``).
Read next: ``kafka_topic.py``.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import HeadwaterError, InvalidDeclaration, RowRefused, Unavailable
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_keys import key_bytes, key_values, partitions_of
from headwater.kafka.kafka_transactions import KafkaRecord
from headwater.kafka.values.avro_schemas import avro_schema
from headwater.kafka.values.avro_values import AvroRecords
from headwater.kafka.values.json_columns import json_columns
from headwater.kafka.values.schema_registry import SchemaRegistry
from headwater.log.catalog.registry import TopicRow
from headwater.log.schema.event_metadata import METADATA_COLUMNS, METADATA_SCHEMA
from headwater.log.schema.evolution import conform
from headwater.log.schema.far_times import far_json_rows, far_rows
from headwater.log.schema.json_lines import json_decoder
from headwater.log.schema.json_text import batch_to_json_lines
from headwater.log.storage.framing import stored_schema
from headwater.log.topic_rows import nullable
from headwater.log.topic_settings import Partitioner, TopicSettings, ValueForm

MESSAGE_ROWS_MAX = 1_000
MESSAGE_BYTES_MAX = 600_000  # Kafka takes 1 MiB by default, with what is around the rows
TIME_HEADER = "headwater-time"  # the event time of a deletion, in microseconds
METADATA_HEADER = "headwater-metadata"
PRODUCER_HEADER = "headwater-producer"  # the name of a named producer

Message = Any  # of confluent-kafka
Headers = list[tuple[str, bytes]] | None


class KafkaValues:
    """The form of one topic's rows."""

    def __init__(self, row: Callable[[], TopicRow], place: KafkaAddress) -> None:
        self._row = row
        self._place = place

    @property
    def form(self) -> ValueForm:
        """What a message holds."""
        settings = self._row().settings
        return settings.values or ("json" if settings.key else self._place.rows)

    @property
    def by_message(self) -> bool:
        """Whether each row is a message."""
        return self.form != "arrow"

    @functools.cached_property
    def _avro(self) -> AvroRecords:
        """Records of Avro; their schemas are in the registry that the address names."""
        row = self._row()
        if self._place.registry is None:
            raise InvalidDeclaration(
                f'topic "{row.name}" has values="avro", and the log\'s address names no schema registry',
                hint="Add it: kafka://…?registry=http://localhost:8081.",
                topic=row.name,
            )
        return AvroRecords(self._place.prefix + row.name, SchemaRegistry(self._place.registry))

    def check(self) -> None:
        """Refuse a declaration that no message could hold."""
        row = self._row()
        if self.form == "avro":
            avro_schema(self._avro.topic, row.schema)
        types = row.schema.types
        if self.form == "raw" and (len(types) != 1 or not (kinds.is_string(types[0]) or kinds.is_binary(types[0]))):
            raise InvalidDeclaration(
                f'topic "{row.name}" has values="raw", and not one column of STRING or BINARY',
                hint='Declare one for what a message holds: "value STRING".',
                topic=row.name,
            )

    # Writing

    def records(
        self, batch: pa.RecordBatch, partition: int | None, deleted: bool | pa.Array = False
    ) -> Iterator[KafkaRecord]:
        """Rows, with the columns of their metadata, as messages. Those with a key go to the partition of their key."""
        settings = self._row().settings
        said = [name for name in batch.schema.names if name in METADATA_COLUMNS]
        plain = batch.select([name for name in batch.schema.names if name not in METADATA_COLUMNS])
        if not self.by_message:
            for first in range(0, batch.num_rows, MESSAGE_ROWS_MAX):
                for stream in _streams(batch.slice(first, MESSAGE_ROWS_MAX)):
                    yield KafkaRecord(None, stream, partition)
            return
        headers: Sequence[tuple[tuple[str, bytes], ...]] = [()] * batch.num_rows
        if said:
            headers = [_metadata_header(row) for row in batch.select(said).to_pylist()]
        gone = [deleted] * batch.num_rows if isinstance(deleted, bool) else deleted.to_pylist()
        values = self._written(plain, gone)
        if not settings.key:
            for value, header in zip(values, headers, strict=True):
                yield KafkaRecord(None, value, partition, header)
            return
        keys = key_bytes(plain.select(list(settings.key)))
        places = partitions_of(keys, settings.partitions, settings.partitioner).tolist()
        times = _times(plain, settings.event_time) if any(gone) else [None] * batch.num_rows
        for key, place, value, header, removes, time in zip(keys, places, values, headers, gone, times, strict=True):
            if removes:
                at = () if time is None else ((TIME_HEADER, str(time).encode()),)
                yield KafkaRecord(key, None, place, (*header, *at))
            else:
                yield KafkaRecord(key, value, place, header)

    def _written(self, rows: pa.RecordBatch, gone: Sequence[bool]) -> list[bytes | None]:
        """The values of messages; those of deletions are not looked at."""
        if self.form == "json":
            return [line.encode() for line in batch_to_json_lines(rows)]
        if self.form == "raw":
            found: list[Any] = rows.column(0).to_pylist()
            return [each.encode() if isinstance(each, str) else each for each in found]
        schema = self._row().schema
        if not any(gone):
            return [*self._avro.written(rows.cast(schema))]
        stay = [place for place, removes in enumerate(gone) if not removes]
        kept = iter(self._avro.written(rows.take(pa.array(stay, pa.int64())).cast(schema)))
        return [None if removes else next(kept) for removes in gone]

    # Reading

    def batch(self, messages: Sequence[Message], partition: int) -> pa.RecordBatch:
        """Messages of one partition as rows, with every column that a topic's rows can have."""
        row = self._row()
        shape = nullable(stored_schema(row.schema, row))
        headers = [message.headers() for message in messages]
        if self.by_message:
            rows, counts = self._of_messages(messages, row, headers), np.ones(len(messages), np.int64)
            if row.settings.key and row.settings.partitions > 1:
                self._check_places(messages, rows.select(list(row.settings.key)), row, partition)
        else:
            rows, counts = self._of_streams(messages, row)
        offsets = np.repeat(_offsets(messages), counts)
        stamps = np.repeat(np.array([message.timestamp()[1] for message in messages], np.int64), counts)
        system = [
            pa.array(offsets),
            pa.array(np.full(len(offsets), partition, np.int32)),
            pa.array(stamps * 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.repeat(_producers(headers), counts)),
        ]
        names = [*shape.names, *METADATA_COLUMNS, "_offset", "_partition", "_appended_at", "_producer"]
        return pa.RecordBatch.from_arrays([*(rows.column(name) for name in names[:-4]), *system], names=names)

    def _check_places(self, messages: Sequence[Message], keys: pa.RecordBatch, row: TopicRow, partition: int) -> None:
        """Refuse rows in a partition that is not that of their key: two rows of one key would be in no order."""
        settings = row.settings
        placed = key_bytes(keys)
        if self.form == "avro":  # keys may be Avro too, and were placed as that
            given = [message.key() for message in messages]
            placed = [key if self._avro.is_key(key) else text for key, text in zip(given, placed, strict=True)]
        numbers = partitions_of(placed, settings.partitions, settings.partitioner)
        [others] = np.nonzero(numbers != partition)
        if not len(others):
            return
        first = int(others[0])
        message, number = messages[first], int(numbers[first])
        raise RowRefused(
            f"{row.name}[{partition}]@{message.offset()} is in another partition than its key: by "
            f"{settings.partitioner} {placed[first][:100]!r} belongs in {number}",
            detail="Another client wrote it, with another partitioner or key. Rows of one key in two partitions have "
            "no order, so none of them is known to be the latest.",
            hint=_other_partitioner(settings, placed, partition)
            + "Or let the other client place keys as this topic does; or take its messages in by an inlet: "
            "docs/kafka.md.",
            topic=row.name,
            partition=partition,
            offset=message.offset(),
        )

    def _of_messages(self, messages: Sequence[Message], row: TopicRow, headers: Sequence[Headers]) -> pa.RecordBatch:
        schema, key = nullable(row.schema), row.settings.key
        if self.form == "raw":
            return _of_bytes(messages, row, schema)
        values = [message.value() for message in messages]
        if values and None not in values and not _say_more(headers):
            columns = json_columns(values, schema) if self.form == "json" else self._avro.columns(values, schema)
            if columns is not None:
                never_null = [not field.nullable or field.name in key for field in row.schema]
                if not any(column.null_count for column in itertools.compress(columns, never_null)):
                    return _with_marks(columns, schema, key)
        return self._one_by_one(messages, row, schema)

    def _one_by_one(self, messages: Sequence[Message], row: TopicRow, schema: pa.Schema) -> pa.RecordBatch:
        """The same rows, each read by itself: what is wrong is told with its place."""
        settings, names = row.settings, set(schema.names)
        read = self._avro.row if self.form == "avro" else functools.partial(_json_object, json_decoder(schema))
        key_columns = pa.schema([schema.field(name) for name in settings.key])
        never_null = [field.name for field in row.schema if not field.nullable or field.name in settings.key]
        rows, marks, said = [], [], []
        for message in messages:
            value, headers = message.value(), dict(message.headers() or ())
            try:
                found = {} if value is None else read(value)
                if message.key() is not None and any(found.get(name) is None for name in settings.key):
                    found = {**found, **self._key(message.key(), key_columns)}
                for name in settings.key if value is None else never_null:
                    if found.get(name) is None:
                        raise RowRefused(f'it has no "{name}"', column=name)
            except Unavailable:
                raise
            except (ValueError, RecursionError, HeadwaterError) as error:
                raise _refused(row, message, error) from error
            if value is None and settings.event_time is not None and TIME_HEADER in headers:
                found[settings.event_time] = _moment(int(headers[TIME_HEADER]), schema.field(settings.event_time))
            rows.append({name: found[name] for name in found if name in names})
            marks.append(value is None)
            said.append(json.loads(headers[METADATA_HEADER]) if METADATA_HEADER in headers else {})
        try:
            batch = (far_rows if self.form == "avro" else far_json_rows)(rows, schema)
        except RowRefused as error:
            raise _refused(row, messages[int(error.data.get("row") or 0)], error) from error
        if any(marks) and not settings.key:
            raise _refused(row, messages[marks.index(True)], RowRefused("the message has no value"))
        return _with_marks(batch.columns, schema, settings.key, said, marks)

    def _key(self, key: bytes, columns: pa.Schema) -> dict[str, Any]:
        """The values of a key: in Avro, if other clients write it so, or as text."""
        in_avro = self.form == "avro" and not kinds.is_binary(columns.types[0])
        return (self._avro.key(key, columns.names) if in_avro else None) or key_values(key, columns)

    def _of_streams(self, messages: Sequence[Message], row: TopicRow) -> tuple[pa.RecordBatch, Any]:
        shape = pa.schema([*nullable(row.schema), *METADATA_SCHEMA])
        batches, counts = [], []
        for message in messages:
            try:
                table = pa.ipc.open_stream(message.value() or b"").read_all().combine_chunks()
                parts = [conform(each, shape) for each in table.to_batches()]
            except (pa.ArrowInvalid, HeadwaterError) as error:
                raise _refused(row, message, error) from error
            batches += parts
            counts.append(table.num_rows)
        table = pa.Table.from_batches(batches, schema=shape).combine_chunks()
        whole = table.to_batches()
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in shape], schema=shape)
        return whole[0] if whole else empty, np.array(counts, np.int64)


def _with_marks(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    key: Sequence[str],
    said: Sequence[dict[str, str]] | None = None,
    gone: Sequence[bool] | None = None,
) -> pa.RecordBatch:
    """The columns of rows, their metadata and, of a topic with a key, whether they are deletions."""
    count = len(columns[0])
    extra = [
        pa.nulls(count, pa.string()) if said is None else pa.array([each.get(name) for each in said], pa.string())
        for name in METADATA_COLUMNS
    ]
    marks = [pa.array(np.zeros(count, np.bool_) if gone is None else gone, pa.bool_())] if key else []
    names = [*schema.names, *METADATA_COLUMNS, *(["_deleted"] if key else [])]
    return pa.RecordBatch.from_arrays([*columns, *extra, *marks], names=names)


def _of_bytes(messages: Sequence[Message], row: TopicRow, schema: pa.Schema) -> pa.RecordBatch:
    """Bytes as they are; null where a message has no value."""
    values = pa.array([message.value() for message in messages], pa.binary())
    try:
        return _with_marks([values.cast(schema.types[0])], schema, ())
    except pa.ArrowInvalid:
        for message in messages:
            try:
                (message.value() or b"").decode("utf-8")
            except UnicodeDecodeError as error:
                raise _refused(row, message, RowRefused(f"it is not UTF-8: {error}")) from None
        raise


def _json_object(decoder: json.JSONDecoder, value: bytes) -> dict[str, Any]:
    found = decoder.decode(value.decode("utf-8"))
    if type(found) is not dict:
        raise RowRefused("the message is no JSON object", expected="an object")
    return found


def of_producer(record: KafkaRecord, name: str) -> KafkaRecord:
    """A message of a named producer."""
    return replace(record, headers=(*record.headers, (PRODUCER_HEADER, name.encode())))


@functools.lru_cache(1024)
def producer_number(name: str) -> int:
    """The number of a named producer, in every log on Kafka.

    >>> producer_number("importer") == producer_number("importer") != producer_number("other")
    True
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _other_partitioner(settings: TopicSettings, keys: list[bytes], partition: int) -> str:
    """The declaration under which all of these keys are where they belong, if there is one."""
    others: tuple[Partitioner, ...] = ("murmur2", "crc32")
    for each in others:
        if each != settings.partitioner and (partitions_of(keys, settings.partitions, each) == partition).all():
            return f'If no client places keys by {settings.partitioner}, declare it with partitioner="{each}". '
    return ""


def _offsets(messages: Sequence[Message]) -> Any:
    """The offsets, which rise: where as many lie between the first and the last, none is left out."""
    if messages and messages[-1].offset() - messages[0].offset() == len(messages) - 1:
        return np.arange(messages[0].offset(), messages[-1].offset() + 1, dtype=np.int64)
    return np.array([message.offset() for message in messages], np.int64)


def _producers(headers_of: Sequence[Headers]) -> Any:
    found = np.zeros(len(headers_of), np.int64)
    said = [(place, headers) for place, headers in enumerate(headers_of) if headers] if any(headers_of) else []
    for place, headers in said:
        for name, value in headers:
            if name == PRODUCER_HEADER:
                found[place] = producer_number(value.decode("utf-8", "replace"))
    return found


def _say_more(headers_of: Sequence[Headers]) -> bool:
    """Whether some message says more than its producer."""
    return any(headers_of) and any(name != PRODUCER_HEADER for headers in headers_of for name, _ in headers or ())


def _streams(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Rows as one message or, where they are large, as several."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    value = sink.getvalue()
    if value.size <= MESSAGE_BYTES_MAX or batch.num_rows == 1:
        yield bytes(value)
        return
    half = batch.num_rows // 2
    yield from _streams(batch.slice(0, half))
    yield from _streams(batch.slice(half))


def _metadata_header(said: dict[str, str | None]) -> tuple[tuple[str, bytes], ...]:
    known = {name: value for name, value in said.items() if value is not None}
    return ((METADATA_HEADER, json.dumps(known, ensure_ascii=False).encode()),) if known else ()


def _times(rows: pa.RecordBatch, event_time: str | None) -> list[int | None]:
    if event_time is None:
        return [None] * rows.num_rows
    column = rows.column(event_time)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    found: list[int | None] = column.cast(pa.int64()).to_pylist()
    return found


def _moment(us: int, field: pa.Field) -> Any:
    """A time in microseconds as JSON has a value of the column."""
    rows = pa.array([us], pa.int64()).cast(pa.timestamp("us"))
    one = pa.RecordBatch.from_arrays([rows.cast(field.type)], names=[""])
    return json.loads(batch_to_json_lines(one)[0])[""]


def _refused(row: TopicRow, message: Message, error: BaseException) -> RowRefused:
    why = error.message if isinstance(error, HeadwaterError) else str(error)
    return RowRefused(
        f'{row.name}[{message.partition()}]@{message.offset()} is not a row of topic "{row.name}": {why}',
        hint="Correct the program that wrote it. Kafka drops the record by retention, or by kafka-delete-records.",
        topic=row.name,
        partition=message.partition(),
        offset=message.offset(),
    )
