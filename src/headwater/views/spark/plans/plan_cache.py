"""Cached plans: planned once by Spark, run again in every tick.

What it is: a small query over tables that are here. Spark takes some 0.3 s to analyse, optimise and plan a join with a
sum, 0.04 s to run it over a thousand rows as a job, and 2 ms without a job. So the plan over leaves whose rows can be
replaced (``arrow_leaves.py``) is kept, and run on the driver's thread (``driver_lane.py``).
Invariants: a plan is kept only when it has nothing that remembers rows of an earlier run: no exchange, no subquery,
nothing that is not known to be safe. Any other query is planned each time, runs as a job, and gives the same rows. A
run in the lane that fails is tried as a job, so that an error is always the one that Spark gives.
Not here: what to run (``views/stages/stage_run.py``); the settings of the session (``views/stages/view_sessions.py``).
Read next: ``views/stages/view_sessions.py``.
"""

from __future__ import annotations

import logging
import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views import thresholds
from headwater.views.spark.plans.arrow_leaves import ArrowLeaf, LeafRows
from headwater.views.spark.plans.driver_lane import DriverLane, LaneInterrupted, LanePlan
from headwater.views.spark.plans.file_leaves import FileLeaf, FileRows
from headwater.views.spark.plans.lane_check import lane_of
from headwater.views.spark.plans.single_partition import in_one_task
from headwater.views.spark.scans import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("headwater.views")

NO_FILES: Mapping[str, FileRows] = {}
FAST_MAP_LEFT_OUT = "spark.sql.codegen.aggregate.map.twolevel.partialOnly"  # where partial and final are one step
KEPT_MAX = 16  # plans of one view
RELEASED_BYTES_MIN = 1 << 20
AHEAD_RUNS = 3  # of a plan that is made ahead: Java has compiled its code then

# What a small session needs for a plan without exchanges. Joins of inputs that are in one partition happen in place.
SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(1 << 62),
    # Spark takes a join to be as large as the product of its inputs: let the inputs seem small.
    "spark.sql.defaultSizeInBytes": "1000",
    "spark.sql.sources.fileCompressionFactor": "0.000001",
    "spark.sql.execution.arrow.localRelationThreshold": "0",  # a leaf is never a part of the plan's text
    "spark.sql.execution.topKSortFallbackThreshold": "0",  # a sort and a limit; a top-k may exchange rows inside
    "spark.sql.files.openCostInBytes": str(1 << 40),  # a file is never split
    "spark.sql.files.maxPartitionBytes": str(1 << 40),
    "spark.sql.parquet.filterPushdown": "false",
    # It would put a semi join below the leaf's coalescing, where it needs an exchange.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin",
}

# Operators that compute their rows again whenever the plan is run.
FORGETFUL = frozenset(
    [
        *("Scan", "LocalTableScan", "Project", "Filter", "Generate", "Expand", "Union", "Coalesce"),
        *("FileScan", "ColumnarToRow"),
        *("Sort", "GlobalLimit", "LocalLimit", "Window", "WindowGroupLimit"),
        *("HashAggregate", "SortAggregate", "ObjectHashAggregate"),
        *("SortMergeJoin", "ShuffledHashJoin", "CartesianProduct"),
    ]
)
OPERATOR = re.compile(r"^[\s:+\-]*(?:\*\(\d+\) )?(\w+)")


@dataclass(frozen=True)
class CachedQuery:
    """A query's text, and those that it mentions by name."""

    sql: str
    steps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PlanKey:
    """What a plan goes by: a query, the columns of its leaves, and how many rows it is planned for."""

    question: CachedQuery
    leaves: tuple[tuple[str, pa.Schema], ...]
    few: bool
    compiled: bool
    built: tuple[str, ...] = ()  # the leaves that are small beside the largest: hash tables are made of these
    # Of a slice: the thread, of those that answer questions at the same time. Each needs plans of its own.
    place: int | None = None
    in_files: tuple[tuple[str, pa.Schema], ...] = ()  # leaves that are read from files

    @cached_property
    def _hash(self) -> int:
        return hash((self.question, self.leaves, self.few, self.compiled, self.built, self.place, self.in_files))

    def __hash__(self) -> int:
        return self._hash  # of schemas it takes 20 µs, and a run asks for it several times

    @staticmethod
    def of(
        question: CachedQuery,
        tables: Mapping[str, LeafRows],
        place: int | None = None,
        files: Mapping[str, FileRows] = NO_FILES,
    ) -> PlanKey:
        """The key of a question over these tables."""
        few = _most_bytes(tables) <= thresholds.FEW_BYTES_MAX and not files
        leaves = tuple((name, rows.schema) for name, rows in tables.items())
        in_files = tuple((name, rows.schema) for name, rows in files.items())
        compiled, built = _worth_compiling(tables), _worth_building(tables, files)
        return PlanKey(question, leaves, few, compiled, built, place, in_files)


