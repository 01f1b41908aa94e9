"""The data source: ``spark.read.format("headwater")`` and ``spark.readStream.format("headwater")``.

What it is: Spark's Python data source over one topic. Planning turns options into exact offset ranges;
workers read those as Arrow record batches, so that no row is ever a Python object.
Invariants: the range is fixed when Spark plans, and each of its rows comes exactly once; a stream's offsets are
{"0": 12, "1": 7}, the next offset of each partition, and the same two offsets always mean the same rows; rows that
retention took are an error that names the new start, never silence (unless ``failOnDataLoss`` is false).
Not here: options (``source_options.py``), arithmetic (``offset_ranges.py``), Parquet read by Spark itself
(``views/spark/topic_scan.py``).
Read next: ``views/spark/topic_scan.py``; ``docs/spark.md``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headwater.errors import HeadwaterError, InvalidDeclaration, OffsetOutOfRange
from headwater.log.contract import EventTopic
from headwater.log.schema.ddl import spark_type, to_ddl
from headwater.log.schema.event_metadata import METADATA_SCHEMA
from headwater.log.storage.file_listing import Range
from headwater.log.storage.framing import stored_schema
from headwater.log.topic_reader import check_columns, offsets_for
from headwater.views.source.log_handles import open_topic
from headwater.views.source.offset_ranges import admit, tasks
from headwater.views.source.source_options import SourceOptions
from headwater.views.spark.topic_scan import read_range

__all__ = ["ReadTask", "TopicReader", "TopicSource", "TopicStreamReader", "read_range", "source_schema"]

logger = logging.getLogger("headwater.views")

METADATA = pa.schema(
    [
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_appended_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
BY_NAME = pa.schema([("_producer", pa.int64()), *METADATA_SCHEMA])  # these are read where a query names them
POLL_AGE = 1.0  # a stream at rest notices within a second that its topic was deleted
LOST = (
    'Go on without the lost rows: .option("failOnDataLoss", "false"); or begin again at what is left: '
    '.option("startingOffsets", "earliest") and, for a stream, a new checkpoint location.'
)


@contextmanager
def without_traceback() -> Iterator[None]:
    """Let a user's mistake reach the user as its message, without the stack of this worker before it.

    The variable is PySpark's own; the worker process ends with the exception, so nothing else is affected.
    """
    try:
        yield
    except HeadwaterError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class TopicSource(DataSource):
    """The source that ``headwater.views.register`` registers; options are in ``docs/spark.md``."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "headwater"

    def schema(self) -> str:
        """The topic's columns, as Spark DDL. Asked for once, by ``load``."""
        with without_traceback():
            options = SourceOptions.parse(self.options)
            return to_ddl(source_schema(open_topic(options.home, options.topic), options))

    def reader(self, schema: StructType) -> TopicReader:
        """A bounded read. Called while Spark plans."""
        with without_traceback():
            return TopicReader(SourceOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        """An unbounded read. Called when the query starts, and again for its tasks."""
        with without_traceback():
            return TopicStreamReader(SourceOptions.parse(self.options, streaming=True), schema)


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What one Spark task reads."""

    ranges: tuple[Range, ...]


def source_schema(topic: EventTopic, options: SourceOptions) -> pa.Schema:
    """The columns that the source offers: the topic's, as far as asked for, and the log's own."""
    # A tombstone has nothing but its key, so of a keyed topic only the key is never null. It also carries the mark
    # _deleted: without it a tombstone could not be told from a row of nulls.
    every = pa.schema([*stored_schema(topic.schema, topic.row()), *METADATA, *BY_NAME])
    names = check_columns(topic, options.columns) or stored_schema(topic.schema, topic.row()).names
    if options.include_metadata:
        names = [*names, *(name for name in METADATA.names if name not in names)]
    return pa.schema([every.field(name) for name in names])


class TopicReader(DataSourceReader):
    """Reads a range of a topic, fixed when Spark first plans a query on the frame.

    It takes no filters on purpose. Spark 4.3 keeps what ``pushFilters`` of one query left for the next query on the
    same frame: ``frame.where("_offset = 7").count()`` made ``frame.count()`` 1. A test would notice.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.columns = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[ReadTask]:
        """The tasks. Called once per frame: here "latest" becomes offsets."""
        with without_traceback():
            topic = open_topic(self.options.home, self.options.topic)
            check_types(topic, self.columns)
            start, stop = bounded(topic, self.options)
            return [ReadTask(ranges) for ranges in tasks(topic.ranges(start, stop))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows. Called in a worker."""
        # Spark makes one task of nothing when there are none.
        ranges = partition.ranges if isinstance(partition, ReadTask) else ()
        return read_ranges(self.options, self.columns, ranges)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic trigger by trigger. Spark keeps one such object in a process that lives as long as the query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.columns = to_arrow_schema(schema, timezone="UTC")
        self.target: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint begins."""
        with without_traceback():
            topic = self._topic()
            check_types(topic, self.columns)
            start = _place(topic, self.options.starting, default="earliest")
            return _text(_within(topic, start, self.options))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the option ``maxRowsPerTrigger`` says."""
        rows_max = self.options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next trigger ends. Called many times a second."""
        with without_traceback():
            topic = open_topic(self.options.home, self.options.topic, age=POLL_AGE)
            begin, end = _numbers(start), self.target or topic.log.cut([topic])[topic.name]
            for number in end:
                # A partition cannot shrink: this checkpoint belongs to another topic, or to a restored backup.
                if begin.setdefault(number, 0) > end[number] and self.target is None:
                    begin = _within(topic, begin, self.options)
            stop = admit(begin, end, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            return _text({number: topic.whole_after(number, offset) for number, offset in stop.items()})

    def reportLatestOffset(self) -> dict[str, int]:
        """How far the topic reaches; for the query's progress."""
        with without_traceback():
            return _text(open_topic(self.options.home, self.options.topic, age=POLL_AGE).end_offsets())

    def prepareForTriggerAvailableNow(self) -> None:
        """From here on the end stands still. Called once, by ``trigger(availableNow=True)``."""
        with without_traceback():
            topic = self._topic()
            self.target = topic.log.cut([topic])[topic.name]

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[ReadTask]:
        """The tasks of a trigger; after a restart, of the same trigger again."""
        with without_traceback():
            topic = self._topic()
            begin, stop = _numbers(start), _numbers(end)
            begin, stop = _within(topic, begin, self.options), _within(topic, stop, self.options)
            return [ReadTask(ranges) for ranges in tasks(topic.ranges(begin, stop))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows. Called in a worker."""
        assert isinstance(partition, ReadTask)
        return read_ranges(self.options, self.columns, partition.ranges)

    def _topic(self) -> EventTopic:
        return open_topic(self.options.home, self.options.topic)


def read_ranges(options: SourceOptions, columns: pa.Schema, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges as record batches of exactly these columns."""
    with without_traceback():
        topic = open_topic(options.home, options.topic)
        check_types(topic, columns)
        for wanted in ranges:
            position = wanted.start
            if not options.fail_on_data_loss:
                position = min(max(position, topic.start_offsets()[wanted.partition]), wanted.stop)
            for batch in topic.read_partition(wanted.partition, position, stop=wanted.stop, columns=columns.names):
                position = batch.next_offset
                if batch.num_rows:
                    data = batch.data
                    yield data if data.schema.equals(columns) else data.cast(columns)
            if position < wanted.stop and options.fail_on_data_loss:
                topic.check_bounds(wanted.partition, wanted.stop, position)


def check_types(topic: EventTopic, columns: pa.Schema) -> None:
    """Refuse columns that the topic has not, or has (by now) with another type."""
    check_columns(topic, columns.names)
    offered = pa.schema([*stored_schema(topic.schema, topic.row()), *METADATA, *BY_NAME])
    for field in columns:
        stored = offered.field(field.name)
        if not field.type.equals(stored.type):
            raise InvalidDeclaration(
                f'column "{field.name}" of topic "{topic.name}" is {spark_type(stored.type)}, '
                f"and this query reads it as {spark_type(field.type)}",
                detail="Either the query gave a schema of its own, or the topic's schema has grown since it started.",
                hint="Restart the query without .schema(…): it will take the topic's types.",
                column=field.name,
            )


def bounded(topic: EventTopic, options: SourceOptions) -> tuple[dict[int, int], dict[int, int]]:
    """Where a bounded read starts and stops, as offsets that exist."""
    start = _within(topic, _place(topic, options.starting, default="earliest"), options)
    stop = _within(topic, _place(topic, options.ending, default="latest"), options)
    for number in start:
        if start[number] > stop[number]:
            raise InvalidDeclaration(
                f"partition {number} would be read from offset {start[number]} to offset {stop[number]}",
                hint="Let endingOffsets be at or after startingOffsets (or startingTimestamp).",
            )
    return start, stop


def _place(topic: EventTopic, place: Any, *, default: str) -> dict[int, int]:
    everything = range(topic.settings.partitions)
    if isinstance(place, Mapping):
        offsets_for(topic, place, everything)  # refuses partitions that the topic has not
        return {**offsets_for(topic, default, everything), **place}
    return offsets_for(topic, place, everything)


def _within(topic: EventTopic, offsets: Mapping[int, int], options: SourceOptions) -> dict[int, int]:
    """The offsets, each one inside its partition: an error or, when data loss is allowed, the nearest one there is."""
    inside = dict(offsets)
    ends = topic.end_offsets()
    for number, offset in offsets.items():
        try:
            topic.check_bounds(number, offset, ends[number])
        except OffsetOutOfRange as error:
            if options.fail_on_data_loss:
                if offset < error.data["start"]:
                    error.hint = LOST
                raise
            inside[number] = min(max(offset, topic.start_offsets()[number]), ends[number])
            logger.warning("%s; going on at offset %d, because failOnDataLoss is false", error.message, inside[number])
    return inside


def _text(offsets: Mapping[int, int]) -> dict[str, int]:
    # Spark compares offsets as JSON text, so the order of the keys must always be the same.
    return {str(number): offsets[number] for number in sorted(offsets)}


def _numbers(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(number): offset for number, offset in offsets.items()}
