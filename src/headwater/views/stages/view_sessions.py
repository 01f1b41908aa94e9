"""View sessions: the two Spark sessions in which one view's stages run.

What it is: ``small`` is set up for cached plans (one task, no exchanges), ``large`` for scans by all cores. Both belong
to one view, so that views run side by side without seeing each other's temporary tables.
Invariants: results come back with exactly the schema asked for; files that Spark writes lie in a scratch folder, which
a tick empties at its end, unless a trace has adopted them. With a ``place`` executors write to the object store, and
keep what is of this tick only on their own disks: nothing of it is on a disk that they share with the driver.
Not here: what to run (``stage_run.py``).
Read next: ``views/spark/spark_session.py`` for the settings.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.log.schema.ddl import to_ddl
from headwater.views import thresholds
from headwater.views.spark.adaptive_plan import from_there, rows_shuffled
from headwater.views.spark.plans.lane_check import lane_of
from headwater.views.spark.plans.plan_cache import SETTINGS as PLAN_CACHE
from headwater.views.spark.plans.plan_cache import CachedQuery, PlanCache, Question, collect
from headwater.views.spark.scans import SCRATCH, fitted, nullable, scan
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.relation import BoundRows
from headwater.views.state.delta import Delta
from headwater.views.state.remote import executor_files
from headwater.views.state.remote.executor_files import StagePlace
from headwater.views.state.remote.stored_file import StoredFile
from headwater.views.state.run import read_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # Spark describes each plan it runs; the longer description takes 2 ms
    **PLAN_CACHE,
}
LARGE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
BOTH = {
    "spark.sql.variable.substitute": "false",  # of '${env:HOME}' in a text Spark would make a variable's value
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",  # listing files must not start a Spark job
}

Answer = str | Callable[..., Any]  # SQL, or a user's function from frames to a frame
Steps = Sequence[tuple[str, str]]


class ViewSessions:
    """Where one view's stages run."""

    def __init__(self, spark: SparkSession, scratch: Path, app_folder: Path | None = None) -> None:
        self.small = spark.newSession()
        self.large = spark.newSession()
        cores = spark.sparkContext.defaultParallelism
        for session, settings in ((self.small, SMALL), (self.large, LARGE)):
            for name, value in {**BOTH, **settings}.items():
                session.conf.set(name, value)
        self.large.conf.set("spark.sql.shuffle.partitions", str(cores))
        if not executor_files.on_cluster(
            spark
        ):  # elsewhere rows that are here travel in the plan: nobody else may see the file
            self.large.conf.set(SCRATCH, str(scratch))
        self.place: StagePlace | None = None  # of the stage that runs; None: executors see this machine's files
        self.scratch = scratch
        self.app_folder = app_folder  # for what a stage keeps for the next process; None: nothing is kept
        self.plan_cache = PlanCache(self.small)
        self.tick = 0  # that is being computed
        self.remembered: dict[str, Any] = {}  # what a stage keeps in memory from tick to tick, by its name
        self.rows_read = 0
        self.actions = 0
        self._numbers = itertools.count()
        self._wrote = False  # into the scratch folder, since it was emptied
        self._left: list[tuple[StagePlace, Sequence[StoredFile]]] = []  # on the store, and of no use after the tick
        self._kept: list[DataFrame] = []  # on the executors' disks

    def count_anew(self) -> None:
        """Begin to count rows read, actions and plans reused."""
        self.rows_read = self.actions = self.plan_cache.reused = self.plan_cache.in_lane = 0

    def frame(
        self, sql: Answer, bound: Mapping[str, BoundRows], *, large: bool = False, steps: Steps = ()
    ) -> DataFrame:
        """The query's frame, its tables bound to these rows. A function gets the tables as frames, in their order.

        The query may mention ``steps``, and each of these those before it. They are one text, which Spark analyses
        once: a temporary table for each takes Java 10 ms more.
        """
        spark = self.large if large else self.small
        held = _smallest(bound) if large else frozenset()
        for name, rows in bound.items():
            leaf = rows.frame(spark)
            (leaf.hint("broadcast") if name in held else leaf).createOrReplaceTempView(name)
            self.rows_read += rows.count
        if isinstance(sql, str):
            return spark.sql(with_steps(sql, steps))
        result: DataFrame = sql(*(spark.table(name) for name in bound))
        return result

    def collect(self, sql: Answer, bound: Mapping[str, BoundRows], schema: pa.Schema, steps: Steps = ()) -> pa.Table:
        """A small query's result, here. It may mention ``steps``, queries by name."""
        if not isinstance(sql, str):  # a function may look at the rows while it makes its frame: it is asked each time
            return self.collect_frame(self.frame(sql, bound), schema)
        self.rows_read += sum(rows.count for rows in bound.values())
        self.actions += 1
        leaves = {name: rows.leaf for name, rows in bound.items()}
        return fitted(self.plan_cache.collect(CachedQuery(sql, tuple(steps)), leaves), schema)

    @property
    def has_lane(self) -> bool:
        """Whether small queries run on the driver's own threads."""
        return lane_of(self.small) is not None

    @property
    def cores(self) -> int:
        """How many tasks Spark runs at once."""
        return int(self.small.sparkContext.defaultParallelism)

    def collect_all(self, questions: Sequence[Question], schema: pa.Schema) -> list[pa.Table] | None:
        """The results of some queries, by all cores in the driver lane; None when it cannot do them."""
        answers = self.plan_cache.collect_all(questions, int(self.small.sparkContext.defaultParallelism))
        if answers is None:
            return None
        shared = {id(rows): rows.table.num_rows for each in questions for rows in each.tables.values()}
        self.rows_read += sum(shared.values()) + sum(rows.rows for each in questions for rows in each.files.values())
        self.actions += len(questions)
        return [fitted(answer, schema) for answer in answers]

    def collect_frame(self, frame: DataFrame, schema: pa.Schema) -> pa.Table:
        """A small frame's rows, here."""
        self.actions += 1
        return fitted(collect(frame), schema)

    def write(self, frame: DataFrame, schema: pa.Schema) -> Delta:
        """A large query's result, written by Spark; here as well when it turns out to be little."""
        if self.place is not None:
            return self._stored(self.place, frame, schema)
        files = self._written(frame.select(*map(quoted, schema.names)))
        changes = Delta.written(files, schema)
        if changes.rows <= thresholds.LOCAL_ROWS_MAX:
            return Delta.local(changes.read())
        return changes

    def _stored(self, place: StagePlace, frame: DataFrame, schema: pa.Schema) -> Delta:
        self.actions += 1
        rows, weighed = place.executors.write(frame, place.folder, schema)
        few = weighed.rows <= thresholds.LOCAL_ROWS_MAX
        if few or not place.kept:
            self._left.append((place, rows.files))
        if few:
            return Delta.local(pa.Table.from_batches(rows.read(schema), schema))
        return Delta.on_store(rows, weighed, schema)

    def kept(self, frame: DataFrame) -> DataFrame:
        """A frame whose rows, once they are computed, stay on the executors' disks until the tick ends."""
        from pyspark import StorageLevel

        frame = frame.persist(StorageLevel.DISK_ONLY)
        self._kept.append(frame)
        return frame

    def materialize(self, frame: DataFrame, schema: pa.Schema, *, grouped: bool = False) -> BoundRows:
        """A large query's result, computed once: here when it is little, else in files.

        ``grouped``: the query has just these columns and ends with a GROUP BY, so it is known to be little before it is
        written: writing few rows takes Java as long as planning does.
        """
        if not grouped:
            frame = frame.select(*map(quoted, schema.names))
        else:
            most = rows_shuffled(frame)
            if most is not None and most <= thresholds.SETTLED_ROWS_MAX:
                return BoundRows.of(self.collect_frame(frame, schema))
            frame = from_there(frame)
        if self.place is not None:
            frame = self.kept(frame)
            self.actions += 1
            count = frame.count()
            if count <= thresholds.SETTLED_ROWS_MAX:
                return BoundRows.of(self.collect_frame(frame, schema))
            return BoundRows(schema, count, None, lambda _: frame)
        files = self._written(frame)
        rows = sum(pq.read_metadata(path).num_rows for path in files)
        if rows <= thresholds.SETTLED_ROWS_MAX:
            return BoundRows.of(
                pa.Table.from_batches([b for path in files for b in read_parquet(path, schema)], schema)
            )
        return BoundRows(schema, rows, None, lambda spark: scan(spark, files, schema))

    def empty(self, spark: SparkSession, schema: pa.Schema) -> DataFrame:
        """A frame of no rows, which Java makes by itself: as Arrow they would take it 80 ms more."""
        from pyspark.sql import DataFrame

        java: Any = spark._jvm
        columns = java.org.apache.spark.sql.types.StructType.fromDDL(to_ddl(nullable(schema)))
        nothing = spark._jsparkSession.createDataFrame(java.java.util.ArrayList(), columns)
        return DataFrame(nothing, spark)

    def tidy(self) -> None:
        """Remove what this tick left in the scratch folder."""
        if self._wrote:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self._wrote = False
        for frame in self._kept:
            frame.unpersist()
        for place, files in self._left:
            place.executors.delete(files)
        self._kept, self._left = [], []

    def _written(self, frame: DataFrame) -> list[Path]:
        self.actions += 1
        self._wrote = True
        folder = self.scratch / str(next(self._numbers))
        frame.write.mode("overwrite").parquet(str(folder))
        return sorted(folder.glob("*.parquet"))


def with_steps(sql: str, steps: Steps) -> str:
    """A query and those that it mentions by name, as one text.

    >>> print(with_steps("SELECT * FROM _b", [("_a", "SELECT 1 AS x"), ("_b", "SELECT x + 1 FROM _a")]))
    WITH _a AS (
    SELECT 1 AS x
    ), _b AS (
    SELECT x + 1 FROM _a
    )
    SELECT * FROM _b
    """
    named = ", ".join(f"{name} AS (\n{text}\n)" for name, text in steps)
    return f"WITH {named}\n{sql}" if steps else sql


def _smallest(bound: Mapping[str, BoundRows]) -> frozenset[str]:
    """The smallest leaves whose size is known, as far as they can be held in memory together.

    Of others Spark guesses from the size of their files.
    """
    together, found = 0, []
    known = {name: size for name, rows in bound.items() if (size := rows.bytes) is not None}
    for name in sorted(known, key=known.__getitem__):
        together += known[name]
        if together > thresholds.BROADCAST_BYTES_MAX:
            break
        found.append(name)
    return frozenset(found)
