"""Values of messages: the rows of a topic of the log as messages of Kafka, and back.

What it is: ``KafkaValues``. Of a topic with a key each row is a message, JSON under its key, and a deletion is one
without a value: so Kafka compacts what the log would. Rows without a key are Arrow streams of up to 1 000 rows, or
JSON, a row each (``rows=json`` in the address).
Invariants: what is read is what was written, in the topic's latest schema. A message that is not what the topic holds
is ``RowRefused``, which names its place; nothing of it is guessed. Fields that are no columns are passed over. All rows
of a message have its offset: of a topic without a key, ``_offset`` counts messages.
Not here: keys (``kafka_keys.py``), producing (``kafka_appender.py``). Read next: ``kafka_topic.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.errors import HeadwaterError, RowRefused
from headwater.kafka.kafka_address import RowForm
from headwater.kafka.kafka_keys import key_bytes, key_values
from headwater.kafka.kafka_transactions import KafkaRecord
from headwater.log.catalog.registry import TopicRow
from headwater.log.schema.event_metadata import METADATA_COLUMNS, METADATA_SCHEMA
from headwater.log.schema.evolution import conform
from headwater.log.schema.far_times import far_json_rows
from headwater.log.schema.json_lines import json_decoder
from headwater.log.schema.json_text import batch_to_json_lines
from headwater.log.storage.framing import stored_schema
from headwater.log.topic_rows import nullable

MESSAGE_ROWS_MAX = 1_000
MESSAGE_BYTES_MAX = 600_000  # Kafka takes 1 MiB by default, with what is around the rows
TIME_HEADER = "headwater-time"  # the event time of a deletion, in microseconds
METADATA_HEADER = "headwater-metadata"

Message = Any  # of confluent-kafka


class KafkaValues:
    """The form of one topic's rows."""

    def __init__(self, row: Callable[[], TopicRow], form: RowForm) -> None:
        self._row = row
        self._form = form

    @property
    def by_message(self) -> bool:
        """Whether each row is a message."""
        return bool(self._row().settings.key) or self._form == "json"

    # Writing

    def records(
        self, batch: pa.RecordBatch, partition: int | None, deleted: bool | pa.Array = False
    ) -> Iterator[KafkaRecord]:
        """Rows, with the columns of their metadata, as messages. A message with a key finds its partition by it."""
        settings = self._row().settings
        said = [name for name in batch.schema.names if name in METADATA_COLUMNS]
        plain = batch.select([name for name in batch.schema.names if name not in METADATA_COLUMNS])
        if not self.by_message:
            for first in range(0, batch.num_rows, MESSAGE_ROWS_MAX):
                for value in _streams(batch.slice(first, MESSAGE_ROWS_MAX)):
                    yield KafkaRecord(None, value, partition)
            return
        headers: Sequence[tuple[tuple[str, bytes], ...]] = [()] * batch.num_rows
        if said:
            headers = [_metadata_header(row) for row in batch.select(said).to_pylist()]
        lines = batch_to_json_lines(plain)
        if not settings.key:
            for line, header in zip(lines, headers, strict=True):
                yield KafkaRecord(None, line.encode(), partition, header)
            return
        keys = key_bytes(plain.select(list(settings.key)))
        gone = [deleted] * batch.num_rows if isinstance(deleted, bool) else deleted.to_pylist()
        times = _times(plain, settings.event_time) if any(gone) else [None] * batch.num_rows
        for key, line, header, removes, time in zip(keys, lines, headers, gone, times, strict=True):
            if removes:
                at = () if time is None else ((TIME_HEADER, str(time).encode()),)
                yield KafkaRecord(key, None, None, (*header, *at))
            else:
                yield KafkaRecord(key, line.encode(), None, header)

    # Reading

    def batch(self, messages: Sequence[Message], partition: int) -> pa.RecordBatch:
        """Messages of one partition as rows, with every column that a topic's rows can have."""
        row = self._row()
        shape = nullable(stored_schema(row.schema, row))
        if self.by_message:
            rows, counts = self._of_json(messages, row), np.ones(len(messages), np.int64)
        else:
            rows, counts = self._of_streams(messages, row)
        offsets = np.repeat(np.array([message.offset() for message in messages], np.int64), counts)
        stamps = np.repeat(np.array([message.timestamp()[1] for message in messages], np.int64), counts)
        system = [
            pa.array(offsets),
            pa.array(np.full(len(offsets), partition, np.int32)),
            pa.array(stamps * 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.zeros(len(offsets), np.int64)),
        ]
        names = [*shape.names, *METADATA_COLUMNS, "_offset", "_partition", "_appended_at", "_producer"]
        return pa.RecordBatch.from_arrays([*(rows.column(name) for name in names[:-4]), *system], names=names)

    def _of_json(self, messages: Sequence[Message], row: TopicRow) -> pa.RecordBatch:
        schema, settings = nullable(row.schema), row.settings
        quick = quick_json(messages, schema, settings.key)
        if quick is not None:
            return quick
        decoder, names = json_decoder(schema), set(schema.names)
        key_columns = pa.schema([schema.field(name) for name in settings.key])
        rows, marks, said = [], [], []
        for message in messages:
            value, headers = message.value(), dict(message.headers() or ())
            try:
                found = {} if value is None else decoder.decode(value.decode("utf-8"))
                if type(found) is not dict:
                    raise RowRefused("the message is no JSON object", expected="an object")
                if settings.key and message.key() is not None:
                    found = {**key_values(message.key(), key_columns), **found}
            except (ValueError, RecursionError, HeadwaterError) as error:
                raise _refused(row, message, error) from error
            if value is None and settings.event_time is not None and TIME_HEADER in headers:
                found[settings.event_time] = _moment(int(headers[TIME_HEADER]), schema.field(settings.event_time))
            rows.append({name: found[name] for name in found if name in names})
            marks.append(value is None)
            said.append(json.loads(headers[METADATA_HEADER]) if METADATA_HEADER in headers else {})
        try:
            batch = far_json_rows(rows, schema)
        except RowRefused as error:
            raise _refused(row, messages[int(error.data.get("row") or 0)], error) from error
        extra = [pa.array([each.get(name) for each in said], pa.string()) for name in METADATA_COLUMNS]
        columns, names_of = [*batch.columns, *extra], [*schema.names, *METADATA_COLUMNS]
        if settings.key:
            columns, names_of = [*columns, pa.array(marks, pa.bool_())], [*names_of, "_deleted"]
        elif any(marks):
            raise _refused(row, messages[marks.index(True)], RowRefused("the message has no value"))
        return pa.RecordBatch.from_arrays(columns, names=names_of)

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


