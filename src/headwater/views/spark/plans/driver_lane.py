"""The driver lane: a kept plan run on the driver's own thread, without a Spark job.

What it is: ``DriverLane``, and ``LanePlan``, a frame of one partition that it runs. Catalyst, generated code and every
operator are Spark's; only the scheduler is left out, which takes 20 to 40 ms for a job of a thousand rows. The thread
of the JVM that serves this Python thread iterates over the plan's one partition, within a task context of its own.
A run is one call of Java, a handle that reads the leaves' rows, makes the task context, iterates, and clears up.
Invariants: the runs of a thread share a task memory manager, and each gives all of it back, also after an error;
settings are those that the plan was made with. Plans that remember rows (exchange, broadcast, subquery) never come
here, and one that ran here is never sent as a job: a sort keeps its sorter.
Not here: which plans may come (``plan_cache.py``); whether this Spark can do it (``lane_check.py``); Python functions,
which need a job.
Read next: ``java_handles.py``, ``plan_cache.py``, ``lane_check.py``.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from headwater.views.spark.plans.arrow_leaves import ArrowLeaf, LeafRows, SharedFile, leaf_reader, scala_object
from headwater.views.spark.plans.java_handles import BOOLEAN, INT, LONG, VOID, JavaHandles

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import DataFrame, SparkSession

FIRST_TASK = 1 << 40  # no task of Spark's own has such a number
T = TypeVar("T")
LENGTH = struct.Struct(">i")

# The types of a run's parameters.
CONTEXT, MEMORY = "org.apache.spark.TaskContextImpl", "org.apache.spark.memory.TaskMemoryManager"
STREAM, ROWS, PARTITION = "java.io.DataOutputStream", "org.apache.spark.rdd.RDD", "org.apache.spark.Partition"
ERROR, OBJECT = "java.lang.Throwable", "java.lang.Object"


class LaneInterrupted(Exception):
    """A run was asked to end."""


class LaneThread:
    """What a thread's runs use one after the other; after one that failed it is made anew.

    The rows of leaves go by files, and so do those that come back: an answer of py4j took 44 ms from 10 KB on.
    """

    def __init__(self, lane: DriverLane, number: int) -> None:
        io = lane.jvm.java.io
        self.answer = SharedFile()
        stream = io.DataOutputStream(io.FileOutputStream(self.answer.path, True))
        self._leaves: list[SharedFile] = []
        self._handles = lane.handles
        self._own = (lane.new_memory(number), stream)
        self._arguments: dict[int, JavaObject] = {}  # by the number of leaves

    def give(self, tables: Sequence[LeafRows]) -> JavaObject:
        """Put the rows of a plan's leaves where Java reads them; returns the arguments for the plan's handle."""
        count = len(tables)
        while len(self._leaves) < count:
            self._leaves.append(SharedFile())
        for file, rows in zip(self._leaves, tables, strict=False):
            file.write(rows.encoded)
        if count not in self._arguments:
            paths = [file.path for file in self._leaves[:count]]
            self._arguments[count] = self._handles.arguments(*self._own, *paths)
        return self._arguments[count]

    def take(self) -> list[bytes]:
        """The record batches that a run has answered, and no file holds any rows."""
        answer = self.answer.read()
        for file in (self.answer, *self._leaves):
            file.clear()
        return _split(answer)


class DriverLane:
    """What all runs in one JVM share."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: JVMView = spark.sparkContext._jvm
        env = spark.sparkContext._jsc.sc().env()
        self.jvm = jvm
        self.handles = JavaHandles(spark)
        # Fields, since py4j cannot call methods of SparkEnv: a class of protobuf is missing.
        self._memory = _field(jvm, env, "org.apache.spark.SparkEnv", "_memoryManager")
        self._numbers = itertools.count(FIRST_TASK)
        self._threads = threading.local()
        self._running = jvm.java.util.concurrent.ConcurrentLinkedQueue()  # the contexts of runs under way
        self._interrupts = 0
        self._cores: int = spark.sparkContext.defaultParallelism
        self._beside: ThreadPoolExecutor | None = None
        task = next(self._numbers)
        self._introduce(task, _field(jvm, env, "org.apache.spark.SparkEnv", "blockManager"))
        self.new_context = self._new_context(task, _field(jvm, env, "org.apache.spark.SparkEnv", "metricsSystem"))
        self.run_within = self._run_within()
        self.read_leaf = leaf_reader(self.handles, jvm)

    def _introduce(self, task: int, blocks: JavaObject) -> None:
        """Tell the block manager of the runs' task: it locks what a scan of files shares for the task."""
        register = self.handles.method("org.apache.spark.storage.BlockManager", "registerTask", VOID, LONG)
        self.handles.fixed(register, 0, blocks, task).invokeWithArguments(self.handles.arguments())

    def _new_context(self, task: int, metrics: JavaObject) -> JavaObject:
        """A handle that makes a task context of a memory manager and settings."""
        package = self.jvm.org.apache.spark
        resources = getattr(package.TaskContextImpl, "$lessinit$greater$default$12")()
        task_metrics = scala_object(package.executor, "TaskMetrics").empty()
        made = self.handles.constructor(
            CONTEXT,
            *(INT, INT, INT, LONG, INT, INT, MEMORY, "java.util.Properties"),
            *("org.apache.spark.metrics.MetricsSystem", "org.apache.spark.executor.TaskMetrics"),
            *("scala.math.BigDecimal", "scala.collection.immutable.Map"),
        )
        made = self.handles.fixed(made, 8, metrics, task_metrics, None, resources)
        return self.handles.fixed(made, 0, 0, 0, 0, task, 0, 1)

    def _run_within(self) -> JavaObject:
        """A handle that runs a partition of an RDD within a context and its memory, and answers to a stream."""
        handles, package = self.handles, self.jvm.org.apache.spark
        context, current = "org.apache.spark.TaskContext", scala_object(package, "TaskContext")
        rows = handles.method(ROWS, "iterator", "scala.collection.Iterator", PARTITION, context)
        rows = handles.typed(rows, "scala.collection.Iterator", ROWS, PARTITION, CONTEXT)
        write = handles.method(
            "org.apache.spark.api.python.PythonRDD$", "writeIteratorToStream", VOID, "scala.collection.Iterator", STREAM
        ).bindTo(scala_object(package.api.python, "PythonRDD"))
        run = handles.with_argument_from(write, 0, rows)
        run = handles.reordered(run, VOID, (CONTEXT, MEMORY, STREAM, ROWS, PARTITION), 3, 4, 0, 2)
        # Frees Arrow vectors, hash tables, sorters.
        complete = handles.method(CONTEXT, "markTaskCompleted", VOID, "scala.Option")
        complete = handles.fixed(complete, 1, scala_object(self.jvm.scala, "None"))
        run = handles.finally_(run, handles.ignoring(complete, 0, ERROR))
        free = handles.typed(handles.method(MEMORY, "cleanUpAllAllocatedMemory", LONG), VOID, MEMORY)
        run = handles.finally_(run, handles.ignoring(free, 0, ERROR, CONTEXT))
        forget = handles.method("java.util.Collection", "remove", BOOLEAN, OBJECT).bindTo(self._running)
        run = handles.finally_(run, handles.ignoring(handles.typed(forget, VOID, CONTEXT), 0, ERROR))
        unset = handles.method("org.apache.spark.TaskContext$", "unset", VOID).bindTo(current)
        run = handles.finally_(run, handles.ignoring(unset, 0, ERROR))
        note = handles.method("java.util.Collection", "add", BOOLEAN, OBJECT).bindTo(self._running)
        run = handles.after(handles.typed(note, VOID, CONTEXT), run)
        use = handles.method("org.apache.spark.TaskContext$", "setTaskContext", VOID, context).bindTo(current)
        return handles.after(handles.typed(use, VOID, CONTEXT), run)

    def new_memory(self, number: int) -> JavaObject:
        """A task memory manager."""
        return self.jvm.org.apache.spark.memory.TaskMemoryManager(self._memory, number)

    def memory_used(self) -> int:
        """Bytes of execution memory that are in use, by runs here and by tasks of jobs."""
        return int(self._memory.executionMemoryUsed())

    def under_way(self) -> int:
        """How many runs there are now."""
        return int(self._running.size())

    def interrupt(self) -> None:
        """Ask all runs to end with an error, as a job's tasks are asked when the job is cancelled."""
        self._interrupts += 1
        for context in self._running.toArray():
            context.markInterrupted("the tick was given up")

    def side_by_side(self, runs: Sequence[Callable[[], T]]) -> list[T]:
        """What some runs of different plans give: the first one in this thread, the others beside it."""
        if self._beside is None:
            self._beside = ThreadPoolExecutor(max_workers=self._cores, thread_name_prefix="headwater-lane")
        others = [self._beside.submit(run) for run in runs[1:]]
        try:
            first = runs[0]()
        finally:
            wait(others)
        return [first, *(other.result() for other in others)]

    def run(self, plan: LanePlan, tables: Sequence[LeafRows]) -> list[bytes]:
        """The record batches that a plan gives over these tables."""
        if not hasattr(self._threads, "own"):
            self._threads.own = LaneThread(self, next(self._numbers))
        own: LaneThread = self._threads.own
        interrupts = self._interrupts
        try:
            plan.handle.invokeWithArguments(own.give(tables))
        except Exception as error:
            del self._threads.own
            if interrupts != self._interrupts:
                raise LaneInterrupted("the tick was given up") from error
            raise
        return own.take()


