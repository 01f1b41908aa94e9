"""The driver lane: a kept plan run on the driver's own thread, without a Spark job.

What it is: ``DriverLane``, and ``LanePlan``, a frame of one partition that it runs. Catalyst, generated code and every
operator are Spark's; only the scheduler is left out, which takes 20 to 40 ms for a job of a thousand rows. The thread
of the JVM that serves this Python thread iterates over the plan's one partition, within a task context of its own.
Invariants: the runs of a thread share a task memory manager, and each gives all of it back, also after an error;
settings are those that the plan was made with. Plans that remember rows (exchange, broadcast, subquery) never come
here, and one that ran here is never sent as a job: a sort keeps its sorter.
Not here: which plans may come (``plan_cache.py``); whether this Spark can do it (``lane_check.py``); Python functions,
which need a job.
Read next: ``plan_cache.py``, ``lane_check.py``.
"""

from __future__ import annotations

import itertools
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.views.spark.plans.arrow_leaves import SharedFile, scala_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_TASK = 1 << 40  # no task of Spark's own has such a number
LENGTH = struct.Struct(">i")


class LaneInterrupted(Exception):
    """A run was asked to end."""


@dataclass(frozen=True)
class LaneThread:
    """What a thread's runs use one after the other; after one that failed it is made anew.

    The rows come back by a file, to which a stream of the JVM appends: an answer of py4j took 44 ms from 10 KB on.
    """

    file: SharedFile
    stream: Any
    memory: Any  # a task memory manager, all of which each run gives back


class DriverLane:
    """What all runs in one JVM share."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        env = spark.sparkContext._jsc.sc().env()
        package = jvm.org.apache.spark
        self.jvm = jvm
        # Fields, since py4j cannot call methods of SparkEnv: a class of protobuf is missing.
        self._memory = _field(jvm, env, "org.apache.spark.SparkEnv", "_memoryManager")
        self._metrics = _field(jvm, env, "org.apache.spark.SparkEnv", "metricsSystem")
        self._manager, self._context = package.memory.TaskMemoryManager, package.TaskContextImpl
        self._context._converters = ()  # py4j asks of each number whether it is a list, a map or a date
        self._resources = getattr(self._context, "$lessinit$greater$default$12")()
        self._task_metrics = scala_object(package.executor, "TaskMetrics").empty()
        self._none = scala_object(jvm.scala, "None")
        self._current = scala_object(package, "TaskContext")
        self._python_rdd = scala_object(package.api.python, "PythonRDD")
        self._numbers = itertools.count(FIRST_TASK)
        self._threads = threading.local()
        self._running: dict[int, Any] = {}  # the contexts of runs under way

    def memory_used(self) -> int:
        """Bytes of execution memory that are in use, by runs here and by tasks of jobs."""
        return int(self._memory.executionMemoryUsed())

    def interrupt(self) -> None:
        """Ask all runs to end with an error, as a job's tasks are asked when the job is cancelled."""
        for context in list(self._running.values()):
            context.markInterrupted("the tick was given up")

    def run(self, plan: LanePlan) -> list[bytes]:
        """The record batches that a plan gives."""
        number = next(self._numbers)
        own = self._of_thread()
        context = self._context(
            0, 0, 0, number, 0, 1, own.memory, plan.settings, self._metrics, self._task_metrics, None, self._resources
        )
        own.file.clear()
        self._running[number] = context
        self._current.setTaskContext(context)
        try:
            self._python_rdd.writeIteratorToStream(plan.rdd.iterator(plan.partition, context), own.stream)
        except Exception as error:
            del self._threads.own
            if context.isInterrupted():
                raise LaneInterrupted("the tick was given up") from error
            raise
        finally:
            del self._running[number]
            try:
                context.markTaskCompleted(self._none)  # frees Arrow vectors, hash tables, sorters
                own.memory.cleanUpAllAllocatedMemory()
            finally:
                self._current.unset()
        return _split(own.file.read())

    def _of_thread(self) -> LaneThread:
        if not hasattr(self._threads, "own"):
            file, io = SharedFile(), self.jvm.java.io
            stream = io.DataOutputStream(io.FileOutputStream(file.path, True))
            self._threads.own = LaneThread(file, stream, self._manager(self._memory, next(self._numbers)))
        found: LaneThread = self._threads.own
        return found


class LanePlan:
    """A frame of one partition, ready to be run again and again. One thread at a time."""

    def __init__(self, lane: DriverLane, frame: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._lane = lane
        self.schema = to_arrow_schema(frame.schema, timezone="UTC")
        java: Any = frame._jdf
        self.settings = lane.jvm.java.util.Properties()
        settings = frame.sparkSession._jsparkSession.sessionState().conf().getAllConfs()
        self.settings.putAll(lane.jvm.scala.jdk.javaapi.CollectionConverters.asJava(settings))
        self.rdd = java.toArrowBatchRdd()
        partitions = self.rdd.partitions()
        if len(partitions) > 1:
            raise RuntimeError(f"a plan has {len(partitions)} partitions, not one")
        self.partition = partitions[0] if len(partitions) else None  # None: Spark saw that there can be no rows

    def run(self) -> pa.Table:
        """The rows, for what the plan's leaves hold now."""
        batches = self._lane.run(self) if self.partition is not None else []
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


def _field(jvm: Any, owner: Any, class_name: str, name: str) -> Any:
    field = jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
