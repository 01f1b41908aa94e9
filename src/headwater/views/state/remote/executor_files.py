"""Executor files: the files of runs, read and written by the executors of a cluster.

What it is: ``ExecutorFiles`` makes a frame of files on the object store, writes a frame's rows there, and has files
compared with their checksums. ``StoredRows`` are rows in such files; ``StagePlace`` is where those of a stage belong.
Invariants: no row passes the driver: it sends names and is told names, sizes, checksums, numbers of rows and weights.
Nothing is assumed of a disk that driver and executors share. What is written has its final name, and counts once a
manifest lists it.
Not here: what a task does (``executor_tasks.py``); small ticks, which read copies on the driver's machine
(``run_cache.py``); the rows of the log (``views/spark/topic_scan.py``).
Read next: ``executor_tasks.py``, ``views/state/delta.py``, ``views/stages/view_sessions.py``.

Why not Spark's own Parquet reader: it needs a file system of Hadoop's for the store, which for S3 is a bundle of 686 MB
on every executor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.ddl import to_ddl
from headwater.objects.object_address import ObjectAddress
from headwater.views.spark.cluster_master import is_local
from headwater.views.spark.scans import nullable, of_unknown_size
from headwater.views.spark.topic_scan import quoted
from headwater.views.spark.worker_errors import told_plainly_by_workers
from headwater.views.state.remote.executor_tasks import (
    PROBLEMS,
    WRITTEN,
    StoreAccess,
    check_task,
    read_stored,
    read_task,
    write_task,
)
from headwater.views.state.remote.stored_file import StoredFile
from headwater.views.state.run import RunFile, Weighed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_BYTES_MAX = 64 << 20  # of files that one task reads, unless one alone is larger


def on_cluster(spark: SparkSession) -> bool:
    """Whether tasks run on other machines."""
    return not is_local(str(spark.sparkContext.master))


class ExecutorFiles:
    """The files of one app's runs.

    >>> import tempfile
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> files = ExecutorFiles(ObjectAddress.parse(f"file://{tempfile.mkdtemp()}"))
    >>> schema = pa.schema([("id", pa.int64()), ("_weight", pa.int64())])
    >>> rows, weighed = files.write(spark.sql("SELECT id, -1L AS _weight FROM range(3)"), "users-1", schema)
    >>> weighed
    Weighed(rows=3, weight_min=-1, weight_max=-1)
    >>> rows.frame(spark, schema).count()
    3
    """

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address

    def access(self) -> StoreAccess:
        """How executors reach the store now; another one when the credentials have changed."""
        return StoreAccess.here(self.address)

    def scan(self, spark: SparkSession, files: Sequence[StoredFile], schema: pa.Schema) -> DataFrame:
        """The rows of some files, which are all of this schema."""
        tasks = shared_out(files, spark.sparkContext.defaultParallelism)
        fields = nullable(schema)
        read = functools.partial(read_task, self.access(), tasks, fields)
        return of_unknown_size(_numbered(spark, len(tasks)).mapInArrow(read, to_ddl(fields)))

    def write(self, frame: DataFrame, folder: str, schema: pa.Schema) -> tuple[StoredRows, Weighed]:
        """Run a query and write its rows; its columns are those of the schema."""
        write = functools.partial(write_task, self.access(), folder, schema)
        telling = frame.select(*map(quoted, schema.names)).mapInArrow(write, to_ddl(WRITTEN))
        with told_plainly_by_workers():
            told = telling.toArrow().to_pylist()
        files = tuple(StoredFile(folder, RunFile(row["name"], row["bytes"], row["checksum"])) for row in told)
        weights = (Weighed(row["rows"], row["weight_min"], row["weight_max"]) for row in told)
        return StoredRows(self, files), functools.reduce(Weighed.and_also, weights, Weighed(0))

    def check(self, spark: SparkSession, files: Sequence[StoredFile]) -> None:
        """Have each file compared with its size and checksum; one that is damaged or missing is ``Corruption``."""
        if files:
            tasks = shared_out(files, spark.sparkContext.defaultParallelism)
            check = functools.partial(check_task, self.access(), tasks)
            with told_plainly_by_workers():
                _numbered(spark, len(tasks)).mapInArrow(check, to_ddl(PROBLEMS)).collect()

    def read(self, files: Sequence[StoredFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some files here: of few rows."""
        store = self.address.open()
        for stored in files:
            yield from read_stored(store, stored, schema)

    def copy(self, stored: StoredFile, folder: str) -> StoredFile:
        """The same file in another folder as well: the store copies it."""
        other = StoredFile(folder, stored.file)
        self.address.open().copy(stored.name, other.name)
        return other

    def delete(self, files: Sequence[StoredFile]) -> None:
        """Delete files that no manifest will list."""
        store = self.address.open()
        for stored in files:
            store.delete(stored.name)


@dataclass(frozen=True)
class StoredRows:
    """Rows in files on the store."""

    executors: ExecutorFiles
    files: tuple[StoredFile, ...]

    def frame(self, spark: SparkSession, schema: pa.Schema) -> DataFrame:
        """The rows for Spark, read by executors."""
        return self.executors.scan(spark, self.files, schema)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows here, batch by batch: of few rows."""
        return self.executors.read(self.files, schema)


@dataclass(frozen=True)
class StagePlace:
    """Where executors write what a stage gives."""

    executors: ExecutorFiles
    folder: str
    kept: bool  # a manifest may list the files; else they are of this tick only


def shared_out(files: Sequence[StoredFile], tasks: int) -> list[list[StoredFile]]:
    """Files for so many tasks or more, each with about as many bytes as the others.

    >>> shares = shared_out([StoredFile("users-1", RunFile(f"{n} MiB", n << 20, 0)) for n in (1, 50, 40, 30)], 2)
    >>> [[stored.file.name for stored in share] for share in shares]
    [['50 MiB', '1 MiB'], ['40 MiB', '30 MiB']]
    """
    total = sum(stored.file.bytes for stored in files)
    count = max(1, min(len(files), max(tasks, -(-total // READ_BYTES_MAX))))
    shares: list[list[StoredFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for stored in sorted(files, key=lambda each: each.file.bytes, reverse=True):
        place = sizes.index(min(sizes))
        shares[place].append(stored)
        sizes[place] += stored.file.bytes
    return shares


def _numbered(spark: SparkSession, tasks: int) -> DataFrame:
    """The numbers of the tasks, one in each partition."""
    return spark.range(0, tasks, 1, tasks)
