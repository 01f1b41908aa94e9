"""Exact ranges of a topic as a DataFrame, with Spark reading the sealed files itself.

What it is: ``read_range``, for whoever knows the offsets (the tick): Parquet natively, the rest as Arrow.
Invariants: the frame holds each row of the range once, in the topic's latest schema; a file's bytes were compared with
the catalog's checksum before Spark gets its path, and Spark verifies the checksum of each page it reads, so damage is
an error and never data; the frame does not change when the topic grows.
Not here: options, streaming, filters (``source.py``); which files hold a range (``log/filelist.py``).
Read next: ``log/sealed.py`` for what is in the files.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.ddl import to_ddl
from headwater.log.filelist import FileList, Range, SealedFile
from headwater.log.follow import check_columns
from headwater.log.partition import stored_schema
from headwater.log.sealed import SealedSegment, checksum_of, damaged
from headwater.log.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SYSTEM = pa.schema(
    [("_partition", pa.int32()), ("_offset", pa.int64()), ("_appended_at", pa.timestamp("us", tz="UTC")),
     ("_producer", pa.int64())]
)  # fmt: skip

# So many rows travel inside the query's plan; more than that are read by the workers, in parallel.
LOCAL_ROWS_MAX = 20_000
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
    spark: SparkSession, topic: Topic, start: Mapping[int, int], stop: Mapping[int, int],
    columns: Sequence[str] | None = None,
) -> DataFrame:  # fmt: skip
    """The rows from ``start`` up to ``stop`` ({partition: offset}, not included) as a DataFrame.

    Without ``columns`` it has the topic's, ``_deleted`` for a keyed topic, ``_partition``, ``_offset`` and
    ``_appended_at``. Spark reads only the columns that the query uses. Should compaction or retention remove a file
    before the query runs, the query fails and naming the range again gives a frame over what replaced the file.

    >>> import headwater as hw, tempfile
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "order_id BIGINT, amount DOUBLE")
    >>> _ = orders.append([{"order_id": n, "amount": n / 2} for n in range(10)])
    >>> read_range(spark, orders, {0: 2}, {0: 4}, ["_offset", "amount"]).collect()
    [Row(_offset=2, amount=1.0), Row(_offset=3, amount=1.5)]
    """
    shape = _shape(topic, columns)
    listing = _verified_listing(topic, start, stop)
    whole: list[SealedFile] = []
    parts: list[SealedFile] = []
    small: list[Range] = []
    large: list[Range] = []
    for file in listing.files:
        if file.stop - file.start <= LOCAL_ROWS_MAX and not file.whole:
            small.append(Range(file.partition, file.start, file.stop))
        elif not _native(topic, file.schema_version, shape):
            large.append(Range(file.partition, file.start, file.stop))
        else:
            (whole if file.whole else parts).append(file)
    left = LOCAL_ROWS_MAX
    for tail in listing.tails:
        (small if tail.stop - tail.start <= left else large).append(tail)
        left -= min(left, tail.stop - tail.start)
    frames = [_scan(spark, whole, shape)] if whole else []
    frames += [_scan(spark, [file], shape) for file in parts]
    frames += [_through_workers(spark, topic, large, shape)] if large else []
    if small or not frames:
        frames.append(_local(spark, topic, small, shape))
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


def _shape(topic: Topic, columns: Sequence[str] | None) -> pa.Schema:
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

    (first, *others) = files
    needed = [field for field in shape if field.name != "_partition"]
    cut = None if others or first.whole else (first.start, first.stop)
    if cut is not None and "_offset" not in shape.names:
        needed.append(SYSTEM.field("_offset"))
    reader = spark.read.options(**READ_OPTIONS).schema(to_ddl(pa.schema(needed)))
    frame = reader.parquet(*(_literal_path(file.path) for file in files))
    if cut is not None:
        frame = frame.where(functions.col("_offset").between(cut[0], cut[1] - 1))
    if "_partition" in shape.names:
        if len({file.partition for file in files}) == 1:
            number = functions.lit(first.partition)
        else:
            # The directory above a file is its partition's number: one scan, where a union would be one for each.
            number = functions.expr("substring_index(substring_index(_metadata.file_path, '/', -2), '/', 1)")
        frame = frame.withColumn("_partition", number.cast("int"))
    return frame.select(*(_quoted(name) for name in shape.names))


def _literal_path(path: Path) -> str:
    """The path with Hadoop's wildcards taken literally."""
    return "".join(f"\\{sign}" if sign in "{}[]*?\\^" else sign for sign in str(path))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _native(topic: Topic, version: int, shape: pa.Schema) -> bool:
    """Whether Spark's Parquet reader turns this version's columns into the wanted ones by itself."""
    if version == topic.schema_version:
        return True
    stored = topic.row_for_reading(version).schemas[version]
    return all(
        reads_natively(stored.field(field.name).type, field.type) for field in shape if field.name in stored.names
    )


