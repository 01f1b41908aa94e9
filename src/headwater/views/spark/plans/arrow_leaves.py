"""Leaves of kept plans: Arrow tables in the JVM's memory, which can be replaced between two runs.

What it is: ``LeafRows``, a table that is encoded once, however many plans read it; ``ArrowLeaf``, a frame over such
rows whose rows can be replaced without planning again; ``leaf_reader``, the same from within Java.
Invariants: a leaf has one partition, and gives the rows that were bound to it last. The rows of a ``LeafRows`` never
change. Nothing is left on disk: tables pass through memory that both processes see.
Not here: what reads the leaves (``plan_cache.py``); large tables, which are Parquet files (``views/spark/scans.py``).
Read next: ``plan_cache.py``, ``driver_lane.py``.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.ddl import to_ddl
from headwater.views.spark.plans.java_handles import VOID, JavaHandles
from headwater.views.spark.scans import nullable, one_chunk

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JavaPackage, JVMView
    from pyspark.sql import DataFrame, SparkSession


OPTIONS = pa.ipc.IpcWriteOptions()  # without any Arrow asks the environment, each time
BATCH_ROWS = 4096  # a run in the driver lane looks between two batches whether it is to end


class SharedFile:
    """A file in memory that Python has open and Java opens by its path; it is gone with this object.

    >>> file = SharedFile()
    >>> file.write(b"rows")
    >>> file.read()
    b'rows'
    """

    def __init__(self) -> None:
        self._named: str | None = None
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("headwater")
            self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        else:  # not Linux: a file in the folder for temporary ones
            self.fd, self.path = tempfile.mkstemp(prefix="headwater")
            self._named = self.path

    def write(self, content: bytes | pa.Buffer) -> None:
        """Let the file have this content."""
        os.ftruncate(self.fd, 0)
        view, at = memoryview(content), 0
        while at < len(view):
            at += os.pwrite(self.fd, view[at:], at)

    def read(self) -> bytes:
        """The whole content."""
        size, parts, at = os.fstat(self.fd).st_size, [], 0
        while at < size:
            part = os.pread(self.fd, size - at, at)
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        """Let the file be empty."""
        os.ftruncate(self.fd, 0)

    def __del__(
        self, close: Callable[[int], None] = os.close, unlink: Callable[[str], None] = os.unlink
    ) -> None:  # by default arguments, since a process that ends may have taken the module apart
        close(self.fd)
        if self._named is not None:
            unlink(self._named)


class _OfThread(threading.local):
    """The file through which a thread hands tables over."""

    def __init__(self) -> None:
        self.file = SharedFile()


_handing_over = _OfThread()


class LeafRows:
    """A table for leaves of plans, encoded once, when a plan asks for it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = one_chunk(table)
        self.schema = nullable(table.schema)  # as plans have it; the rows are the same bytes
        self._in_java: tuple[JavaObject, JavaObject] | None = None

    @functools.cached_property
    def encoded(self) -> pa.Buffer:
        """The rows as an Arrow stream."""
        # Two threads at once may both encode: the same rows, twice.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema, options=OPTIONS) as writer:
            writer.write_table(self.table, max_chunksize=BATCH_ROWS)
            if not self.table.num_rows:  # a table of no rows is no batch at all; Spark wants one
                writer.write_batch(pa.RecordBatch.from_pylist([], schema=self.table.schema))
        return sink.getvalue()

    @functools.cached_property
    def bytes(self) -> int:
        """The size in memory; that of the stream is a little more."""
        return int(self.table.nbytes)

    def in_java(self, jvm: JVMView) -> JavaObject:
        """The record batches in the JVM, as a Scala sequence of byte arrays."""
        if self._in_java is None or self._in_java[0] is not jvm:
            file = _handing_over.file
            file.write(self.encoded)
            arrow, sequences = converters(jvm)
            self._in_java = jvm, sequences.unsafeWrapArray(arrow.readArrowStreamFromFile(file.path))
            file.clear()
        return self._in_java[1]


class ArrowLeaf:
    """A frame of one partition, of no rows at first, whose rows can be replaced."""

    def __init__(self, spark: SparkSession, schema: pa.Schema) -> None:
        from pyspark.sql import DataFrame
        from pyspark.sql.types import StructType

        jvm: JVMView = spark.sparkContext._jvm
        self._jvm = jvm
        declared = StructType.fromDDL(to_ddl(schema)).json()
        arrow, _ = converters(jvm)
        # Of several batches Spark makes several partitions: of one without rows it makes one.
        self._nothing = LeafRows(schema.empty_table())
        made = arrow.toDataFrame(self._nothing.in_java(jvm).iterator(), declared, spark._jsparkSession)
        rdd = made.queryExecution().logical().rdd()
        while rdd.getClass().getSimpleName() != "ParallelCollectionRDD":
            rdd = rdd.dependencies().head().rdd()
        partitions = rdd.partitions()
        if len(partitions) != 1:
            raise RuntimeError(f"a leaf has {len(partitions)} partitions, not one")
        self.partition = partitions[0]
        self.frame: DataFrame = DataFrame(made, spark).coalesce(1)

    def bind(self, rows: LeafRows) -> None:
        """Let the frame have these rows from now on."""
        getattr(self.partition, "values_$eq")(rows.in_java(self._jvm))

    def release(self) -> None:
        """Let the frame have no rows: the JVM may forget those that it has."""
        self.bind(self._nothing)


@functools.lru_cache(maxsize=4)
def converters(jvm: JVMView) -> tuple[JavaObject, JavaObject]:
    """Spark's Arrow converters and Scala's sequences over arrays; py4j asks the JVM about each part of a name."""
    arrow = scala_object(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters")
    return arrow, scala_object(jvm.scala.collection.immutable, "ArraySeq")


def leaf_reader(handles: JavaHandles, jvm: JVMView) -> JavaObject:
    """A handle that lets a leaf's partition have the rows of a file: what ``bind`` does, for a call that does more."""
    arrow, sequences = converters(jvm)
    owner, batches = "org.apache.spark.sql.execution.arrow.ArrowConverters$", "[[B"
    read = handles.method(owner, "readArrowStreamFromFile", batches, "java.lang.String").bindTo(arrow)
    made = "scala.collection.immutable.ArraySeq"
    wrap = handles.method(f"{made}$", "unsafeWrapArray", made, "java.lang.Object").bindTo(sequences)
    rows = handles.with_argument_from(handles.typed(wrap, "scala.collection.immutable.Seq", batches), 0, read)
    partition = "org.apache.spark.rdd.ParallelCollectionPartition"
    store = handles.method(partition, "values_$eq", VOID, "scala.collection.immutable.Seq")
    return handles.with_argument_from(store, 1, rows)


def scala_object(package: JavaPackage, name: str) -> JavaObject:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