@dataclass(frozen=True)
class Question:
    """A query, and the rows of its leaves: tables, and at most one that is in a file."""

    query: CachedQuery
    tables: Mapping[str, LeafRows]
    files: Mapping[str, FileRows]

    @property
    def rows(self) -> int:
        """How many rows are read to answer it."""
        return sum([*(each.table.num_rows for each in self.tables.values()), *(f.rows for f in self.files.values())])


@dataclass
class KeptPlan:
    """A frame over leaves whose rows can be replaced, and the way in which it is run."""

    leaves: Mapping[str, ArrowLeaf]
    frame: DataFrame
    lane: LanePlan | None  # None: as a Spark job
    crosses: bool = False  # whether it joins each row of one leaf with each of another
    file: FileLeaf | None = None  # what it reads from a file

    def run(self, tables: Mapping[str, LeafRows], files: Mapping[str, FileRows] = NO_FILES) -> pa.Table:
        """The rows, for these rows of its leaves."""
        for rows in files.values():
            assert self.file is not None
            self.file.bind(rows)
        if self.lane is not None:
            return self.lane.run([tables[name] for name in self.leaves])
        for name, leaf in self.leaves.items():
            leaf.bind(tables[name])
        return collect(self.frame)

    def release(self, tables: Mapping[str, LeafRows]) -> None:
        """Do not hold large tables until the next run, which may be far off."""
        for name, leaf in self.leaves.items():
            if name in tables and _is_large(tables[name]):
                leaf.release()