class LanePlan:
    """A frame of one partition, ready to be run again and again. One thread at a time."""

    def __init__(self, lane: DriverLane, frame: DataFrame, leaves: Sequence[ArrowLeaf]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._lane = lane
        self.schema = to_arrow_schema(frame.schema, timezone="UTC")
        java: JavaObject = frame._jdf
        settings = lane.jvm.java.util.Properties()
        given = frame.sparkSession._jsparkSession.sessionState().conf().getAllConfs()
        settings.putAll(lane.jvm.scala.jdk.javaapi.CollectionConverters.asJava(given))
        rdd = java.toArrowBatchRdd()
        partitions = rdd.partitions()
        if len(partitions) > 1:
            raise RuntimeError(f"a plan has {len(partitions)} partitions, not one")
        self.handle: JavaObject = None  # of a memory manager, a stream and the paths of the leaves' rows
        if len(partitions):  # else Spark saw that there can be no rows
            handles = lane.handles
            run = handles.fixed(lane.run_within, 3, rdd, partitions[0])
            self.handle = handles.after(handles.fixed(lane.new_context, 1, settings), run)
            for leaf in reversed(leaves):
                self.handle = handles.with_argument_from(self.handle, 2, lane.read_leaf.bindTo(leaf.partition))

    def run(self, tables: Sequence[LeafRows]) -> pa.Table:
        """The rows, for these rows of the plan's leaves."""
        batches = self._lane.run(self, tables) if self.handle is not None else []
        read = [pa.ipc.read_record_batch(pa.py_buffer(batch), self.schema) for batch in batches]
        return pa.Table.from_batches(read, self.schema)


def _split(content: bytes) -> list[bytes]:
    """Byte strings, each behind its length.

    >>> _split(b"\\0\\0\\0\\2ab\\0\\0\\0\\0\\0\\0\\0\\1c")
    [b'ab', b'', b'c']
    """
    found, at = [], 0
    while at < len(content):
        (length,) = LENGTH.unpack_from(content, at)
        # A copy, which begins at an aligned address: Arrow's kernels warn of others.
        found.append(content[at + LENGTH.size : at + LENGTH.size + length])
        at += LENGTH.size + length
    return found


def _field(jvm: JVMView, owner: JavaObject, class_name: str, name: str) -> JavaObject:
    field = jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