def reads_natively(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark's Parquet reader widens one type into the other, exactly. Tested type by type in tests/spark.

    >>> reads_natively(pa.int32(), pa.int64()), reads_natively(pa.int16(), pa.float32())
    (True, False)
    """
    kinds = pa.types
    if stored.equals(wanted):
        return True
    if kinds.is_struct(stored) and kinds.is_struct(wanted):
        both = [field for field in wanted if stored.get_field_index(field.name) >= 0]
        return all(reads_natively(stored.field(field.name).type, field.type) for field in both)
    if kinds.is_list(stored) and kinds.is_list(wanted):
        return reads_natively(stored.value_type, wanted.value_type)
    if kinds.is_map(stored) and kinds.is_map(wanted):
        return stored.key_type.equals(wanted.key_type) and reads_natively(stored.item_type, wanted.item_type)
    if kinds.is_signed_integer(stored):
        if kinds.is_signed_integer(wanted):
            return bool(stored.bit_width < wanted.bit_width)
        if kinds.is_float64(wanted):
            return bool(stored.bit_width <= 32)
        if kinds.is_decimal(wanted):  # Spark asks for room for every value of the stored type in Parquet
            return bool(wanted.precision - wanted.scale >= (20 if stored.bit_width == 64 else 10))
        return False
    if kinds.is_float32(stored):
        return bool(kinds.is_float64(wanted))
    if kinds.is_decimal(stored) and kinds.is_decimal(wanted):
        grows = wanted.scale - stored.scale
        return bool(grows >= 0 and wanted.precision - stored.precision >= grows)
    return bool(kinds.is_date32(stored) and wanted.equals(pa.timestamp("us")))


# Arrow


def _local(spark: SparkSession, topic: Topic, ranges: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """A few rows, read here and put into the plan."""
    from pyspark.sql.types import StructType

    batches = [
        batch.data.cast(shape)
        for wanted in ranges
        for batch in topic.read_partition(wanted.partition, wanted.start, stop=wanted.stop, columns=shape.names)
    ]
    table = pa.Table.from_batches(batches, schema=shape)
    return spark.createDataFrame(table, StructType.fromDDL(to_ddl(shape)))


def _through_workers(spark: SparkSession, topic: Topic, ranges: Sequence[Range], shape: pa.Schema) -> DataFrame:
    """Many rows, read by Python workers in parallel: long tails, and files in a type that Spark cannot widen."""
    from headwater.views import register

    register(spark)
    frames = []
    for wanted in _joined(ranges):
        # Every other partition is given an empty range: from its start to its start.
        offsets = topic.start_offsets()
        reader = (
            spark.read.format("headwater")
            .option("home", str(topic.log.home))
            .option("topic", topic.name)
            .option("startingOffsets", json.dumps({**offsets, wanted.partition: wanted.start}))
            .option("endingOffsets", json.dumps({**offsets, wanted.partition: wanted.stop}))
        )
        frames.append(reader.schema(to_ddl(shape)).load())
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Neighbours made one."""
    joined: list[Range] = []
    for wanted in sorted(ranges, key=lambda r: (r.partition, r.start)):
        if joined and (joined[-1].partition, joined[-1].stop) == (wanted.partition, wanted.start):
            joined[-1] = Range(wanted.partition, joined[-1].start, wanted.stop)
        else:
            joined.append(wanted)
    return joined


# Checksums

_verified: dict[Path, tuple[int, int, int]] = {}
_verified_lock = threading.Lock()


def _verified_listing(topic: Topic, start: Mapping[int, int], stop: Mapping[int, int]) -> FileList:
    """The files and tails of the range, after each file was compared with its checksum."""
    for _ in range(LISTINGS_MAX):
        listing = topic.files(start, stop)
        if all([_verify(topic, file) for file in listing.files]):
            return listing
    raise FileNotFoundError(f"the files of topic {topic.name} change faster than they can be listed")


def _verify(topic: Topic, file: SealedFile) -> bool:
    """Compare a file with its checksum, once in this process; False when it was replaced and must be listed again."""
    segment = topic.log.registry.sealed_at(topic.id, file.partition, topic.reader(file.partition).directory, file.start)
    if segment is None or segment.path != file.path:
        return False
    try:
        stat = file.path.stat()
        seen = (stat.st_mtime_ns, stat.st_size, segment.checksum)
        with _verified_lock:
            if _verified.get(file.path) == seen:
                return True
        if checksum_of(file.path) != segment.checksum:
            raise damaged(segment, "Its bytes do not match the checksum in the catalog.")
    except FileNotFoundError:
        return _still_listed(topic, segment)
    with _verified_lock:
        _verified[file.path] = seen
    return True


def _still_listed(topic: Topic, segment: SealedSegment) -> bool:
    """A file is gone: fine when the catalog says so too."""
    now = topic.log.registry.sealed_at(topic.id, segment.partition, segment.path.parent, segment.base_offset)
    if now is not None and now.path == segment.path and not segment.path.exists():
        raise damaged(segment, "The file is not there.")
    return False