class PlanCache:
    """The cached plans of one view."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.reused = 0  # questions that a kept plan answered, since somebody set it to 0
        self.in_lane = 0  # those that were answered without a Spark job
        self.made = 0  # plans that were kept, since the beginning
        self._kept: OrderedDict[tuple[PlanKey, DriverLane | None], KeptPlan] = OrderedDict()

    def kept_keys(self) -> list[PlanKey]:
        """The keys of the plans that are kept, those used last at the end."""
        return [key for key, _ in list(self._kept) if not key.in_files]  # these are planned with a file at hand

    def plan_ahead(self, key: PlanKey) -> bool:
        """Plan a question before there are rows; False when its plan is kept already, or cannot be."""
        lane = lane_of(self.spark)
        if (key, lane) in self._kept:
            return False
        tables = {name: LeafRows(schema.empty_table()) for name, schema in key.leaves}
        kept, keeps = self._plan(key, tables, lane)
        if keeps:
            self._keep(key, lane, kept)
            for _ in range(AHEAD_RUNS):
                kept.run(tables)
        return keeps

    def collect(self, question: CachedQuery, tables: Mapping[str, LeafRows]) -> pa.Table:
        """The question's answer over these tables."""
        try:
            return self._collect(question, tables)
        finally:
            for kept in self._kept.values() if any(map(_is_large, tables.values())) else ():
                kept.release(tables)

    def collect_all(self, questions: Sequence[Question], lanes: int) -> list[pa.Table] | None:
        """The answers of several questions, in so many threads of the lane; None when that cannot be, or failed."""
        lane = lane_of(self.spark)
        if lane is None:
            return None
        shares: list[list[tuple[KeptPlan, Question]]] = []
        for place, given in enumerate(_shares(questions, lanes)):
            # A plan is run by one thread at a time: each thread has its own.
            shares.append([(self._in_place(lane, question, place), question) for question in given])
        plans = [kept for share in shares for kept, _ in share]
        if any(kept.lane is None or kept.crosses for kept in plans):
            return None
        try:
            answers = lane.side_by_side([partial(_run_all, share) for share in shares])
        except LaneInterrupted:
            raise
        except Exception as error:  # a Spark job fails as well, and says it in Spark's own way, or it is the lane
            logger.warning("slices of a query run as a Spark job, since the driver lane failed: %s", error)
            return None
        finally:
            for share in shares:
                for kept, question in share:
                    kept.release(question.tables)
        self.in_lane += len(questions)
        return [answer for some in answers for answer in some]

    def _in_place(self, lane: DriverLane, question: Question, place: int) -> KeptPlan:
        """The plan of a question that others are answered beside."""
        key = PlanKey.of(question.query, question.tables, place, question.files)
        kept = self._kept.get((key, lane))
        if kept is not None:
            self._kept.move_to_end((key, lane))
            self.reused += 1
            return kept
        kept, keeps = self._plan(key, question.tables, lane, question.files)
        if keeps:
            self._keep(key, lane, kept)
        return kept

    def _collect(self, question: CachedQuery, tables: Mapping[str, LeafRows]) -> pa.Table:
        lane = lane_of(self.spark)
        if lane is None and _most_bytes(tables) > thresholds.TASK_BYTES_MAX:  # the rows would travel inside the task
            frames = {name: local_frame(self.spark, rows.table) for name, rows in tables.items()}
            return collect(self._frame(question, frames, few=False, compiled=True))
        key = PlanKey.of(question, tables)
        kept = self._kept.get((key, lane))
        if kept is not None and kept.crosses and _pairs(tables) > thresholds.LANE_PAIRS_MAX:
            kept = None
        if kept is None:
            kept, keeps = self._plan(key, tables, lane)
            if keeps:
                self._keep(key, lane, kept)
        else:
            self._kept.move_to_end((key, lane))
            self.reused += 1
        if kept.lane is None:
            return kept.run(tables)
        try:
            answer = kept.run(tables)
        except LaneInterrupted:
            raise
        except Exception as error:
            # As a job: either it fails as well, and says it in Spark's own way, or the lane does not know this plan.
            job, _ = self._plan(key, tables, None)
            answer = job.run(tables)
            logger.warning("a query runs as a Spark job from now on, since the driver lane failed: %s", error)
            self._kept[key, lane] = job
            return answer
        self.in_lane += 1
        return answer

    def _keep(self, key: PlanKey, lane: DriverLane | None, kept: KeptPlan) -> None:
        self.made += 1
        self._kept[key, lane] = kept
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def _plan(
        self,
        key: PlanKey,
        tables: Mapping[str, LeafRows],
        lane: DriverLane | None,
        files: Mapping[str, FileRows] = NO_FILES,
    ) -> tuple[KeptPlan, bool]:
        """The question planned over these tables, and whether the plan can be run again over others."""
        leaves = {name: ArrowLeaf(self.spark, rows.schema) for name, rows in tables.items()}
        frames = {name: leaf.frame for name, leaf in leaves.items()}
        frames |= {name: rows.frame(self.spark) for name, rows in files.items()}
        frame = self._frame(
            key.question, frames, few=key.few, compiled=key.compiled, built=key.built, sliced=key.place is not None
        )
        plan = plan_of(frame)
        crosses = "CartesianProduct" in plan
        keeps = is_forgetful(plan) and not (crosses and _pairs(tables) > thresholds.LANE_PAIRS_MAX)
        file = _file_leaf(frame) if files and keeps else None
        runs = _in_lane(lane, frame, leaves.values()) if keeps and (file is not None or not files) else None
        return KeptPlan(leaves, frame, runs, crosses, file), keeps

    def _frame(
        self,
        question: CachedQuery,
        frames: Mapping[str, DataFrame],
        *,
        few: bool,
        compiled: bool,
        built: tuple[str, ...] = (),
        sliced: bool = False,
    ) -> DataFrame:
        """``sliced``: many rows of one flow, which are grouped."""
        of_small = frozenset(built)
        # The map in generated code, which has room for 65 000 groups at once, is for many rows and few groups.
        self.spark.conf.set(FAST_MAP_LEFT_OUT, str(not sliced).lower())
        self.spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
        for name, given in frames.items():
            given.createOrReplaceTempView(name)
        for name, sql in question.steps:
            step = self.spark.sql(in_one_task(sql, few=few, built=of_small, grouped=sliced))
            # The parts of a union are as many partitions, which an aggregate would exchange.
            (step.coalesce(1) if "UNION" in sql.upper() else step).createOrReplaceTempView(name)
        frame = self.spark.sql(in_one_task(question.sql, few=few, built=of_small))
        # As the last step Spark has limits of another kind, which may exchange rows.
        gathered = any(word in question.sql.upper() for word in ("LIMIT", "UNION"))
        return frame.coalesce(1) if gathered else frame


