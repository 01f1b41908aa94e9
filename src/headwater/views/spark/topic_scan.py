"""Exact ranges of a topic as a DataFrame, with Spark reading the sealed files itself.

What it is: ``read_range``, for callers that know the offsets (the tick): Parquet natively, the rest as Arrow.
Invariants: the frame holds each row of the range once, in the topic's latest schema; a file's bytes were compared with
the catalog's checksum before Spark gets its path, and Spark verifies the checksum of each page it reads, so damage is
an error and never data; the frame does not change when the topic grows.
Not here: options, streaming, filters (``views/source/data_source.py``); which files hold a range
(``log/storage/file_listing.py``).
Read next: ``log/storage/sealed_segment.py`` for what is in the files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headwater.errors import Unavailable
from headwater.log.contract import Capability, EventTopic
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress, progress_of_batch
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.event_metadata import METADATA_SCHEMA
from headwater.log.storage.file_listing import FileList, Range, SealedFile
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.sealed_segment import SealedSegment, damaged, verify
from headwater.log.topic_reader import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from headwater.log.topic import Topic
    from headwater.views.source.range_reports import RangeReports

SYSTEM = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_appended_at", pa.timestamp("us", tz="UTC")),
        ("_producer", pa.int64()),
        *METADATA_SCHEMA,
    ]
)

# So many rows travel inside the query's plan; more than that are read by the workers, in parallel.
LOCAL_ROWS_MAX = 20_000
LOCAL_OFFSETS_MAX = 2_000  # of a log without files: an offset may be a message of a thousand rows
LISTINGS_MAX = 5

READ_OPTIONS = {
    # A session may be set to skip what it cannot read, or to shift old dates. A log may not.
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


def read_range(
    spark: SparkSession,
    topic: EventTopic,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    columns: Sequence[str] | None = None,
    *,
    by_workers: bool = False,
) -> DataFrame:
    """The rows from ``start`` up to ``stop`` ({partition: offset}, not included) as a DataFrame.

    Without ``columns`` it has the topic's, ``_deleted`` for a keyed topic, ``_partition``, ``_offset`` and
    ``_appended_at``. Spark reads only the columns that the query uses. Should compaction or retention remove a file
    before the query runs, the query fails and naming the range again gives a frame over what replaced the file.
    ``by_workers``: a log without files is read by executors and never here: few messages may hold many rows.

    >>> import headwater as hw, tempfile
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "order_id BIGINT, amount DOUBLE")
    >>> _ = orders.append([{"order_id": n, "amount": n / 2} for n in range(10)])
    >>> read_range(spark, orders, {0: 2}, {0: 4}, ["_offset", "amount"]).collect()
    [Row(_offset=2, amount=1.0), Row(_offset=3, amount=1.5)]
    """
    shape = _shape(topic, columns)
    if Capability.NATIVE_FILES not in topic.log.capabilities:
        ranges = topic.ranges(start, stop)
        return (_by_executors if by_workers else _through_log)(spark, topic, ranges, shape)
    listing = _verified_listing(cast("Topic", topic), start, stop)
    whole = [file for file in listing.files if file.whole]
    parts: list[SealedFile] = []
    small: list[Range] = []
    large: list[Range] = []
    left = LOCAL_ROWS_MAX
    pieces: list[SealedFile | Range] = [*(file for file in listing.files if not file.whole), *listing.tails]
    for piece in pieces:
        rows = piece.stop - piece.start
        if rows <= left:
            small.append(Range(piece.partition, piece.start, piece.stop))
            left -= rows
        elif isinstance(piece, SealedFile):
            parts.append(piece)
        else:
            large.append(piece)
    frames = [_scan(spark, whole, shape)] if whole else []
    frames += [_scan(spark, [file], shape) for file in parts]
    frames += [_through_workers(spark, topic, large, shape)] if large else []
    if small or not frames:
        frames.append(_local(spark, topic, small, shape))
    return functools.reduce(lambda one, other: one.union(other), frames)


def _shape(topic: EventTopic, columns: Sequence[str] | None) -> pa.Schema:
    """The frame's columns, all nullable as Spark's own Parquet reader makes them."""
    stored = stored_schema(topic.schema, topic.row())
    names = check_columns(topic, columns)
    if names is None:
        names = [*stored.names, "_partition", "_offset", "_appended_at"]
    every = pa.schema([*stored, *SYSTEM])
    return pa.schema([every.field(name).with_nullable(True) for name in names])


# Parquet, read by Spark


def _scan(spark: SparkSession, files: Sequence[SealedFile], shape: pa.Schema) -> DataFrame:
    """One native scan. Of several files all are whole; a single one may be cut by its offsets."""
    from pyspark.sql import functions

    # Every widening that a topic's schema may take (log/schema/evolution.py) is one that Spark's reader does itself,
    # and a column that an older file lacks is null: tests/spark/test_evolution_in_spark.py goes through all of them.
    (first, *others) = files
    needed = [field for field in shape if field.name != "_partition"]
    cut = None if others or first.whole else (first.start, first.stop)
    if not needed or (cut is not None and "_offset" not in shape.names):
        needed.append(SYSTEM.field("_offset"))
    reader = parquet_reader(spark).schema(to_ddl(pa.schema(needed)))
    frame = reader.parquet(*(literal_path(file.path) for file in files))
    if cut is not None:
        frame = frame.where(functions.col("_offset").between(cut[0], cut[1] - 1))
    if "_partition" in shape.names:
        if len({file.partition for file in files}) == 1:
            number = functions.lit(first.partition)
        else:
            # The directory above a file is its partition's number: one scan, where a union would be one for each.
            number = functions.expr("substring_index(substring_index(_metadata.file_path, '/', -2), '/', 1)")
        frame = frame.withColumn("_partition", number.cast("int"))
    same = [field.name for field in needed] == shape.names
    return frame if same else frame.selectExpr(*map(quoted, shape.names))


def parquet_reader(spark: SparkSession) -> DataFrameReader:
    """A reader with ``READ_OPTIONS``, which Java is told in one call: it takes 12 when each is told by itself."""
    reader: Any = spark.read
    reader._jreader.options(_java_options(spark.sparkContext._gateway))
    return cast("DataFrameReader", reader)


@functools.lru_cache(maxsize=1)
def _java_options(gateway: Any) -> Any:
    options = gateway.jvm.java.util.HashMap()
    options.putAll(READ_OPTIONS)
    return options


def literal_path(path: Path) -> str:
    """The path with Hadoop's wildcards taken literally.

    >>> print(literal_path(Path("a[1].parquet")))
    a\\[1\\].parquet
    """
    return "".join(f"\\{sign}" if sign in "{}[]*?\\^" else sign for sign in str(path))


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever signs it holds.

    >>> quoted("odd `name`")
    '`odd ``name```'
    """
    return "`" + name.replace("`", "``") + "`"


