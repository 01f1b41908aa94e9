"""Leaves of kept plans that are in files: a part of a Parquet file, which can be replaced between two runs.

What it is: ``FileRows``, some neighbouring row groups of a file; ``FileLeaf``, the scan of a kept plan, made to read
other rows than those that it was planned for. Spark reads columns from files in batches: for many rows that costs less
than to hand them over as Arrow.
Invariants: a plan has one such leaf at most, of one file, in one partition. Only the list of files is replaced: reader,
checksums of pages and generated code stay Spark's.
Not here: tables that are in memory (``arrow_leaves.py``); what reads the leaves (``plan_cache.py``).
Read next: ``plan_cache.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.views.spark.scans import scan

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import DataFrame, SparkSession

SCAN = "Scan parquet"  # what Spark calls the operator


@dataclass(frozen=True)
class FileRows:
    """Rows of a file, from a byte of it on: those of the row groups of which the middle is among so many bytes."""

    path: Path
    schema: pa.Schema  # the columns that are read
    rows: int
    start: int
    length: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """A scan of the file, in one partition, for a plan to be made with."""
        return scan(spark, [self.path], self.schema).coalesce(1)


def row_ranges(path: Path, schema: pa.Schema, rows_max: int) -> list[FileRows]:
    """A file cut at its row groups, into pieces of so many rows or of one row group.

    >>> import tempfile
    >>> path, table = Path(tempfile.mkdtemp()) / "ids.parquet", pa.table({"id": range(10)})
    >>> pq.write_table(table, path, row_group_size=4)
    >>> [piece.rows for piece in row_ranges(path, table.schema, 8)]
    [8, 2]
    """
    metadata = pq.read_metadata(path)
    pieces: list[FileRows] = []
    start = rows = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        begin = min(_first_byte(group.column(place)) for place in range(group.num_columns))
        if rows and rows + group.num_rows > rows_max:
            pieces.append(FileRows(path, schema, rows, start, begin - start))
            start, rows = begin, 0
        rows += group.num_rows
    if rows:
        pieces.append(FileRows(path, schema, rows, start, path.stat().st_size - start))
    return pieces


def _first_byte(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


class FileLeaf:
    """The one scan of a frame's plan."""

    def __init__(self, frame: DataFrame) -> None:
        self._jvm: JVMView = frame.sparkSession._jvm
        found = frame._jdf.queryExecution().executedPlan().collectLeaves()
        leaves = [found.apply(place) for place in range(found.size())]
        scans = [leaf for leaf in leaves if leaf.nodeName().startswith(SCAN)]
        partitions = scans[0].inputRDD().filePartitions() if len(scans) == 1 else None
        if partitions is None or partitions.size() != 1 or len(partitions.apply(0).files()) != 1:
            raise RuntimeError("a plan does not read one file in one partition")
        self._files: JavaObject = partitions.apply(0).files()

    def bind(self, rows: FileRows) -> None:
        """Let the plan read these rows from now on."""
        about, before = rows.path.stat(), self._files[0]
        path = self._jvm.org.apache.spark.paths.SparkPath.fromPathString(str(rows.path))
        self._files[0] = before.copy(
            before.partitionValues(),
            path,
            rows.start,
            rows.length,
            before.locations(),
            about.st_mtime_ns // 1_000_000,
            about.st_size,
            before.otherConstantMetadataColumnValues(),
        )