def _in_lane(lane: DriverLane | None, frame: DataFrame, leaves: Iterable[ArrowLeaf]) -> LanePlan | None:
    try:
        return None if lane is None else LanePlan(lane, frame, list(leaves))
    except RuntimeError as error:
        logger.warning("a query runs as a Spark job: %s", error)
        return None


def _file_leaf(frame: DataFrame) -> FileLeaf | None:
    try:
        return FileLeaf(frame)
    except RuntimeError as error:
        logger.warning("a query over a file runs as a Spark job: %s", error)
        return None


def collect(frame: DataFrame) -> pa.Table:
    """A frame's rows by a Spark job: what ``toArrow`` does, less the questions about settings that it asks the JVM."""
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
    return pa.Table.from_batches(batches)


def _run_all(share: Sequence[tuple[KeptPlan, Question]]) -> list[pa.Table]:
    """One thread's part of the work."""
    return [kept.run(question.tables, question.files) for kept, question in share]


def _shares(questions: Sequence[Question], most: int) -> list[list[Question]]:
    """The questions dealt out, the largest first, each to whom has the least to do."""
    shares: list[list[Question]] = [[] for _ in range(min(most, len(questions)))]
    for question in sorted(questions, key=lambda each: -each.rows):
        min(shares, key=lambda share: sum(each.rows for each in share)).append(question)
    return shares


def _is_large(rows: LeafRows) -> bool:
    return rows.bytes > RELEASED_BYTES_MIN


def _most_bytes(tables: Mapping[str, LeafRows]) -> int:
    return max((rows.bytes for rows in tables.values()), default=0)


def _pairs(tables: Mapping[str, LeafRows]) -> int:
    return math.prod(max(1, rows.table.num_rows) for rows in tables.values())


def _worth_building(tables: Mapping[str, LeafRows], files: Mapping[str, FileRows]) -> tuple[str, ...]:
    """The leaves of which hash tables are to be made, however large the others are."""
    if files:  # what is read from a file is the largest
        return tuple(name for name, rows in tables.items() if rows.bytes <= thresholds.BROADCAST_BYTES_MAX)
    most = max((rows.table.num_rows for rows in tables.values()), default=0)
    if most < thresholds.BUILT_ROWS_MIN:  # by the right side, as ever: another plan would gain nothing
        return ()
    return tuple(
        name
        for name, rows in tables.items()
        if rows.table.num_rows * thresholds.BUILT_FACTOR <= most and rows.bytes <= thresholds.FEW_BYTES_MAX
    )


def _worth_compiling(tables: Mapping[str, LeafRows]) -> bool:
    rows = sum(each.table.num_rows for each in tables.values())
    return len(tables) <= thresholds.COMPILED_TABLES_MAX or rows >= thresholds.COMPILED_TABLE_ROWS_MIN * len(tables)


def plan_of(frame: DataFrame) -> str:
    """The physical plan, as Spark prints it."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_forgetful(plan: str) -> bool:
    """Whether running the plan again reads everything again.

    >>> is_forgetful("*(1) Project [a#1]\\n+- Coalesce 1\\n   +- *(1) Scan ExistingRDD[a#1]")
    True
    >>> is_forgetful("*(2) Sort [a#1 ASC]\\n+- Exchange hashpartitioning(a#1, 1)\\n   +- Scan ExistingRDD[a#1]")
    False
    """
    return all(
        (found := OPERATOR.match(line)) is not None and found[1] in FORGETFUL for line in plan.splitlines() if line
    )