# Arrow


def _local(spark: SparkSession, topic: EventTopic, ranges: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """A few rows, read here and put into the plan."""
    batches = [
        batch.data.cast(shape)
        for wanted in ranges
        for batch in topic.read_partition(wanted.partition, wanted.start, stop=wanted.stop, columns=shape.names)
    ]
    from headwater.views.spark.scans import one_chunk

    frame: DataFrame = spark.createDataFrame(one_chunk(pa.Table.from_batches(batches, schema=shape)), to_ddl(shape))
    return frame


def _through_workers(spark: SparkSession, topic: EventTopic, tails: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """Many rows that are in no file for Spark, read by Python workers in parallel."""
    from headwater.views.spark.cluster_master import is_local
    from headwater.views.spark.spark_session import register_source

    if not is_local(str(spark.sparkContext.master)):
        return _by_executors(spark, topic, tails, shape)
    register_source(spark)
    nothing = topic.end_offsets()  # partitions that are not meant are read from their end to their end
    reader = spark.read.format("headwater").option("home", topic.log.address).option("topic", topic.name)
    reader = reader.option("startingOffsets", json.dumps({**nothing, **{r.partition: r.start for r in tails}}))
    reader = reader.option("endingOffsets", json.dumps({**nothing, **{r.partition: r.stop for r in tails}}))
    return reader.schema(to_ddl(shape)).load()


def _by_executors(spark: SparkSession, topic: EventTopic, ranges: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """A range of a log that executors reach by its address.

    Not by the data source: that is planned by a Python process on the driver's machine, for which Spark takes the
    interpreter of the executors and none of the packages that were sent to them.
    """
    from headwater.views.source.offset_ranges import tasks
    from headwater.views.source.range_reports import reports_of
    from headwater.views.spark.scans import of_unknown_size

    shares = [tuple(share) for share in tasks(ranges)] or [()]
    reports = reports_of(spark) if topic.settings.event_time else None
    read = functools.partial(_read_shares, str(topic.log.address), topic.name, shares, shape, reports)
    # The numbers of the shares are of unknown size, and so then is what is read. (Said of the rows themselves it would
    # cost a copy of each: 1 µs of Java's.)
    return of_unknown_size(spark.range(0, len(shares), 1, len(shares))).mapInArrow(read, to_ddl(shape))


def _read_shares(
    address: str,
    name: str,
    shares: Sequence[Sequence[Range]],
    shape: pa.Schema,
    reports: RangeReports | None,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of some shares, which come by their numbers, and a report of each range; called on an executor."""
    from headwater.views.source.log_handles import open_topic

    topic = open_topic(address, name)
    time = topic.settings.event_time if reports is not None else None
    names = list(dict.fromkeys([*shape.names, time, "_appended_at", "_producer"] if time else shape.names))
    for wanted in (each for batch in numbers for number in batch.column(0).to_pylist() for each in shares[number]):
        position, progress = wanted.start, dict[int, ProducerProgress]()
        for batch in topic.read_partition(wanted.partition, wanted.start, stop=wanted.stop, columns=names):
            position = batch.next_offset
            if not batch.num_rows:
                continue
            if time:
                progress = merge_progress(progress, progress_of_batch(batch.data, time))
            yield batch.data.select(shape.names).cast(shape)
        if position < wanted.stop:
            topic.check_bounds(wanted.partition, wanted.stop, position)
        if reports is not None:
            reports.add(name, wanted, progress)


def _through_log(spark: SparkSession, topic: EventTopic, ranges: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """A range of a log that has no files for Spark: a few messages are read here, many by the workers."""
    if sum(each.stop - each.start for each in ranges) > LOCAL_OFFSETS_MAX:
        return _by_executors(spark, topic, ranges, shape)
    return _local(spark, topic, ranges, shape)


# Checksums


def _verified_listing(topic: Topic, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
    """The files and tails of the range, after each file was compared with its checksum."""
    for _ in range(LISTINGS_MAX):
        listing = topic.files(start, stop)
        if all(_verify(topic, file.segment) for file in listing.files):
            return listing
    raise Unavailable(
        f'the sealed files of topic "{topic.name}" were replaced {LISTINGS_MAX} times while they were listed',
        hint="Try again when compaction has come to rest.",
        topic=topic.name,
    )


def _verify(topic: Topic, segment: SealedSegment) -> bool:
    """Compare a file with its checksum; False when it was replaced since it was listed."""
    try:
        verify(segment)
    except FileNotFoundError:
        return _still_listed(topic, segment)
    return True


def _still_listed(topic: Topic, segment: SealedSegment) -> bool:
    """A file is gone: fine when the catalog says so too."""
    now = topic.sealed_at(segment)
    if now is not None and now.path == segment.path and not segment.path.exists():
        raise damaged(segment, "The file is not there.")
    return False