def quick_json(messages: Sequence[Message], schema: pa.Schema, key: Sequence[str]) -> pa.RecordBatch | None:
    """The same rows, read by Arrow's parser: four times as quick. None where it may read them otherwise.

    It is asked for numbers, texts and truth values, and for dates and times in the form that we write, of messages that
    have a value and no header; what it refuses is read again, row by row, and then told with its place.
    """
    if not all(_is_plain(field.type) or _form_of(field.type) for field in schema):
        return None
    values = [message.value() for message in messages]
    if any(value is None for value in values) or any(message.headers() for message in messages):
        return None
    text = b"\n".join(values)
    if text.count(b"\n") != len(values) - 1:
        return None  # a message of several lines
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, len(text) + 1)),
            parse_options=pj.ParseOptions(explicit_schema=_as_text(schema), unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)
        columns = [_timed(table.column(field.name).combine_chunks(), field.type) for field in schema]
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(values) or any(table.column(name).null_count for name in key):
        return None
    extra = [pa.nulls(len(values), pa.string()) for _ in METADATA_COLUMNS]
    marks = [pa.array(np.zeros(len(values), np.bool_))] if key else []
    names = [*schema.names, *METADATA_COLUMNS, *(["_deleted"] if key else [])]
    return pa.RecordBatch.from_arrays([*columns, *extra, *marks], names=names)


def _is_plain(kind: pa.DataType) -> bool:
    known = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_float64)
    return any(test(kind) for test in known)


YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
DAY = f"^{YEAR}-[0-9]{{2}}-[0-9]{{2}}"
MOMENT = f"{DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?"


def _form_of(kind: pa.DataType) -> str | None:
    """The form in which dates and times of this type are written; None for other types."""
    if pa.types.is_date32(kind):
        return f"{DAY}$"
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return f"{MOMENT}$" if kind.tz is None else f"{MOMENT}Z$"
    return None


def _as_text(schema: pa.Schema) -> pa.Schema:
    """The schema with text where dates and times are."""
    return pa.schema([field.with_type(pa.string()) if _form_of(field.type) else field for field in schema])


def _timed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in its type; ``ArrowInvalid`` where a time has another form, or is none."""
    form = _form_of(kind)
    if form is None:
        return values
    if pc.any(pc.invert(pc.match_substring_regex(values, form))).as_py():
        raise pa.ArrowInvalid
    return values.cast(kind)


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
